"""The rows a server knows, and the rows it is computing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from serving.answer import Answer
from serving.cache.memory import MemoryTier
from serving.mutex import Mutex


class Flight(Answer):
    """Rows being computed for one call; settled when `rows` holds them all, with an error when it never will."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.rows: dict[bytes, bytes] = {}


class Tier(Protocol):
    """A place beyond this process that keeps packed rows; it never raises."""

    def get_many(self, identities: Sequence[bytes]) -> list[bytes | None]:
        """The packed row of each identity, or None."""

    def put_many(self, identities: Sequence[bytes], rows: Sequence[bytes]) -> None:
        """Keeps packed rows, soon."""


class RowCache:
    """Packed rows in memory and beyond, and those in flight, for all models of a server.

    Args:
        max_bytes: Budget of the tier in memory.
        second: The tier beyond this process, if there is one.
    """

    def __init__(self, max_bytes: int, second: Tier | None) -> None:
        self._lock = Mutex()
        self._memory = MemoryTier(max_bytes)
        self._second = second
        self._in_flight: dict[bytes, Flight] = {}

    @property
    def has_second(self) -> bool:
        """Whether there is a tier beyond this process."""
        return self._second is not None

    @property
    def num_bytes(self) -> int:
        """Bytes held in memory."""
        return self._memory.num_bytes

    @property
    def num_rows(self) -> int:
        """Rows held in memory."""
        return len(self._memory)

    def claim_row(self, identity: bytes, model: str) -> bytes | Flight | None:
        """A row's packed outputs, or a new flight that computes it for `model`; None: a flight of others does."""
        with self._lock:
            row = self._memory.get(identity)
            if row is not None:
                return row
            if identity in self._in_flight:
                return None
            flight = self._in_flight[identity] = Flight(model)
            return flight

    def claim(self, identities: Sequence[bytes], flight: Flight) -> list[bytes | Flight]:
        """For each row its packed outputs, or the flight that computes it: `flight` itself where nobody does yet."""
        with self._lock:
            lead = self._in_flight.setdefault
            return [
                lead(identity, flight) if row is None else row
                for identity, row in zip(identities, self._memory.get_many(identities), strict=True)
            ]

    def look_up(self, identities: Sequence[bytes]) -> list[bytes | None]:
        """Asks the second tier, in one round trip."""
        if self._second is None or not identities:
            return [None] * len(identities)
        return self._second.get_many(identities)

    def land(self, flight: Flight, rows: dict[bytes, bytes]) -> None:
        """Keeps rows of a flight in memory; they are in flight no more."""
        with self._lock:
            self._memory.put_many(rows.items())
            self._leave(flight, rows)

    def abandon(self, flight: Flight, identities: Sequence[bytes]) -> None:
        """Rows of a flight that were not computed are in flight no more."""
        with self._lock:
            self._leave(flight, identities)

    def write_back(self, identities: Sequence[bytes], rows: Sequence[bytes]) -> None:
        """Hands computed rows to the second tier."""
        if self._second is not None:
            self._second.put_many(identities, rows)

    def _leave(self, flight: Flight, identities: Sequence[bytes] | dict[bytes, bytes]) -> None:
        for identity in identities:
            if self._in_flight.get(identity) is flight:
                del self._in_flight[identity]
