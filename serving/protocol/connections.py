"""Connections: how many there may be, and how long one may keep its server waiting."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web

MAX_CONNECTIONS = 1000
"""How many a port takes."""
IDLE_S = 60.0
"""How long one of HTTP may be open without a request whose headers are complete."""
UNREAD_S = 30.0
"""How long a client of HTTP may leave what it was sent unread."""
LINGER_S = 2.0
"""How long what a client of HTTP still sends is dropped, so that it comes to read why it was refused."""

GRPC_OPTIONS = (
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    # What has not begun to speak HTTP/2 by then is closed.
    ("grpc.server_handshake_timeout_ms", 20_000),
    # Further ones wait with the client.
    ("grpc.max_concurrent_streams", 4096),
    # A client that is gone without a word is found out while it has calls.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Clients of Triton keep connections alive by pings.
    ("grpc.http2.max_ping_strikes", 0),
)
"""The same of gRPC."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpServer(web.Server):
    """aiohttp's server, for clients of whom nobody knows what they are up to."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(
            handler, handler_cancellation=True, access_log=None, keepalive_timeout=IDLE_S, lingering_time=LINGER_S
        )

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Takes a connection, or answers that there are too many."""
        super().connection_made(handler, transport)
        if len(self.connections) > MAX_CONNECTIONS:
            error = json.dumps({"error": f"the server has its {MAX_CONNECTIONS} connections already"}).encode()
            head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(error)}"
            transport.write(head.encode() + b"\r\nConnection: close\r\n\r\n" + error)
            handler.force_close()
            return
        # Linux closes a connection for which this time has passed with bytes that nobody took.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_S * 1e3))
