"""Models loaded, reloaded and unloaded while requests run."""

from __future__ import annotations

import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import TensorProto, helper

from serving.errors import (
    CancelledError,
    InvalidArgumentError,
    ModelLoadError,
    NotFoundError,
    ServingError,
    UnavailableError,
)
from serving.server import ModelServer
from tests.serving.gated import rows, write_gated
from tests.serving.models import affine, ensemble_inputs, make_graph, write_ensemble, write_model

BATCHED = "max_batch_size: 8 dynamic_batching { } "
ALL = BATCHED + "version_policy { all { } } "
ZERO = {"x": np.zeros((1, 4), np.float32)}


def explicit(repository, *names) -> ModelServer:
    return ModelServer(repository, control="explicit", models=names)


def bias(server, name="m", version=None) -> float:
    return float(server.infer(name, ZERO, version)["y"][0, 0])


def index(server) -> list[tuple[str, str, str]]:
    return [(entry.name, entry.version, entry.state) for entry in server.index()]


class Hammer:
    """Four clients that ask without a pause; `answers` and `errors` are what they got."""

    def __init__(self, ask) -> None:
        self._ask = ask
        self._is_over = threading.Event()
        self.num = 0
        self.answers: set[float] = set()
        self.errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self.answers.add(self._ask())
            except Exception as error:
                self.errors.append(error)
            self.num += 1

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def wait(self, more: int) -> None:
        """Waits until so many more requests were answered."""
        goal, ends_s = self.num + more, time.monotonic() + 10
        while self.num < goal:
            assert time.monotonic() < ends_s
            time.sleep(0.001)


@pytest.mark.parametrize("cache", ["", "response_cache { enable: true }"])
def test_reload_under_four_clients_fails_no_request_and_leaves_no_stale_answer(tmp_path, cache):
    write_model(tmp_path, "m", affine(bias=1), BATCHED + cache)
    with explicit(tmp_path, "m") as server, Hammer(lambda: bias(server)) as hammer:
        for number in range(2, 8):
            hammer.wait(20)
            write_model(tmp_path, "m", affine(bias=number), BATCHED + cache)
            server.load("m")
            assert bias(server) == number
        hammer.wait(20)
    assert hammer.errors == []
    assert hammer.answers == {1, 2, 3, 4, 5, 6, 7}


def test_a_load_that_fails_keeps_the_old_one_and_says_why(tmp_path):
    write_model(tmp_path, "m", affine(bias=1), BATCHED)
    with explicit(tmp_path, "m") as server, Hammer(lambda: bias(server)) as hammer:
        (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"rubbish")
        with pytest.raises(ModelLoadError, match=r"model\.onnx"):
            server.load("m")
        hammer.wait(20)
        [entry] = server.index()
        assert (entry.state, entry.version) == ("READY", "1")
        assert entry.reason.startswith("goes on after a load that failed: ")
        assert "model.onnx" in entry.reason
        write_model(tmp_path, "m", affine(bias=2), BATCHED)
        server.load("m")
        assert server.index()[0].reason == ""
        hammer.wait(20)
    assert hammer.errors == []
    assert hammer.answers == {1, 2}


def test_a_new_version_that_fails_is_told_and_the_others_go_on(tmp_path):
    write_model(tmp_path, "m", affine(bias=1), ALL)
    with explicit(tmp_path, "m") as server:
        (write_model(tmp_path, "m", None, ALL, version=2) / "model.onnx").write_bytes(b"rubbish")
        with pytest.raises(ModelLoadError):
            server.load("m")
        assert index(server) == [("m", "1", "READY"), ("m", "2", "UNAVAILABLE")]
        assert all("model.onnx" in entry.reason for entry in server.index())
        assert bias(server) == 1


def test_unload_finishes_what_is_in_flight_and_then_it_is_not_found(tmp_path, gate):
    write_gated(tmp_path, BATCHED)
    with explicit(tmp_path, "gated") as server:
        running = server.submit("gated", rows(1))
        gate.wait_inside(1)
        waiting = server.submit("gated", rows(2))
        server.unload("gated")
        assert index(server) == [("gated", "1", "UNLOADING")]
        with pytest.raises(NotFoundError, match="no model 'gated' is served"):
            server.submit("gated", rows(3))
        assert not server.ready("gated")
        gate.open()
        assert running.result(10)["y"].tolist() == [[2]]
        assert waiting.result(10)["y"].tolist() == [[4]]
        server._control._drain.finish(10)
        [entry] = server.index()
        assert (entry.state, entry.reason) == ("UNAVAILABLE", "unloaded")
        server.load("gated")
        assert server.ready("gated", 1)
        with pytest.raises(NotFoundError):
            server.unload("other")


