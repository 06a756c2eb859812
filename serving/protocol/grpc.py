"""KServe v2 over gRPC, as Triton's ``GRPCInferenceService``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from serving.errors import ExecutionError, ServingError
from serving.protocol import messages
from serving.protocol.access import HEADER, Access
from serving.protocol.bridge import Bridge
from serving.protocol.control import RemoteControl
from serving.protocol.grpc_message import (
    InferRequest,
    plain_parameters,
    read_inference,
    write_inferred,
    write_streamed,
)
from serving.protocol.inference import read_version
from serving.protocol.status import UnauthenticatedError, UnsupportedError, error_text, grpc_status
from serving.protocol.wire import Buffer
from serving.server import ModelServer

log = logging.getLogger(__name__)

# Requests of one stream that are answered at the same time; further ones are not read before.
_STREAM_REQUESTS = 1024


class GrpcService(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Answers gRPC calls; inferences are answered with serialized messages, so that tensors are copied once."""

    def __init__(self, server: ModelServer, bridge: Bridge, control: RemoteControl) -> None:
        self._server = server
        self._bridge = bridge
        self._control = control

    def handlers(self) -> tuple[str, dict[str, Any]]:
        """The service's name and a handler for each of its methods."""
        taken = _Registry()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, taken)
        taken.handlers["ModelInfer"] = grpc.unary_unary_rpc_method_handler(self.ModelInfer)
        taken.handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(self.ModelStreamInfer)
        return taken.service, taken.handlers

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerLiveResponse(live=self._server.live)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerReadyResponse(ready=self._server.ready())

    async def ModelReady(self, request: Any, context: Any) -> Any:
        return await _answered(
            context,
            lambda: service_pb2.ModelReadyResponse(
                ready=self._server.ready(request.name, read_version(request.version))
            ),
        )

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return messages.server_metadata()

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        return await _answered(
            context, lambda: messages.model_metadata(self._server, request.name, read_version(request.version))
        )

    async def ModelConfig(self, request: Any, context: Any) -> Any:
        return await _answered(
            context, lambda: messages.model_config(self._server, request.name, read_version(request.version))
        )

    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        return await _answered(
            context,
            lambda: messages.model_statistics(self._server, request.name or None, read_version(request.version)),
        )

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:
        def answer() -> Any:
            _refuse_repository(request)
            return messages.repository_index(self._server, only_ready=request.ready)

        return await _answered(context, answer)

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        async def load() -> Any:
            _refuse_repository(request)
            await self._control.load(request.model_name, plain_parameters(request.parameters))
            return service_pb2.RepositoryModelLoadResponse()

        return await _awaited(context, load())

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        async def unload() -> Any:
            _refuse_repository(request)
            await self._control.unload(request.model_name, plain_parameters(request.parameters))
            return service_pb2.RepositoryModelUnloadResponse()

        return await _awaited(context, unload())

    async def ModelInfer(self, serialized: bytes, context: Any) -> bytes:
        try:
            return b"".join(await self._infer(InferRequest(serialized), context.time_remaining()))
        except ServingError as error:
            await context.abort(grpc_status(error), error_text(error))
            raise

    async def ModelStreamInfer(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        # Requests are put to the engine as they come, answered in their order.
        tasks: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue()
        room = asyncio.Semaphore(_STREAM_REQUESTS)

        async def read() -> None:
            try:
                async for request in requests:
                    await room.acquire()
                    tasks.put_nowait(asyncio.create_task(self._streamed(request)))
            finally:
                tasks.put_nowait(None)

        reading = asyncio.create_task(read())
        try:
            while (task := await tasks.get()) is not None:
                yield await task
                room.release()
        finally:
            reading.cancel()
            while not tasks.empty():
                if (left := tasks.get_nowait()) is not None:
                    left.cancel()

    async def _streamed(self, serialized: bytes) -> bytes:
        """One answer of a stream, serialized; an error is an answer, and the stream goes on."""
        request_id = ""
        try:
            request = InferRequest(serialized)
            request_id = request.message.id
            return b"".join(write_streamed(await self._infer(request, None)))
        except ServingError as error:
            failed = service_pb2.ModelStreamInferResponse(error_message=error_text(error))
            failed.infer_response.id = request_id
            answer: bytes = failed.SerializeToString()
            return answer

    async def _infer(self, request: InferRequest, deadline_s: float | None) -> list[Buffer]:
        """The serialized answer to one request, in parts."""
        try:
            return write_inferred(await self._bridge.infer(read_inference(request), deadline_s))
        except ServingError:
            raise
        except Exception as error:
            log.exception("unexpected")
            raise ExecutionError(f"{type(error).__name__}: {error}") from error


def _unsupported(what: str) -> Callable[..., Awaitable[Any]]:
    async def answer(self: GrpcService, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{what} not supported by this server")

    return answer


for _method, _what in {
    "SystemSharedMemoryStatus": "system shared memory is",
    "SystemSharedMemoryRegister": "system shared memory is",
    "SystemSharedMemoryUnregister": "system shared memory is",
    "CudaSharedMemoryStatus": "CUDA shared memory is",
    "CudaSharedMemoryRegister": "CUDA shared memory is",
    "CudaSharedMemoryUnregister": "CUDA shared memory is",
    "TraceSetting": "trace settings are",
    "LogSettings": "log settings are",
}.items():
    setattr(GrpcService, _method, _unsupported(_what))


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls that do not carry the token, before their message is read."""

    def __init__(self, access: Access) -> None:
        self._access = access

        async def refuse(request: Any, context: Any) -> None:
            try:
                access.check(None)
            except UnauthenticatedError as error:
                await context.abort(grpc_status(error), error.message)

        async def refuse_stream(requests: Any, context: Any) -> AsyncIterator[bytes]:
            await refuse(None, context)
            yield b""

        self._refuse = grpc.unary_unary_rpc_method_handler(refuse)
        self._refuse_stream = grpc.stream_stream_rpc_method_handler(refuse_stream)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Gives the call's handler, or one that refuses it."""
        given = [value for key, value in details.invocation_metadata if key == HEADER]
        if len(given) == 1 and self._access.allows(given[0]):
            return await continuation(details)
        return self._refuse_stream if details.method.endswith("/ModelStreamInfer") else self._refuse


class _Registry:
    """Takes handlers as a gRPC server does."""

    def __init__(self) -> None:
        self.service = ""
        self.handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        pass

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        self.service, self.handlers = service, dict(handlers)


def _refuse_repository(request: Any) -> None:
    if request.repository_name:
        raise UnsupportedError("'repository_name' is not supported: this server has one repository")


async def _answered(context: Any, answer: Callable[[], Any]) -> Any:
    """What `answer` gives; its error ends the call."""

    async def call() -> Any:
        return answer()

    return await _awaited(context, call())


async def _awaited(context: Any, work: Awaitable[Any]) -> Any:
    """What `work` comes to; its error ends the call."""
    try:
        return await work
    except ServingError as error:
        await context.abort(grpc_status(error), error_text(error))
