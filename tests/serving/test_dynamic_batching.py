"""Every field of ``dynamic_batching``, to Triton's letter, on a running server."""

from __future__ import annotations

import time

import numpy as np
import pytest

from serving.errors import CancelledError, InvalidArgumentError, QueueTimeoutError, UnavailableError
from serving.server import ModelServer
from tests.serving.gated import rows, write_gated

TIMEOUT_S = 10


def batching(**fields):
    text = " ".join(f"{key}: {value}" for key, value in fields.items())
    return f"max_batch_size: 8 dynamic_batching {{ {text} }}"


def values(answer):
    return answer.result(TIMEOUT_S)["y"][:, 0].tolist()


def timed(server, number):
    """Submits as many requests; gives the seconds after which each was answered, by value."""
    begun_s = time.monotonic()
    answered_s = {}
    answers = [server.submit("gated", rows(value)) for value in range(number)]
    for value, answer in enumerate(answers):
        answer.add_done_callback(lambda _, value=value: answered_s.setdefault(value, time.monotonic() - begun_s))
    assert [values(answer) for answer in answers] == [[2 * value] for value in range(number)]
    return answered_s


def test_sixteen_at_once_are_two_full_batches(tmp_path, gate):
    gate.open()
    write_gated(tmp_path, batching(max_queue_delay_microseconds=50_000))
    with ModelServer(tmp_path) as server:
        answered_s = timed(server, 16)
    assert [len(batch) for batch in gate.batches] == [8, 8]
    assert max(answered_s.values()) < 0.05


@pytest.mark.parametrize(
    ("number", "batches", "at_once"),
    [(4, [4], {0, 1, 2, 3}), (3, [3], set()), (5, [4, 1], {0, 1, 2, 3}), (8, [4, 4], set(range(8))), (1, [1], set())],
)
def test_a_preferred_size_goes_at_once_and_the_rest_at_the_windows_end(tmp_path, gate, number, batches, at_once):
    gate.open()
    write_gated(tmp_path, batching(max_queue_delay_microseconds=200_000, preferred_batch_size="[ 4 ]"))
    with ModelServer(tmp_path) as server:
        answered_s = timed(server, number)
    assert [len(batch) for batch in gate.batches] == batches
    assert {value for value, seconds in answered_s.items() if seconds < 0.15} == at_once
    assert all(0.2 <= seconds < 0.3 for value, seconds in answered_s.items() if value not in at_once)


def test_a_delay_holds_for_each_shape_by_itself(tmp_path, gate):
    gate.open()
    write_gated(tmp_path, batching(max_queue_delay_microseconds=100_000, priority_levels=2, default_priority_level=2))
    with ModelServer(tmp_path) as server:
        begun_s = time.monotonic()
        early = server.submit("gated", rows(1))
        time.sleep(0.06)
        late = server.submit("gated", {"x": np.full((1, 2), 2, np.float32)}, priority=1)
        assert values(early) == [2]
        assert 0.1 <= time.monotonic() - begun_s < 0.15
        assert values(late) == [4]
        assert 0.16 <= time.monotonic() - begun_s < 0.25


