"""Tandem repeats of a sequence: homopolymers and microsatellites, where indels and indel errors gather."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.simulation.genome import UNKNOWN, Tokens

_SHORTEST_BP = {1: 4, 2: 8, 3: 12, 4: 16, 5: 20}


@dataclass(frozen=True, slots=True)
class Tracts:
    """Exact tandem repeats, maximal, by start.

    Attributes:
        start: int64 [n], first base.
        length_bp: int64 [n], bases, a last partial unit included.
        unit_bp: int64 [n], bases of the repeated unit.
    """

    start: npt.NDArray[np.int64]
    length_bp: npt.NDArray[np.int64]
    unit_bp: npt.NDArray[np.int64]


def find_tracts(tokens: Tokens) -> Tracts:
    """Finds homopolymers of 4 bp or more and microsatellites (unit 2-5 bp) of 4 units or more in uint8 [n] tokens.

    A tract of a short unit is not reported again for the unit's multiples. Overlapping tracts of unequal units are.
    """
    found = [_tracts_of_unit(tokens, unit_bp) for unit_bp in _SHORTEST_BP]
    start, length_bp, unit_bp = (np.concatenate([columns[at] for columns in found]) for at in range(3))
    order = np.lexsort((unit_bp, start))
    return Tracts(start[order], length_bp[order], unit_bp[order])


def _tracts_of_unit(tokens: Tokens, unit_bp: int) -> tuple[npt.NDArray[np.int64], ...]:
    same = np.zeros(len(tokens) + 2, np.int8)
    earlier, later = tokens[: max(len(tokens) - unit_bp, 0)], tokens[unit_bp:]
    same[1 : len(earlier) + 1] = (earlier == later) & (earlier < UNKNOWN)
    edges = np.diff(same)
    start, end = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    length_bp = end - start + unit_bp
    keep = length_bp >= _SHORTEST_BP[unit_bp]
    start, length_bp = start[keep], length_bp[keep]
    keep = np.ones(len(start), np.bool_)
    for smaller in range(1, unit_bp):
        if unit_bp % smaller == 0:
            # A unit made of a smaller unit repeats at the smaller distance too.
            unit = start[:, None] + np.arange(unit_bp)
            keep &= (tokens[unit] != tokens[unit + smaller]).any(axis=1)
    return start[keep], length_bp[keep], np.full(int(keep.sum()), unit_bp, np.int64)
