"""Warm-up samples: executed before READY, counted nowhere, wrong ones told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from serving.errors import ModelLoadError
from serving.server import ModelServer
from tests.serving.gated import rows, write_gated

BATCHED = "max_batch_size: 4 dynamic_batching { } "


def sample(data: str, more: str = "", dims: int = 1) -> str:
    return (
        f'model_warmup {{ name: "first" {more} inputs {{ key: "x" '
        f"value {{ data_type: TYPE_FP32 dims: [ {dims} ] {data} }} }} }} "
    )


def test_samples_run_before_ready_on_every_instance_and_are_counted_nowhere(tmp_path, gate):
    gate.open()
    write_gated(
        tmp_path,
        BATCHED
        + "instance_group { count: 2 kind: KIND_CPU } "
        + sample("zero_data: true", "batch_size: 3 count: 2")
        + sample('input_data_file: "seven"', "batch_size: 2")
        + sample("random_data: true"),
    )
    (tmp_path / "gated" / "warmup").mkdir()
    (tmp_path / "gated" / "warmup" / "seven").write_bytes(np.float32(7).tobytes())
    with ModelServer(tmp_path) as server:
        assert gate.batches[:6] == [[0, 0, 0]] * 4 + [[7, 7]] * 2
        assert len(gate.batches) == 8
        statistics = server.statistics()["gated"]
        assert (statistics["rows"], statistics["executions"], statistics["requests"]) == (0, 0, 0)
        assert server.model_statistics("gated")[0].execution_count == 0
        server.infer("gated", rows(1))
        assert server.model_statistics("gated")[0].execution_count == 1


def test_a_model_is_not_ready_while_it_is_warmed_up(tmp_path, gate):
    write_gated(tmp_path, BATCHED + sample("zero_data: true"))
    with ModelServer(tmp_path, control="explicit") as server:
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(server.load, "gated")
            gate.wait_inside(1)
            assert not server.ready("gated")
            assert [(entry.version, entry.state) for entry in server.index()] == [("1", "LOADING")]
            gate.open()
            loading.result(10)
        assert server.ready("gated")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (sample("zero_data: true", "batch_size: 5"), "'first': batch_size is 5, the model's max_batch_size 4"),
        (sample("zero_data: true").replace('"x"', '"z"'), "input 'z': the model has x"),
        (sample("zero_data: true").replace("FP32", "INT32"), r"is TYPE_INT32 \[1\], the model's input is x float32"),
        (sample(""), "has none of zero_data"),
        (sample('input_data_file: "none"'), "warmup/none: No such file"),
        (sample('input_data_file: "../config.pbtxt"'), "not in the folder 'warmup'"),
        (sample('input_data_file: "short"', dims=3), "has 4 bytes; a row needs 12, the batch 12"),
        ('model_warmup { name: "first" }', "input 'x' is missing"),
    ],
)
def test_a_sample_that_does_not_fit_is_a_load_error(tmp_path, gate, config, words):
    gate.open()
    write_gated(tmp_path, BATCHED + config)
    (tmp_path / "gated" / "warmup").mkdir()
    (tmp_path / "gated" / "warmup" / "short").write_bytes(bytes(4))
    with pytest.raises(ModelLoadError, match=words):
        ModelServer(tmp_path).start()


def test_a_model_that_fails_on_its_sample_is_not_served(tmp_path, gate):
    gate.open()
    gate.answer = lambda x: {}
    write_gated(tmp_path, BATCHED + sample("zero_data: true"))
    with ModelServer(tmp_path, control="explicit") as server:
        with pytest.raises(ModelLoadError, match=r"model_warmup 'first': .* gave no output 'y'"):
            server.load("gated")
        [entry] = server.index()
        assert (entry.state, "gave no output 'y'" in entry.reason) == ("UNAVAILABLE", True)
