"""What a missing record means at each base: called as the reference, or not known, and why."""

from __future__ import annotations

import numpy as np

from tasks.coverage.depth import Depth
from tasks.windows import UNKNOWN_TOKEN

STATES = ("CALLABLE", "LOW_DEPTH", "POOR_MAPPING", "NO_DEPTH", "REFERENCE_N")
"""The last that applies of the first three, unless one of the others does."""

MIN_CALLABLE_DEPTH = 10
"""Of ten fragments over a heterozygous base, fewer than two show the other allele once in 93 times."""

CALLABLE, LOW_DEPTH, POOR_MAPPING, NO_DEPTH, REFERENCE_N = range(len(STATES))
OUTSIDE = 255
"""The state of what was not measured."""


def label_states(depth: Depth, tokens: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Labels every base of a stretch.

    ``REFERENCE_N``: the reference has no A, C, G or T there. ``NO_DEPTH``: no read covers it. ``POOR_MAPPING``: more
    than half of the reads over it lie below the mapping-quality floor. ``LOW_DEPTH``: usable depth below
    `MIN_CALLABLE_DEPTH`. ``CALLABLE``: the rest.

    Args:
        depth: The stretch's depths, n bases.
        tokens: uint8 [n], the reference there.
        windows: int64 [m, 2], the parts that were measured, as positions on the contig.

    Returns:
        uint8 [n], places in `STATES`; `OUTSIDE` outside the windows.
    """
    states = np.full(tokens.size, OUTSIDE, np.uint8)
    for start, end in (windows - depth.start).tolist():
        usable = depth.usable[start:end]
        poorly, well = depth.poorly_mapped[start:end], depth.well_mapped[start:end]
        part = np.where(usable >= MIN_CALLABLE_DEPTH, np.uint8(CALLABLE), np.uint8(LOW_DEPTH))
        part[poorly > well] = POOR_MAPPING
        part[poorly + well == 0] = NO_DEPTH
        part[tokens[start:end] >= UNKNOWN_TOKEN] = REFERENCE_N
        states[start:end] = part
    return states


def find_runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds the stretches of equal neighbours; returns int64 [k] each: first places and places past the last."""
    if not values.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.concatenate(([0], changes)).astype(np.int64), np.append(changes, values.size).astype(np.int64)


def join_runs(
    start: np.ndarray, end: np.ndarray, value: np.ndarray, borders: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds which sorted runs go on in their successors: those that touch, are equal and meet at no border.

    Args:
        start: int64 [k], first places.
        end: int64 [k], places past the last.
        value: [k], what they hold.
        borders: int64, sorted places at which nothing is joined (where contigs begin).

    Returns:
        Starts, ends and places of the first part of the joined runs.
    """
    if not start.size:
        return start, end, np.zeros(0, np.int64)
    goes_on = (start[1:] == end[:-1]) & (value[1:] == value[:-1])
    if borders.size:
        goes_on &= borders[np.minimum(np.searchsorted(borders, start[1:]), borders.size - 1)] != start[1:]
    is_first = np.append(True, ~goes_on)
    is_last = np.append(~goes_on, True)
    return start[is_first], end[is_last], np.flatnonzero(is_first)
