"""A thread that ends requests at their deadlines, for every model of a server."""

from __future__ import annotations

import heapq
import threading
import time
import weakref
from collections.abc import Callable

from serving.answer import Answer

_FEW = 1000
_SLOT_NS = 4_000_000
"""Deadlines are met to this, the later side of it: most requests never reach theirs, so noting one must cost little."""


class DeadlineWatch:
    """Settles answers whose time is over; waits on a condition until the next one is due."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._changed = threading.Condition(threading.Lock())
        # Slots with something in them, as a heap, and what is due in each.
        self._order: list[int] = []
        self._slots: dict[int, list[tuple[weakref.ref[Answer], Callable[[Answer], object]]]] = {}
        self._num_watched = 0
        self._num_kept = 0
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def start(self) -> None:
        """Starts the thread."""
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="serving-deadlines", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the thread; answers watched keep waiting."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def watch(self, answer: Answer, due_ns: int, expire: Callable[[Answer], object]) -> None:
        """Calls `expire(answer)` at `due_ns` (this watch's clock), unless the answer was settled or dropped before."""
        slot = due_ns // _SLOT_NS + 1
        entry = (weakref.ref(answer), expire)
        with self._changed:
            self._num_watched += 1
            if self._num_watched > 2 * self._num_kept + _FEW:
                self._forget_settled()
            entries = self._slots.get(slot)
            if entries is not None:
                entries.append(entry)
                return
            self._slots[slot] = [entry]
            heapq.heappush(self._order, slot)
            if self._order[0] == slot:
                self._changed.notify()

    def _forget_settled(self) -> None:
        """Most requests are answered long before their deadline."""
        for slot, entries in self._slots.items():
            self._slots[slot] = [one for one in entries if (kept := one[0]()) is not None and not kept.is_settled]
        self._num_kept = self._num_watched = sum(map(len, self._slots.values()))

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closing and (wait_s := self._wait_s()) > 0:
                    self._changed.wait(min(wait_s, threading.TIMEOUT_MAX))
                if self._is_closing:
                    return
                entries = self._slots.pop(heapq.heappop(self._order))
                self._num_watched -= len(entries)
            for reference, expire in entries:
                answer = reference()
                if answer is not None and not answer.is_settled:
                    expire(answer)

    def _wait_s(self) -> float:
        """Seconds until the first slot is over."""
        return (self._order[0] * _SLOT_NS - self._clock_ns()) / 1e9 if self._order else threading.TIMEOUT_MAX
