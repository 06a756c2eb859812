"""KServe v2 over HTTP, with Triton's extensions, and the page of metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from aiohttp.client_exceptions import ClientPayloadError

from monitoring.page import render_page
from serving.errors import ExecutionError, InvalidArgumentError, NotFoundError, ServingError
from serving.protocol import messages
from serving.protocol.access import HEADER, Access
from serving.protocol.body import Body
from serving.protocol.bridge import INLINE_BYTES, Bridge
from serving.protocol.compression import ENCODINGS, choose_encoding, compress
from serving.protocol.control import RemoteControl
from serving.protocol.http_message import (
    HEADER_LENGTH,
    HttpAnswer,
    parse_object,
    read_inference,
    write_inferred,
)
from serving.protocol.inference import Inference, Inferred, read_version
from serving.protocol.status import TooLargeError, TooSlowError, UnsupportedError, error_text, http_status
from serving.protocol.wire import Buffer
from serving.server import ModelServer

log = logging.getLogger(__name__)

BODY_PAUSE_S = 30.0
"""How long a request's body may stop arriving."""
BODY_BYTES_PER_S = 4096
"""How fast it must arrive, beyond that time: one byte now and then holds a connection as well."""

# An answer shorter than a packet gains nothing by compression.
_MIN_COMPRESSED_BYTES = 1024
# JSON costs far more time per byte than binary data.
_INLINE_JSON_VALUES = 4096

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpService:
    """Answers HTTP requests."""

    def __init__(
        self, server: ModelServer, bridge: Bridge, control: RemoteControl, access: Access, max_request_bytes: int
    ) -> None:
        self._server = server
        self._bridge = bridge
        self._control = control
        self._access = access
        self._max_request_bytes = max_request_bytes

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request; whatever is wrong with it is a JSON object ``{"error": ...}``."""
        try:
            self._access.check(request.headers.get(HEADER))
            self._access.check_origin(request.headers.get("Origin"))
            return await self._dispatch(request)
        except ServingError as error:
            return _error(error)
        except Exception as error:
            log.exception("unexpected")
            return _error(ExecutionError(f"{type(error).__name__}: {error}"))

    async def _dispatch(self, request: web.BaseRequest) -> web.StreamResponse:
        path = [unquote(part) for part in request.rel_url.raw_path.strip("/").split("/")]
        match request.method, *path:
            case "POST", "v2", "models", name, "infer":
                return await self._infer(request, name, None)
            case "POST", "v2", "models", name, "versions", version, "infer":
                return await self._infer(request, name, read_version(version))
            case "GET", "v2":
                return _json(messages.to_plain(messages.server_metadata()))
            case "GET", "v2", "health", "live":
                return web.Response(status=200 if self._server.live else 400)
            case "GET", "v2", "health", "ready":
                return web.Response(status=200 if self._server.ready() else 400)
            case "GET", "v2", "models", "stats":
                return _json(messages.to_plain(messages.model_statistics(self._server, None, None)))
            case "GET", "v2", "models", name, "versions", version, *what:
                return self._describe(name, read_version(version), what)
            case "GET", "v2", "models", name, *what:
                return self._describe(name, None, what)
            case "POST", "v2", "repository", "index":
                return await self._index(request)
            case "POST", "v2", "repository", "models", name, "load":
                body = await self._object(request)
                await self._control.load(name, _control_parameters(body))
                return web.Response()
            case "POST", "v2", "repository", "models", name, "unload":
                body = await self._object(request)
                await self._control.unload(name, _control_parameters(body))
                return web.Response()
            case _, "v2", "repository", _, "models", _, "load" | "unload":
                raise UnsupportedError("a repository's name is not supported: this server has one repository")
            case _, "v2", ("systemsharedmemory" | "cudasharedmemory") as kind, *_:
                raise UnsupportedError(f"{kind} is not supported by this server")
            case (_, "v2", "trace", *_) | (_, "v2", "models", _, "trace", *_):
                raise UnsupportedError("trace settings are not supported by this server")
            case _, "v2", "logging":
                raise UnsupportedError("log settings are not supported by this server")
            case _, "v2", "models", _, "generate" | "generate_stream":
                raise UnsupportedError("the generate extension is not supported by this server")
        raise NotFoundError(f"nothing answers {request.method} {request.rel_url.raw_path!r}")

    def _describe(self, name: str, version: int | None, what: list[str]) -> web.Response:
        match what:
            case []:
                return _json(messages.to_plain(messages.model_metadata(self._server, name, version)))
            case ["ready"]:
                return web.Response(status=200 if self._server.ready(name, version) else 400)
            case ["config"]:
                return _json(messages.to_plain(self._server.config(name, version)))
            case ["stats"]:
                return _json(messages.to_plain(messages.model_statistics(self._server, name, version)))
        raise NotFoundError(f"a model has no {'/'.join(what)!r}: ask for its 'ready', 'config' or 'stats'")

    async def _index(self, request: web.BaseRequest) -> web.Response:
        only_ready = (await self._object(request)).get("ready", False)
        if not isinstance(only_ready, bool):
            raise InvalidArgumentError("ready must be true or false", field="ready")
        entries = messages.to_plain(messages.repository_index(self._server, only_ready=only_ready))["models"]
        return _json([{key: value for key, value in entry.items() if value} for entry in entries])

    async def _infer(self, request: web.BaseRequest, name: str, version: int | None) -> web.StreamResponse:
        header_bytes = _header_bytes(request)
        body = await self._body(request, header_bytes)
        read: Callable[[], Inference] = partial(read_inference, name, version, body, header_bytes)
        json_bytes = len(body) if header_bytes is None else header_bytes
        inference = await self._aside_if(json_bytes > INLINE_BYTES, read)
        inferred = await self._bridge.infer(inference)
        write: Callable[[], HttpAnswer] = partial(write_inferred, inferred)
        answer = await self._aside_if(_num_json_values(inferred) > _INLINE_JSON_VALUES, write)
        size = sum(map(len, answer.parts))
        headers = {"Content-Type": "application/json"}
        if answer.header_bytes is not None:
            headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(answer.header_bytes)}
        encoding = choose_encoding(request.headers.get("Accept-Encoding", ""))
        if encoding is None or size < _MIN_COMPRESSED_BYTES:
            return await _send(request, answer.parts, size, headers)
        content = await self._aside_if(size > INLINE_BYTES, partial(compress, answer.parts, encoding))
        return web.Response(body=content, headers={**headers, "Content-Encoding": encoding})

    async def _aside_if(self, is_much: bool, work: Callable[[], Any]) -> Any:
        return await self._bridge.aside(work) if is_much else work()

    async def _object(self, request: web.BaseRequest) -> dict[str, Any]:
        body = await self._body(request, None)
        return parse_object(body) if body else {}

    async def _body(self, request: web.BaseRequest, header_bytes: int | None) -> memoryview:
        """The whole body, decompressed; what lies behind the first `header_bytes` is aligned for numbers.

        Raises:
            ServingError: Too large, too slow, cut short, or not compressed as its header says.
        """
        encoding = request.headers.get("Content-Encoding", "identity").lower()
        if encoding not in ("identity", *ENCODINGS):
            raise UnsupportedError(
                f"Content-Encoding {encoding[:100]!r} is none of {', '.join(ENCODINGS)}", field="Content-Encoding"
            )
        if request.content_length is not None and request.content_length > self._max_request_bytes:
            raise self._too_large(f"{request.content_length} bytes")
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = Body(request.content_length, self._max_request_bytes, header_bytes or 0)
        begun_s = time.monotonic()
        try:
            while True:
                ahead_s = body.num_bytes / BODY_BYTES_PER_S - (time.monotonic() - begun_s)
                async with asyncio.timeout(BODY_PAUSE_S + min(ahead_s, 0)):
                    part, _ = await request.content.readchunk()
                if not part and request.content.at_eof():
                    return body.view
                if not body.add(part):
                    raise self._too_large("larger")
        except TimeoutError as error:
            raise TooSlowError(
                f"the request's body stopped after {body.num_bytes} bytes: it may pause for {BODY_PAUSE_S:.0f} s, and "
                f"must bring {BODY_BYTES_PER_S} bytes/s"
            ) from error
        except (web.RequestPayloadError, ClientPayloadError) as error:
            raise InvalidArgumentError(f"the request's body cannot be read: {error}") from error

    def _too_large(self, size: str) -> TooLargeError:
        return TooLargeError(f"the request's body is {size}; this server takes {self._max_request_bytes} bytes at most")


async def _send(
    request: web.BaseRequest, parts: list[Buffer], size: int, headers: dict[str, str]
) -> web.StreamResponse:
    """Sends a small answer in one piece, and of a large one each tensor from where it lies."""
    if size <= INLINE_BYTES:
        return web.Response(body=b"".join(parts), headers=headers)
    response = web.StreamResponse(headers=headers)
    response.content_length = size
    await response.prepare(request)
    for part in parts:
        await response.write(part)
    await response.write_eof()
    return response


async def answer_metrics(access: Access, request: web.BaseRequest) -> web.StreamResponse:
    """Answers on the port of the metrics: ``/metrics`` alone."""
    try:
        access.check(request.headers.get(HEADER))
        if request.rel_url.raw_path != "/metrics":
            raise NotFoundError("the metrics are at /metrics")
    except ServingError as error:
        return _error(error)
    content_type, page = render_page(request.headers.get("Accept", ""))
    return web.Response(body=page, headers={"Content-Type": content_type})


def _header_bytes(request: web.BaseRequest) -> int | None:
    text = request.headers.get(HEADER_LENGTH)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise InvalidArgumentError(f"{HEADER_LENGTH} is {text[:100]!r}, not a number of bytes", field=HEADER_LENGTH)
    return int(text)


def _num_json_values(inferred: Inferred) -> int:
    wanted, all_binary = inferred.wanted, inferred.inference.all_binary
    return sum(
        array.size for name, array in inferred.outputs.items() if not (wanted[name].is_binary if wanted else all_binary)
    )


def _control_parameters(body: dict[str, Any]) -> dict[str, Any]:
    parameters = body.get("parameters", {})
    if not isinstance(parameters, dict):
        raise InvalidArgumentError("parameters must be a JSON object", field="parameters")
    return parameters


def _json(value: Any) -> web.Response:
    return web.Response(body=json.dumps(value).encode(), content_type="application/json")


def _error(error: ServingError) -> web.Response:
    response = _json({"error": error_text(error)})
    response.set_status(http_status(error))
    if isinstance(error, TooLargeError | TooSlowError):
        # The rest of the body is not read.
        response.force_close()
    return response
