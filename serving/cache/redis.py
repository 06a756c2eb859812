"""The second tier of the row cache: a Redis that many processes share, and that may be absent, slow or full of rubbish.

Two threads talk to Redis, one for look-ups and one for writes, each over its own connection; whoever asks waits for
them no longer than the budget. Nothing that Redis does or answers can raise, and no value is believed without its seal.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from monitoring.metrics import SERVING
from serving.cache.breaker import Breaker
from serving.cache.seal import Seal

log = logging.getLogger(__name__)

DEFAULT_TTL_S = 30 * 24 * 3600
MAX_WAITING_BYTES = 32 << 20
"""Rows that wait to be written; past it a writer waits for the budget, then its rows are dropped and counted."""

_ROWS_PER_TRIP = 1024
_TOLERATED_TIMEOUTS = 3


class RedisTier:
    """Sealed rows by identity in Redis, under ``<namespace>:<identity>``, each with a time to live.

    Args:
        url: ``redis://`` or ``rediss://`` (TLS) with user, password and database, as redis-py reads it.
        budget_s: The longest time that a look-up, or a write against a full queue, may take.
        seal: What values are closed with.
        namespace: Before every key.
        ttl_s: Seconds after which Redis forgets a row.
    """

    def __init__(self, url: str, budget_s: float, seal: Seal, namespace: str, ttl_s: int = DEFAULT_TTL_S) -> None:
        self._budget_s = budget_s
        self._seal = seal
        self._prefix = namespace.encode() + b":"
        self._ttl = str(ttl_s).encode()
        options: dict[str, Any] = {
            "socket_timeout": budget_s,
            "socket_connect_timeout": budget_s,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        # A write may take its time: nobody waits for it.
        patient = options | {"socket_timeout": max(budget_s, 1.0), "socket_connect_timeout": max(budget_s, 1.0)}
        self._reader = _Reader(redis.Redis.from_url(url, **options), self._counted)
        self._writer = _Writer(redis.Redis.from_url(url, **patient), self._encode, self._counted)
        self._lock = threading.Lock()
        self._breaker = Breaker(_TOLERATED_TIMEOUTS, time.monotonic)
        self._counts: Counter[str] = Counter()

    def start(self) -> None:
        """Starts the two threads; connects to nothing yet."""
        self._reader.start()
        self._writer.start()

    def close(self, flush_s: float) -> None:
        """Writes what waits, for at most `flush_s` seconds and while Redis takes it, and stops."""
        self._writer.close(flush_s)
        self._reader.close()

    @property
    def counts(self) -> dict[str, int]:
        """What happened since the start.

        Rows: lookup_rows, hit_rows, bad_rows (their seal did not hold), written_rows, dropped_rows (never written).
        Events: skipped_lookups (the breaker was open), timeouts, errors.
        """
        with self._lock:
            return dict(self._counts)

    def get_many(self, identities: Sequence[bytes]) -> list[bytes | None]:
        """Looks rows up, many in a round trip; None for what is not there, not believed, or not answered in time.

        The budget is for each round trip: a Redis that answers is waited for, one that stalls costs it once.
        """
        with self._lock:
            if self._breaker.is_open:
                self._count(skipped_lookups=1)
                return [None] * len(identities)
        lookup = _Lookup([self._prefix + identity for identity in identities])
        self._reader.ask(lookup)
        values, failure = lookup.wait(self._budget_s)
        with self._lock:
            if failure is not None:
                self._count(**{failure: 1})
            if values:
                self._breaker.succeed()
            else:
                self._breaker.fail()
        rows = [
            None if value is None else self._seal.open(i, value) for i, value in zip(identities, values, strict=False)
        ]
        num_hits = sum(row is not None for row in rows)
        num_there = sum(value is not None for value in values)
        self._counted(lookup_rows=len(values), hit_rows=num_hits, bad_rows=num_there - num_hits)
        return rows + [None] * (len(identities) - len(rows))

    def put_many(self, identities: Sequence[bytes], rows: Sequence[bytes]) -> None:
        """Hands rows to the writing thread; waits at most the budget when too many wait already."""
        self._writer.put(identities, rows, self._budget_s)

    def _encode(self, identities: Sequence[bytes], rows: Sequence[bytes]) -> bytes:
        """SET commands with a time to live in Redis's own protocol: redis-py takes five times as long to write them."""
        parts = []
        key_head = b"*5\r\n$3\r\nSET\r\n$%d\r\n%s" % (len(self._prefix) + len(identities[0]), self._prefix)
        tail = b"\r\n$2\r\nEX\r\n$%d\r\n%s\r\n" % (len(self._ttl), self._ttl)
        for identity, row in zip(identities, rows, strict=True):
            value = self._seal.close(identity, row)
            parts += [key_head, identity, b"\r\n$%d\r\n" % len(value), value, tail]
        return b"".join(parts)

    def _counted(self, **amounts: int) -> None:
        with self._lock:
            self._count(**amounts)

    def _count(self, **amounts: int) -> None:
        self._counts.update(amounts)
        SERVING.redis.add(**amounts)


class _Lookup:
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


class _Reader:
    """The thread that looks up."""

    def __init__(self, client: Any, count: Callable[..., None]) -> None:
        self._client = client
        self._count = count
        self._changed = threading.Condition()
        self._waiting: deque[_Lookup] = deque()
        self._is_open = False
        self._thread = threading.Thread(target=self._run, name="serving-redis-reader", daemon=True)

    def start(self) -> None:
        self._is_open = True
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._is_open = False
            self._changed.notify()
        # A look-up that still runs ends with the socket's timeout, unless the server feeds it byte by byte.
        self._thread.join(1.0)
        _disconnect(self._client)

    def ask(self, lookup: _Lookup) -> None:
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
                _disconnect(self._client)
                lookup.fail("timeouts" if isinstance(error, redis.TimeoutError) else "errors")


class _Writer:
    """The thread that writes back; rows wait in memory, at most `MAX_WAITING_BYTES` of them."""

    def __init__(
        self, client: Any, encode: Callable[[Sequence[bytes], Sequence[bytes]], bytes], count: Callable[..., None]
    ) -> None:
        self._client = client
        self._encode = encode
        self._count = count
        self._changed = threading.Condition()
        self._identities: deque[bytes] = deque()
        self._rows: deque[bytes] = deque()
        self._num_bytes = 0
        self._breaker = Breaker(1, time.monotonic)
        self._is_open = False
        self._give_up_s = float("inf")
        self._thread = threading.Thread(target=self._run, name="serving-redis-writer", daemon=True)

    def start(self) -> None:
        self._is_open = True
        self._thread.start()

    def close(self, flush_s: float) -> None:
        with self._changed:
            self._is_open = False
            self._give_up_s = time.monotonic() + flush_s
            self._changed.notify_all()
        self._thread.join(flush_s + 0.1)
        _disconnect(self._client)
        with self._changed:
            self._count(dropped_rows=len(self._rows))

    def put(self, identities: Sequence[bytes], rows: Sequence[bytes], budget_s: float) -> None:
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

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._is_open and not self._rows:
                    self._changed.wait()
                if not self._rows or time.monotonic() >= self._give_up_s:
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


def _disconnect(client: Any) -> None:
    try:
        client.connection_pool.disconnect()
    except Exception as error:
        log.debug("redis disconnect failed: %s", type(error).__name__)
