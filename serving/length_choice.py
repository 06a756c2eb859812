"""Which of the requests that wait go together, when rows of several lengths may lie in one batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serving.execution_cost import ExecutionCost
from serving.padding import LengthSteps, Padding
from serving.request import Request

_MAX_CANDIDATES = 2048
_MAX_EDGES = 64
"""Edges of the stretch of lengths that are tried; among more of them neighbours hardly differ."""


class LengthChoice:
    """Takes the requests whose batch has the least expected time per useful token, the one whose turn it is with them.

    Args:
        padding: The model's limits.
        steps: To which lengths a batch is padded.
        row_multiple: Batches are padded to a multiple of so many rows.
        cost: What executions cost; it learns while this is used.
    """

    def __init__(self, padding: Padding, steps: LengthSteps, row_multiple: int, cost: ExecutionCost) -> None:
        self._padding = padding
        self._steps = steps
        self._row_multiple = row_multiple
        self._cost = cost

    def choose(self, levels: Sequence[Sequence[Request]], max_rows: int, min_rows: int = 0) -> list[Request]:
        """Chooses the requests of a batch.

        Args:
            levels: The requests of each priority level that has any, in their order. The first request of all is part
                of the batch; a level is only drawn upon when all requests of those before it are.
            max_rows: Rows of the largest batch.
            min_rows: Rows that the batch must have, where that can be had.

        Returns:
            The chosen ones, in their order.
        """
        chosen = [levels[0][0]]
        pool: list[Request] = []
        for level in levels:
            pool += level[: _MAX_CANDIDATES - len(pool)]
            better = self._stretch(pool, chosen, max_rows, min_rows)
            if better is None:
                break
            chosen = better
            if len(chosen) < len(pool):
                break
        return chosen

    def _stretch(
        self, pool: Sequence[Request], needed: Sequence[Request], max_rows: int, min_rows: int
    ) -> list[Request] | None:
        """The best run of neighbours by length that holds all the `needed`; None when there is none within limits."""
        by_length = sorted(range(len(pool)), key=lambda i: pool[i].length)
        place = {request: at for at, i in enumerate(by_length) if (request := pool[i]) is not None}
        first, last = min(place[request] for request in needed), max(place[request] for request in needed)
        lengths = np.array([pool[i].length for i in by_length])
        rows = np.array([pool[i].next_rows for i in by_length])
        rows_before = np.concatenate([[0], np.cumsum(rows)])
        tokens_before = np.concatenate([[0], np.cumsum(rows * lengths)])
        lows, highs = _edges(0, first), _edges(last, len(pool) - 1)
        padded_lengths = np.array([self._steps.up(int(length)) for length in lengths[highs]])
        # [low, high]: the run from place low to place high.
        num_rows = rows_before[highs + 1] - rows_before[lows][:, np.newaxis]
        useful = np.maximum(tokens_before[highs + 1] - tokens_before[lows][:, np.newaxis], 1)
        padded = -(-num_rows // self._row_multiple) * self._row_multiple * padded_lengths
        price = (self._cost.fixed_ns + self._cost.token_ns * padded) / useful
        is_allowed = num_rows <= max_rows
        if self._padding.max_tokens:
            is_allowed &= padded <= self._padding.max_tokens
        if self._padding.max_ratio < 1:
            is_allowed &= 1 - useful / np.maximum(num_rows * padded_lengths, 1) <= self._padding.max_ratio
        if not is_allowed.any():
            return None
        if min_rows and (is_allowed & (num_rows >= min_rows)).any():
            is_allowed &= num_rows >= min_rows
        low, high = np.unravel_index(np.argmin(np.where(is_allowed, price, np.inf)), price.shape)
        run = sorted(by_length[lows[low] : highs[high] + 1])
        return [pool[i] for i in run]


def _edges(start: int, stop: int) -> np.ndarray:
    """Up to `_MAX_EDGES` places from `start` to `stop`, both among them."""
    if stop - start < _MAX_EDGES:
        return np.arange(start, stop + 1)
    return np.unique(np.linspace(start, stop, _MAX_EDGES).astype(np.int64))
