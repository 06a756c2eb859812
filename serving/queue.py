"""The queue before a model: who is next, with whom, and when. It knows no tensors, threads or devices.

Source: Triton user guide, "Dynamic Batcher" and "Queue Policy"; the order of decisions is that of Triton's
``DynamicBatchScheduler::GetDynamicBatch``, its words for refusals those of ``PriorityQueue``. Two things are better
here: a request of another shape does not cut the batch, and where a model takes rows of several lengths in one batch,
those that go together are chosen by what they cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serving.config import DynamicBatching, QueuePolicy
from serving.errors import InvalidArgumentError, UnavailableError
from serving.request import Call, Piece, Request

if TYPE_CHECKING:
    from serving.length_choice import LengthChoice

_US = 1000
"""Nanoseconds."""


class RequestQueue:
    """Requests by priority level; `take` says what to execute now. The caller holds a lock around every method.

    Args:
        model: Name and version, for messages.
        batching: The model's policy; None: no two requests are executed together.
        max_batch_size: Rows of the largest batch.
        choice: Chooses among requests of different lengths; None: all that may lie in one batch are alike.
    """

    def __init__(
        self, model: str, batching: DynamicBatching | None, max_batch_size: int, choice: LengthChoice | None = None
    ) -> None:
        self._model = model
        self._batching = batching or DynamicBatching(())
        self._merges = batching is not None
        self._max_batch_size = max_batch_size
        self._choice = choice
        self._preferred = frozenset(self._batching.preferred_batch_sizes or (max_batch_size,))
        self._max_preferred = max(self._preferred)
        self._delay_ns = self._batching.max_queue_delay_us * _US
        levels = self._batching.priority_levels
        self._levels = [_Level(self._batching.policy(level)) for level in (range(1, levels + 1) if levels else (0,))]

    @property
    def depths(self) -> list[int]:
        """Number of waiting requests by priority level."""
        return [level.num_unsettled for level in self._levels]

    @property
    def num_requests(self) -> int:
        """Number of requests in the queue; some may be settled."""
        return sum([level.num_requests for level in self._levels])

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return all(not level.num_requests for level in self._levels)

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
                    f"{self._model}: Exceeds maximum queue size ({policy.max_queue_size}): the queue is full; "
                    "try again later"
                )
        timeout_us = policy.default_timeout_us
        if policy.allow_timeout_override and request.call.timeout_us:
            # Source: Triton, ModelQueuePolicy.allow_timeout_override: a request may only shorten the default.
            timeout_us = min(timeout_us or request.call.timeout_us, request.call.timeout_us)
        if timeout_us:
            request.expires_ns = request.enqueued_ns + timeout_us * _US
        level.waiting.append(request)

    def check(self, call: Call) -> None:
        """Refuses a call as `put` does, for one that need not wait.

        Raises:
            InvalidArgumentError: Its priority is above the model's levels.
        """
        self._level(call.priority)

    def rejects_late(self, request: Request) -> bool:
        """Whether a request whose time in the queue is over is refused (else it is put back)."""
        return self._level(request.call.priority).policy.reject

    def take(self, now_ns: int, *, hurry: bool = False) -> list[Piece] | int | None:
        """Decides what an idle instance does now; in a `hurry` it waits for nobody.

        Returns:
            The pieces of the next batch, taken off the queue; or the time (ns) until which to wait for more; or None
            when nothing waits.
        """
        if self._is_alone() and (hurry or self._delay_ns == 0):
            # Nothing to decide; most requests of a model that keeps up come this way.
            alone = next(level for level in self._levels if level.waiting).waiting
            if not _is_over(alone[0], now_ns) and alone[0].next_rows == alone[0].call.rows:
                return [alone.popleft().take_piece()]
        elif self.is_empty:
            return None
        for level in self._levels:
            if not level.policy.reject:
                level.refresh(now_ns)
        chosen = self._choose(now_ns, hurry)
        if not isinstance(chosen, list):
            return chosen
        pieces = [request.take_piece() for request in chosen]
        num_whole = sum(not request.next_rows for request in chosen)
        if sum(level.pop_taken() for level in self._levels) < num_whole:
            for level in self._levels:
                level.remove_taken()
        return pieces

    def _is_alone(self) -> bool:
        """Whether one request waits, in time."""
        num_waiting = 0
        for level in self._levels:
            if level.delayed:
                return False
            num_waiting += len(level.waiting)
        return num_waiting == 1

    def _choose(self, now_ns: int, hurry: bool) -> list[Request] | int | None:
        """The first group of requests, in their order, that can go now; else when the next one can."""
        groups: dict[Hashable, _Group] = {}
        first: _Group | None = None
        goes_at_once = hurry or self._delay_ns == 0
        for request in self._in_order(now_ns):
            if first is None:
                if not self._merges:
                    return [request]
                groups[request.shape_key] = first = _Group()
                group = first
            else:
                found = groups.get(request.shape_key)
                if found is None:
                    if goes_at_once:
                        # The first group goes, whatever the others are.
                        continue
                    found = groups[request.shape_key] = _Group()
                group = found
            self._grow(group, request)
            if first.is_full:
                break
        due_ns: int | None = None
        for group in groups.values():
            size = self._sendable(group, now_ns, goes_at_once)
            if size:
                return self._pick(group, size, now_ns)
            if due_ns is None or group.oldest_ns + self._delay_ns < due_ns:
                due_ns = group.oldest_ns + self._delay_ns
        return due_ns

    def _grow(self, group: _Group, request: Request) -> None:
        if group.is_full:
            return
        rows = group.rows + request.next_rows
        if group.requests:
            if rows > self._max_preferred and not group.num_best:
                group.num_best = len(group.requests)
            if rows > self._max_batch_size:
                group.is_full = True
                return
        group.requests.append(request)
        group.rows = rows
        group.oldest_ns = min(group.oldest_ns, request.enqueued_ns) if group.oldest_ns else request.enqueued_ns
        if rows in self._preferred:
            group.num_best = len(group.requests)
            # Without sizes of its own a model prefers the largest: nothing can be added.
            group.is_full = rows == self._max_batch_size

    def _sendable(self, group: _Group, now_ns: int, goes_at_once: bool) -> int:
        """How many of a group's requests go now; 0: they wait."""
        is_late = self._delay_ns > 0 and now_ns - group.oldest_ns >= self._delay_ns
        if group.num_best and not is_late:
            return group.num_best
        if group.is_full or group.rows >= self._max_preferred or is_late or goes_at_once:
            return len(group.requests)
        return 0

    def _pick(self, group: _Group, size: int, now_ns: int) -> list[Request]:
        """The requests of a batch: the first `size`, or for a model that pads lengths those that cost least."""
        chosen = group.requests[:size]
        if self._choice is None:
            return chosen
        key = chosen[0].shape_key
        candidates = [
            [r for r in level.in_order() if r.shape_key == key and not _is_over(r, now_ns)] for level in self._levels
        ]
        is_preferred = bool(self._batching.preferred_batch_sizes) and size == group.num_best
        rows = sum(request.next_rows for request in chosen)
        return self._choice.choose(
            [requests for requests in candidates if requests],
            max_rows=rows if is_preferred else self._max_batch_size,
            min_rows=rows if is_preferred else 0,
        )

    def _in_order(self, now_ns: int) -> Iterator[Request]:
        for level in self._levels:
            for request in level.in_order():
                if not _is_over(request, now_ns):
                    yield request

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


