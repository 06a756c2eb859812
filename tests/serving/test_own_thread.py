"""Calls that the waiting thread executes itself, and the lock that many threads take."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from serving.mutex import Mutex
from serving.server import ModelServer
from tests.serving.gated import GatedBackend, rows, write_gated

BATCHED = "max_batch_size: 8 dynamic_batching { } "


@pytest.fixture
def threads(gate, monkeypatch) -> list[int]:
    """The threads that executed, one after the other, of a backend that any thread may call."""
    monkeypatch.setattr(GatedBackend, "is_shareable", True)
    seen: list[int] = []

    def answer(x):
        seen.append(threading.get_ident())
        return {"y": 2 * x}

    gate.answer = answer
    return seen


def test_who_waits_executes_on_an_idle_instance_unless_it_must_be_free_to_give_up(tmp_path, gate, threads):
    gate.open()
    write_gated(tmp_path, BATCHED)
    write_gated(tmp_path, "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 1 }", "delayed")
    me = threading.get_ident()
    with ModelServer(tmp_path) as server:
        threads.clear()
        assert server.infer("gated", rows(1))["y"].tolist() == [[2]]
        assert threads == [me]
        assert server.submit("gated", rows(2)).result()["y"].tolist() == [[4]]
        assert server.infer("gated", rows(3), deadline_s=60)["y"].tolist() == [[6]]
        assert server.infer("delayed", rows(4))["y"].tolist() == [[8]]
        assert server.infer("gated", rows(*range(9)))["y"].shape == (9, 1)
        assert me not in threads[1:]
        assert server.statistics()["gated"]["requests"] == 4


def test_a_backend_of_one_thread_is_executed_by_its_own(tmp_path, gate, threads, monkeypatch):
    monkeypatch.setattr(GatedBackend, "is_shareable", False)
    gate.open()
    write_gated(tmp_path, BATCHED)
    with ModelServer(tmp_path) as server:
        server.infer("gated", rows(1))
    assert threading.get_ident() not in threads


def test_what_comes_meanwhile_is_one_batch_of_the_instances_own_thread(tmp_path, gate, threads):
    write_gated(tmp_path, BATCHED)
    with ModelServer(tmp_path) as server, ThreadPoolExecutor() as pool:
        first = pool.submit(server.infer, "gated", rows(1))
        gate.wait_inside(1)
        others = [server.submit("gated", rows(value)) for value in (2, 3)]
        gate.let()
        assert first.result()["y"].tolist() == [[2]]
        gate.wait_inside(2)
        gate.let()
        assert [float(answer.result()["y"][0, 0]) for answer in others] == [4, 6]
    assert gate.batches == [[1], [2, 3]]
    assert threads[0] != threads[1]


def test_close_waits_for_the_thread_that_executes(tmp_path, gate, threads):
    write_gated(tmp_path, BATCHED)
    server = ModelServer(tmp_path)
    server.start()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(server.infer, "gated", rows(1))
        gate.wait_inside(1)
        closing = pool.submit(server.close)
        assert not closing.done()
        gate.let()
        assert answer.result()["y"].tolist() == [[2]]
        closing.result(10)


def test_one_thread_at_a_time_has_the_mutex():
    mutex, count, interval = Mutex(), [0], sys.getswitchinterval()

    def work() -> None:
        for _ in range(2000):
            with mutex:
                before = count[0]
                threading.Event().is_set()
                count[0] = before + 1

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(work) for _ in range(8)]:
                done.result()
    finally:
        sys.setswitchinterval(interval)
    assert count == [16_000]
