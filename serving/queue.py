"""The queue before a model: who is next, with whom, and when. It knows no tensors, threads or devices.

Source: Triton user guide, "Dynamic Batcher" and "Queue Policy"; the order of decisions is that of Triton's
``DynamicBatchScheduler::GetDynamicBatch``. One thing is better here: a request of another shape does not cut the batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from serving.config import DynamicBatching, QueuePolicy
from serving.errors import InvalidArgumentError, UnavailableError
from serving.request import Piece, Request

_US = 1000
"""Nanoseconds."""


class RequestQueue:
    """Requests by priority level; `take` says what to execute now. The caller holds a lock around every method."""

    def __init__(self, model: str, batching: DynamicBatching | None, max_batch_size: int) -> None:
        self._model = model
        self._batching = batching or DynamicBatching(())
        self._merges = batching is not None
        self._max_batch_size = max_batch_size
        self._preferred = frozenset(self._batching.preferred_batch_sizes or (max_batch_size,))
        self._delay_ns = self._batching.max_queue_delay_us * _US
        levels = self._batching.priority_levels
        self._levels = [_Level(self._batching.policy(level)) for level in (range(1, levels + 1) if levels else (0,))]

    @property
    def depths(self) -> list[int]:
        """Number of waiting requests by priority level."""
        return [level.num_requests for level in self._levels]

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not any(level.num_requests for level in self._levels)

    def put(self, request: Request) -> None:
        """Takes a request in; sets `expires_ns`, when its time in the queue is over (0: never).

        Raises:
            InvalidArgumentError: Its priority is above the model's levels.
            UnavailableError: The queue of its level is full.
        """
        level = self._level(request.call.priority)
        policy = level.policy
        if policy.max_queue_size and level.num_requests >= policy.max_queue_size:
            level.refresh(request.enqueued_ns)
            if level.num_requests >= policy.max_queue_size:
                raise UnavailableError(
                    f"{self._model}: the queue is full (max_queue_size {policy.max_queue_size}); try again later"
                )
        timeout_us = policy.default_timeout_us
        if policy.allow_timeout_override and request.call.timeout_us:
            # Source: Triton, ModelQueuePolicy.allow_timeout_override: a request may only shorten the default.
            timeout_us = min(timeout_us or request.call.timeout_us, request.call.timeout_us)
        if timeout_us:
            request.expires_ns = request.enqueued_ns + timeout_us * _US
        level.waiting.append(request)

    def rejects_late(self, request: Request) -> bool:
        """Whether a request whose time in the queue is over is refused (else it is put back)."""
        return self._level(request.call.priority).policy.reject

    def take(self, now_ns: int, *, hurry: bool = False) -> list[Piece] | int | None:
        """Decides what an idle instance does now; in a `hurry` it waits for nobody.

        Returns:
            The pieces of the next batch, taken off the queue; or the time (ns) until which to wait for more; or None
            when nothing waits.
        """
        for level in self._levels:
            level.refresh(now_ns)
        chosen = self._choose(now_ns, hurry)
        if not isinstance(chosen, list):
            return chosen
        pieces = [request.take_piece() for request in chosen]
        for level in self._levels:
            level.remove_taken()
        return pieces

    def _choose(self, now_ns: int, hurry: bool) -> list[Request] | int | None:
        batch: list[Request] = []
        rows, num_best, is_full = 0, 0, False
        max_preferred = max(self._preferred)
        for request in self._in_order():
            if not batch:
                if not self._merges:
                    return [request]
            elif request.shape_key != batch[0].shape_key:
                continue
            else:
                if rows + request.next_rows > max_preferred and not num_best:
                    num_best = len(batch)
                if rows + request.next_rows > self._max_batch_size:
                    is_full = True
                    break
            batch.append(request)
            rows += request.next_rows
            if rows in self._preferred:
                num_best = len(batch)
        if not batch:
            return None
        oldest_ns = min(request.enqueued_ns for request in batch)
        is_late = self._delay_ns > 0 and now_ns - oldest_ns >= self._delay_ns
        if num_best and not is_late:
            return batch[:num_best]
        if is_full or rows >= max_preferred or is_late or hurry or self._delay_ns == 0:
            return batch
        return oldest_ns + self._delay_ns

    def _in_order(self) -> Iterator[Request]:
        for level in self._levels:
            yield from level.waiting
            yield from level.delayed

    def _level(self, priority: int) -> _Level:
        levels = self._batching.priority_levels
        if not 0 <= priority <= levels:
            raise InvalidArgumentError(
                f"{self._model}: priority {priority} is not within the model's {levels} priority levels",
                field="priority",
            )
        if not levels:
            return self._levels[0]
        return self._levels[(priority or self._batching.default_priority_level) - 1]


class _Level:
    """Waiting requests of one priority: those in time, and behind them those put back after their timeout (DELAY)."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.waiting: deque[Request] = deque()
        self.delayed: deque[Request] = deque()

    @property
    def num_requests(self) -> int:
        return len(self.waiting) + len(self.delayed)

    def refresh(self, now_ns: int) -> None:
        """Forgets what was settled or has expired, and puts back what the policy delays."""
        if any(_is_over(request, now_ns) for request in self.waiting):
            if not self.policy.reject:
                self.delayed.extend(r for r in self.waiting if _is_over(r, now_ns) and not r.is_settled)
            self.waiting = deque(r for r in self.waiting if not _is_over(r, now_ns))
        if any(request.is_settled for request in self.delayed):
            self.delayed = deque(r for r in self.delayed if not r.is_settled)

    def remove_taken(self) -> None:
        """Forgets the requests whose last piece has been taken."""
        for line in (self.waiting, self.delayed):
            while line and not line[0].next_rows:
                line.popleft()
        if any(not r.next_rows for r in self.waiting):
            self.waiting = deque(r for r in self.waiting if r.next_rows)
        if any(not r.next_rows for r in self.delayed):
            self.delayed = deque(r for r in self.delayed if r.next_rows)


def _is_over(request: Request, now_ns: int) -> bool:
    """Whether a waiting request is settled, or its time in the queue is over before any of it was executed."""
    return request.is_settled or (0 < request.expires_ns <= now_ns and not request.has_started)