@dataclass(slots=True)
class _Group:
    """Waiting requests that may lie in one batch, in their order; the first `num_best` make a preferred size."""

    requests: list[Request] = field(default_factory=list)
    rows: int = 0
    oldest_ns: int = 0
    num_best: int = 0
    is_full: bool = False


class _Level:
    """Waiting requests of one priority: those in time, and behind them those put back after their timeout (DELAY)."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.waiting: deque[Request] = deque()
        self.delayed: deque[Request] = deque()

    @property
    def num_requests(self) -> int:
        return len(self.waiting) + len(self.delayed)

    @property
    def num_unsettled(self) -> int:
        return sum(not request.is_settled for request in self.in_order())

    def in_order(self) -> Iterator[Request]:
        yield from self.waiting
        yield from self.delayed

    def refresh(self, now_ns: int) -> None:
        """Forgets what was settled or has expired, and puts back what the policy delays: its time has no end then."""
        over = {request for request in self.waiting if _is_over(request, now_ns)}
        if over:
            if not self.policy.reject:
                late = [request for request in self.waiting if request in over and not request.is_settled]
                for request in late:
                    request.expires_ns = 0
                self.delayed.extend(late)
            self.waiting = deque(request for request in self.waiting if request not in over)
        if any(request.is_settled for request in self.delayed):
            self.delayed = deque(request for request in self.delayed if not request.is_settled)

    def pop_taken(self) -> int:
        """Forgets the requests at the front that have been taken or settled; gives how many were taken."""
        num_taken = 0
        for line in (self.waiting, self.delayed):
            while line and (not line[0].next_rows or line[0].is_settled):
                num_taken += not line.popleft().next_rows
        return num_taken

    def remove_taken(self) -> None:
        """Forgets the requests that have been taken or settled, wherever they stand."""
        self.waiting = deque(r for r in self.waiting if r.next_rows and not r.is_settled)
        self.delayed = deque(r for r in self.delayed if r.next_rows and not r.is_settled)


def _is_over(request: Request, now_ns: int) -> bool:
    """Whether a waiting request is settled, or its time in the queue is over before any of it was executed."""
    return request.is_settled or (0 < request.expires_ns <= now_ns and not request.has_started)
