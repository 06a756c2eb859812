"""An answer that is not there yet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from serving.errors import CancelledError, DeadlineExceededError, ServingError
from serving.tensors import Tensors

log = logging.getLogger(__name__)


class Answer:
    """The outputs of a submitted request, or its error: settled once, the first settlement counts.

    Attributes:
        version: The version of the model that answers; 0 until the server has chosen it.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.version = 0
        self._lock = threading.Lock()
        self._is_settled = False
        self._is_ready = False
        # Held while somebody waits; whoever gets it passes it on. An Event costs five times as much.
        self._ready: threading.Lock | None = None
        # None once they have been called.
        self._callbacks: list[Callable[[Answer], object]] | None = []
        self._outputs: Tensors = {}
        self._error: ServingError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether outputs or an error are there."""
        return self._is_settled

    @property
    def error(self) -> ServingError | None:
        """The error of a settled answer, if it has one."""
        return self._error

    @property
    def outputs(self) -> Tensors:
        """The outputs of an answer settled without error."""
        return self._outputs

    def result(self, timeout_s: float | None = None) -> Tensors:
        """Waits for the outputs: arrays [rows, *dims] by name.

        Raises:
            DeadlineExceededError: Not settled after `timeout_s` seconds; the request itself goes on.
            ServingError: The request failed, was refused, timed out or was cancelled.
        """
        if not self._is_ready and not self._wait(timeout_s):
            raise DeadlineExceededError(f"{self.model}: no answer after {timeout_s} s")
        if self._error is not None:
            raise self._error
        return self._outputs

    def cancel(self) -> bool:
        """Gives the request up: what of it has not been executed never is. False when it was settled before."""
        if self._is_settled:
            return False
        return self.settle(error=CancelledError(f"{self.model}: the request was cancelled"))

    def expire(self) -> bool:
        """Settles with "too late", as `cancel` does; called when the request's deadline passes."""
        return self.settle(
            error=DeadlineExceededError(f"{self.model}: the deadline passed before the answer was there")
        )

    def settle(self, outputs: Tensors | None = None, error: ServingError | None = None) -> bool:
        """Sets outputs or error and runs the callbacks in this thread; False when the answer was settled before.

        The callbacks come before whoever waits in `result`, so that they find the request counted.
        """
        with self._lock:
            if self._is_settled:
                return False
            self._outputs, self._error = outputs or {}, error
            self._is_settled = True
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback(self)
            except Exception:
                # The thread that settles serves others as well.
                log.exception("%s: a callback failed", self.model)
        with self._lock:
            self._is_ready = True
            ready = self._ready
        if ready is not None:
            ready.release()
        return True

    def add_done_callback(self, callback: Callable[[Answer], object]) -> None:
        """Calls `callback(self)` once settled; at once when it already is. It must be quick."""
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback(self)

    def _wait(self, timeout_s: float | None) -> bool:
        with self._lock:
            if self._is_ready:
                return True
            if self._ready is None:
                self._ready = threading.Lock()
                self._ready.acquire()
            ready = self._ready
        if not ready.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0)):
            return False
        ready.release()
        return True
