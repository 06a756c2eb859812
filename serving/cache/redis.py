"""The second tier of the row cache: a Redis that many processes share, and that may be absent, slow or full of rubbish.

Two threads talk to Redis, one for look-ups and one for writes, each over its own connection; whoever asks waits for
them no longer than the budget. Nothing that Redis does or answers can raise, and no value is believed without its seal.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from monitoring.metrics import SERVING
from serving.cache.breaker import Breaker
from serving.cache.redis_reader import Lookup, RedisReader
from serving.cache.redis_writer import RedisWriter
from serving.cache.seal import Seal
from serving.errors import InvalidArgumentError

DEFAULT_TTL_S = 30 * 24 * 3600
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
        patience_s = max(budget_s, 1.0)
        patient = options | {"socket_timeout": patience_s, "socket_connect_timeout": patience_s}
        try:
            reading, writing = redis.Redis.from_url(url, **options), redis.Redis.from_url(url, **patient)
        except ValueError:
            # Neither the URL nor redis-py's words for it are repeated: a password may be in them.
            raise InvalidArgumentError(
                "the Redis URL is not redis[s]://[user][:password@]host[:port][/database]"
            ) from None
        self._reader = RedisReader(reading)
        self._writer = RedisWriter(writing, 2 * patience_s, self._encode, self._counted)
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
        Events: skipped_lookups (the breaker was open), timeouts, errors, breaker_opened, breaker_closed.
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
        lookup = Lookup([self._prefix + identity for identity in identities])
        self._reader.ask(lookup)
        values, failure = lookup.wait(self._budget_s)
        with self._lock:
            if failure is not None:
                self._count(**{failure: 1})
            if values and self._breaker.succeed():
                self._count(breaker_closed=1)
            elif not values and self._breaker.fail():
                self._count(breaker_opened=1)
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
