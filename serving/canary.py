"""A version on trial: when it breaks a bound, it is rolled back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from serving.errors import CancelledError, ServingError

_NUM_SLICES = 20


class Rollback(BaseModel):
    """When a version's share of the traffic becomes 0, until its files or its routing change.

    Attributes:
        version: The version, or its alias.
        window_s: Only the requests of so many last seconds count.
        min_requests: Bounds are shares of at least so many requests: a single failure of few is none.
        max_error_rate: Bound on the share of requests that fail through no fault of their senders.
        max_latency_ms: Bound on the latency at `latency_quantile`, from the request to its answer; None: none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    window_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    min_requests: Annotated[int, Field(ge=1)] = 100
    max_error_rate: Annotated[float, Field(ge=0, lt=1)] = 0.02
    max_latency_ms: Annotated[float, Field(gt=0)] | None = None
    latency_quantile: Annotated[float, Field(gt=0, lt=1)] = 0.99


class Canary:
    """Counts what became of a version's requests in a sliding window.

    Args:
        rollback: Its bounds.
        rolled_back: Called with the reason when it breaks one.
        clock_ns: A clock in nanoseconds that never goes back.

    Attributes:
        reason: Why it was rolled back; "" as long as it was not.
    """

    def __init__(self, rollback: Rollback, rolled_back: Callable[[str], object], clock_ns: Callable[[], int]) -> None:
        self.reason = ""
        self._rolled_back = rolled_back
        self._rollback = rollback
        self._clock_ns = clock_ns
        self._slice_ns = int(rollback.window_s * 1e9 / _NUM_SLICES)
        self._max_ns = None if rollback.max_latency_ms is None else int(rollback.max_latency_ms * 1e6)
        self._lock = threading.Lock()
        # Number of the slice of time; requests, errors and slow ones in it.
        self._slices: deque[tuple[int, list[int]]] = deque()
        self._sum = [0, 0, 0]

    def observe(self, duration_ns: int, error: ServingError | None) -> None:
        """Counts a request that is over, unless it failed by its sender's fault or wish."""
        if error is not None and (error.blame == "input" or isinstance(error, CancelledError)):
            return
        is_slow = error is None and self._max_ns is not None and duration_ns > self._max_ns
        with self._lock:
            now = self._clock_ns() // self._slice_ns
            while self._slices and self._slices[0][0] <= now - _NUM_SLICES:
                self._sum = [one - gone for one, gone in zip(self._sum, self._slices.popleft()[1], strict=True)]
            if not self._slices or self._slices[-1][0] != now:
                self._slices.append((now, [0, 0, 0]))
            for counts in (self._slices[-1][1], self._sum):
                counts[0] += 1
                counts[1] += error is not None
                counts[2] += is_slow
            if not self.reason:
                self._judge()

    def _judge(self) -> None:
        rollback = self._rollback
        requests, errors, slow = self._sum
        # Had fewer than the least been asked, more good answers up to it could not mend a broken bound.
        base = max(requests, rollback.min_requests)
        last = f"of its last {requests} requests within {rollback.window_s:g} s"
        if errors > rollback.max_error_rate * base:
            self.reason = (
                f"rolled back: {errors} {last} failed, which is more than a share of {rollback.max_error_rate:g}"
            )
        elif slow > (1 - rollback.latency_quantile) * base:
            self.reason = (
                f"rolled back: {slow} {last} took longer than {rollback.max_latency_ms:g} ms, which is more than a "
                f"share of {1 - rollback.latency_quantile:.3g}"
            )
        else:
            return
        self._rolled_back(self.reason)
