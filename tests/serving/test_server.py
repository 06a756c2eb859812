"""The model server as its users see it."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from serving.errors import ExecutionError, InvalidArgumentError, NotFoundError, UnavailableError
from serving.server import ModelServer
from tests.serving.models import (
    affine,
    affine_answer,
    ensemble_answer,
    ensemble_inputs,
    logarithm,
    write_ensemble,
    write_model,
)


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(23, 4)).astype(np.float32)


def test_any_number_of_rows_is_answered_in_order(tmp_path, x):
    write_model(tmp_path, "affine", affine(), "max_batch_size: 8 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        np.testing.assert_allclose(server.infer("affine", {"x": x})["y"], affine_answer(x), rtol=1e-6)
        empty = server.infer("affine", {"x": x[:0]})["y"]
        assert empty.shape == (0, 3)
        assert empty.dtype == np.float32
        statistics = server.statistics()["affine"]
    assert statistics["rows"] == statistics["rows_executed"] == 23
    assert statistics["executions"] == 3
    assert statistics["requests"] == 1


def test_max_batch_1_equals_unbatched(tmp_path, x):
    write_model(tmp_path, "one", affine(), "max_batch_size: 1 dynamic_batching { }")
    write_model(tmp_path, "many", affine(), "max_batch_size: 16 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        one, many = (server.infer(name, {"x": x})["y"] for name in ("one", "many"))
    assert one.tobytes() == many.tobytes()


def test_one_step_ensemble_equals_its_model(tmp_path, x):
    write_model(tmp_path, "affine", affine(), "max_batch_size: 8 dynamic_batching { }")
    write_model(
        tmp_path,
        "alone",
        None,
        'platform: "ensemble" max_batch_size: 8 '
        'input { name: "a" data_type: TYPE_FP32 dims: [ 4 ] } output { name: "b" data_type: TYPE_FP32 dims: [ 3 ] } '
        'ensemble_scheduling { step { model_name: "affine" input_map { key: "x" value: "a" } '
        'output_map { key: "y" value: "b" } } }',
    )
    with ModelServer(tmp_path) as server:
        assert server.infer("alone", {"a": x})["b"].tobytes() == server.infer("affine", {"x": x})["y"].tobytes()
        assert server.digest("alone") != server.digest("affine")


def test_an_ensemble_flows_through_its_models(tmp_path):
    write_ensemble(tmp_path)
    inputs = ensemble_inputs(21)
    with ModelServer(tmp_path, models=["variants"]) as server:
        np.testing.assert_allclose(server.infer("variants", inputs)["effect"], ensemble_answer(inputs), atol=1e-6)
        statistics = server.statistics()
        assert server.metadata("variants").max_batch_size == 8
    assert statistics["embedder"]["rows_executed"] == 42
    assert statistics["effect"]["rows_executed"] == 21
    assert statistics["variants"]["rows"] == 21


def test_requests_that_do_not_fit_name_the_tensor(tmp_path, x):
    write_model(tmp_path, "affine", affine(), "max_batch_size: 8 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        for inputs, word in [
            ({}, "'x' is missing"),
            ({"x": x, "z": x}, "no input 'z'"),
            ({"x": x.astype(np.float64)}, "must be float32"),
            ({"x": x[:, :3]}, r"must have the shape \[rows, 4\]"),
        ]:
            with pytest.raises(InvalidArgumentError, match=word):
                server.infer("affine", inputs)
        with pytest.raises(InvalidArgumentError, match="no output 'w'"):
            server.infer("affine", {"x": x}, outputs=["w"])
        with pytest.raises(InvalidArgumentError, match="priority 1"):
            server.infer("affine", {"x": x}, priority=1)
        with pytest.raises(NotFoundError, match="no model 'affin' is served; there are affine"):
            server.infer("affin", {"x": x})
        with pytest.raises(NotFoundError, match="no version 2 served; there are 1"):
            server.infer("affine", {"x": x}, version=2)
        assert server.ready()
        assert server.ready("affine", 1)
        assert not server.ready("affine", 2)
    assert not server.ready()
    with pytest.raises(UnavailableError, match="not running"):
        server.infer("affine", {"x": x})


def test_a_nan_fails_the_request_that_has_it_and_names_the_row(tmp_path):
    write_model(
        tmp_path, "log", logarithm(), "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 50000 }"
    )
    good, bad = np.ones((3, 1), np.float32), np.array([[1], [-1]], np.float32)
    with ModelServer(tmp_path) as server:
        answers = [
            server.submit("log", {"x": good}),
            server.submit("log", {"x": bad}),
            server.submit("log", {"x": good}),
        ]
        with pytest.raises(ExecutionError, match=r"model 'log' version 1: output 'y' is not a number .* row 1$"):
            answers[1].result(10)
        assert answers[0].result(10)["y"].tolist() == answers[2].result(10)["y"].tolist() == [[0], [0], [0]]
        statistics = server.statistics()["log"]
    assert statistics["executions"] == 1
    assert statistics["failures"] == {"BACKEND": 1}
    assert statistics["requests"] == 3


def test_a_model_without_batch_dimension(tmp_path, x):
    write_model(tmp_path, "single", affine(batch=1))
    with ModelServer(tmp_path) as server:
        assert server.metadata("single").max_batch_size == 0
        assert server.infer("single", {"x": x[:1]})["y"].shape == (1, 3)


def test_versions_and_threads(tmp_path, x):
    for version, bias in [(1, 1.0), (3, 3.0), (10, 10.0)]:
        write_model(
            tmp_path,
            "affine",
            affine(bias=bias),
            "max_batch_size: 4 version_policy { latest { num_versions: 2 } }",
            version,
        )
    with ModelServer(tmp_path) as server:
        assert server.version("affine") == 10
        assert server.metadata("affine").versions == (3, 10)
        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(server.infer, "affine", {"x": x[i:]}, 3 if i % 2 else None) for i in range(16)]
            for i, job in enumerate(jobs):
                np.testing.assert_allclose(
                    job.result()["y"], affine_answer(x[i:], 3.0 if i % 2 else 10.0), rtol=1e-5, atol=1e-5
                )
        assert len({server.digest("affine", version) for version in (3, 10)}) == 2


def test_the_digest_depends_on_numbers_and_on_nothing_else(tmp_path):
    digests = {}
    for name, graph, config in [
        ("a", affine(), "max_batch_size: 8"),
        ("same", affine(), "max_batch_size: 4 dynamic_batching { } instance_group { count: 2 kind: KIND_CPU }"),
        ("other_weight", affine(bias=2), "max_batch_size: 8"),
        ("other_graph_level", affine(), "max_batch_size: 8 optimization { graph { level: -1 } }"),
    ]:
        write_model(tmp_path, name, graph, config)
    with ModelServer(tmp_path) as server:
        digests = {name: server.digest(name) for name in ("a", "same", "other_weight", "other_graph_level")}
    assert digests["a"] == digests["same"]
    assert len(set(digests.values())) == 3


def test_the_server_is_slim():
    code = "import serving.server, sys; print([m for m in ('torch', 'pandas', 'prefect', 'dask') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
