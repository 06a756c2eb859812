"""The batcher of a model: a queue, and a thread for each instance that takes batches from it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from serving.answer import Answer
from serving.config import ModelConfig
from serving.deadlines import DeadlineWatch
from serving.errors import DeadlineExceededError, ExecutionError, ServingError, UnavailableError
from serving.instance import Instance
from serving.queue import RequestQueue
from serving.request import Call, Piece, Request
from serving.tensors import Tensors


class Batcher:
    """Gathers the requests of all threads into batches.

    With no queue delay a request goes at once when an instance is idle, and requests gather while all are busy.
    """

    def __init__(
        self,
        label: str,
        config: ModelConfig,
        instances: Sequence[Instance],
        max_batch_size: int,
        watch: DeadlineWatch,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._label = label
        self._max_batch_size = max_batch_size
        self._instances = instances
        self._watch = watch
        self._clock_ns = clock_ns
        self._changed = threading.Condition()
        self._queue = RequestQueue(label, config.dynamic_batching, self._max_batch_size)
        self._threads: list[threading.Thread] = []
        self._is_open = False
        # With preserve_ordering: requests in order of arrival, with their outcome once it is known.
        self._preserves_order = config.dynamic_batching is not None and config.dynamic_batching.preserve_ordering
        self._ordered: deque[Request] = deque()
        self._outcomes: dict[Request, Tensors | ServingError] = {}

    def start(self) -> None:
        """Starts a thread per instance."""
        self._is_open = True
        for number, instance in enumerate(self._instances):
            thread = threading.Thread(
                target=self._run, args=(instance,), name=f"serving-{self._label}-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Takes no more requests, finishes those that wait, and joins the threads."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        with self._changed:
            return sum(self._queue.depths)

    def submit(self, call: Call) -> Answer:
        """Puts a call into the queue.

        Raises:
            UnavailableError: The queue is full, or the batcher is not running.
            InvalidArgumentError: Its priority is above the model's levels.
        """
        request = Request(self._label, call, self._max_batch_size, self._clock_ns())
        with self._changed:
            if not self._is_open:
                raise UnavailableError(f"{self._label}: is not running")
            self._queue.put(request)
            rejects_late = self._queue.rejects_late(request)
            if self._preserves_order:
                self._ordered.append(request)
            self._changed.notify()
        if request.expires_ns and rejects_late:
            self._watch.watch(request, request.expires_ns, self._expire)
        return request

    def _run(self, instance: Instance) -> None:
        while True:
            with self._changed:
                while not isinstance(chosen := self._queue.take(self._clock_ns(), hurry=not self._is_open), list):
                    if chosen is None:
                        if not self._is_open:
                            return
                        self._changed.wait()
                    else:
                        self._changed.wait((chosen - self._clock_ns()) / 1e9)
                if not self._queue.is_empty:
                    self._changed.notify()
            self._execute(instance, chosen)

    def _execute(self, instance: Instance, pieces: list[Piece]) -> None:
        """Executes a batch and hands out what came of it; whatever happens, every request learns of it."""
        pieces = [piece for piece in pieces if not piece.request.is_settled]
        if not pieces:
            return
        try:
            outcomes = instance.run(pieces)
        except Exception as error:
            outcomes = [ExecutionError(f"{self._label}: {type(error).__name__}: {error}") for _ in pieces]
        for piece, outcome in zip(pieces, outcomes, strict=True):
            whole: Tensors | ServingError | None
            try:
                whole = piece.request.accept(piece, outcome) if isinstance(outcome, dict) else outcome
            except ExecutionError as error:
                whole = error
            if whole is not None:
                self._finish(piece.request, whole)

    def _finish(self, request: Request, outcome: Tensors | ServingError) -> None:
        if not self._preserves_order:
            _settle(request, outcome)
            return
        with self._changed:
            if not request.is_settled:
                self._outcomes[request] = outcome
            ready = []
            while self._ordered and (self._ordered[0] in self._outcomes or self._ordered[0].is_settled):
                first = self._ordered.popleft()
                if first in self._outcomes:
                    ready.append((first, self._outcomes.pop(first)))
        for first, its_outcome in ready:
            _settle(first, its_outcome)

    def _expire(self, answer: Answer) -> None:
        """Refuses a request whose time in the queue is over; one that has started is let run."""
        with self._changed:
            if isinstance(answer, Request) and answer.has_started:
                return
        answer.settle(error=DeadlineExceededError(f"{self._label}: the request's time in the queue was over"))


def _settle(request: Request, outcome: Tensors | ServingError) -> None:
    if isinstance(outcome, dict):
        request.settle(outputs=outcome)
    else:
        request.settle(error=outcome)
