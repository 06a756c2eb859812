"""A version in the shadow: it is asked what another one answers, and its answers are compared and dropped."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, replace

import numpy as np

from serving.answer import Answer
from serving.errors import ServingError
from serving.model import Served
from serving.request import Call
from serving.shadowing import Shadowing
from serving.tensors import Tensors

MAX_IN_FLIGHT = 64
"""Requests of one shadow at a time; more are left out, so that a slow shadow costs bounded memory."""


@dataclass(frozen=True, slots=True)
class ShadowCounts:
    """What became of the requests that a shadow was to answer too.

    Attributes:
        same: Answers within the tolerance.
        different: Answers beyond it.
        failed: Requests that the shadow refused or failed.
        skipped: Those left out, because too many were in flight or there was no answer to compare with.
        max_difference: The largest difference of two numbers.
    """

    same: int = 0
    different: int = 0
    failed: int = 0
    skipped: int = 0
    max_difference: float = 0.0


class Shadow:
    """Asks a version what another one is asked.

    Args:
        served: The version.
        share: The share of requests that it is asked too.
        tolerance: The largest difference of two floats that counts as none.
        shadowing: Does the work.
    """

    def __init__(self, served: Served, share: float, tolerance: float, shadowing: Shadowing) -> None:
        self.served = served
        self.counts = ShadowCounts()
        self._share = share
        self._tolerance = tolerance
        self._shadowing = shadowing
        self._turn = itertools.count(1)
        self._lock = threading.Lock()
        self._num_in_flight = 0

    def follow(self, call: Call, answer: Answer) -> None:
        """Asks the shadow what `call` asks, for its share of the calls; compares once `answer` is there as well."""
        turn = next(self._turn)
        if int(turn * self._share) == int((turn - 1) * self._share):
            return
        with self._lock:
            is_taken = self._num_in_flight < MAX_IN_FLIGHT
            self._num_in_flight += is_taken
        if not is_taken:
            self._count(ShadowCounts(skipped=1))
            return
        # The caller may change its arrays once it has its answer.
        inputs = {name: array.copy() for name, array in call.inputs.items()}
        own = replace(call, inputs=inputs, deadline_ns=None)
        self._shadowing.do(lambda: self._ask(own, answer))

    def _ask(self, call: Call, answer: Answer) -> None:
        try:
            own = self.served.submit(call)
        except ServingError:
            self._leave(ShadowCounts(failed=1))
            return
        answer.add_done_callback(
            lambda _: own.add_done_callback(lambda _: self._shadowing.do(lambda: self._compare(answer, own)))
        )

    def _compare(self, answer: Answer, own: Answer) -> None:
        if answer.error is not None:
            self._leave(ShadowCounts(skipped=1))
        elif own.error is not None:
            self._leave(ShadowCounts(failed=1))
        else:
            difference = largest_difference(answer.outputs, own.outputs)
            is_same = difference <= self._tolerance
            self._leave(ShadowCounts(same=is_same, different=not is_same, max_difference=difference))

    def _leave(self, more: ShadowCounts) -> None:
        with self._lock:
            self._num_in_flight -= 1
        self._count(more)

    def _count(self, more: ShadowCounts) -> None:
        with self._lock:
            counts = self.counts
            self.counts = ShadowCounts(
                counts.same + more.same,
                counts.different + more.different,
                counts.failed + more.failed,
                counts.skipped + more.skipped,
                max(counts.max_difference, more.max_difference),
            )
        self.served.statistics.add(
            shadow_same=more.same,
            shadow_different=more.different,
            shadow_failed=more.failed,
            shadow_skipped=more.skipped,
        )


def largest_difference(one: Tensors, other: Tensors) -> float:
    """The largest difference of two answers' floats; infinite when anything else differs."""
    largest = 0.0
    if one.keys() != other.keys():
        return float("inf")
    for name, array in one.items():
        twin = other[name]
        if array.shape != twin.shape or array.dtype != twin.dtype:
            return float("inf")
        if array.dtype.kind != "f":
            if not np.array_equal(array, twin):
                return float("inf")
        elif array.size:
            # Equal infinities have no difference.
            with np.errstate(invalid="ignore"):
                apart = np.where(array == twin, 0.0, np.abs(array.astype(np.float64) - twin.astype(np.float64)))
            largest = max(largest, float(apart.max()))
    return largest
