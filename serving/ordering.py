"""Answers in the order of their requests (Triton's ``preserve_ordering``), wherever they come from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from serving.answer import Answer
from serving.errors import CancelledError, DeadlineExceededError, QueueTimeoutError, ServingError
from serving.mutex import Mutex
from serving.request import Call


class ArrivalOrder:
    """Holds each answer back until those of earlier requests are there, also one from the cache behind a miss.

    A request that is given up or whose time is over is answered at once and holds nobody back.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._lock = Mutex()
        self._line: deque[OrderedAnswer] = deque()
        # One thread at a time settles answers, or two would overtake each other.
        self._is_releasing = False

    def submit(self, call: Call, begin: Callable[[Call], Answer]) -> Answer:
        """Begins a call whose answer comes in its turn.

        Raises:
            ServingError: The call was not taken.
        """
        outer = OrderedAnswer(self._label)
        with self._lock:
            self._line.append(outer)
        try:
            inner = begin(call)
        except ServingError as error:
            outer.settle(error=error)
            self._release()
            raise
        if inner.is_settled and self._leaves_first(outer):
            return inner
        # Whoever gives the answer up gives the request up.
        outer.add_done_callback(lambda _: inner.cancel())
        inner.add_done_callback(lambda done: self._arrived(outer, done))
        return outer

    def _leaves_first(self, outer: OrderedAnswer) -> bool:
        """Takes an answer out of the line if it is the first there and nobody is settling others."""
        with self._lock:
            if self._is_releasing or self._line[0] is not outer:
                return False
            self._line.popleft()
        self._release()
        return True

    def _arrived(self, outer: OrderedAnswer, inner: Answer) -> None:
        if inner.error is not None and isinstance(
            inner.error, (CancelledError, DeadlineExceededError, QueueTimeoutError)
        ):
            outer.settle(error=inner.error)
        outer.inner = inner
        self._release()

    def _release(self) -> None:
        """Settles the answers at the front of the line that are there."""
        if self._is_waiting():
            # Whatever makes the first one ready comes here again.
            return
        with self._lock:
            if self._is_releasing:
                # Whoever does looks again after each answer.
                return
            self._is_releasing = True
        while True:
            with self._lock:
                if self._is_waiting():
                    self._is_releasing = False
                    return
                first = self._line.popleft()
            if first.inner is not None:
                first.settle(first.inner.outputs, first.inner.error)

    def _is_waiting(self) -> bool:
        """Whether the first in line is not there yet, or nobody is in line."""
        try:
            first = self._line[0]
        except IndexError:
            return True
        return first.inner is None and not first.is_settled


class OrderedAnswer(Answer):
    """An answer that waits for its turn; `inner` is what it will be, once that is there."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.inner: Answer | None = None
