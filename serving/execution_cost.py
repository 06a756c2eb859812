"""What an execution costs, learnt from the executions themselves."""

from __future__ import annotations

import threading

_MEMORY = 0.99
"""Weight of an execution after the next one: the last hundred count."""
_NUM_BEFORE_CLIPPING = 8
_LONGEST = 3.0
"""An execution that took more times what was expected (a pause of the machine) counts as this."""


class ExecutionCost:
    """Time of an execution as ``fixed_ns + token_ns * padded tokens``: least squares over the latest executions.

    Before there is something to learn from, only the fixed part is there: the more tokens in a batch, the better. Any
    thread may call `observe` and read both parts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.fixed_ns = 1.0
        self.token_ns = 0.0
        self._num_seen = 0
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    def observe(self, tokens: int, duration_ns: int) -> None:
        """Learns from an execution of so many tokens, padding included."""
        with self._lock:
            self._observe(tokens, duration_ns)

    def _observe(self, tokens: int, duration_ns: int) -> None:
        y = float(duration_ns)
        if self._num_seen >= _NUM_BEFORE_CLIPPING:
            y = min(y, _LONGEST * (self.fixed_ns + self.token_ns * tokens))
        self._num_seen += 1
        self._weight = _MEMORY * self._weight + 1
        self._x = _MEMORY * self._x + tokens
        self._y = _MEMORY * self._y + y
        self._xx = _MEMORY * self._xx + tokens * tokens
        self._xy = _MEMORY * self._xy + tokens * y
        spread = self._weight * self._xx - self._x * self._x
        if self._num_seen < 2 or spread <= 1e-9 * self._weight * self._xx:
            # Batches of one size do not tell the two parts apart.
            return
        slope = (self._weight * self._xy - self._x * self._y) / spread
        base = (self._y - slope * self._x) / self._weight
        if slope < 0:
            slope, base = 0.0, self._y / self._weight
        elif base < 0:
            slope, base = self._xy / self._xx, 0.0
        self.fixed_ns, self.token_ns = base, slope
