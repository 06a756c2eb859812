"""The thread that works for shadows, so that no request waits for it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Shadowing:
    """The thread that asks the shadows of a server and compares, so that no request waits for it."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="serving-shadow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the thread once it has done what it was given."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def do(self, job: Callable[[], object]) -> None:
        """Has the thread do something."""
        self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a shadow's answer could not be compared")