def test_an_idle_instance_takes_one_the_queue_three_and_four_are_refused(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 8 dynamic_batching { default_queue_policy { max_queue_size: 3 } }")
    with ModelServer(tmp_path) as server:
        taken, refused = [], []
        for value in range(8):
            begun_s = time.monotonic()
            try:
                taken.append(server.submit("gated", rows(value)))
            except UnavailableError as error:
                assert time.monotonic() - begun_s < 0.05
                refused.append(error)
        assert len(taken) == len(refused) == 4
        assert all("Exceeds maximum queue size" in error.message and error.reason == "REJECTED" for error in refused)
        assert server.statistics()["gated"]["requests_waiting"] == 3
        gate.open()
        assert [values(answer) for answer in taken] == [[0], [2], [4], [6]]
        statistics = server.statistics()["gated"]
    assert statistics["failures"] == {"REJECTED": 4}
    assert statistics["requests"] == 8
    assert gate.batches == [[0], [1, 2, 3]]


def test_a_timeout_is_answered_when_it_expires_and_nothing_of_it_executes(tmp_path, gate):
    policy = "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 100000 }"
    write_gated(tmp_path, f"max_batch_size: 1 dynamic_batching {{ {policy} }}")
    with ModelServer(tmp_path) as server:
        busy = server.submit("gated", rows(0))
        gate.wait_inside(1)
        begun_s = time.monotonic()
        late = [server.submit("gated", rows(value, value)) for value in (1, 2, 3)]
        for answer in late:
            with pytest.raises(QueueTimeoutError, match="Request timeout expired"):
                answer.result(TIMEOUT_S)
        assert 0.1 <= time.monotonic() - begun_s < 0.15
        assert server.statistics()["gated"]["requests_waiting"] == 0
        gate.open()
        assert values(busy) == [0]
        assert values(server.submit("gated", rows(4))) == [8]
        assert server.statistics()["gated"]["failures"] == {"TIMEOUT": 3}
    assert gate.batches == [[0], [4]]


def test_what_was_taken_off_the_queue_in_time_is_answered_late(tmp_path, gate):
    policy = "default_queue_policy { default_timeout_microseconds: 50000 }"
    write_gated(tmp_path, f"max_batch_size: 1 dynamic_batching {{ {policy} }}")
    with ModelServer(tmp_path) as server:
        answer = server.submit("gated", rows(1))
        gate.wait_inside(1)
        time.sleep(0.1)
        gate.open()
        assert values(answer) == [2]


def test_a_request_may_only_shorten_its_timeout(tmp_path, gate):
    policy = "default_queue_policy { default_timeout_microseconds: 150000 allow_timeout_override: true }"
    write_gated(tmp_path, f"max_batch_size: 1 dynamic_batching {{ {policy} }}")
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(0))
        gate.wait_inside(1)
        for timeout_us, expected_s in ((50_000, 0.05), (900_000, 0.15)):
            begun_s = time.monotonic()
            with pytest.raises(QueueTimeoutError):
                server.submit("gated", rows(1), timeout_us=timeout_us).result(TIMEOUT_S)
            assert expected_s <= time.monotonic() - begun_s < expected_s + 0.05
        gate.open()


def test_without_the_policys_leave_no_request_has_a_timeout(tmp_path, gate):
    write_gated(tmp_path, batching())
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(0))
        gate.wait_inside(1)
        answer = server.submit("gated", rows(1), timeout_us=1000)
        time.sleep(0.05)
        gate.open()
        assert values(answer) == [2]


def test_delay_puts_a_late_request_behind_those_in_time_and_still_executes_it(tmp_path, gate):
    policy = "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 50000 }"
    write_gated(tmp_path, f"max_batch_size: 1 dynamic_batching {{ {policy} }}")
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(0))
        gate.wait_inside(1)
        late = server.submit("gated", rows(1))
        time.sleep(0.06)
        timely = server.submit("gated", rows(2))
        gate.open()
        assert (values(late), values(timely)) == ([2], [4])
        assert server.statistics()["gated"]["failures"] == {}
    assert gate.batches == [[0], [2], [1]]


def test_priorities_go_in_their_order_and_their_queues_have_their_own_limits(tmp_path, gate):
    write_gated(
        tmp_path,
        "max_batch_size: 1 dynamic_batching { priority_levels: 3 default_priority_level: 2 "
        "priority_queue_policy { key: 3 value { max_queue_size: 1 } } }",
    )
    with ModelServer(tmp_path) as server:
        answers = [server.submit("gated", rows(0))]
        gate.wait_inside(1)
        for value, priority in [(1, 3), (2, 2), (3, 0), (4, 1)]:
            answers.append(server.submit("gated", rows(value), priority=priority))
        with pytest.raises(UnavailableError, match="Exceeds maximum queue size"):
            server.submit("gated", rows(5), priority=3)
        for priority in (4, -1):
            with pytest.raises(InvalidArgumentError, match=rf"priority {priority} is not within"):
                server.submit("gated", rows(6), priority=priority)
        gate.open()
        for answer in answers:
            answer.result(TIMEOUT_S)
    assert gate.batches == [[0], [4], [2], [3], [1]]


def order_of(answers):
    """Numbers of answers, in the order in which they will come."""
    order = []
    for number, answer in enumerate(answers):
        answer.add_done_callback(lambda _, number=number: order.append(number))
    return order


def test_answers_keep_their_order_over_two_instances(tmp_path, gate):
    instances = "instance_group { count: 2 kind: KIND_CPU }"
    write_gated(tmp_path, f"max_batch_size: 1 dynamic_batching {{ preserve_ordering: true }} {instances}")
    with ModelServer(tmp_path) as server:
        answers = [server.submit("gated", rows(value)) for value in range(20)]
        order = order_of(answers)
        gate.open()
        assert [values(answer) for answer in answers] == [[2 * value] for value in range(20)]
    assert order == list(range(20))


