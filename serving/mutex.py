"""A lock for a few instructions of many threads."""

from __future__ import annotations

import threading
import time
from types import TracebackType

_PAUSE_S = 0.000_001


class Mutex:
    """A lock that is free as soon as it is released, whoever waits for it.

    `threading.Lock` is handed to the thread that waits longest, which cannot use it before it has the interpreter's
    lock too: where many threads take the same lock all the time, each then waits for each other one at every turn (a
    lock convoy). Here a thread that finds it taken, because its holder was interrupted in the midst of it, steps aside
    and tries again. It must be held for no longer than a few instructions.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        while not self._lock.acquire(False):
            time.sleep(_PAUSE_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
