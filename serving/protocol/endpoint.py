"""Where a model server listens: an event loop in a thread, with HTTP, gRPC and metrics on it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
import uvloop
from aiohttp import web

from serving.errors import InvalidArgumentError, UnavailableError
from serving.protocol.access import Access
from serving.protocol.bridge import Bridge
from serving.protocol.connections import GRPC_OPTIONS, HttpServer
from serving.protocol.control import RemoteControl
from serving.protocol.grpc import GrpcService, TokenInterceptor
from serving.protocol.http import HttpService, answer_metrics
from serving.server import ModelServer

log = logging.getLogger(__name__)

DEFAULT_MAX_REQUEST_BYTES = 64 << 20
DEFAULT_DRAIN_S = 15.0
"""Twice as long is what Kubernetes and Triton give a server to stop."""
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of the certificate (PEM, with the chain) and its key (PEM)."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Listening:
    """Where an `Endpoint` listens, and what it takes.

    Attributes:
        host: Name or address.
        http_port: Port of HTTP; 0: any free one. So are the others.
        tls: Certificate and key, needed beyond loopback.
        token: What clients must send, needed beyond loopback, and by `allow_control`.
        allow_control: Whether clients may load and unload models: whoever may, runs code of his own as this user.
        max_request_bytes: The largest body or message.
        drain_s: How long `Endpoint.close` waits for requests in flight, before it takes no more and after it.
    """

    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    tls: Tls | None = None
    token: str | None = None
    allow_control: bool = False
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES
    drain_s: float = DEFAULT_DRAIN_S

    def check(self) -> None:
        """Refuses what would serve strangers.

        Raises:
            InvalidArgumentError: The host is beyond loopback, and token or certificate is missing; or clients may load
                models without a token.
        """
        if self.token is not None and (
            len(self.token) < 16 or not self.token.isascii() or not self.token.isprintable()
        ):
            raise InvalidArgumentError("the token must be 16 or more printable ASCII characters", field="token")
        if self.allow_control and self.token is None:
            raise InvalidArgumentError(
                "clients that load models run code as this user, and other users of this machine reach its loopback: "
                "a token is needed",
                field="token",
            )
        if _is_loopback(self.host):
            return
        for what, value in (("token", self.token), ("tls", self.tls)):
            if value is None:
                raise InvalidArgumentError(
                    f"host {self.host!r} is beyond loopback: a token and a TLS certificate are needed", field=what
                )


class Endpoint:
    """Serves a running `ModelServer` to clients; use it as a context manager, or call `start` and `close`."""

    def __init__(self, server: ModelServer, listening: Listening) -> None:
        """Starts nothing.

        Raises:
            InvalidArgumentError: See `Listening.check`.
        """
        listening.check()
        self._server = server
        self._listening = listening
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: Exception | None = None
        self.http_port = 0
        self.grpc_port = 0
        self.metrics_port = 0

    def start(self) -> None:
        """Listens, and comes back once clients are answered.

        Raises:
            UnavailableError: A port is taken, or the host is not this machine's.
            InvalidArgumentError: Certificate or key cannot be used.
        """
        self._thread = threading.Thread(target=self._run, name="serving-protocol", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            self._thread = None
            raise self._failure

    def close(self) -> None:
        """Stops as soon as no request is in flight; after `Listening.drain_s` seconds it takes no more.

        Those then in flight have as long again.
        """
        if self._thread is None or self._loop is None or self._closing is None:
            return
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()
        self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except Exception as error:
            if self._started.is_set():
                log.exception("the endpoint stopped")
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        listening = self._listening
        access = Access(listening.token)
        context = None if listening.tls is None else _tls_context(listening.tls)
        bridge = Bridge(self._server)
        control = RemoteControl(self._server, bridge, is_allowed=listening.allow_control)
        http = HttpService(self._server, bridge, control, access, listening.max_request_bytes)
        runners = [
            web.ServerRunner(HttpServer(answer), shutdown_timeout=listening.drain_s)
            for answer in (http.answer, partial(answer_metrics, access))
        ]
        grpc_server = _make_grpc_server(access, listening.max_request_bytes)
        grpc_server.add_registered_method_handlers(*GrpcService(self._server, bridge, control).handlers())
        try:
            ports = []
            for runner, port in zip(runners, (listening.http_port, listening.metrics_port), strict=True):
                await runner.setup()
                ports.append(await _listen_http(runner, listening, port, context))
            self.http_port, self.metrics_port = ports
            self.grpc_port = _listen_grpc(grpc_server, listening)
            await grpc_server.start()
            self._started.set()
            await self._closing.wait()
            # Still listening: whoever asks whether the server is ready is told that it is not.
            await bridge.until_idle(listening.drain_s)
        finally:
            await asyncio.gather(grpc_server.stop(listening.drain_s), *(runner.cleanup() for runner in runners))
            bridge.close()


def _make_grpc_server(access: Access, max_request_bytes: int) -> grpc.aio.Server:
    return grpc.aio.server(
        interceptors=() if access.is_open else (TokenInterceptor(access),),
        options=(
            ("grpc.max_receive_message_length", max_request_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            *GRPC_OPTIONS,
        ),
    )


async def _listen_http(
    runner: web.ServerRunner, listening: Listening, port: int, context: ssl.SSLContext | None
) -> int:
    site = web.TCPSite(runner, listening.host, port, backlog=_BACKLOG, ssl_context=context, reuse_address=True)
    try:
        await site.start()
    except OSError as error:
        raise UnavailableError(f"cannot listen on {listening.host}, port {port}: {error}") from error
    address = runner.addresses[0]
    return int(address[1])


def _listen_grpc(server: grpc.aio.Server, listening: Listening) -> int:
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    address = f"{host}:{listening.grpc_port}"
    try:
        if listening.tls is None:
            return int(server.add_insecure_port(address))
        pair = (listening.tls.key.read_bytes(), listening.tls.certificate.read_bytes())
        return int(server.add_secure_port(address, grpc.ssl_server_credentials([pair])))
    except RuntimeError as error:
        raise UnavailableError(f"cannot listen on {listening.host}, port {listening.grpc_port}: {error}") from error


def _tls_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"certificate {tls.certificate} with key {tls.key}: {error}", field="tls") from error
    return context


def _is_loopback(host: str) -> bool:
    """Whether every address of a host is this machine's alone."""
    try:
        found = socket.getaddrinfo(host, None)
    except OSError as error:
        raise InvalidArgumentError(f"host {host!r}: {error}", field="host") from error
    return bool(found) and all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)
