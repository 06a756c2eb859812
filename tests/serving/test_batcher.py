"""Batching with a backend that computes when the test says so: nothing here depends on how fast the machine is."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from serving.errors import CancelledError, DeadlineExceededError, ExecutionError, QueueTimeoutError, UnavailableError
from serving.server import ModelServer
from tests.serving.gated import rows, write_gated

TIMEOUT_S = 10


def values(answer):
    return answer.result(TIMEOUT_S)["y"][:, 0].tolist()


def test_requests_of_several_threads_meet_in_one_batch_while_the_instance_is_busy(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 8 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        got = {}

        def ask(value):
            got[value] = server.infer("gated", rows(value))["y"][0, 0]

        threads = [threading.Thread(target=ask, args=(value,)) for value in range(5)]
        threads[0].start()
        gate.wait_inside(1)
        for thread in threads[1:]:
            thread.start()
        while server.statistics()["gated"]["requests_waiting"] < 4:
            time.sleep(0.001)
        gate.let(2)
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert got == {value: 2 * value for value in range(5)}
        assert [sorted(batch) for batch in gate.batches] == [[0], [1, 2, 3, 4]]


def test_without_dynamic_batching_requests_stay_apart(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 8")
    gate.open()
    with ModelServer(tmp_path) as server:
        for answer in [server.submit("gated", rows(value, value)) for value in range(4)]:
            answer.result(TIMEOUT_S)
    assert [len(batch) for batch in gate.batches] == [2, 2, 2, 2]


def test_a_large_request_shares_its_remainder(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 4 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        first = server.submit("gated", rows(0))
        gate.wait_inside(1)
        large, small = server.submit("gated", rows(*range(1, 7))), server.submit("gated", rows(7, 8))
        gate.open()
        assert values(first) == [0]
        assert values(large) == [2, 4, 6, 8, 10, 12]
        assert values(small) == [14, 16]
    assert gate.batches == [[0], [1, 2, 3, 4], [5, 6, 7, 8]]


def test_other_shapes_do_not_cut_the_batch(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 8 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        answers = [server.submit("gated", rows(0))]
        gate.wait_inside(1)
        for value in range(1, 5):
            answers.append(server.submit("gated", {"x": np.full((1, 1 + value % 2), value, np.float32)}))
        gate.open()
        assert [values(answer) for answer in answers] == [[0], [2], [4], [6], [8]]
    assert gate.batches == [[0], [1, 3], [2, 4]]


def test_cancelled_before_execution_is_never_executed(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 8 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(0))
        gate.wait_inside(1)
        kept, cancelled = server.submit("gated", rows(1)), server.submit("gated", rows(2))
        assert cancelled.cancel()
        with pytest.raises(CancelledError, match="model 'gated' version 1"):
            cancelled.result(TIMEOUT_S)
        gate.open()
        assert values(kept) == [2]
        assert not kept.cancel()
        assert server.statistics()["gated"]["failures"] == {"CANCELED": 1}
    assert gate.batches == [[0], [1]]


def test_a_deadline_is_answered_when_it_passes(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 8 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(0))
        gate.wait_inside(1)
        begun_s = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            server.infer("gated", rows(1), deadline_s=0.1)
        assert 0.1 <= time.monotonic() - begun_s < 0.15 + 0.2
        gate.open()
        assert server.infer("gated", rows(2), deadline_s=TIMEOUT_S)["y"].tolist() == [[4]]
        assert server.statistics()["gated"]["failures"] == {"TIMEOUT": 1}
    assert gate.batches == [[0], [2]]


def test_the_queue_policy_refuses(tmp_path, gate):
    write_gated(
        tmp_path,
        "max_batch_size: 8 dynamic_batching { default_queue_policy { "
        "max_queue_size: 2 default_timeout_microseconds: 50000 } }",
    )
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(0))
        gate.wait_inside(1)
        waiting = [server.submit("gated", rows(1)), server.submit("gated", rows(2))]
        with pytest.raises(UnavailableError, match="Exceeds maximum queue size"):
            server.submit("gated", rows(3))
        for answer in waiting:
            with pytest.raises(QueueTimeoutError, match="Request timeout expired"):
                answer.result(TIMEOUT_S)
        gate.open()
        assert values(server.submit("gated", rows(4))) == [8]
        assert server.statistics()["gated"]["failures"] == {"REJECTED": 1, "TIMEOUT": 2}
    assert gate.batches == [[0], [4]]


def test_the_first_priority_goes_first(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 2 dynamic_batching { priority_levels: 2 default_priority_level: 2 }")
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(0, 0))
        gate.wait_inside(1)
        for value, priority in [(1, 0), (2, 2), (3, 1), (4, 1)]:
            server.submit("gated", rows(value), priority=priority)
        gate.open()
    assert gate.batches == [[0, 0], [3, 4], [1, 2]]


def test_answers_keep_their_order_over_two_instances(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 1 dynamic_batching { preserve_ordering: true } instance_group { count: 2 }")
    order = []
    with ModelServer(tmp_path) as server:
        first = server.submit("gated", rows(1))
        first.add_done_callback(lambda _: order.append(1))
        gate.wait_inside(1)
        blocked = gate.answer
        gate.answer = lambda x: (gate.enter(x), blocked(x))[1] if x[0, 0] == 1 else blocked(x)
        second = server.submit("gated", rows(2))
        second.add_done_callback(lambda _: order.append(2))
        gate.wait_inside(2)
        gate.let(2)
        gate.wait_inside(3)
        assert not second.is_settled
        gate.open()
        second.result(TIMEOUT_S)
    assert order == [1, 2]


def test_two_instances_execute_at_once(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 1 dynamic_batching { } instance_group { count: 2 kind: KIND_CPU }")
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(1))
        server.submit("gated", rows(2))
        gate.wait_inside(2)
        assert gate.num_inside == 2
        gate.open()


def test_one_bad_request_fails_alone(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 8 dynamic_batching { }")

    def answer(x):
        if (x == 13).any():
            raise ValueError("unlucky")
        return {"y": 2 * x}

    gate.answer = answer
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(0))
        gate.wait_inside(1)
        answers = [server.submit("gated", rows(value)) for value in (1, 13, 3)]
        gate.open()
        assert values(answers[0]) == [2]
        assert values(answers[2]) == [6]
        with pytest.raises(ExecutionError, match="model 'gated' version 1: the backend failed: unlucky"):
            answers[1].result(TIMEOUT_S)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x: {}, "gave no output 'y'"),
        (lambda x: {"y": x[:-1]}, r"output 'y' has the shape \[1, 1\] for a batch of 2 rows"),
        (lambda x: {"y": x.astype(np.float64)}, r"output 'y' has rows of float64\[1\]"),
        (lambda x: {"y": x[:, :, None]}, r"output 'y' has rows of float32\[1, 1\]"),
        (lambda x: {"y": np.array(1.0)}, "output 'y'"),
        (lambda x: {"y": x * np.nan}, "output 'y' is not a number"),
    ],
)
def test_an_answer_that_is_not_what_was_said_is_an_error(tmp_path, gate, answer, words):
    write_gated(tmp_path, "max_batch_size: 8 dynamic_batching { }")
    gate.open()
    gate.answer = answer
    with ModelServer(tmp_path) as server, pytest.raises(ExecutionError, match=words):
        server.infer("gated", rows(1, 2))


def test_closing_finishes_what_waits_and_takes_no_more(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 1 dynamic_batching { max_queue_delay_microseconds: 600000000 }")
    server = ModelServer(tmp_path)
    server.start()
    answers = [server.submit("gated", rows(value)) for value in range(3)]
    gate.open()
    server.close()
    assert [values(answer) for answer in answers] == [[0], [2], [4]]
    with pytest.raises(UnavailableError):
        server.submit("gated", rows(1))
    server.close()


def test_a_step_that_fails_is_named_and_its_siblings_are_cancelled(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 1 dynamic_batching { }", "slow")
    write_gated(tmp_path, "max_batch_size: 1 dynamic_batching { }", "both")
    (tmp_path / "pair").mkdir()
    (tmp_path / "pair" / "config.pbtxt").write_text(
        """
        platform: "ensemble" max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] }
        output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
        output { name: "z" data_type: TYPE_FP32 dims: [ 1 ] }
        ensemble_scheduling {
          step { model_name: "slow" input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } }
          step { model_name: "both" input_map { key: "x" value: "x" } output_map { key: "y" value: "z" } }
        }
        """
    )
    calls = []

    def answer(x):
        calls.append(float(x[0, 0]))
        if len(calls) == 1:
            raise ValueError("no")
        return {"y": x}

    gate.answer = answer
    with ModelServer(tmp_path) as server:
        result = server.submit("pair", rows(1, 2, 3))
        gate.wait_inside(2)
        assert gate.num_inside == 2
        gate.let(1)
        with pytest.raises(
            ExecutionError, match=r"ensemble 'pair' version 1: step \d \((slow|both)\): .*: the backend failed: no"
        ):
            result.result(TIMEOUT_S)
        gate.open()
    # Of the sibling's three rows only the one that was being executed was.
    assert len(calls) <= 3


ONE_STEP = """
platform: "ensemble" max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
ensemble_scheduling {
  step { model_name: "gated" input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } }
}
"""


def test_giving_an_ensemble_up_gives_its_steps_up(tmp_path, gate):
    write_gated(tmp_path, "max_batch_size: 4 dynamic_batching { }")
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "config.pbtxt").write_text(ONE_STEP)
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(0))
        gate.wait_inside(1)
        cancelled = server.submit("whole", rows(1))
        while server.statistics()["gated"]["requests_waiting"] < 1:
            time.sleep(0.001)
        assert cancelled.cancel()
        with pytest.raises(DeadlineExceededError, match=r"ensemble 'whole' version 1: step 1 \(gated\): "):
            server.infer("whole", rows(2), deadline_s=0.05)
        while server.statistics()["gated"]["requests_failed"] < 2:
            time.sleep(0.001)
        gate.open()
        assert server.infer("whole", rows(3))["y"].tolist() == [[6]]
        assert server.statistics()["whole"]["failures"] == {"CANCELED": 1, "TIMEOUT": 1}
    assert gate.batches == [[0], [3]]


def test_no_thread_stays_behind(tmp_path, gate):
    gate.open()
    write_gated(tmp_path, "max_batch_size: 4 dynamic_batching { } instance_group { count: 3 }")
    before = set(threading.enumerate())
    with ModelServer(tmp_path) as server:
        server.infer("gated", rows(1), deadline_s=TIMEOUT_S)
        assert len(set(threading.enumerate()) - before) == 4
    assert set(threading.enumerate()) <= before
