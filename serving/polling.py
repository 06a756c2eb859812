"""A thread that looks at the repository from time to time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

DEFAULT_POLL_S = 15.0
"""Source: tritonserver's --repository-poll-secs."""


class Polling:
    """Calls `look` every `every_s` seconds, from `start` to `close`."""

    def __init__(self, look: Callable[[], object], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._is_over.clear()
        self._thread = threading.Thread(target=self._run, name="serving-polling", daemon=True)
        self._thread.start()

    def close(self, limit_s: float) -> None:
        """Stops the thread, after the look that it is at, or leaves it to end by itself after `limit_s` seconds."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(limit_s)
            self._thread = None

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            try:
                self._look()
            except Exception:
                # A repository that cannot be read now may be there at the next look.
                log.exception("the repository could not be looked at")
