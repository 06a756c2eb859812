"""The batcher of a model: a queue, and a thread for each instance that takes batches from it."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from serving.answer import Answer
from serving.config import ModelConfig
from serving.deadlines import DeadlineWatch
from serving.errors import ExecutionError, QueueTimeoutError, ServingError, UnavailableError
from serving.instance import Instance
from serving.mutex import Mutex
from serving.queue import RequestQueue
from serving.request import Call, Piece, Request
from serving.tensors import Tensors

if TYPE_CHECKING:
    from serving.length_choice import LengthChoice

# `settling` of a thread that settles the requests of a batch: the batchers that the callbacks gave requests to. They
# look when all are there, so that what was one batch in one model can be one in the next.
_thread = threading.local()


_RETURN_SHARE = 1 / 16
_SHORTEST_PAUSE_S = 0.000_05
_LONGEST_PAUSE_S = 0.001


class Scheduler(ABC):
    """What stands between the requests for a model and its instances."""

    @abstractmethod
    def start(self) -> None:
        """Starts a thread per instance."""

    @abstractmethod
    def close(self) -> None:
        """Takes no more requests, finishes those that wait, and joins the threads."""

    @property
    @abstractmethod
    def depths(self) -> list[int]:
        """Requests in the queue, by priority level."""

    @abstractmethod
    def submit(self, call: Call) -> Answer:
        """Puts a call into the queue.

        Raises:
            UnavailableError: The queue is full, or the scheduler is not running.
            InvalidArgumentError: Its priority is above the model's levels, or its lengths do not fit.
        """

    def run(self, call: Call) -> Answer:
        """As `submit`, for a thread that waits for the answer: it may do the work itself.

        Raises:
            UnavailableError: As `submit`.
            InvalidArgumentError: As `submit`.
        """
        return self.submit(call)


class Batcher(Scheduler):
    """Gathers the requests of all threads into batches.

    With no queue delay a request goes at once when an instance is idle, and requests gather while all are busy; one
    that has answered several is busy for a moment longer, so that they can ask again (`_await_returns`). Whoever brings
    the request that makes a batch ready hands it to an idle instance, so that what goes does not depend on how fast
    threads wake.

    Args:
        label: Name and version of the model.
        config: Its configuration.
        instances: What executes; a thread each.
        max_batch_size: Rows of the largest batch.
        watch: Refuses requests whose time in the queue is over.
        choice: Chooses among requests of different lengths; None: the model is given no padded rows.
        clock_ns: A clock in nanoseconds that never goes back.
    """

    def __init__(
        self,
        label: str,
        config: ModelConfig,
        instances: Sequence[Instance],
        max_batch_size: int,
        watch: DeadlineWatch,
        choice: LengthChoice | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._label = label
        self._config = config
        self._request_inputs = config.request_inputs
        self._ragged = frozenset(spec.name for spec in config.inputs if spec.is_ragged)
        self._has_optional = any(spec.is_optional for spec in config.inputs)
        self._max_batch_size = max_batch_size
        self._seats = [_Seat(instance) for instance in instances]
        self._watch = watch
        self._clock_ns = clock_ns
        self._lock = Mutex()
        self._queue = RequestQueue(label, config.dynamic_batching, max_batch_size, choice)
        self._idle: list[_Seat] = []
        batching = config.dynamic_batching
        self._expects_returns = batching is not None and batching.max_queue_delay_us == 0
        has_delay = batching is not None and batching.max_queue_delay_us > 0
        self._can_lend = not has_delay and all(instance.is_shareable for instance in instances)
        self._is_open = False

    def start(self) -> None:
        """Starts a thread per instance."""
        self._is_open = True
        for number, seat in enumerate(self._seats):
            seat.thread = threading.Thread(
                target=self._run, args=(seat,), name=f"serving-{self._label}-{number}", daemon=True
            )
            seat.thread.start()

    def close(self) -> None:
        """Takes no more requests, finishes those that wait, and joins the threads."""
        with self._lock:
            self._is_open = False
            for seat in self._idle:
                seat.wake.release()
            self._idle = []
        for seat in self._seats:
            if seat.thread is not None:
                seat.thread.join()
                seat.thread = None

    @property
    def depths(self) -> list[int]:
        """Requests in the queue, by priority level."""
        with self._lock:
            return self._queue.depths

    def submit(self, call: Call) -> Answer:
        """Puts a call into the queue, and gives the batch to an idle instance if it is ready.

        Raises:
            UnavailableError: The queue is full, or the batcher is not running.
            InvalidArgumentError: Its priority is above the model's levels, or its lengths do not fit.
        """
        request = self._make_request(call)
        self._enqueue(request)
        return request

    def _make_request(self, call: Call) -> Request:
        padding = self._config.padding
        if padding is None:
            return Request(self._label, call, self._max_batch_size, self._clock_ns(), shape_key=self._shape_key(call))
        length = padding.length(self._label, self._request_inputs, call.inputs)
        group = self._seats[0].instance.length_steps.group(length)
        return Request(self._label, call, self._max_batch_size, self._clock_ns(), length, group)

    def _enqueue(self, request: Request) -> None:
        with self._lock:
            if not self._is_open:
                raise UnavailableError(f"{self._label}: is not running")
            self._queue.put(request)
            rejects_late = request.expires_ns and self._queue.rejects_late(request)
            if self._idle:
                settling = getattr(_thread, "settling", None)
                if settling is None:
                    self._hand_over(request.enqueued_ns)
                else:
                    settling[self] = None
        if rejects_late:
            self._watch.watch(request, request.expires_ns, self._expire)

    def run(self, call: Call) -> Answer:
        """As `submit`, but where an instance is idle this thread executes the call itself: nothing is handed over.

        Only of backends that any thread may call, and only a call without a deadline: else its thread must be free to
        give it up.

        Raises:
            UnavailableError: As `submit`.
            InvalidArgumentError: As `submit`.
        """
        if not self._can_lend or call.rows > self._max_batch_size or call.deadline_ns is not None:
            return self.submit(call)
        self._queue.check(call)
        request = self._make_request(call)
        with self._lock:
            seat = self._idle.pop() if self._idle and self._queue.is_empty else None
        if seat is None:
            self._enqueue(request)
            return request
        try:
            self._execute(seat.instance, [request.take_piece()])
        finally:
            self._give_back(seat)
        return request

    def _give_back(self, seat: _Seat) -> None:
        """Ends the use of an instance by a caller's thread: its own thread takes what came meanwhile."""
        with self._lock:
            if not self._is_open:
                seat.wake.release()
                return
            self._idle.append(seat)
            if not self._queue.is_empty:
                self._hand_over(self._clock_ns())

    def look(self) -> None:
        """Gives batches that are ready to idle instances."""
        with self._lock:
            self._hand_over(self._clock_ns())

    def _shape_key(self, call: Call) -> Hashable | None:
        """What requests must have in common to lie in one batch; None: the shapes of their rows."""
        if not self._ragged and not self._has_optional:
            return None
        return tuple([(name, array.shape[1:]) for name, array in call.inputs.items() if name not in self._ragged])

    def _hand_over(self, now_ns: int) -> None:
        """Gives batches that are ready to idle instances; sees to it that one wakes when the next delay is over."""
        while self._idle:
            chosen = self._queue.take(now_ns)
            if isinstance(chosen, list):
                seat = self._idle.pop()
                seat.batch = chosen
                seat.wake.release()
                if self._queue.is_empty:
                    return
                continue
            if chosen is not None and not any(seat.looks_ns and seat.looks_ns <= chosen for seat in self._idle):
                self._idle.pop().wake.release()
            return

    def _run(self, seat: _Seat) -> None:
        while True:
            batch = self._next_batch(seat)
            if batch is None:
                return
            begun_ns = self._clock_ns()
            self._execute(seat.instance, batch)
            if self._expects_returns and len(batch) > 1:
                self._await_returns(len(batch), self._clock_ns() - begun_ns)

    def _await_returns(self, num_answered: int, took_ns: int) -> None:
        """Lets those who were just answered ask again, for a little of the time that their batch took.

        Else the first of them to return would be executed alone, and all others would wait for that. Nobody waits for
        company after a batch of one request, nor where as many wait already as might come back.
        """
        pause_s = min(took_ns * _RETURN_SHARE / 1e9, _LONGEST_PAUSE_S)
        if pause_s < _SHORTEST_PAUSE_S:
            return
        with self._lock:
            if not self._is_open or self._queue.num_requests >= num_answered:
                return
        time.sleep(pause_s)

    def _next_batch(self, seat: _Seat) -> list[Piece] | None:
        """What the instance executes next; None when the batcher is closed and nothing waits."""
        while True:
            with self._lock:
                now_ns = self._clock_ns()
                chosen = self._queue.take(now_ns, hurry=not self._is_open)
                if isinstance(chosen, list):
                    if self._idle and not self._queue.is_empty:
                        self._hand_over(now_ns)
                    return chosen
                if not self._is_open:
                    return None
                seat.looks_ns = chosen or 0
                self._idle.append(seat)
            if chosen is None:
                seat.wake.acquire()
            elif not seat.wake.acquire(timeout=max((chosen - now_ns) / 1e9, 0)):
                with self._lock:
                    if seat in self._idle:
                        self._idle.remove(seat)
                        continue
                # A batch, or the end, came at this very moment.
                seat.wake.acquire()
            batch, seat.batch = seat.batch, None
            if batch is not None:
                return batch

    def _execute(self, instance: Instance, pieces: list[Piece]) -> None:
        """Executes a batch and hands out what came of it; whatever happens, every request learns of it."""
        pieces = [piece for piece in pieces if not piece.request.is_settled]
        if not pieces:
            return
        begun_ns = self._clock_ns()
        interrupt: BaseException | None = None
        outcomes: Sequence[Tensors | ServingError]
        try:
            outcomes = instance.run(pieces)
        except BaseException as error:
            outcomes = [ExecutionError(f"{self._label}: {type(error).__name__}: {error}") for _ in pieces]
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                # Ctrl-C, while a waiting thread executed its own call.
                interrupt = error
        settling: dict[Batcher, None] = {}
        _thread.settling = settling
        try:
            for piece, outcome in zip(pieces, outcomes, strict=True):
                finish_piece(piece, outcome)
        finally:
            _thread.settling = None
        for other in settling:
            other.look()
        if self._config.padding is not None:
            instance.cost.observe(instance.padded_tokens(pieces), self._clock_ns() - begun_ns)
        if interrupt is not None:
            raise interrupt

    def _expire(self, answer: Answer) -> None:
        """Refuses a request whose time in the queue is over; one that has started is let run."""
        with self._lock:
            if isinstance(answer, Request) and answer.has_started:
                return
        answer.settle(
            error=QueueTimeoutError(f"{self._label}: Request timeout expired: the request's time in the queue was over")
        )


class _Seat:
    """An instance's place in its batcher: its thread, and the batch it is given."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.thread: threading.Thread | None = None
        self.batch: list[Piece] | None = None
        # While idle: when it looks at the queue again, because a delay is over then; 0: it does not.
        self.looks_ns = 0
        # Held unless there is something to wake up for.
        self.wake = threading.Lock()
        self.wake.acquire()


def finish_piece(piece: Piece, outcome: Tensors | ServingError) -> None:
    """Gives a request what came of one of its pieces, and settles it when that was the last or an error."""
    request = piece.request
    whole: Tensors | ServingError | None = outcome
    if isinstance(outcome, dict):
        try:
            whole = request.accept(piece, outcome)
        except ExecutionError as error:
            whole = error
    if isinstance(whole, dict):
        request.settle(outputs=whole)
    elif whole is not None:
        request.settle(error=whole)
