"""Who goes when: Triton's rule, checked without threads, clocks or models."""

from __future__ import annotations

import numpy as np
import pytest

from serving.config import DynamicBatching, QueuePolicy
from serving.queue import RequestQueue
from serving.request import Call, Request

US = 1000


def request(rows=1, at_us=0, **options):
    return Request("model", Call({"x": np.zeros((rows, 1))}, rows, ("y",), **options), 16, at_us * US)


def queue_of(batching, *requests, max_batch_size=16):
    queue = RequestQueue("model", batching, max_batch_size)
    for one in requests:
        queue.put(one)
    return queue


def sizes(taken):
    return [piece.rows for piece in taken] if isinstance(taken, list) else taken


def test_without_delay_everything_that_fits_goes_at_once():
    queue = queue_of(DynamicBatching(()), request(10), request(5), request(3))
    assert sizes(queue.take(0)) == [10, 5]
    assert sizes(queue.take(0)) == [3]
    assert queue.take(0) is None


def test_a_lone_request_waits_for_the_delay():
    queue = queue_of(DynamicBatching((), max_queue_delay_us=100), request(at_us=7))
    assert queue.take(50 * US) == 107 * US
    queue.put(request(at_us=60))
    assert queue.take(60 * US) == 107 * US
    assert sizes(queue.take(107 * US)) == [1, 1]


def test_a_full_batch_does_not_wait():
    queue = queue_of(DynamicBatching((), max_queue_delay_us=100), *[request(6) for _ in range(3)])
    assert sizes(queue.take(0)) == [6, 6]
    assert queue.take(0) == 100 * US


@pytest.mark.parametrize(
    ("waiting", "delay_us", "now_us", "expected"),
    [
        ([1] * 4, 100, 0, [1] * 4),  # a preferred size goes at once
        ([1] * 5, 100, 0, [1] * 4),  # the largest preferred size that can be made, the rest waits
        ([1] * 9, 100, 0, [1] * 8),
        ([1] * 3, 100, 0, 100 * US),  # no preferred size yet: wait
        ([1] * 3, 100, 100, [1] * 3),  # the delay is over: as it is
        ([1] * 5, 100, 100, [1] * 5),
        ([3, 3, 3], 100, 0, [3, 3]),  # one more would be past the largest preferred size: go
        ([1] * 3, 0, 0, [1] * 3),  # no delay: as it is
        ([1] * 5, 0, 0, [1] * 4),
        ([12], 100, 0, [12]),
    ],
)
def test_preferred_sizes(waiting, delay_us, now_us, expected):
    queue = queue_of(DynamicBatching((4, 8), max_queue_delay_us=delay_us), *map(request, waiting))
    assert sizes(queue.take(now_us * US)) == expected


def test_a_late_request_is_put_behind_those_in_time():
    policy = QueuePolicy(reject=False, default_timeout_us=10)
    late, timely = request(at_us=0), request(at_us=15)
    queue = queue_of(DynamicBatching((1,), default_policy=policy), late, timely)
    assert queue.take(20 * US)[0].request is timely
    assert queue.take(20 * US)[0].request is late


def test_a_request_may_shorten_its_timeout_where_the_policy_lets_it():
    free = QueuePolicy(default_timeout_us=100, allow_timeout_override=True)
    for policy, timeout_us, expires_us in [(free, 10, 10), (free, 500, 100), (free, 0, 100), (QueuePolicy(), 10, 0)]:
        one = request(timeout_us=timeout_us)
        queue_of(DynamicBatching((), default_policy=policy), one)
        assert one.expires_ns == expires_us * US


def test_each_level_has_its_policy():
    strict = QueuePolicy(max_queue_size=1)
    batching = DynamicBatching((), priority_levels=2, default_priority_level=2, priority_policies=((1, strict),))
    queue = queue_of(batching, request(priority=1), request(), request(priority=2))
    assert queue.depths == [1, 2]
    with pytest.raises(Exception, match="queue is full"):
        queue.put(request(priority=1))
    with pytest.raises(Exception, match="priority 3 is not within the model's 2 priority levels"):
        queue.put(request(priority=3))


def test_settled_requests_free_their_places():
    queue = queue_of(DynamicBatching((), default_policy=QueuePolicy(max_queue_size=1)), first := request())
    first.cancel()
    queue.put(second := request())
    assert queue.take(0)[0].request is second
    assert queue.is_empty
