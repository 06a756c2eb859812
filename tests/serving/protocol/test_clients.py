"""Triton's own clients against the server: what they can ask for."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import threading

import numpy as np
import pytest
import tritonclient.grpc.aio
import tritonclient.http.aio
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from serving.protocol.endpoint import Endpoint
from serving.protocol.http_message import HEADER_LENGTH
from serving.server import ModelServer
from serving.tensors import BF16
from tests.serving.gated import rows, write_gated
from tests.serving.models import affine_answer, ensemble_answer, ensemble_inputs, make_graph, write_model
from tests.serving.protocol.conftest import CLIENTS, connect, listening, make_input, make_post

ALL_CODES = {
    "invalid": ("StatusCode.INVALID_ARGUMENT", "400"),
    "absent": ("StatusCode.NOT_FOUND", "404"),
    "unsupported": ("StatusCode.UNIMPLEMENTED", "501"),
    "unavailable": ("StatusCode.UNAVAILABLE", "503"),
    "failed": ("StatusCode.INTERNAL", "500"),
}


def code(kind, what):
    return ALL_CODES[what][kind == "http"]


def plain(kind, value):
    """Both clients' answers as JSON values."""
    if kind == "http":
        return value
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(value, preserving_proto_field_name=True)


def test_health_and_metadata(kind, client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("affine")
    assert client.is_model_ready("affine", "3")
    assert not client.is_model_ready("affine", "2")
    assert not client.is_model_ready("affin")
    server = plain(kind, client.get_server_metadata())
    assert server["name"] == "cohortflow"
    assert "binary_tensor_data" in server["extensions"]
    model = plain(kind, client.get_model_metadata("affine", "1"))
    assert model["versions"] == ["1", "3"]
    assert [(one["name"], one["datatype"], list(map(int, one["shape"]))) for one in model["inputs"]] == [
        ("x", "FP32", [-1, 4])
    ]
    single = plain(kind, client.get_model_metadata("single"))
    assert [list(map(int, one["shape"])) for one in single["outputs"]] == [[1, 3]]


def test_the_configuration_is_the_completed_one(kind, client):
    config = plain(kind, client.get_model_config("affine"))
    config = config["config"] if kind == "grpc" else config
    assert config["max_batch_size"] == 8
    assert config["input"][0]["data_type"] == "TYPE_FP32"
    assert [int(dim) for dim in config["input"][0]["dims"]] == [4]
    assert config["backend"] == "onnxruntime"
    assert int(config["dynamic_batching"]["priority_levels"]) == 2


def test_an_inference_of_each_version(kind, client, x):
    for version, bias in [("", 3.0), ("1", 1.0), ("3", 3.0)]:
        result = client.infer("affine", [make_input(kind, x)], model_version=version, request_id=f"r{version}")
        np.testing.assert_allclose(result.as_numpy("y"), affine_answer(x, bias), rtol=1e-5)
        answer = plain(kind, result.get_response())
        assert answer["id"] == f"r{version}"
        assert answer["model_version"] == (version or "3")
        assert answer["model_name"] == "affine"


def test_models_without_batch_dimension_ensembles_and_no_rows(kind, client, x):
    single = client.infer("single", [make_input(kind, x[:1])]).as_numpy("y")
    np.testing.assert_allclose(single, affine_answer(x[:1]), rtol=1e-5)
    inputs = ensemble_inputs(3)
    tensors = [make_input(kind, array, name) for name, array in inputs.items()]
    np.testing.assert_allclose(client.infer("variants", tensors).as_numpy("effect"), ensemble_answer(inputs), atol=1e-6)
    assert client.infer("affine", [make_input(kind, x[:0])]).as_numpy("y").shape == (0, 3)


def test_outputs_by_name_and_classification(kind, client, x):
    wanted = CLIENTS[kind].InferRequestedOutput
    inputs = {"tokens": np.ones((2, 6), np.uint8), "state": np.zeros((2, 1), np.float32)}
    result = client.infer(
        "embedder",
        [make_input(kind, array, name) for name, array in inputs.items()],
        outputs=[wanted("next_state")],
    )
    assert result.as_numpy("next_state").tolist() == [[1], [1]]
    assert result.as_numpy("embedding") is None
    result = client.infer("affine", [make_input(kind, x)], model_version="1", outputs=[wanted("y", class_count=2)])
    classes = result.as_numpy("y")
    answer = affine_answer(x)
    assert classes.shape == (5, 2)
    for row, values in zip(classes, answer, strict=True):
        best = np.argsort(-values)[:2]
        assert [int(text.split(b":")[1]) for text in row] == best.tolist()
        assert [float(text.split(b":")[0]) for text in row] == pytest.approx(values[best].tolist(), abs=1e-5)


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("wanted", [True, False])
def test_http_tensors_as_bytes_and_as_json(endpoint, x, sent, wanted):
    with connect("http", endpoint) as client:
        result = client.infer(
            "affine",
            [make_input("http", x, binary_data=sent)],
            model_version="1",
            outputs=[CLIENTS["http"].InferRequestedOutput("y", binary_data=wanted)],
        )
    np.testing.assert_allclose(result.as_numpy("y"), affine_answer(x), rtol=1e-5)
    assert ("data" in result.get_output("y")) is not wanted


def test_text_and_bfloat16(kind, tmp_path):
    for name, type_ in [("text", TensorProto.STRING), ("half", TensorProto.BFLOAT16)]:
        identity = [helper.make_node("Identity", ["x"], ["y"])]
        graph = make_graph(identity, [("x", type_, ["batch", 2])], [("y", type_, ["batch", 2])])
        write_model(tmp_path, name, graph, "max_batch_size: 8")
    text = np.array([[b"chr1", b""], [b"a\0b", "\u00e4".encode()]], dtype=object)
    half = np.array([[1.5, -2.0]], BF16)
    with _gated(tmp_path) as endpoint, connect(kind, endpoint) as client:
        assert client.infer("text", [make_input(kind, text)]).as_numpy("y").tolist() == text.tolist()
        tensor = CLIENTS[kind].InferInput("x", [1, 2], "BF16")
        tensor.set_data_from_numpy(half)
        assert client.infer("half", [tensor]).as_numpy("y").tolist() == half.tolist()
        assert plain(kind, client.get_model_metadata("half"))["inputs"][0]["datatype"] == "BF16"
        if kind == "http":
            wanted = [CLIENTS[kind].InferRequestedOutput("y", binary_data=False)]
            result = client.infer("text", [make_input(kind, text, binary_data=False)], outputs=wanted)
            assert result.get_output("y")["data"] == ["chr1", "", "a\0b", "\u00e4"]
            with pytest.raises(InferenceServerException, match="BF16 has no JSON form"):
                client.infer("half", [tensor], outputs=wanted)


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_compression_both_ways(endpoint, name):
    x = np.ones((3000, 4), np.float32)
    with connect("http", endpoint) as client:
        result = client.infer(
            "affine",
            [make_input("http", x)],
            model_version="1",
            request_compression_algorithm=name,
            response_compression_algorithm=name,
        )
        assert result.as_numpy("y").tobytes() == np.tile(affine_answer(x[:1]), (3000, 1)).tobytes()
    with connect("grpc", endpoint) as client:
        result = client.infer("affine", [make_input("grpc", x)], model_version="1", compression_algorithm=name)
        assert result.as_numpy("y").tobytes() == np.tile(affine_answer(x[:1]), (3000, 1)).tobytes()


def test_large_tensors_come_back_whole(tmp_path, gate):
    gate.open()
    write_gated(tmp_path, "max_batch_size: 8")
    x = np.random.default_rng(1).normal(size=(3, 700_001)).astype(np.float32)
    for kind in CLIENTS:
        with _gated(tmp_path) as endpoint, connect(kind, endpoint) as client:
            assert client.infer("gated", [make_input(kind, x)]).as_numpy("y").tobytes() == (2 * x).tobytes()


def test_statistics_and_index(kind, client, x):
    def success():
        statistics = plain(kind, client.get_inference_statistics("affine", "3"))["model_stats"]
        assert [(one["name"], one["version"]) for one in statistics] == [("affine", "3")]
        return int(statistics[0].get("inference_count", 0)), statistics[0]

    before = success()[0]
    client.infer("affine", [make_input(kind, x)])
    after, statistics = success()
    assert after == before + 5
    assert int(statistics["inference_stats"]["success"]["count"]) > 0
    assert int(statistics["inference_stats"]["compute_infer"]["ns"]) > 0
    assert {"5"} <= {str(batch["batch_size"]) for batch in statistics["batch_stats"]}
    everything = plain(kind, client.get_inference_statistics())["model_stats"]
    assert {one["name"] for one in everything} == {"affine", "single", "embedder", "effect", "variants"}
    index = plain(kind, client.get_model_repository_index())
    index = index["models"] if kind == "grpc" else index
    assert {(one["name"], one["version"], one["state"]) for one in index} >= {
        ("affine", "1", "READY"),
        ("affine", "3", "READY"),
        ("variants", "1", "READY"),
    }


def test_errors_have_tritons_codes_and_name_the_thing(kind, client, x):
    wanted = CLIENTS[kind].InferRequestedOutput
    good = [make_input(kind, x)]
    for what, match, ask in [
        ("absent", "'affin'", lambda: client.infer("affin", good)),
        ("absent", "version 2", lambda: client.infer("affine", good, model_version="2")),
        ("absent", "'affin'", lambda: client.get_model_metadata("affin")),
        ("absent", "'affin'", lambda: client.get_model_config("affin")),
        ("absent", "'affin'", lambda: client.get_inference_statistics("affin")),
        ("invalid", "'one'", lambda: client.infer("affine", good, model_version="one")),
        ("invalid", "'x' is missing", lambda: client.infer("affine", [])),
        ("invalid", "no input 'z'", lambda: client.infer("affine", [make_input(kind, x, "z")])),
        ("invalid", "float32", lambda: client.infer("affine", [make_input(kind, x.astype(np.float64))])),
        ("invalid", r"shape \[rows, 4\]", lambda: client.infer("affine", [make_input(kind, x[:, :3])])),
        ("invalid", "no output 'w'", lambda: client.infer("affine", good, outputs=[wanted("w")])),
        ("invalid", "priority", lambda: client.infer("affine", good, priority=3)),
        ("unsupported", "sequence_id", lambda: client.infer("affine", good, sequence_id=7, sequence_start=True)),
        ("unsupported", "shared memory", lambda: client.get_system_shared_memory_status()),
        ("unsupported", "trace", lambda: client.get_trace_settings()),
        ("unsupported", "log", lambda: client.get_log_settings()),
        ("unavailable", "--allow-control", lambda: client.load_model("affine")),
        ("unavailable", "--allow-control", lambda: client.unload_model("affine")),
    ]:
        match_kind = "sharedmemory" if kind == "http" and match == "shared memory" else match
        with pytest.raises(InferenceServerException, match=match_kind) as caught:
            ask()
        assert caught.value.status() == code(kind, what), match
    shared = CLIENTS[kind].InferInput("x", [5, 4], "FP32")
    shared.set_shared_memory("region", 80)
    with pytest.raises(InferenceServerException, match="input 'x': shared memory is not supported"):
        client.infer("affine", [shared])


def test_a_backend_that_fails_is_the_servers_error(kind, tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 8")
    gate.answer = lambda x: {}
    gate.open()
    with _gated(tmp_path) as endpoint, connect(kind, endpoint) as client:
        with pytest.raises(InferenceServerException, match="no output 'y'") as caught:
            client.infer("gated", [make_input(kind, rows(1)["x"])])
        assert caught.value.status() == code(kind, "failed")


def test_asyncio_clients(kind, endpoint, x):
    module = {"grpc": tritonclient.grpc.aio, "http": tritonclient.http.aio}[kind]
    port = endpoint.grpc_port if kind == "grpc" else endpoint.http_port

    async def ask():
        async with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
            assert await client.is_server_ready()
            # Large enough that aiohttp's clients, who accept compressed answers, get one.
            many = np.tile(x, (200, 1))
            large = (await client.infer("affine", [make_input(kind, many)])).as_numpy("y")
            np.testing.assert_allclose(large, affine_answer(many, 3.0), rtol=1e-5, atol=1e-5)
            parts = [x[i : i + 1] for i in range(5)]
            answers = await asyncio.gather(*(client.infer("affine", [make_input(kind, part)]) for part in parts))
            return np.concatenate([answer.as_numpy("y") for answer in answers])

    np.testing.assert_allclose(asyncio.run(ask()), affine_answer(x, 3.0), rtol=1e-5)


def test_async_infer(endpoint, x):
    with connect("http", endpoint, concurrency=4) as client:
        pending = [client.async_infer("affine", [make_input("http", x[i : i + 1])]) for i in range(5)]
        http = np.concatenate([one.get_result().as_numpy("y") for one in pending])
    answers: queue.SimpleQueue = queue.SimpleQueue()
    with connect("grpc", endpoint) as client:
        for i in range(5):
            client.async_infer(
                "affine",
                [make_input("grpc", x[i : i + 1])],
                lambda result, error: answers.put((result.get_response().id, result.as_numpy("y"), error)),
                request_id=str(i),
            )
        found = sorted((answers.get(timeout=10) for _ in range(5)), key=lambda got: got[0])
    grpc = np.concatenate([got[1] for got in found])
    assert http.tobytes() == grpc.tobytes()
    np.testing.assert_allclose(grpc, affine_answer(x, 3.0), rtol=1e-5)


def test_a_stream_answers_in_order_and_outlives_an_error(endpoint, x):
    answers: queue.SimpleQueue = queue.SimpleQueue()
    with connect("grpc", endpoint) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for i in range(50):
            name = "affin" if i == 20 else "affine"
            client.async_stream_infer(
                name, [make_input("grpc", x[i % 5 :][:1])], request_id=str(i), enable_empty_final_response=i == 49
            )
        for i in range(50):
            result, error = answers.get(timeout=10)
            if i == 20:
                assert "no model 'affin'" in error.message()
                continue
            assert error is None
            response = result.get_response()
            assert response.id == str(i)
            np.testing.assert_allclose(result.as_numpy("y"), affine_answer(x[i % 5 :][:1], 3.0), rtol=1e-5)
            assert ("triton_final_response" in response.parameters) is (i == 49)
        client.stop_stream()


def test_requests_of_both_protocols_meet_in_one_batch(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 8 dynamic_batching { }")
    with _gated(tmp_path) as endpoint, connect("grpc", endpoint) as grpc, connect("http", endpoint) as http:
        threads = [threading.Thread(target=grpc.infer, args=("gated", [make_input("grpc", rows(1)["x"])]))]
        threads[0].start()
        gate.wait_inside(1)
        for client, kind, value in [(grpc, "grpc", 2), (http, "http", 3)]:
            threads.append(threading.Thread(target=client.infer, args=("gated", [make_input(kind, rows(value)["x"])])))
            threads[-1].start()
        _wait_for(lambda: endpoint.server.statistics()["gated"]["requests_waiting"] == 2)
        gate.open()
        for thread in threads:
            thread.join()
    assert [sorted(batch) for batch in gate.batches] == [[1], [2, 3]]


def test_a_client_that_leaves_cancels_its_request(kind, tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 1 dynamic_batching { }")
    with _gated(tmp_path) as endpoint:
        server = endpoint.server
        first = server.submit("gated", rows(1))
        gate.wait_inside(1)
        with contextlib.ExitStack() as stack:
            tensors = [make_input(kind, rows(2)["x"])]
            if kind == "grpc":
                leave = stack.enter_context(connect(kind, endpoint)).async_infer("gated", tensors, _ignore).cancel
            else:
                body, header_bytes = CLIENTS[kind].InferenceServerClient.generate_request_body(tensors)
                connection = socket.create_connection(("127.0.0.1", endpoint.http_port))
                connection.sendall(make_post("/v2/models/gated/infer", body, {HEADER_LENGTH: header_bytes}))
                leave = connection.close
            _wait_for(lambda: server.statistics()["gated"]["requests_waiting"] == 1)
            leave()
        _wait_for(lambda: server.statistics()["gated"]["failures"] == {"CANCELED": 1})
        gate.open()
        first.result(10)
        assert server.infer("gated", rows(3))["y"].tolist() == [[6]]
        assert server.statistics()["gated"]["failures"] == {"CANCELED": 1}
    assert gate.batches == [[1], [3]]


def test_a_timeout_in_the_queue_is_answered_when_it_is_over(kind, tmp_path, gate):
    write_gated(
        tmp_path,
        "max_batch_size: 1 dynamic_batching { default_queue_policy { allow_timeout_override: true } }",
    )
    with _gated(tmp_path) as endpoint, connect(kind, endpoint) as client:
        first = endpoint.server.submit("gated", rows(1))
        gate.wait_inside(1)
        with pytest.raises(InferenceServerException) as caught:
            client.infer("gated", [make_input(kind, rows(2)["x"])], timeout=100_000)
        assert caught.value.status() == code(kind, "unavailable")
        gate.open()
        first.result(10)
        assert endpoint.server.statistics()["gated"]["failures"] == {"TIMEOUT": 1}
    assert gate.batches == [[1]]


def test_request_parameters_are_part_of_the_identity(kind, tmp_path, gate):
    gate.open()
    write_gated(tmp_path, "max_batch_size: 1 response_cache { enable: true }")
    with _gated(tmp_path) as endpoint, connect(kind, endpoint) as client:
        tensors = [make_input(kind, rows(2)["x"])]
        for parameters in [None, None, {"scale": 2}, {"scale": 2}, {"scale": "2"}, {"routing_key": "a"}]:
            assert client.infer("gated", tensors, parameters=parameters).as_numpy("y").tolist() == [[4]]
    assert gate.batches == [[2], [2], [2]]


def _gated(repository):
    return _Running(repository)


class _Running:
    """A server and its endpoint, as one context manager; the endpoint has the server as `server`."""

    def __init__(self, repository):
        self._server = ModelServer(repository)
        self._endpoint = Endpoint(self._server, listening())

    def __enter__(self):
        self._server.start()
        self._endpoint.start()
        self._endpoint.server = self._server
        return self._endpoint

    def __exit__(self, *_):
        self._endpoint.close()
        self._server.close()


def _ignore(result, error):
    pass


def _wait_for(condition):
    """Waits for what another thread is about to do."""
    done = threading.Event()
    for _ in range(1000):
        if condition():
            return
        done.wait(0.01)
    raise AssertionError("it never came")
