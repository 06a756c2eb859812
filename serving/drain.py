"""Versions that were replaced or unloaded finish what is in flight, each change of what is served in its own thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from serving.model import STOP_S, Served


class Drain:
    """Closes versions that take no more requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._draining: dict[threading.Thread, Sequence[Served]] = {}

    def close_later(self, order: Sequence[Served], done: Callable[[Served], object]) -> None:
        """Closes versions in this order once nothing of theirs is in flight; calls `done` with each then."""
        if not order:
            return

        def run() -> None:
            for served in order:
                served.close()
                done(served)
            with self._lock:
                del self._draining[threading.current_thread()]

        thread = threading.Thread(target=run, name=f"serving-drain-{order[0].name}", daemon=True)
        with self._lock:
            self._draining[thread] = order
        thread.start()

    def finish(self, limit_s: float) -> None:
        """Waits until all are closed; after `limit_s` seconds fails what is still in flight."""
        ends_s = time.monotonic() + limit_s
        with self._lock:
            draining = dict(self._draining)
        for thread, order in draining.items():
            thread.join(max(ends_s - time.monotonic(), 0))
            if thread.is_alive():
                for served in order:
                    served.give_up()
                thread.join(STOP_S)
