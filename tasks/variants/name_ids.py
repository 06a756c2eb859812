"""Numbers for names that stand in blocks of text: contigs, INFO and FORMAT keys."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

_FNV_BASIS, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@njit(cache=True, nogil=True)
def _same(text: Any, begin: int, names: Any, low: int, length: int) -> bool:
    offset = 0
    while offset < length and text[begin + offset] == names[low + offset]:
        offset += 1
    return offset == length


@njit(cache=True, nogil=True)
def _number(
    text: Any, begin: Any, end: Any, first: int, names: Any, offsets: Any, count: int, table: Any, out: Any
) -> tuple[int, int]:
    """Numbers names from `first` on; stops where a new one does not fit.

    Returns:
        The first name that has no number yet, and the names known by then.
    """
    mask = np.uint64(len(table) - 1)
    last = -1
    for row in range(first, len(begin)):
        length = end[row] - begin[row]
        is_last = last >= 0 and offsets[last + 1] - offsets[last] == length
        if is_last and _same(text, begin[row], names, offsets[last], length):
            out[row] = last
            continue
        mixed = _FNV_BASIS
        for at in range(begin[row], end[row]):
            mixed = (mixed ^ np.uint64(text[at])) * _FNV_PRIME
        slot = (mixed ^ (mixed >> np.uint64(32))) & mask
        while table[slot] >= 0:
            low = offsets[table[slot]]
            if offsets[table[slot] + 1] - low == length and _same(text, begin[row], names, low, length):
                break
            slot = (slot + np.uint64(1)) & mask
        if table[slot] < 0:
            if 2 * (count + 1) > len(table) or count + 2 > len(offsets) or offsets[count] + length > len(names):
                return row, count
            for offset in range(length):
                names[offsets[count] + offset] = text[begin[row] + offset]
            offsets[count + 1] = offsets[count] + length
            table[slot] = count
            count += 1
        last = table[slot]
        out[row] = last
    return len(begin), count


class NameIds:
    """Gives each distinct name a number, in the order of first sight.

    Attributes:
        names: The names so far; a name's place is its number.
    """

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self._allocate(64, 4096)

    def _allocate(self, max_names: int, num_bytes: int) -> None:
        """Makes room for more names; `max_names` is a power of two."""
        self._names = np.empty(num_bytes, dtype=np.uint8)
        self._offsets = np.zeros(max_names + 1, dtype=np.int64)
        self._table = np.full(2 * max_names, -1, dtype=np.int32)
        text = np.frombuffer(b"".join(self.names), dtype=np.uint8).copy()
        ends = np.cumsum([len(name) for name in self.names], dtype=np.int64)
        begins = ends - np.array([len(name) for name in self.names], dtype=np.int64)
        self._scan(text, begins, ends, 0, 0, np.empty(len(ends), dtype=np.int32))

    def _scan(
        self,
        text: NDArray[np.uint8],
        begin: NDArray[np.int64],
        end: NDArray[np.int64],
        first: int,
        count: int,
        out: Any,
    ) -> tuple[int, int]:
        row, count = _number(text, begin, end, first, self._names, self._offsets, count, self._table, out)
        return int(row), int(count)

    def ids(self, text: NDArray[np.uint8], begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int32]:
        """Numbers the names at these places of a text.

        Args:
            text: uint8 [size], writable.
            begin: int64 [n], first bytes.
            end: int64 [n], one past the last ones.

        Returns:
            int32 [n].
        """
        out = np.empty(len(begin), dtype=np.int32)
        row, count = 0, len(self.names)
        while True:
            row, count = self._scan(text, begin, end, row, count, out)
            bounds = self._offsets[len(self.names) : count + 1].tolist()
            self.names.extend(self._names[low:high].tobytes() for low, high in pairwise(bounds))
            if row == len(begin):
                return out
            length = int(end[row] - begin[row])
            self._allocate(len(self._table), 2 * (len(self._names) + length))