def test_a_hit_waits_for_the_miss_before_it(tmp_path, gate):
    write_gated(
        tmp_path, "max_batch_size: 8 dynamic_batching { preserve_ordering: true } response_cache { enable: true }"
    )
    with ModelServer(tmp_path) as server:
        gate.let(1)
        server.infer("gated", rows(1))
        answers = [server.submit("gated", rows(value)) for value in (2, 1, 3)]
        order = order_of(answers)
        gate.wait_inside(2)
        time.sleep(0.02)
        assert not answers[1].is_settled
        gate.open()
        assert [values(answer) for answer in answers] == [[4], [2], [6]]
        assert server.statistics()["gated"]["cache_hits"] == 1
    assert order == [0, 1, 2]


def test_an_answer_that_fails_or_is_given_up_holds_nobody_back(tmp_path, gate):
    policy = (
        "default_queue_policy { default_timeout_microseconds: 200000 allow_timeout_override: true max_queue_size: 3 }"
    )
    write_gated(tmp_path, f"max_batch_size: 1 dynamic_batching {{ preserve_ordering: true {policy} }}")

    def answer(x):
        if (x == 13).any():
            raise ValueError("unlucky")
        return {"y": 2 * x}

    gate.answer = answer
    with ModelServer(tmp_path) as server:
        first = server.submit("gated", rows(13))
        gate.wait_inside(1)
        given_up, late = server.submit("gated", rows(1)), server.submit("gated", rows(2), timeout_us=30_000)
        last = server.submit("gated", rows(3))
        with pytest.raises(UnavailableError):
            server.submit("gated", rows(4))
        assert given_up.cancel()
        with pytest.raises(QueueTimeoutError):
            late.result(TIMEOUT_S)
        with pytest.raises(CancelledError):
            given_up.result(TIMEOUT_S)
        gate.open()
        assert values(last) == [6]
        assert "unlucky" in str(first.error)
        assert server.statistics()["gated"]["failures"] == {"BACKEND": 1, "CANCELED": 1, "TIMEOUT": 1, "REJECTED": 1}
    assert gate.batches == [[13], [3]]


def test_one_and_eight_rows_merged_are_two_successes_nine_rows_and_one_execution(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 16 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        gate.let(1)
        server.infer("gated", rows(0))
        before = server.model_statistics("gated", 1)[0]
        busy = server.submit("gated", rows(0))
        gate.wait_inside(2)
        answers = [server.submit("gated", rows(1)), server.submit("gated", rows(*range(8)))]
        assert server.statistics()["gated"]["requests_waiting"] == 2
        gate.open()
        for answer in (busy, *answers):
            answer.result(TIMEOUT_S)
        after = server.model_statistics("gated", 1)[0]
        assert server.statistics()["gated"]["requests_waiting"] == 0
    assert after.success.count - before.success.count - 1 == 2
    assert after.inference_count - before.inference_count - 1 == 9
    assert after.execution_count - before.execution_count - 1 == 1
    assert [(batch.batch_size, batch.compute_infer.count) for batch in after.batch_stats] == [(1, 2), (9, 1)]
    assert after.queue.count == after.compute_infer.count == 4
    assert after.compute_infer.ns > 0
    assert time.time() * 1000 - after.last_inference_ms < 10_000


def test_cancelled_in_the_queue_is_counted_once_and_never_executed(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 8 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(0))
        gate.wait_inside(1)
        answers = [server.submit("gated", rows(value)) for value in (1, 2, 3)]
        assert answers[1].cancel()
        assert not answers[1].cancel()
        assert server.statistics()["gated"]["requests_waiting"] == 2
        gate.open()
        assert values(answers[0]) + values(answers[2]) == [2, 6]
        assert server.statistics()["gated"]["failures"] == {"CANCELED": 1}
        assert server.statistics()["gated"]["requests"] == 4
    assert gate.batches == [[0], [1, 3]]


def test_those_who_were_answered_together_are_executed_together_again(tmp_path, gate, monkeypatch):
    monkeypatch.setattr("serving.batcher._LONGEST_PAUSE_S", 1.0)
    write_gated(tmp_path, "max_batch_size: 8 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(0))
        gate.wait_inside(1)
        answers = [server.submit("gated", rows(value)) for value in (1, 2)]
        gate.let()
        gate.wait_inside(2)
        time.sleep(0.8)  # the time that the batch takes; a sixteenth of it is theirs to come back in
        gate.let()
        for answer, value in zip(answers, (3, 4), strict=True):
            answer.result()
            server.submit("gated", rows(value))
        gate.wait_inside(3)
        gate.open()
    assert gate.batches == [[0], [1, 2], [3, 4]]
