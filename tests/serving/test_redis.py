"""The second tier on a real Redis: absent, stalled, flushed, full of rubbish, it changes no answer."""

from __future__ import annotations

import itertools
import socket
import threading
import time

import numpy as np
import pytest

from serving.cache.redis import RedisTier
from serving.cache.seal import Seal
from serving.errors import InvalidArgumentError
from serving.server import ModelServer
from tests.redis_fixture import RedisServer
from tests.serving.models import affine, affine_answer, write_model

CACHED = "max_batch_size: 8 dynamic_batching { } response_cache { enable: true }"
X = np.random.default_rng(5).normal(size=(100, 4)).astype(np.float32)


@pytest.fixture
def repository(tmp_path):
    write_model(tmp_path, "affine", affine(), CACHED)
    return tmp_path


def run(repository, url, x=X, **options):
    """Answers, the model's statistics, the cache's, and seconds, of a fresh server."""
    with ModelServer(repository, redis_url=url, **options) as server:
        begun_s = time.monotonic()
        y = server.infer("affine", {"x": x})["y"]
        took_s = time.monotonic() - begun_s
        statistics = server.statistics()["affine"]
    assert statistics["cache_hits"] + statistics["cache_misses"] + statistics["cache_coalesced"] == len(x)
    return y, statistics, server.cache_statistics(), took_s


def test_a_later_server_finds_every_row(repository, redis_server):
    first, cold, counts, _ = run(repository, redis_server.url, cache_budget_ms=5000)
    assert cold["rows_executed"] == 100
    assert counts["redis_written_rows"] == 100
    second, warm, _, _ = run(repository, redis_server.url, cache_budget_ms=5000)
    assert warm["rows_executed"] == 0
    assert warm["cache_hits"] == warm["cache_hits_redis"] == 100
    assert first.tobytes() == second.tobytes()
    np.testing.assert_allclose(first, affine_answer(X), rtol=1e-5, atol=1e-6)
    keys = redis_server.client.keys("*")
    assert len(keys) == 100
    assert all(key.startswith(b"cohortflow:") for key in keys)
    assert 0 < redis_server.client.ttl(keys[0]) <= 30 * 24 * 3600


def test_other_weights_find_nothing(repository, redis_server, tmp_path):
    run(repository, redis_server.url, cache_budget_ms=5000)
    write_model(tmp_path, "affine", affine(bias=2), CACHED)
    y, statistics, _, _ = run(repository, redis_server.url, cache_budget_ms=5000)
    assert statistics["cache_hits"] == 0
    np.testing.assert_allclose(y, affine_answer(X, 2.0), rtol=1e-5, atol=1e-6)


def test_flushed_in_mid_run(repository, redis_server):
    with ModelServer(repository, redis_url=redis_server.url, cache_budget_ms=5000, cache_bytes=0) as server:
        for _ in range(3):
            np.testing.assert_allclose(server.infer("affine", {"x": X})["y"], affine_answer(X), rtol=1e-5, atol=1e-6)
            redis_server.client.flushall()


def test_rubbish_is_not_believed(repository, redis_server):
    expected, _, _, _ = run(repository, redis_server.url, cache_budget_ms=5000)
    client = redis_server.client
    keys = sorted(client.keys("*"))
    swapped = client.get(keys[0])
    for number, key in enumerate(keys):
        client.set(key, [b"", b"rubbish", swapped, client.get(key)[:-1], b"\xff" * 28][number % 5])
    client.delete(keys[5])
    client.lpush(keys[5], "a list")
    y, statistics, counts, _ = run(repository, redis_server.url, cache_budget_ms=5000)
    assert y.tobytes() == expected.tobytes()
    assert statistics["cache_misses"] >= 99
    assert counts["redis_bad_rows"] >= 98
    assert run(repository, redis_server.url, cache_budget_ms=5000)[1]["rows_executed"] == 0


def test_a_stalled_redis_costs_its_budget_a_few_times(repository, redis_server):
    run(repository, redis_server.url)
    redis_server.stall()
    try:
        begun_s = time.monotonic()
        with ModelServer(repository, redis_url=redis_server.url, cache_bytes=0) as server:
            for _ in range(20):
                np.testing.assert_allclose(
                    server.infer("affine", {"x": X})["y"], affine_answer(X), rtol=1e-5, atol=1e-6
                )
            took_s = time.monotonic() - begun_s
            counts = server.cache_statistics()
        assert took_s < 1.5
        assert counts["redis_timeouts"] == 3
        assert counts["redis_skipped_lookups"] == 17
        assert time.monotonic() - begun_s < took_s + 4
    finally:
        redis_server.resume()


def test_the_breaker_opens_and_closes_again_and_both_are_counted(repository, redis_server):
    run(repository, redis_server.url, cache_budget_ms=5000)
    with ModelServer(repository, redis_url=redis_server.url, cache_bytes=0) as server:
        ask_s = []

        def ask():
            begun_s = time.monotonic()
            np.testing.assert_allclose(server.infer("affine", {"x": X})["y"], affine_answer(X), rtol=1e-5, atol=1e-6)
            ask_s.append(time.monotonic() - begun_s)

        redis_server.stall()
        try:
            for _ in range(10):
                ask()
            assert server.cache_statistics()["redis_breaker_opened"] == 1
            assert "redis_breaker_closed" not in server.cache_statistics()
            assert max(ask_s) < 0.05 + 0.1
        finally:
            redis_server.resume()
        give_up_s = time.monotonic() + 10
        while "redis_breaker_closed" not in server.cache_statistics():
            assert time.monotonic() < give_up_s
            time.sleep(0.05)
            ask()
        before = server.statistics()["affine"]["cache_hits_redis"]
        ask()
        assert server.statistics()["affine"]["cache_hits_redis"] == before + 100
        counts = server.cache_statistics()
    assert (counts["redis_breaker_opened"], counts["redis_breaker_closed"]) == (1, 1)