def test_one_version_is_loaded_and_unloaded_by_itself(tmp_path):
    write_model(tmp_path, "m", affine(bias=1), ALL)
    with explicit(tmp_path, "m") as server:
        bias(server)
        first = server._find("m", 1)
        write_model(tmp_path, "m", affine(bias=2), ALL, version=2)
        server.load("m")
        assert server._find("m", 1) is first
        assert [one.execution_count for one in server.model_statistics("m")] == [1, 0]
        assert (bias(server), bias(server, version=1)) == (2, 1)
        assert server.metadata("m").versions == (1, 2)
        server.unload("m", version=2)
        assert bias(server) == 1
        with pytest.raises(NotFoundError, match="no version 2 served; there are 1"):
            bias(server, version=2)
        with pytest.raises(NotFoundError, match="no version 2"):
            server.unload("m", version=2)
        server.load("m")
        assert bias(server) == 2
        assert server._find("m", 1) is first


def embedder(offset: float):
    """As `token_mean`, plus a constant."""
    return make_graph(
        [
            helper.make_node("Cast", ["tokens"], ["cast"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", ["cast"], ["mean"], axes=[1], keepdims=1),
            helper.make_node("Add", ["mean", "state"], ["sum"]),
            helper.make_node("Add", ["sum", "offset"], ["embedding"]),
        ],
        [("tokens", TensorProto.UINT8, ["batch", "length"]), ("state", TensorProto.FLOAT, ["batch", 1])],
        [("embedding", TensorProto.FLOAT, ["batch", 1])],
        {"offset": np.full(1, offset, np.float32)},
    )


@pytest.mark.parametrize("cache", ["", "response_cache { enable: true }"])
def test_an_ensemble_whose_step_is_replaced_never_mixes_old_and_new(tmp_path, cache):
    """Both windows are the same: their difference is 0 unless two embedders made it."""
    write_ensemble(tmp_path, BATCHED + cache, cache)
    inputs = ensemble_inputs(1)
    inputs["alternate_window"] = inputs["reference_window"]
    digests = set()
    with explicit(tmp_path, "variants") as server:
        with Hammer(lambda: float(server.infer("variants", inputs)["effect"][0, 0])) as hammer:
            for offset in range(8):
                write_model(tmp_path, "embedder", embedder(offset * 100), BATCHED + cache)
                server.load("embedder")
                digests.add(server.digest("variants"))
                hammer.wait(10)
        assert {model.version for model in server._find("variants", None).parts} == {1}
        assert server._find("variants", None).parts[0] is server._find("embedder", None)
    assert hammer.errors == []
    assert hammer.answers == {0}
    assert len(digests) == 8


def test_a_step_that_no_longer_fits_its_ensemble_is_not_loaded(tmp_path):
    write_ensemble(tmp_path)
    with explicit(tmp_path, "variants") as server:
        write_model(tmp_path, "embedder", affine(), BATCHED)
        with pytest.raises(ModelLoadError, match=r"ensemble 'variants': step 1 \(embedder\): no input"):
            server.load("embedder")
        assert server.infer("variants", ensemble_inputs(2))["effect"].shape == (2, 1)
        assert "step 1" in next(entry.reason for entry in server.index() if entry.name == "embedder")


def test_a_step_in_use_is_not_unloaded_and_dependents_go_with_their_ensemble(tmp_path):
    write_ensemble(tmp_path)
    with explicit(tmp_path, "effect", "variants") as server:
        with pytest.raises(InvalidArgumentError, match="'embedder' is a step of ensemble 'variants' version 1"):
            server.unload("embedder")
        assert server.ready("variants")
        server.unload("variants", with_dependents=True)
        # "effect" was asked for by its own name.
        assert {name for name, _, state in index(server) if state == "READY"} == {"effect"}


def test_load_parameters_stand_in_for_config_and_files(tmp_path):
    write_model(tmp_path, "m", affine(bias=1), BATCHED)
    write_model(tmp_path / "other", "m", affine(bias=5), "")
    config = json.dumps({"maxBatchSize": 4, "dynamicBatching": {}}).encode()
    other = (tmp_path / "other" / "m" / "1" / "model.onnx").read_bytes()
    with explicit(tmp_path, "m") as server:
        server.load("m", config=config)
        assert server.config("m").max_batch_size == 4
        assert bias(server) == 1
        server.load("m", config=config, files={"3/model.onnx": other})
        assert (bias(server), server.version("m")) == (5, 3)
        server.load("new", config=config, files={"1/model.onnx": other})
        assert bias(server, "new") == 5
        server.load("m")
        assert (bias(server), server.version("m"), server.config("m").max_batch_size) == (1, 1, 8)
        for files in (
            {"1/../../x": b""},
            {"/etc/x": b""},
            {"x": b""},
            {"0/x": b""},
            {"1/.x": b""},
            {"1/a": b"", "1/a/b": b""},
        ):
            with pytest.raises(InvalidArgumentError):
                server.load("m", config=config, files=files)
        with pytest.raises(InvalidArgumentError, match="need a 'config'"):
            server.load("m", files={"1/model.onnx": other})
        with pytest.raises(ModelLoadError, match="config of the load request"):
            server.load("m", config=b'{"nonsense": 1}')
        assert bias(server) == 1


def test_poll_follows_the_repository(tmp_path):
    write_model(tmp_path, "m", affine(bias=1), BATCHED)
    write_model(tmp_path, "bad", None, "nonsense")
    with ModelServer(tmp_path, control="poll", poll_s=0.02) as server:
        assert bias(server) == 1
        assert index(server) == [("bad", "", "UNAVAILABLE"), ("m", "1", "READY")]

        def becomes(*wanted):
            ends_s = time.monotonic() + 10
            while (found := [line for line in index(server) if line[2] != "UNLOADING"]) != list(wanted):
                assert time.monotonic() < ends_s, found
                time.sleep(0.005)

        write_model(tmp_path, "m", affine(bias=2), BATCHED)
        shutil.rmtree(tmp_path / "bad")
        write_model(tmp_path, "new", affine(bias=3), BATCHED)
        becomes(("m", "1", "READY"), ("new", "1", "READY"))
        shutil.rmtree(tmp_path / "new")
        becomes(("m", "1", "READY"), ("new", "1", "UNAVAILABLE"))
        with pytest.raises(UnavailableError, match="control mode is 'poll'"):
            server.load("m")


def test_with_control_none_nothing_changes(tmp_path):
    write_model(tmp_path, "m", affine(bias=1), BATCHED)
    with ModelServer(tmp_path) as server:
        write_model(tmp_path, "m", affine(bias=2), BATCHED)
        for act in (server.load, server.unload):
            with pytest.raises(UnavailableError, match="control mode is 'none'"):
                act("m")
        assert bias(server) == 1


def test_drain_is_not_ready_and_close_finishes_what_is_in_flight(tmp_path, gate):
    write_gated(tmp_path, BATCHED)
    server = ModelServer(tmp_path)
    server.start()
    running = server.submit("gated", rows(1))
    gate.wait_inside(1)
    waiting = server.submit("gated", rows(2))
    server.drain()
    assert (server.live, server.ready(), server.ready("gated")) == (True, False, True)
    late = server.submit("gated", rows(3))
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(server.close, 10)
        while server._is_running:
            time.sleep(0.001)
        with pytest.raises(UnavailableError, match="not running"):
            server.submit("gated", rows(4))
        assert not closing.done()
        assert server.live
        gate.open()
        closing.result(10)
    assert [answer.result(0)["y"].tolist() for answer in (running, waiting, late)] == [[[2]], [[4]], [[6]]]
    assert not server.live


def test_close_gives_up_after_its_limit(tmp_path, gate):
    write_gated(tmp_path, BATCHED)
    server = ModelServer(tmp_path)
    server.start()
    stuck, waiting, cancelled = (server.submit("gated", rows(n)) for n in range(3))
    cancelled.cancel()
    gate.wait_inside(1)
    begun_s = time.monotonic()
    server.close(0.1)
    assert time.monotonic() - begun_s < 3
    for answer in (stuck, waiting):
        with pytest.raises(UnavailableError, match="stopped before the answer"):
            answer.result(0)
    with pytest.raises(CancelledError):
        cancelled.result(0)


def test_a_version_being_drained_ends_with_the_server(tmp_path, gate):
    write_gated(tmp_path, BATCHED)
    server = explicit(tmp_path, "gated")
    server.start()
    stuck = server.submit("gated", rows(1))
    gate.wait_inside(1)
    server.unload("gated")
    server.close(0.05)
    with pytest.raises(UnavailableError):
        stuck.result(0)


def test_close_does_not_wait_for_a_load(tmp_path, gate):
    warm = 'model_warmup { inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } }'
    write_gated(tmp_path, BATCHED + warm)
    server = explicit(tmp_path)
    server.start()
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(server.load, "gated")
        gate.wait_inside(1)
        server.close(0.1)
        gate.open()
        with pytest.raises(UnavailableError, match="was closed"):
            loading.result(10)
    assert server._control.offers == {}
    with pytest.raises(UnavailableError, match="not running"):
        server.load("gated")


def test_a_server_starts_again_after_its_end(tmp_path):
    write_model(tmp_path, "m", affine(bias=1), BATCHED)
    server = explicit(tmp_path, "m")
    for _ in range(2):
        server.close()
        with server:
            assert bias(server) == 1


BAD = {
    "no file": (None, BATCHED, "model.onnx"),
    "wrong dims": (
        affine(),
        BATCHED + 'input { name: "x" data_type: TYPE_FP32 dims: [ 5 ] }',
        "input 'x' is TYPE_FP32 [5]",
    ),
    "wrong name": (affine(), BATCHED + 'output { name: "z" data_type: TYPE_FP32 dims: [ 3 ] }', "output 'z'"),
    "no backend": (affine(), BATCHED + 'backend: "none"', "no backend 'none'"),
    "batch": (affine(batch=1), BATCHED, "max_batch_size is 8"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_model_is_named_and_the_server_goes_on(tmp_path, name):
    graph, config, words = BAD[name]
    write_model(tmp_path, "m", affine(bias=1), BATCHED)
    write_model(tmp_path, "bad", graph, config)
    with explicit(tmp_path, "m") as server:
        with pytest.raises(ModelLoadError) as caught:
            server.load("bad")
        assert words in caught.value.message
        assert "'bad'" in caught.value.message
        entries = {entry.name: entry for entry in server.index()}
        assert (entries["bad"].state, words in entries["bad"].reason) == ("UNAVAILABLE", True)
        assert bias(server) == 1


def test_a_backend_that_crashes_while_it_loads_is_a_load_error(tmp_path, gate, monkeypatch):
    from tests.serving.gated import GatedBackend

    unloaded = []

    def load(self, *_):
        if len(loaded) == 1:
            raise ZeroDivisionError("in initialize")
        loaded.append(self)

    loaded: list[object] = []
    monkeypatch.setattr(GatedBackend, "load", load)
    monkeypatch.setattr(GatedBackend, "unload", lambda self: unloaded.append(self))
    write_gated(tmp_path, BATCHED + "instance_group { count: 2 kind: KIND_CPU }")
    with explicit(tmp_path) as server:
        with pytest.raises(ModelLoadError, match="model 'gated' version 1: ZeroDivisionError: in initialize"):
            server.load("gated")
        assert unloaded == loaded
        assert server.ready()


def test_parameters_of_equal_value_and_other_type_are_other_calls(tmp_path, gate):
    gate.open()
    write_gated(tmp_path, BATCHED + "response_cache { enable: true }")
    with explicit(tmp_path, "gated") as server:
        for parameters in ({"p": 1}, {"p": True}, {"p": 1.0}, {"p": "1"}, {}, {"p": 1}):
            answer = server.submit("gated", rows(1), parameters=parameters)
            answer.result(10)
            assert answer.version == 1
    assert len(gate.batches) == 5


def test_a_model_that_fails_to_start_leaves_nothing(tmp_path):
    write_model(tmp_path, "a", affine(), BATCHED)
    write_model(tmp_path, "bad", None, BATCHED)
    server = ModelServer(tmp_path)
    with pytest.raises(ServingError):
        server.start()
    assert not server.live
    assert server._control.offers == {}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("serving-model 'a'")]
