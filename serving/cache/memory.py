"""The first tier of the row cache: least recently used rows, within a budget of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from serving.cache.identity import IDENTITY_BYTES

# Measured on CPython 3.11: two bytes objects' headers (33 each) and an OrderedDict's entry, list node and free slots.
ENTRY_OVERHEAD_BYTES = 230


class MemoryTier:
    """Packed rows by identity; the caller holds a lock around every method."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rows: OrderedDict[bytes, bytes] = OrderedDict()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, identity: bytes) -> bytes | None:
        """The packed row of an identity, or None; a row found becomes the most recently used."""
        row = self._rows.get(identity)
        if row is not None:
            self._rows.move_to_end(identity)
        return row

    def get_many(self, identities: Sequence[bytes]) -> list[bytes | None]:
        """The packed row of each identity, or None; rows found become the most recently used."""
        get, touch = self._rows.get, self._rows.move_to_end
        found = [get(identity) for identity in identities]
        for identity, row in zip(identities, found, strict=True):
            if row is not None:
                touch(identity)
        return found

    def put_many(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Keeps packed rows by identity, and drops the least recently used ones past the budget."""
        for identity, row in rows:
            if identity not in self._rows:
                self.num_bytes += len(row) + IDENTITY_BYTES + ENTRY_OVERHEAD_BYTES
                self._rows[identity] = row
        while self.num_bytes > self._max_bytes and self._rows:
            _, row = self._rows.popitem(last=False)
            self.num_bytes -= len(row) + IDENTITY_BYTES + ENTRY_OVERHEAD_BYTES
