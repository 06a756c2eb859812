"""Who may speak to the server, and from where."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tritonclient.utils import InferenceServerException

from serving.errors import InvalidArgumentError, UnavailableError
from serving.protocol.endpoint import Endpoint, Tls
from serving.server import ModelServer
from tests.serving.models import affine, affine_answer, write_model
from tests.serving.protocol.conftest import listening, make_input, read_answer

TOKEN = "a-token-of-the-tests"
X = np.ones((2, 4), np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, "affine", affine(), "max_batch_size: 8")
    with ModelServer(folder) as server:
        yield server


@pytest.fixture(scope="module")
def tls(tmp_path_factory) -> Tls:
    """A certificate of 127.0.0.1 that nobody signed but itself."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = Tls(folder / "certificate.pem", folder / "key.pem")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


def test_beyond_loopback_a_token_and_a_certificate_are_needed(server, tls):
    for changes, word in [
        ({}, "a token and a TLS certificate are needed"),
        ({"token": TOKEN}, "a token and a TLS certificate are needed"),
        ({"tls": tls}, "a token and a TLS certificate are needed"),
        ({"tls": tls, "token": "short"}, "16 or more"),
    ]:
        for host in ("0.0.0.0", "::"):
            with pytest.raises(InvalidArgumentError, match=word):
                Endpoint(server, listening(host=host, **changes))
    with pytest.raises(InvalidArgumentError, match=r"host 'no\.such\.host\.invalid'"):
        Endpoint(server, listening(host="no.such.host.invalid"))


def test_a_token_over_tls_on_every_address(server, tls):
    with Endpoint(server, listening(host="0.0.0.0", token=TOKEN, tls=tls)) as endpoint:
        http = tritonclient.http.InferenceServerClient(
            f"127.0.0.1:{endpoint.http_port}",
            ssl=True,
            ssl_context_factory=lambda: ssl.create_default_context(cafile=tls.certificate),
        )
        rpc = tritonclient.grpc.InferenceServerClient(
            f"127.0.0.1:{endpoint.grpc_port}", ssl=True, root_certificates=str(tls.certificate)
        )
        for kind, client, status in [("http", http, "401"), ("grpc", rpc, "StatusCode.UNAUTHENTICATED")]:
            right = {"authorization": f"Bearer {TOKEN}"}
            result = client.infer("affine", [make_input(kind, X)], headers=right)
            np.testing.assert_allclose(result.as_numpy("y"), affine_answer(X), rtol=1e-5)
            assert client.is_server_ready(headers=right)
            for wrong in [None, {"authorization": f"Bearer {TOKEN}x"}, {"authorization": TOKEN}]:
                with pytest.raises(InferenceServerException, match="send the server's token") as caught:
                    client.infer("affine", [make_input(kind, X)], headers=wrong)
                assert caught.value.status() == status
                assert TOKEN not in str(caught.value)
            client.close()
        with grpc.insecure_channel(f"127.0.0.1:{endpoint.grpc_port}") as channel:
            with pytest.raises(grpc.RpcError):
                channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=5)


def test_loads_by_clients_need_a_token(server):
    with pytest.raises(InvalidArgumentError, match="a token is needed"):
        Endpoint(server, listening(allow_control=True))


def test_the_token_is_asked_for_on_streams_and_metrics(server):
    with Endpoint(server, listening(token=TOKEN)) as endpoint:
        with grpc.insecure_channel(f"127.0.0.1:{endpoint.grpc_port}") as channel:
            stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            with pytest.raises(grpc.RpcError) as caught:
                list(stream(iter([b""]), timeout=5))
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        for port in (endpoint.http_port, endpoint.metrics_port):
            for value, status in [("", 401), (f"Bearer {TOKEN}", 404), ("\xff", 401)]:
                request = f"GET /nothing HTTP/1.1\r\nHost: a\r\nAuthorization: {value}\r\n\r\n".encode("latin-1")
                assert _send_to(port, request)[0] == status


def test_a_web_page_is_refused_without_a_token(server):
    request = b"GET /v2 HTTP/1.1\r\nHost: a\r\nOrigin: https://page.example\r\n"
    with Endpoint(server, listening()) as endpoint:
        status, answer = _send_to(endpoint.http_port, request + b"\r\n")
    assert (status, answer["error"]) == (401, "requests of web pages are refused by a server without a token")
    with Endpoint(server, listening(token=TOKEN)) as endpoint:
        token = f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
        assert _send_to(endpoint.http_port, request + token)[0] == 200


def test_metrics(server):
    with Endpoint(server, listening()) as endpoint:
        server.infer("affine", {"x": X})
        status, page = _send_to(endpoint.metrics_port, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
    assert status == 200
    assert 'nv_inference_request_success{model="affine",version="1"}' in page["text"]


def test_a_port_that_is_taken(server):
    with Endpoint(server, listening()) as endpoint:
        for name in ("http_port", "grpc_port", "metrics_port"):
            port = getattr(endpoint, name)
            second = Endpoint(server, listening(**{name: port}))
            with pytest.raises(UnavailableError, match=f"cannot listen on 127.0.0.1, port {port}"):
                second.start()


def test_a_key_that_is_not_the_certificates(server, tls, tmp_path):
    other = tmp_path / "key.pem"
    other.write_text("no key")
    with pytest.raises(InvalidArgumentError, match=r"certificate .*certificate.pem with key .*key.pem"):
        Endpoint(server, listening(tls=Tls(tls.certificate, other))).start()


def _send_to(port: int, request: bytes) -> tuple[int, dict]:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(request)
        return read_answer(connection)
