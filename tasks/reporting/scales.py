"""Axes and the numbers on them: round ranges, ticks, and values as people write them."""

from __future__ import annotations

import math
from collections.abc import Callable

LABEL_CHARACTERS = 26
"""Longest label of a row of a plot."""
_NUM_TICKS = 5

Format = Callable[[float], str]
"""How a value is written."""


def short_label(text: str, length: int = LABEL_CHARACTERS) -> str:
    """`text`, or its beginning and end where it is longer than `length` characters."""
    if len(text) <= length:
        return text
    tail = length // 2
    return f"{text[: length - tail - 1]}…{text[-tail:]}"


def nice_ticks(low: float, high: float, count: int = _NUM_TICKS) -> list[float]:
    """Round numbers inside ``[low, high]``, about `count` of them; one where both are equal."""
    if not high > low:
        return [low]
    step = _nice_step(low, high, count)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [place * step for place in range(first, last + 1)]


def nice_range(low: float, high: float) -> tuple[float, float]:
    """A range that holds ``[low, high]`` and ends on ticks of its own; never empty."""
    if not high > low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    # A wider range may want wider steps, which may want a wider range: the second round settles it.
    for _ in range(2):
        step = _nice_step(low, high, _NUM_TICKS)
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return low, high


def _nice_step(low: float, high: float, count: int) -> float:
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def plain_number(value: float) -> str:
    """A number for an axis: thousands separated, no more decimals than it has."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def short_number(value: float) -> str:
    """A count for an axis: 25,000 as 25k, 1,500,000 as 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (abs(value) >= size and size > 1e3):
            return f"{plain_number(round(value / size, 3))}{letter}"
    return plain_number(value)


def percent(value: float) -> str:
    """A share for an axis."""
    return f"{plain_number(round(value * 100, 3))}\u00a0%"
