"""A request's body, put together where it will be read."""

from __future__ import annotations

import numpy as np

ALIGNMENT = 64
_FIRST_BYTES = 64 << 10


class Body:
    """Bytes that come in parts, in one piece of memory.

    Args:
        num_bytes: How many are announced; None: nobody knows. A compressed body grows beyond it.
        max_bytes: How many there may be.
        header_bytes: How many lie before the tensors, of which the first is aligned for numbers.
    """

    def __init__(self, num_bytes: int | None, max_bytes: int, header_bytes: int) -> None:
        self._padding = -header_bytes % ALIGNMENT
        self._max_bytes = max_bytes
        self._memory = self._allocate(_FIRST_BYTES if num_bytes is None else num_bytes)
        self.num_bytes = 0

    def add(self, part: bytes) -> bool:
        """Takes the next part; False: there are more than there may be."""
        if self.num_bytes + len(part) > self._max_bytes:
            return False
        start = self._padding + self.num_bytes
        stop = start + len(part)
        if stop > len(self._memory):
            grown = self._allocate(min(2 * stop, self._max_bytes))
            grown[:start] = self._memory[:start]
            self._memory = grown
        self._memory[start:stop] = part
        self.num_bytes += len(part)
        return True

    @property
    def view(self) -> memoryview:
        """What has come."""
        return self._memory[self._padding : self._padding + self.num_bytes]

    def _allocate(self, num_bytes: int) -> memoryview:
        # numpy's memory is not touched before it is written: who announces much and sends little takes little.
        return np.empty(self._padding + num_bytes, np.uint8).data
