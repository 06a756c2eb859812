"""Connections that hold the server up, and too many of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from serving.protocol import connections, http
from serving.protocol.endpoint import Endpoint
from serving.protocol.http_message import HEADER_LENGTH
from serving.server import ModelServer
from tests.serving.gated import rows, write_gated
from tests.serving.models import affine_answer
from tests.serving.protocol.conftest import CLIENTS, connect, listening, make_input, make_post, read_answer

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
SERVICE = "/inference.GRPCInferenceService"
X = np.ones((1, 4), np.float32)


@pytest.fixture(scope="module")
def server(repository):
    with ModelServer(repository) as server:
        yield server


@contextlib.contextmanager
def served(server):
    """An endpoint with the limits as they are now, which still answers when it is left."""
    with Endpoint(server, listening()) as endpoint:
        yield endpoint
        for kind in CLIENTS:
            with connect(kind, endpoint) as client:
                result = client.infer("affine", [make_input(kind, X)])
                np.testing.assert_allclose(result.as_numpy("y"), affine_answer(X, 3.0), rtol=1e-5)


def dial(port):
    return socket.create_connection(("127.0.0.1", port), 10)


def is_closed(connection):
    """Whether the other side ends the connection, in the socket's time."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def test_headers_that_do_not_come(server, monkeypatch):
    monkeypatch.setattr(connections, "IDLE_S", 0.2)
    with served(server) as endpoint, dial(endpoint.http_port) as silent, dial(endpoint.metrics_port) as half:
        half.sendall(b"GET /metrics HTTP/1.1\r\nHo")
        assert is_closed(silent)
        assert is_closed(half)
        with dial(endpoint.http_port) as again:
            again.sendall(LIVE)
            assert read_answer(again)[0] == 200
            again.sendall(LIVE[:-2])
            assert is_closed(again)


def test_clients_outlive_a_connection_that_was_idle_too_long(server, monkeypatch):
    monkeypatch.setattr(connections, "IDLE_S", 0.1)
    with served(server) as endpoint, connect("http", endpoint) as client, dial(endpoint.http_port) as idle:
        assert client.is_server_live()
        assert is_closed(idle)
        with dial(endpoint.http_port) as later:
            assert is_closed(later)
        assert client.is_server_live()


def test_too_many_connections(server, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    with served(server) as endpoint, contextlib.ExitStack() as stack:
        held = [stack.enter_context(dial(endpoint.http_port)) for _ in range(2)]
        for connection in held:
            connection.sendall(LIVE)
            assert read_answer(connection)[0] == 200
        with dial(endpoint.http_port) as refused:
            status, answer = read_answer(refused)
            assert (status, answer["error"]) == (503, "the server has its 2 connections already")
            assert is_closed(refused)
        held[0].close()
        held[1].sendall(LIVE)
        assert read_answer(held[1])[0] == 200


def test_an_answer_that_is_not_read(tmp_path, gate, monkeypatch):
    monkeypatch.setattr(connections, "UNREAD_S", 0.2)
    gate.open()
    write_gated(tmp_path, "max_batch_size: 8")
    tensor = make_input("http", np.ones((1, 4_000_000), np.float32))
    body, header_bytes = CLIENTS["http"].InferenceServerClient.generate_request_body([tensor])
    with ModelServer(tmp_path) as server, Endpoint(server, listening()) as endpoint:
        with dial(endpoint.http_port) as connection:
            connection.sendall(make_post("/v2/models/gated/infer", body, {HEADER_LENGTH: header_bytes}))
            assert connection.recv(1, socket.MSG_PEEK)
            gate.wait_inside(1)
            with dial(endpoint.http_port) as other:
                other.settimeout(1)
                assert not is_closed(other)
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(1 << 20):
                    received += len(part)
        assert received < 16_000_000
        assert server.infer("gated", rows(1))["y"].tolist() == [[2]]


def test_pipelined_requests_are_answered_in_their_order(server):
    with served(server) as endpoint, dial(endpoint.http_port) as connection:
        wanted = [b"/v2/models/affine" if n % 3 else b"/v2" for n in range(300)]
        connection.sendall(b"".join(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in wanted))
        with connection.makefile("rb") as stream:
            for path in wanted:
                assert stream.readline().split()[1] == b"200"
                lines = [line.lower() for line in iter(stream.readline, b"\r\n")]
                length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
                assert (b"affine" in stream.read(length)) is (path != b"/v2")


def test_trailers_without_end(server, monkeypatch):
    monkeypatch.setattr(http, "BODY_PAUSE_S", 0.2)
    monkeypatch.setattr(connections, "LINGER_S", 0.2)
    headers = {"Content-Length": None, "Transfer-Encoding": "chunked"}
    with served(server) as endpoint, dial(endpoint.http_port) as connection:
        connection.sendall(make_post("/v2/repository/index", b"", headers) + b"0\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100_000):
                connection.sendall(b"X: " + b"x" * 4000 + b"\r\n")
        assert is_closed(connection)


@pytest.mark.parametrize("port", ["http_port", "grpc_port", "metrics_port"])
def test_rubbish(server, port):
    rng = np.random.default_rng(1)
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    with served(server) as endpoint:
        for sent in [rng.bytes(5000), b"\x16\x03\x01" + rng.bytes(500), hello + rng.bytes(5000), b"\n" * 5000]:
            with dial(getattr(endpoint, port)) as connection:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                assert is_closed(connection), sent[:10]


def test_grpc_that_does_not_begin(server, monkeypatch):
    fast = [
        (key, 200 if key == "grpc.server_handshake_timeout_ms" else value) for key, value in connections.GRPC_OPTIONS
    ]
    monkeypatch.setattr("serving.protocol.endpoint.GRPC_OPTIONS", fast)
    with served(server) as endpoint, dial(endpoint.grpc_port) as connection:
        assert is_closed(connection)


def test_grpc_calls_that_are_over_before_they_begin(server):
    message = service_pb2.ModelInferRequest(model_name="affine")
    message.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    message.raw_input_contents.append(X.tobytes())
    with served(server) as endpoint, grpc.insecure_channel(f"127.0.0.1:{endpoint.grpc_port}") as channel:
        infer = channel.unary_unary(f"{SERVICE}/ModelInfer")
        calls = [infer.future(message.SerializeToString(), timeout=n * 1e-4) for n in range(-1, 30)]
        assert {call.code() for call in calls} <= {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.OK}
        assert {call.code() for call in calls[:2]} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        with pytest.raises(grpc.RpcError) as caught:
            infer(message.SerializeToString(), metadata=[("a", "x" * 100_000)], timeout=20)
        assert caught.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"{SERVICE}/Nothing")(b"", timeout=20)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_many_streams_at_once(server):
    async def ask(endpoint):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{endpoint.grpc_port}") as channel:
            calls = [channel.stream_stream(f"{SERVICE}/ModelStreamInfer")() for _ in range(300)]
            for call in calls:
                await call.write(b"\xff")
            answers = [await call.read() for call in calls]
            assert await channel.unary_unary(f"{SERVICE}/ServerLive")(b"")
        return answers

    with served(server) as endpoint:
        answers = asyncio.run(asyncio.wait_for(ask(endpoint), 20))
    assert {service_pb2.ModelStreamInferResponse.FromString(answer).error_message[:30] for answer in answers} == {
        "the request is not a ModelInfe"
    }