def test_stopped_in_mid_run_and_started_again(repository, redis_server):
    with ModelServer(repository, redis_url=redis_server.url, cache_bytes=0) as server:
        for step in (redis_server.stop, redis_server.start):
            np.testing.assert_allclose(server.infer("affine", {"x": X})["y"], affine_answer(X), rtol=1e-5, atol=1e-6)
            step()
            for _ in range(5):
                begun_s = time.monotonic()
                np.testing.assert_allclose(
                    server.infer("affine", {"x": X})["y"], affine_answer(X), rtol=1e-5, atol=1e-6
                )
                assert time.monotonic() - begun_s < 0.05 + 0.1
        statistics = server.statistics()["affine"]
    assert statistics["cache_hits"] + statistics["cache_misses"] == statistics["rows"] == 1200


@pytest.mark.parametrize("fault", ["absent", "wrong password", "no redis at all"])
def test_a_redis_that_cannot_be_used(repository, redis_server, fault, tmp_path):
    url = redis_server.url
    if fault == "absent":
        redis_server.stop()
    elif fault == "wrong password":
        server = RedisServer(tmp_path, password="right")
        server.start()
        url = server.url.replace("right", "wrong")
    else:
        url = "redis://127.0.0.1:9/0"
    begun_s = time.monotonic()
    y, statistics, counts, took_s = run(repository, url)
    np.testing.assert_allclose(y, affine_answer(X), rtol=1e-5, atol=1e-6)
    assert statistics["rows_executed"] == 100
    assert counts["redis_errors"] >= 1
    assert counts["redis_dropped_rows"] == 100
    assert took_s < 0.5
    assert time.monotonic() - begun_s < 3
    if fault == "wrong password":
        server.stop()


class Impostor:
    """Something that listens where Redis should, and answers what it likes, a piece at a time."""

    def __init__(self, pieces, pause_s):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._socket.getsockname()[1]}/0"
        self._pieces, self._pause_s = pieces, pause_s
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        while not self._closing.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._talk, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _talk(self, connection):
        with connection:
            for piece in itertools.cycle(self._pieces):
                if self._closing.wait(self._pause_s):
                    return
                try:
                    connection.sendall(piece)
                except OSError:
                    return

    def close(self):
        self._closing.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.mark.parametrize(
    ("pieces", "pause_s"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], 0.001),
        ([b"*2\r\n$-1\r\n$-1\r\n"], 0.001),
        ([b"$5\r\nhel"], 0.01),
        ([b"\xff\x00" * 999], 0.001),
        ([b"+"], 0.02),
    ],
)
def test_something_else_answers_in_its_place(repository, pieces, pause_s):
    impostor = Impostor(pieces, pause_s)
    try:
        begun_s = time.monotonic()
        with ModelServer(repository, redis_url=impostor.url, cache_bytes=0) as server:
            for _ in range(8):
                before_s = time.monotonic()
                np.testing.assert_allclose(
                    server.infer("affine", {"x": X})["y"], affine_answer(X), rtol=1e-5, atol=1e-6
                )
                assert time.monotonic() - before_s < 0.05 + 0.25
            statistics = server.statistics()["affine"]
        assert statistics["rows_executed"] == 800
        assert time.monotonic() - begun_s < 5
    finally:
        impostor.close()


def test_the_right_password(repository, tmp_path_factory):
    server = RedisServer(tmp_path_factory.mktemp("redis"), password="right")
    server.start()
    run(repository, server.url, cache_budget_ms=5000)
    assert run(repository, server.url, cache_budget_ms=5000)[1]["rows_executed"] == 0
    server.stop()


def test_values_under_another_key_are_not_believed(repository, redis_server, monkeypatch):
    run(repository, redis_server.url, cache_budget_ms=5000)
    monkeypatch.setenv("COHORTFLOW_REDIS_HMAC_KEY", "secret")
    _, statistics, counts, _ = run(repository, redis_server.url, cache_budget_ms=5000)
    assert statistics["rows_executed"] == counts["redis_bad_rows"] == 100
    assert run(repository, redis_server.url, cache_budget_ms=5000)[1]["rows_executed"] == 0


def test_a_url_that_is_none_is_refused_without_repeating_it(repository):
    for url in ("http://host/", "redis://:secret/word@host"):
        with pytest.raises(InvalidArgumentError) as caught:
            ModelServer(repository, redis_url=url).start()
        assert "secret" not in str(caught.value)


def test_namespaces_are_apart(repository, redis_server):
    run(repository, redis_server.url, cache_budget_ms=5000, redis_namespace="one")
    assert run(repository, redis_server.url, cache_budget_ms=5000, redis_namespace="two")[1]["cache_hits"] == 0


def test_rows_written_while_redis_is_away_arrive_when_it_is_back(redis_server):
    redis_server.stall()
    tier = RedisTier(redis_server.url, 0.05, Seal(), "test", 60)
    tier.start()
    identities = [bytes([i]) * 32 for i in range(50)]
    tier.put_many(identities, [b"row"] * 50)
    time.sleep(0.2)
    redis_server.resume()
    tier.close(10)
    assert tier.counts["written_rows"] == 50
    assert tier.counts["dropped_rows"] == 0
    assert redis_server.client.dbsize() == 50
