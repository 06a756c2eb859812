"""A thread that ends requests at their deadlines, for every model of a server."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import weakref
from collections.abc import Callable

from serving.answer import Answer

_FEW = 1000


class DeadlineWatch:
    """Settles answers whose time is over; waits on a condition until the next one is due."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._changed = threading.Condition()
        self._due: list[tuple[int, int, weakref.ref[Answer], Callable[[Answer], object]]] = []
        self._order = itertools.count()
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
        with self._changed:
            if len(self._due) > 2 * self._num_kept + _FEW:
                # Most requests are answered long before their deadline: forget them.
                self._due = [entry for entry in self._due if (kept := entry[2]()) is not None and not kept.is_settled]
                heapq.heapify(self._due)
                self._num_kept = len(self._due)
            heapq.heappush(self._due, (due_ns, next(self._order), weakref.ref(answer), expire))
            if self._due[0][0] == due_ns:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closing and (not self._due or self._due[0][0] > self._clock_ns()):
                    self._changed.wait((self._due[0][0] - self._clock_ns()) / 1e9 if self._due else None)
                if self._is_closing:
                    return
                _, _, reference, expire = heapq.heappop(self._due)
            answer = reference()
            if answer is not None and not answer.is_settled:
                expire(answer)
