"""A circuit breaker: after failures it says "do not try" for a while."""

from __future__ import annotations

from collections.abc import Callable

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class Breaker:
    """Opens after `tolerance` failures in a row, for a pause that doubles while the trials after it fail.

    The caller holds a lock around every method.
    """

    def __init__(self, tolerance: int, clock_s: Callable[[], float]) -> None:
        self._tolerance = tolerance
        self._clock_s = clock_s
        self._num_failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._open_until_s = 0.0
        self._has_opened = False

    @property
    def is_open(self) -> bool:
        """Whether nothing should be tried now."""
        return self._clock_s() < self._open_until_s

    @property
    def wait_s(self) -> float:
        """Seconds until the next trial."""
        return max(0.0, self._open_until_s - self._clock_s())

    def succeed(self) -> bool:
        """Notes a success: closed. True when it had been open."""
        has_opened, self._has_opened = self._has_opened, False
        self._num_failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._open_until_s = 0.0
        return has_opened

    def fail(self) -> bool:
        """Notes a failure. True when it opens for it: not when it only stays open after a trial."""
        self._num_failures += 1
        if self._num_failures < self._tolerance:
            return False
        self._open_until_s = self._clock_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        has_opened, self._has_opened = self._has_opened, True
        return not has_opened
