"""Which of the requests that wait go together, when rows of several lengths may lie in one batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from serving.execution_cost import ExecutionCost
from serving.padding import LengthSteps, Padding
from serving.request import Request

_MAX_CANDIDATES = 2048


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
            better = self._stretch(pool, len(chosen), max_rows, min_rows)
            if better is None:
                break
            chosen = better
            if len(chosen) < len(pool):
                break
        return chosen

    def _stretch(self, pool: Sequence[Request], num_needed: int, max_rows: int, min_rows: int) -> list[Request] | None:
        """The best run of neighbours by length that holds the first so many; None when there is none within limits."""
        lengths = [request.length for request in pool]
        by_length = sorted(range(len(pool)), key=lengths.__getitem__)
        needed = [place for place, i in enumerate(by_length) if i < num_needed]
        low, high = _cheapest(
            np.array([lengths[i] for i in by_length]),
            np.array([self._steps.up(lengths[i]) for i in by_length]),
            np.array([pool[i].next_rows for i in by_length]),
            needed[0],
            needed[-1],
            max_rows,
            min_rows,
            self._row_multiple,
            self._cost.fixed_ns,
            self._cost.token_ns,
            self._padding.max_tokens,
            self._padding.max_ratio,
        )
        return None if low < 0 else [pool[i] for i in sorted(by_length[low : high + 1])]


# It keeps the interpreter's lock: whoever gives it up among clients who were just answered waits for them.
@njit(f"UniTuple(i8, 2)(i8[::1], i8[::1], i8[::1], {'i8, ' * 5}f8, f8, i8, f8)", cache=True)
def _cheapest(
    lengths: np.ndarray,
    padded_lengths: np.ndarray,
    rows: np.ndarray,
    first: int,
    last: int,
    max_rows: int,
    min_rows: int,
    row_multiple: int,
    fixed_ns: float,
    token_ns: float,
    max_tokens: int,
    max_ratio: float,
) -> tuple[int, int]:
    """The run of places, `first` and `last` in it, with the least expected time per useful token.

    Args:
        lengths: int64 [n], rising.
        padded_lengths: int64 [n], to what a batch is padded whose longest row each is.
        rows: int64 [n], of each request.
        first: A place of the run.
        last: Another, not before it.
        max_rows: Most rows of the run.
        min_rows: Rows that it has, where a run within the limits has so many.
        row_multiple: To a multiple of what the batch is padded.
        fixed_ns: Cost of an execution.
        token_ns: Cost of a padded token.
        max_tokens: Most padded tokens; 0: any number.
        max_ratio: Largest share of padding in the run's own rows, 0-1.

    Returns:
        Its first and last place; -1, -1 when no run is within the limits.
    """
    best_low, best_high, best_price, best_is_wanted = -1, -1, np.inf, False
    for high in range(last, len(lengths)):
        length = padded_lengths[high]
        num_rows, useful = 0, 0
        for low in range(high, -1, -1):
            num_rows += rows[low]
            useful += rows[low] * lengths[low]
            if num_rows > max_rows:
                break
            if low > first:
                continue
            padded = -(-num_rows // row_multiple) * row_multiple * length
            if (max_tokens and padded > max_tokens) or useful < (1 - max_ratio) * num_rows * length:
                continue
            is_wanted = num_rows >= min_rows
            price = (fixed_ns + token_ns * padded) / max(useful, 1)
            if (is_wanted and not best_is_wanted) or (is_wanted == best_is_wanted and price < best_price):
                best_low, best_high, best_price, best_is_wanted = low, high, price, is_wanted
    return best_low, best_high
