"""The thread that works for shadows, so that no request waits for it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Shadowing:
    """Asks the shadows of a server and compares, in one thread that the first of them starts."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_open = False

    def start(self) -> None:
        """From now on jobs are done."""
        with self._lock:
            self._is_open = True

    def close(self) -> None:
        """Stops once the jobs given are done; later ones never are."""
        with self._lock:
            self._is_open = False
            thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()

    def do(self, job: Callable[[], object]) -> None:
        """Has the thread do something, soon."""
        with self._lock:
            if not self._is_open:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="serving-shadow", daemon=True)
                self._thread.start()
            self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a shadow's answer could not be compared")
