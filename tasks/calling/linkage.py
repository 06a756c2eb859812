"""Linkage: whether the fragments that show a candidate come from one haplotype, as candidates near it tell.

Fragments that reach over two candidates say which alleles lie on one chromosome. Of a true heterozygous allele they all
carry the same allele of a heterozygous neighbour; a homozygous allele and a mistake of the sequencer lie on both sides
of it. Few reads that all come from one chromosome say little about the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from tasks.calling.aligned_reads import AlignedReads
from tasks.calling.candidates import Candidates
from tasks.calling.indels import SNV
from tasks.calling.observations import ALTERNATE, OTHER, Observations

REACH_BP = 500
"""Candidates farther apart tell nothing of each other: few fragments reach over both."""

REACH_CANDIDATES = 8
"""So many candidates on either side are looked at."""

_ERROR = 0.03
"""Share of fragments that contradict the haplotype they come from, by chance."""
_MIN_FRACTION, _MAX_FRACTION = 0.15, 0.85
_MAX_GAIN = 4.0


@dataclass(frozen=True, slots=True)
class Linkage:
    """What the neighbours tell of each candidate.

    Attributes:
        gain: float32 [n, 2], by how much the fragments shared with a neighbour are likelier when the candidate lies on
            one of the neighbour's haplotypes than when it lies anywhere: logarithms to base 10 between -4 and 4 of the
            neighbour that says so least, and of the one that says so most; 0 where there is none.
        num_shared: int32 [n], fragments shared with the neighbour that has most of them.
        next_base: uint8 [n], the token of the single-base change right behind a single-base change that most fragments
            show with it; 4 where there is none.
        next_counts: int32 [n, 2], fragments that show both of these, and those that show one and tell of the other.
    """

    gain: np.ndarray
    num_shared: np.ndarray
    next_base: np.ndarray
    next_counts: np.ndarray

    def slice(self, first: int, last: int) -> Linkage:
        """That of the candidates ``[first, last)``."""
        return Linkage(
            self.gain[first:last], self.num_shared[first:last], self.next_base[first:last], self.next_counts[first:last]
        )


def link(reads: AlignedReads, candidates: Candidates, observations: Observations, fraction: np.ndarray) -> Linkage:
    """Looks at all pairs of candidates within `REACH_BP` and `REACH_CANDIDATES`.

    Args:
        reads: The aligned reads.
        candidates: n alleles in order.
        observations: What the reads say of them.
        fraction: float64 [n], the share of the fragments that tell which show each.
    """
    number = np.arange(len(reads.start), dtype=np.int32)
    fragment = np.where(reads.mate >= 0, np.minimum(number, reads.mate), number)
    return Linkage(
        *_link(fragment, candidates.start, candidates.kind, candidates.code, observations.offset, observations.read,
               observations.shows, fraction)
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _link(fragment, start, kind, code, offset, read, shows, fraction):  # type: ignore[no-untyped-def]
    gain = np.zeros((start.size, 2), np.float32)
    num_shared = np.zeros(start.size, np.int32)
    next_base = np.full(start.size, 4, np.uint8)
    next_counts = np.zeros((start.size, 2), np.int32)
    seen_at = np.full(fragment.size, -1, np.int64)
    seen = np.zeros(fragment.size, np.uint8)
    right, wrong, half = np.log10(1 - _ERROR), np.log10(_ERROR), np.log10(0.5)
    table = np.zeros((2, 2), np.int64)
    for c in range(start.size):
        for e in range(offset[c], offset[c + 1]):
            seen_at[fragment[read[e]]] = c
            seen[fragment[read[e]]] = shows[e]
        for n in range(max(0, c - REACH_CANDIDATES), min(start.size, c + REACH_CANDIDATES + 1)):
            if start[n] == start[c] or abs(start[n] - start[c]) > REACH_BP:
                continue
            table[:] = 0
            for e in range(offset[n], offset[n + 1]):
                f = fragment[read[e]]
                if seen_at[f] == c and seen[f] != OTHER and shows[e] != OTHER:
                    table[np.int64(seen[f] == ALTERNATE), np.int64(shows[e] == ALTERNATE)] += 1
            if kind[c] == SNV and kind[n] == SNV and start[n] == start[c] + 1 and table[1, 1] > next_counts[c, 0]:
                next_base[c] = code[n]
                next_counts[c, 0] = table[1, 1]
                next_counts[c, 1] = table[0, 1] + table[1, 0]
            same, other = table[0, 0] + table[1, 1], table[0, 1] + table[1, 0]
            shared = same + other
            if not shared or not _MIN_FRACTION <= fraction[n] <= _MAX_FRACTION:
                continue
            # Both orders of the haplotypes are as likely; the difference of the exponents may be large.
            more, less = max(same, other), min(same, other)
            ratio = (wrong - right) * (more - less)
            phased = more * right + less * wrong + half + np.log10(1 + 10.0**ratio)
            value = min(max(phased - shared * half, -_MAX_GAIN), _MAX_GAIN)
            gain[c, 0] = min(gain[c, 0], value)
            gain[c, 1] = max(gain[c, 1], value)
            num_shared[c] = max(num_shared[c], shared)
    return gain, num_shared, next_base, next_counts
