"""Requests that no client sends: each gets an error that names the thing, and the server goes on."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import socket
import struct
import zlib

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from serving.protocol import http
from serving.protocol.endpoint import Endpoint
from serving.protocol.http_message import HEADER_LENGTH
from serving.server import ModelServer
from tests.serving.gated import write_gated
from tests.serving.models import affine_answer
from tests.serving.protocol.conftest import connect, listening, make_input, make_post, post, read_answer, send

PATH = "/v2/models/affine/infer"
METHOD = "/inference.GRPCInferenceService/ModelInfer"
X = np.arange(4, dtype=np.float32).reshape(1, 4)


@pytest.fixture(autouse=True)
def goes_on(endpoint):
    yield
    for kind in ("grpc", "http"):
        with connect(kind, endpoint) as client:
            np.testing.assert_allclose(
                client.infer("affine", [make_input(kind, X)]).as_numpy("y"), affine_answer(X, 3.0), rtol=1e-5
            )


def body(tensor: dict | None = None, **request) -> dict:
    """A good request in JSON, with changes."""
    return {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 1, 2, 3], **(tensor or {})}],
        **request,
    }


@pytest.mark.parametrize(
    ("request_body", "words"),
    [
        (b"", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"inputs": ' + b"[" * 100_000, "not JSON"),
        (b'{"id": "\xff"}', "not JSON"),
        (b'{"id": "\\ud83d"}', "not JSON"),
        (b'{"id": ' + b"9" * 100_000 + b"}", "not JSON"),
        (b'{"inputs": [], "parameters": {"x": NaN}}', "it has no NaN; send such values as binary data"),
        ({"inputs": 7}, "inputs must be a list"),
        ({"inputs": [7]}, "inputs must be a list"),
        ({"inputs": [{}]}, "an input's name must be a string"),
        (body({"name": 7}), "an input's name must be a string"),
        (body({"datatype": "FP31"}), "input 'x': datatype 'FP31' is none of"),
        (body({"datatype": None}), "input 'x': datatype must be a string"),
        (body({"shape": "4"}), "input 'x': shape must be a list"),
        (body({"shape": [1.0, 4]}), "input 'x': shape must be a list"),
        (body({"shape": [True, 4]}), "input 'x': shape must be a list"),
        (body({"shape": [-1, 4]}), "input 'x': shape"),
        (body({"shape": [1] * 100}), "input 'x': shape"),
        (body({"shape": [1 << 40, 1 << 40]}), "values, 4 came"),
        (body({"shape": [10**4000, 10**4000]}), "input 'x': shape"),
        (body({"shape": [0, 1 << 62, 1 << 62], "data": []}), "input 'x': shape"),
        (body({"shape": [1, 5]}), "takes 5 values, 4 came"),
        (body({"data": [0, 1, 2]}), "takes 4 values, 3 came"),
        (body({"data": None}), "input 'x': data must be a list"),
        (body({"data": "0123"}), "input 'x': data must be a list"),
        (body({"data": [0, 1, [2], 3]}), "cannot be a list"),
        (body({"data": [[0, 1], 2, 3]}), "mixes values and lists"),
        (body({"data": [0, 1, 2, "3"]}), "cannot be a str"),
        (body({"data": [0, 1, 2, None]}), "cannot be a NoneType"),
        (body({"data": [0, 1, 2, True]}), "cannot be a bool"),
        (body({"datatype": "UINT8", "data": [0, 1, 2, 256]}), "does not fit into UINT8"),
        (body({"datatype": "INT64", "data": [0, 1, 2, 1 << 70]}), "does not fit into INT64"),
        (body({"datatype": "FP32", "data": [0, 1, 2, 1 << 5000]}), "does not fit into FP32"),
        (body({"data": [0, 1, 2, math.inf]}), "it has no Infinity"),
        (body({"data": [0, 1, 2, 1e39]}), "does not fit into FP32"),
        (json.dumps(body()).replace("3]", "1e999]").encode(), "does not fit into FP32"),
        (body({"datatype": "FP16"}), "FP16 must be sent as binary data"),
        (body({"datatype": "BYTES"}), "a value of BYTES must be a string"),
        (body({"datatype": "BYTES", "data": list("abcd")}), "must be float32"),
        (body({"parameters": 7}), "input 'x': parameters must be a JSON object"),
        (body({"parameters": {"binary_data_size": 16}}), "binary_data_size is 16, 0 bytes are left"),
        (body({"parameters": {"binary_data_size": -1}}), "binary_data_size is -1"),
        (body(inputs=[*body()["inputs"]] * 2), "input 'x' is given twice"),
        (body(outputs=[{"name": 7}]), "an output's name must be a string"),
        (body(outputs=[{"name": "y", "parameters": {"classification": -1}}]), "classification must be"),
        (body(parameters={"priority": "high"}), "'priority' must be a whole number"),
        (body(parameters={"timeout": -1}), "'timeout' must be a whole number"),
        (body(parameters={"triton_x": 1}), "'triton_x'"),
        (body(parameters={"priority": 1 << 70}), "'priority' must be a whole number"),
        (body(inputs=[{**body()["inputs"][0], "name": str(n)} for n in range(1000)]), "no input '0'"),
        (body(parameters={"deep": {}}), "parameter 'deep' must be"),
        (body(id=7), "id must be a string"),
        (body({"name": "n" * 900_000}), "no input 'nnnn"),
    ],
)
def test_json_that_does_not_fit(endpoint, request_body, words):
    status, answer = post(endpoint, PATH, request_body)
    assert status == 400
    assert words in answer["error"]
    assert len(answer["error"]) < 3000


@pytest.mark.parametrize(
    ("header", "extra", "words"),
    [
        ("1000", b"", "is 1000, the body has"),
        ("-1", b"", "not a number of bytes"),
        ("1e3", b"", "not a number of bytes"),
        ("9" * 30, b"", "not a number of bytes"),
        ("0", b"", "a raw request"),
        ("5", b"", "not JSON"),
        ("real", b"\0" * 15, "binary_data_size is 16, 15 bytes are left"),
        ("real", b"\0" * 17, "17 bytes lie behind the JSON, the inputs take 16"),
    ],
)
def test_binary_tensors_that_do_not_fit(endpoint, header, extra, words):
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": 16}}
    text = json.dumps({"inputs": [tensor]}).encode()
    status, answer = post(endpoint, PATH, text + extra, {HEADER_LENGTH: len(text) if header == "real" else header})
    assert status == 400
    assert words in answer["error"]


def test_a_gigabyte_claimed_and_ten_bytes_sent(endpoint):
    status, answer = post(endpoint, PATH, b"0123456789", {"Content-Length": 1 << 30})
    assert status == 413
    assert "1073741824 bytes; this server takes 1048576" in answer["error"]
    shape = [1 << 14, 1 << 14]
    tensor = {"name": "x", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": 10}}
    text = json.dumps({"inputs": [tensor]}).encode()
    status, answer = post(endpoint, PATH, text + bytes(10), {HEADER_LENGTH: len(text)})
    assert status == 400
    assert "takes 1073741824 bytes, 10 came" in answer["error"]
    error = infer_grpc(endpoint, request([(shape, bytes(10))]).SerializeToString())
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "takes 1073741824 bytes, 10 came" in error.details()


def test_bodies_above_the_limit_however_they_come(endpoint):
    endless = b"".join(b"10000\r\n" + bytes(1 << 16) + b"\r\n" for _ in range(17))
    with socket.create_connection(("127.0.0.1", endpoint.http_port), 10) as connection:
        connection.sendall(make_post(PATH, b"", {"Content-Length": None, "Transfer-Encoding": "chunked"}) + endless)
        assert read_answer(connection)[0] == 413
    bomb = gzip.compress(bytes(20 << 20), 1)
    for content, encoding, status in [
        (bomb, "gzip", 413),
        (gzip.compress(bomb), "gzip", 400),
        (gzip.compress(bomb), "gzip, gzip", 501),
        (zlib.compress(bytes(20 << 20), 1), "deflate", 413),
        (bomb[:-1000], "gzip", 413),
        (gzip.compress(b"{}")[:-9], "gzip", 400),
        (b"not compressed at all", "gzip", 400),
        (b"{}", "rot13", 501),
    ]:
        assert post(endpoint, PATH, content, {"Content-Encoding": encoding})[0] == status, encoding
    error = infer_grpc(endpoint, bytes(2 << 20))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_http_that_is_none(endpoint):
    for sent, status in [
        (b"\0\1\2\3\r\n\r\n", 400),
        (b"POST " + b"/" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: a\r\n" + b"X: x\r\n" * 10_000 + b"\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET /v3 HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        (b"DELETE /v2/models/affine HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        (b"GET /v2/models/%2e%2e%2f%00 HTTP/1.1\r\nHost: a\r\n\r\n", 404),
    ]:
        assert send(endpoint, sent)[0] == status, sent[:100]


def test_a_body_that_stops_arriving(endpoint, monkeypatch):
    monkeypatch.setattr(http, "BODY_PAUSE_S", 0.1)
    status, answer = post(endpoint, PATH, b"0123456789", {"Content-Length": 11})
    assert status == 408
    assert "body stopped after 10 bytes" in answer["error"]


def test_a_body_that_comes_byte_by_byte(endpoint, monkeypatch):
    monkeypatch.setattr(http, "BODY_PAUSE_S", 0.2)
    with socket.create_connection(("127.0.0.1", endpoint.http_port), 10) as connection:
        connection.sendall(make_post(PATH, b"", {"Content-Length": 1000}))
        connection.settimeout(0.02)
        for _ in range(500):
            with contextlib.suppress(TimeoutError):
                if connection.recv(1, socket.MSG_PEEK):
                    break
            connection.sendall(b"x")
        connection.settimeout(10)
        status, answer = read_answer(connection)
    assert status == 408
    assert "must bring 4096 bytes/s" in answer["error"]


def test_a_body_in_chunks(endpoint):
    text = json.dumps(body()).encode()
    chunks = b"".join(b"1;ext=a\r\n%c\r\n" % byte for byte in text)
    headers = {"Content-Length": None, "Transfer-Encoding": "chunked"}
    assert send(endpoint, make_post(PATH, b"", headers) + chunks + b"0\r\n\r\n")[0] == 200
    for wrong in [b"FFFFFFFFFFFFFFFFFF\r\n{}", b"-1\r\n{}", b"2\r\n{}}}\r\n", b"zz\r\n"]:
        assert send(endpoint, make_post(PATH, b"", headers) + wrong)[0] == 400, wrong


def test_a_client_that_is_slow_holds_nobody_up(endpoint):
    with socket.create_connection(("127.0.0.1", endpoint.http_port), 10) as slow:
        whole = make_post(PATH, json.dumps(body()).encode())
        slow.sendall(whole[:-10])
        assert post(endpoint, PATH, body())[0] == 200
        slow.sendall(whole[-10:])
        assert read_answer(slow)[0] == 200


def test_a_client_that_asks_before_it_sends_a_body(endpoint):
    with socket.create_connection(("127.0.0.1", endpoint.http_port), 10) as connection:
        text = json.dumps(body()).encode()
        connection.sendall(make_post(PATH, b"", {"Content-Length": len(text), "Expect": "100-continue"}))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(text)
        assert read_answer(connection)[0] == 200
    assert post(endpoint, PATH, b"", {"Content-Length": 1 << 30, "Expect": "100-continue"})[0] == 413


def test_many_requests_on_one_connection(endpoint):
    with socket.create_connection(("127.0.0.1", endpoint.http_port), 10) as connection:
        for _ in range(3):
            connection.sendall(make_post(PATH, json.dumps(body()).encode()))
            assert read_answer(connection)[0] == 200
            connection.sendall(make_post(PATH, b"{"))
            assert read_answer(connection)[0] == 400


def test_an_answer_that_json_cannot_hold(tmp_path, gate):
    gate.answer = lambda x: {"y": np.full_like(x, np.inf)}
    gate.open()
    write_gated(tmp_path, "max_batch_size: 8")
    with ModelServer(tmp_path) as server, Endpoint(server, listening()) as served:
        status, answer = post(served, "/v2/models/gated/infer", body())
        assert (status, "'y': holds values that are not finite" in answer["error"]) == (400, True)
        with connect("http", served) as client:
            assert np.isinf(client.infer("gated", [make_input("http", X)]).as_numpy("y")).all()


def request(tensors, name="x", datatype="FP32") -> service_pb2.ModelInferRequest:
    message = service_pb2.ModelInferRequest(model_name="affine")
    for shape, content in tensors:
        message.inputs.add(name=name, datatype=datatype, shape=shape)
        message.raw_input_contents.append(content)
    return message


def infer_grpc(endpoint, serialized: bytes) -> grpc.RpcError:
    """Sends bytes as a ModelInferRequest; gives the error."""
    with grpc.insecure_channel(f"127.0.0.1:{endpoint.grpc_port}") as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(METHOD)(serialized, timeout=20)
    return caught.value


def test_grpc_messages_that_do_not_fit(endpoint):
    x = X.tobytes()
    good = [([1, 4], x)]
    mixed = request(good)
    mixed.inputs[0].contents.fp32_contents.extend([1, 2, 3, 4])
    typed = service_pb2.ModelInferRequest(model_name="affine")
    typed.inputs.add(name="x", datatype="FP32", shape=[1, 4]).contents.fp32_contents.extend([1, 2, 3])
    wrong_list = service_pb2.ModelInferRequest(model_name="affine")
    wrong_list.inputs.add(name="x", datatype="FP32", shape=[1, 4]).contents.int_contents.extend([1, 2, 3, 4])
    half = service_pb2.ModelInferRequest(model_name="affine")
    half.inputs.add(name="x", datatype="FP16", shape=[1, 4])
    empty_parameter = request(good)
    empty_parameter.parameters["a"].SetInParent()
    fewer = request(good)
    fewer.inputs.add(name="z", datatype="FP32", shape=[1])
    for message, words in [
        (request([([1, 4], x[:-1])]), "takes 16 bytes, 15 came"),
        (request([([1, 5], x)]), "takes 20 bytes, 16 came"),
        (request([([-1, 4], x)]), "shape"),
        (request([([1] * 100, x)]), "shape"),
        (request([([1 << 62, 1 << 62], x)]), "16 came"),
        (request(good, datatype="FP31"), "'FP31' is none of"),
        (request(good, datatype="BYTES"), "goes past the end of its 16 bytes"),
        (request([([1, 4], struct.pack("<I", 0) * 3)], datatype="BYTES"), "takes 4 strings, 3 came"),
        (request(good * 2), "given twice"),
        (request(good, name="n" * 100_000), "no input 'nnn"),
        (mixed, "beside raw_input_contents"),
        (typed, "takes 4 values, 3 came"),
        (wrong_list, "int_contents cannot hold 'FP32'"),
        (half, "cannot hold 'FP16'"),
        (empty_parameter, "parameter 'a' has no value"),
        (fewer, "1 entries for 2 inputs"),
    ]:
        error = infer_grpc(endpoint, message.SerializeToString())
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, words
        assert words in error.details()


@pytest.mark.parametrize("size", [10, 100_000])
def test_grpc_bytes_that_are_no_message(endpoint, size):
    for content in [b"\xff" * size, b"\x3a\xff\xff\xff\xff\x7f" + bytes(size), b"\x0b" * size]:
        error = infer_grpc(endpoint, content)
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "not a ModelInferRequest" in error.details()


def test_a_grpc_message_of_many_fields_is_not_looked_at_one_by_one(endpoint):
    # A raw entry of no bytes, half a million times.
    error = infer_grpc(endpoint, request([([1, 4], X.tobytes())]).SerializeToString() + b"\x3a\x00" * 500_000)
    assert "500001 entries for 1 inputs" in error.details()
