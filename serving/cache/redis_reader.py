"""The thread that looks rows up in Redis."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any

import redis

log = logging.getLogger(__name__)

_ROWS_PER_TRIP = 1024


class Lookup:
    """Keys asked for, and their values, which come in one round trip after another."""

    def __init__(self, keys: list[bytes]) -> None:
        self.keys = keys
        self.is_abandoned = False
        self._changed = threading.Condition()
        self._values: list[object] = []
        self._failure: str | None = None

    def add(self, values: list[object]) -> None:
        """Takes the next values."""
        with self._changed:
            self._values += values
            self._changed.notify()

    def fail(self, failure: str) -> None:
        """No more values will come."""
        with self._changed:
            self._failure = failure
            self._changed.notify()

    def wait(self, budget_s: float) -> tuple[list[object], str | None]:
        """Waits until all values are there, or none came for `budget_s`; gives those there are, and why no more."""
        with self._changed:
            num_seen = -1
            while len(self._values) < len(self.keys) and self._failure is None:
                if len(self._values) == num_seen:
                    self.is_abandoned, self._failure = True, "timeouts"
                    break
                num_seen = len(self._values)
                self._changed.wait(budget_s)
            return list(self._values), self._failure


class RedisReader:
    """Answers look-ups one after another, over one connection."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._waiting: deque[Lookup] = deque()
        self._is_open = False
        self._thread = threading.Thread(target=self._run, name="serving-redis-reader", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._is_open = True
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; look-ups that wait get no answer."""
        with self._changed:
            self._is_open = False
            self._changed.notify()
        # A look-up that still runs loses its connection.
        disconnect(self._client)
        self._thread.join(1.0)

    def ask(self, lookup: Lookup) -> None:
        """Puts a look-up in line; its `wait` gives the values."""
        with self._changed:
            self._waiting.append(lookup)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._is_open and not self._waiting:
                    self._changed.wait()
                if not self._is_open:
                    return
                lookup = self._waiting.popleft()
            try:
                for start in range(0, len(lookup.keys), _ROWS_PER_TRIP):
                    if lookup.is_abandoned:
                        break
                    keys = lookup.keys[start : start + _ROWS_PER_TRIP]
                    values = self._client.mget(keys)
                    if len(values) != len(keys):
                        raise redis.RedisError(f"{len(values)} values for {len(keys)} keys")
                    lookup.add(values)
            except Exception as error:
                # Also whatever redis-py's parser raises on bytes that are no Redis protocol.
                log.debug("redis look-up failed: %s", type(error).__name__)
                disconnect(self._client)
                lookup.fail("timeouts" if isinstance(error, redis.TimeoutError) else "errors")


def disconnect(client: Any) -> None:
    """Closes a client's connections, also under a thread that waits on one; never raises."""
    try:
        client.connection_pool.disconnect()
    except Exception as error:
        log.debug("redis disconnect failed: %s", type(error).__name__)
