"""The thread that writes rows back to Redis."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from serving.cache.breaker import Breaker
from serving.cache.redis_reader import disconnect

log = logging.getLogger(__name__)

MAX_WAITING_BYTES = 32 << 20
"""Rows that wait to be written; past it a writer waits for its budget, then its rows are dropped and counted."""

_ROWS_PER_TRIP = 512


class RedisWriter:
    """Writes in the order of `put`, many rows in a round trip; what fails is tried again while the process runs.

    Args:
        client: A Redis client of its own, with time-outs.
        patience_s: How long one round trip may take, its time-outs included.
        encode: Gives the commands that write some rows, one reply each.
        count: Takes written_rows, dropped_rows and errors.
    """

    def __init__(
        self,
        client: Any,
        patience_s: float,
        encode: Callable[[Sequence[bytes], Sequence[bytes]], bytes],
        count: Callable[..., None],
    ) -> None:
        self._client = client
        self._patience_s = patience_s
        self._encode = encode
        self._count = count
        self._changed = threading.Condition()
        self._identities: deque[bytes] = deque()
        self._rows: deque[bytes] = deque()
        self._num_bytes = 0
        self._breaker = Breaker(1, time.monotonic)
        self._is_open = False
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="serving-redis-writer", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._is_open = True
        self._thread.start()

    def close(self, flush_s: float) -> None:
        """Writes what waits, for at most `flush_s` seconds and as long as rows leave, and ends the thread.

        Time-outs of the socket do not bound a server that answers byte by byte: its patience does.
        """
        give_up_s = time.monotonic() + flush_s
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
            is_moving = True
            while is_moving and self._rows and not self._has_ended:
                patience_s = min(self._patience_s, give_up_s - time.monotonic())
                is_moving = self._changed.wait_for(partial(self._is_shorter, len(self._rows)), patience_s)
        disconnect(self._client)
        self._thread.join(self._patience_s)
        with self._changed:
            self._count(dropped_rows=len(self._rows))

    def put(self, identities: Sequence[bytes], rows: Sequence[bytes], budget_s: float) -> None:
        """Queues rows; waits up to `budget_s` for room, then drops them and counts them."""
        num_bytes = sum(map(len, rows))
        give_up_s = time.monotonic() + budget_s
        with self._changed:
            while self._rows and self._num_bytes + num_bytes > MAX_WAITING_BYTES:
                left_s = give_up_s - time.monotonic()
                if left_s <= 0 or self._breaker.is_open or not self._is_open:
                    self._count(dropped_rows=len(rows))
                    return
                self._changed.wait(left_s)
            self._identities.extend(identities)
            self._rows.extend(rows)
            self._num_bytes += num_bytes
            self._changed.notify_all()

    def _is_shorter(self, num_rows: int) -> bool:
        return len(self._rows) < num_rows or self._has_ended

    def _run(self) -> None:
        try:
            self._write_all()
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while self._is_open and not self._rows:
                    self._changed.wait()
                if not self._rows:
                    return
                is_last = not self._is_open
                if self._breaker.is_open and not is_last:
                    self._changed.wait(self._breaker.wait_s)
                    continue
                count = min(len(self._rows), _ROWS_PER_TRIP)
                identities = [self._identities[i] for i in range(count)]
                rows = [self._rows[i] for i in range(count)]
            is_written = self._write(identities, rows)
            with self._changed:
                if not is_written and is_last:
                    return
                if not is_written:
                    self._breaker.fail()
                    continue
                self._breaker.succeed()
                for row in rows:
                    self._identities.popleft()
                    self._rows.popleft()
                    self._num_bytes -= len(row)
                self._changed.notify_all()
            self._count(written_rows=count)

    def _write(self, identities: Sequence[bytes], rows: Sequence[bytes]) -> bool:
        pool = self._client.connection_pool
        try:
            connection = pool.get_connection()
            try:
                connection.send_packed_command([self._encode(identities, rows)])
                for _ in rows:
                    connection.read_response()
            except BaseException:
                connection.disconnect()
                raise
            finally:
                pool.release(connection)
        except Exception as error:
            log.debug("redis write failed: %s", type(error).__name__)
            self._count(errors=1)
            return False
        return True
