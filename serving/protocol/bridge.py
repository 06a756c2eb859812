"""From the event loop to the engine's threads and back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from serving.answer import Answer
from serving.protocol.classification import classify
from serving.protocol.inference import Inference, Inferred
from serving.server import ModelServer

T = TypeVar("T")

# Measured: to hand work to another thread and come back costs about 0.1 ms, as much as to digest 100 kB of rows.
INLINE_BYTES = 128 << 10
NUM_THREADS = 32


class Bridge:
    """Puts inferences to a `ModelServer` and waits for them on the event loop.

    A request is submitted on the loop itself, so that the model's queue sees it at once; only one that would hold the
    loop up, because of its size or because its rows may be looked up in Redis, is submitted by a thread.
    """

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(NUM_THREADS, "serving-bridge")
        # Loads may take minutes: they must not fill the threads that requests need.
        self._loads = ThreadPoolExecutor(1, "serving-load")
        self._lock = threading.Lock()
        self._settled: list[asyncio.Future[None]] = []
        self._num_in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def close(self) -> None:
        """Stops the threads once they are done; nothing may be in flight."""
        self._threads.shutdown()
        self._loads.shutdown()

    async def infer(self, inference: Inference, deadline_s: float | None = None) -> Inferred:
        """Computes what was asked; a cancelled task cancels the request.

        Raises:
            ServingError: As `ModelServer.infer`.
        """
        self._num_in_flight += 1
        self._idle.clear()
        try:
            return await self._infer(inference, deadline_s)
        finally:
            self._num_in_flight -= 1
            if not self._num_in_flight:
                self._idle.set()

    async def until_idle(self, limit_s: float) -> None:
        """Waits until no inference is in flight, for at most `limit_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._idle.wait()

    async def _infer(self, inference: Inference, deadline_s: float | None) -> Inferred:
        is_batched = self._server.is_batched(inference.model, inference.version)
        if is_batched and any(array.shape[:1] == (0,) for array in inference.inputs.values()):
            return await self.aside(lambda: self._infer_no_rows(inference))
        if inference.num_bytes <= INLINE_BYTES and not self._server.submit_may_wait:
            answer = self._submit(inference, deadline_s)
        else:
            answer = await self._submit_aside(inference, deadline_s)
        if not answer.is_settled:
            await self._settlement(answer)
        if answer.error is not None:
            raise answer.error
        # A dict of its own: the answer's may be shared with the requests that followed it.
        outputs = {name: array if is_batched else array[0] for name, array in answer.outputs.items()}
        for wanted in inference.outputs or ():
            if wanted.num_classes:
                outputs[wanted.name] = classify(
                    wanted.name, outputs[wanted.name], wanted.num_classes, is_batched=is_batched
                )
        return Inferred(inference, answer.version, outputs)

    async def aside(self, work: Callable[[], T]) -> T:
        """Does work in a thread; it goes on when the waiting task is cancelled."""
        return await self._loop.run_in_executor(self._threads, work)

    async def load_aside(self, work: Callable[[], T]) -> T:
        """As `aside`, one after the other: for loads and unloads."""
        return await self._loop.run_in_executor(self._loads, work)

    def _submit(self, inference: Inference, deadline_s: float | None) -> Answer:
        parameters = inference.parameters
        return self._server.submit(
            inference.model,
            inference.inputs,
            inference.version,
            outputs=None if inference.outputs is None else [output.name for output in inference.outputs],
            priority=parameters.priority,
            timeout_us=parameters.timeout_us,
            deadline_s=deadline_s,
            parameters=parameters.others,
            key=parameters.routing_key,
            request_id=inference.id,
        )

    async def _submit_aside(self, inference: Inference, deadline_s: float | None) -> Answer:
        submitting = self._threads.submit(self._submit, inference, deadline_s)
        try:
            return await asyncio.wrap_future(submitting)
        except asyncio.CancelledError:
            submitting.add_done_callback(_cancel_submitted)
            raise

    async def _settlement(self, answer: Answer) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        answer.add_done_callback(lambda _: self._bring(future))
        try:
            await future
        except asyncio.CancelledError:
            answer.cancel()
            raise

    def _bring(self, future: asyncio.Future[None]) -> None:
        """Called by whoever settles an answer; the loop is woken once for all that settle before it gets to run."""
        with self._lock:
            self._settled.append(future)
            if len(self._settled) > 1:
                return
        self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            settled, self._settled = self._settled, []
        for future in settled:
            if not future.done():
                future.set_result(None)

    def _infer_no_rows(self, inference: Inference) -> Inferred:
        names = None if inference.outputs is None else [output.name for output in inference.outputs]
        outputs = self._server.infer(inference.model, inference.inputs, inference.version, outputs=names)
        return Inferred(inference, inference.version or self._server.version(inference.model), outputs)


def _cancel_submitted(submitting: Future[Answer]) -> None:
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().cancel()
