"""An endpoint with small models, and Triton's own clients for it."""

from __future__ import annotations

import contextlib
import json
import socket

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from serving.protocol.endpoint import Endpoint, Listening
from serving.server import ModelServer
from tests.serving.models import affine, write_ensemble, write_model

CLIENTS = {"grpc": tritonclient.grpc, "http": tritonclient.http}


def listening(**changes) -> Listening:
    """Any free ports of loopback."""
    return Listening(**{"http_port": 0, "grpc_port": 0, "metrics_port": 0, **changes})


def connect(kind: str, endpoint: Endpoint, **options):
    """Triton's client of a kind."""
    port = endpoint.grpc_port if kind == "grpc" else endpoint.http_port
    return contextlib.closing(CLIENTS[kind].InferenceServerClient(f"127.0.0.1:{port}", **options))


def make_input(kind: str, array: np.ndarray, name: str = "x", **options):
    """An input of a client."""
    names = {"float32": "FP32", "float64": "FP64", "uint8": "UINT8", "object": "BYTES"}
    tensor = CLIENTS[kind].InferInput(name, list(array.shape), names[array.dtype.name])
    tensor.set_data_from_numpy(array, **options)
    return tensor


def make_post(path: str, body: bytes, headers: dict | None = None) -> bytes:
    """A POST, with headers of its own."""
    fields = {"Host": "a", "Content-Length": len(body), **(headers or {})}
    lines = [f"POST {path} HTTP/1.1", *(f"{key}: {value}" for key, value in fields.items() if value is not None)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def post(endpoint: Endpoint, path: str, body: bytes | dict, headers: dict | None = None) -> tuple[int, dict]:
    """Posts what no client would send; gives status and JSON."""
    return send(endpoint, make_post(path, json.dumps(body).encode() if isinstance(body, dict) else body, headers))


def send(endpoint: Endpoint, request: bytes) -> tuple[int, dict]:
    """Sends bytes over a connection of its own; gives status and JSON of what comes back."""
    with socket.create_connection(("127.0.0.1", endpoint.http_port), 10) as connection:
        connection.sendall(request)
        return read_answer(connection)


def read_answer(connection: socket.socket) -> tuple[int, dict]:
    """Status and JSON of one answer."""
    with connection.makefile("rb") as stream:
        status = int(stream.readline().split()[1])
        headers = dict(line.decode().lower().strip().split(": ", 1) for line in iter(stream.readline, b"\r\n"))
        body = stream.read(int(headers["content-length"]))
    return status, json.loads(body) if "json" in headers.get("content-type", "") else {"text": body.decode()}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for version, bias in [(1, 1.0), (3, 3.0)]:
        write_model(
            folder,
            "affine",
            affine(bias=bias),
            "max_batch_size: 8 version_policy { all { } } "
            "dynamic_batching { priority_levels: 2 default_priority_level: 2 }",
            version,
        )
    write_model(folder, "single", affine(batch=1))
    write_ensemble(folder)
    return folder


@pytest.fixture(scope="module")
def endpoint(repository):
    with ModelServer(repository) as server, Endpoint(server, listening(max_request_bytes=1 << 20)) as endpoint:
        yield endpoint


@pytest.fixture(params=["grpc", "http"])
def kind(request):
    return request.param


@pytest.fixture
def client(kind, endpoint):
    with connect(kind, endpoint) as client:
        yield client


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
