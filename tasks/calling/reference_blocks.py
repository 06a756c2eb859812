"""Reference blocks: stretches where a sample is homozygous for the reference, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from tasks.calling.aligned_reads import MIN_BASE_QUALITY, AlignedReads, LocalReference
from tasks.calling.genotypes import MAX_GENOTYPE_QUALITY, Call
from tasks.genome.ploidy import COPIES

BANDS = (10, 20, 30, 40, 60, MAX_GENOTYPE_QUALITY)
"""A block holds positions between the same two of these genotype qualities."""

MAX_LIKELIHOOD = 990
"""Largest PL that is written."""

_ERROR = 0.01
"""Share of fragments that show something else where the sample has none of it."""

_HALF, _RIGHT, _WRONG = (-10.0 * float(np.log10(share)) for share in (0.5, 1.0 - _ERROR, _ERROR))


@dataclass(frozen=True, slots=True)
class Block:
    """Positions ``[start, end)`` of a contig, the worst of them told.

    Attributes:
        start: 0-based.
        end: Past the last position.
        min_depth: Fragments at the position that has fewest.
        likelihoods: PL of no copy, one (of two) and all copies of anything else; 0 first.
        num_copies: Copies of the place, 1 or 2.
    """

    start: int
    end: int
    min_depth: int
    likelihoods: tuple[int, int, int]
    num_copies: int

    @property
    def genotype_quality(self) -> int:
        """GQ: the least of the other genotypes' PL, at most 99."""
        others = self.likelihoods[2:] if self.num_copies == 1 else self.likelihoods[1:]
        return min(MAX_GENOTYPE_QUALITY, *others)

    def joins(self, other: Block) -> bool:
        """Whether `other` follows at once and is of the same kind."""
        same = self.num_copies == other.num_copies and _band(self.genotype_quality) == _band(other.genotype_quality)
        return self.end == other.start and same

    def join(self, other: Block) -> Block:
        """Both as one."""
        first, second = self.likelihoods, other.likelihoods
        return replace(
            self,
            end=other.end,
            min_depth=min(self.min_depth, other.min_depth),
            likelihoods=(0, min(first[1], second[1]), min(first[2], second[2])),
        )


def count_reference(reads: AlignedReads, reference: LocalReference, start: int, end: int) -> np.ndarray:
    """Counts the fragments that show the reference, and those that show anything else, over ``[start, end)``.

    Of overlapping mates the first speaks. Deleted bases, and the base before an insertion, are something else; bases
    below `MIN_BASE_QUALITY` are nothing.

    Returns:
        int32 [end - start, 2].
    """
    counts: np.ndarray = _count(
        reads.start, reads.end, reads.mate, reads.cigar, reads.cigar_offset, reads.tokens, reads.quality,
        reads.base_offset, reference.tokens, reference.start, start, end,
    )  # fmt: skip
    return counts


def find_blocks(
    counts: np.ndarray,
    start: int,
    ploidy: np.ndarray,
    is_inside: np.ndarray,
    calls: Sequence[Call],
    doubts: dict[int, tuple[int, int]],
) -> Iterator[Block]:
    """Yields the blocks of a stretch, in order.

    Args:
        counts: int32 [n, 2] of `count_reference`.
        start: Position of its first row.
        ploidy: uint8 [n], codes of `tasks.genome.ploidy.ploidy_of`.
        is_inside: bool [n], where blocks may lie.
        calls: Called variants that may lie on the stretch: where they do, there is no block.
        doubts: PL of one and of two copies, by position, where a candidate was weighed and not called.
    """
    same, other = counts[:, 0].astype(np.float64), counts[:, 1].astype(np.float64)
    reference_phred = same * _RIGHT + other * _WRONG
    one = np.rint((same + other) * _HALF - reference_phred)
    both = np.rint(same * _WRONG + other * _RIGHT - reference_phred)
    for position, (less, more) in doubts.items():
        if start <= position < start + len(counts):
            one[position - start], both[position - start] = less, more
    one, both = (np.clip(each, 0, MAX_LIKELIHOOD).astype(np.int64) for each in (one, both))
    copies = ploidy & COPIES
    is_free = is_inside & (copies > 0)
    for call in calls:
        is_free[max(call.start - start, 0) : max(call.start + len(call.ref) - start, 0)] = False
    quality = np.minimum(np.where(copies == 1, both, np.minimum(one, both)), MAX_GENOTYPE_QUALITY)
    kind = np.where(is_free, np.searchsorted(BANDS, quality, side="right") * 4 + copies, -1)
    edges = np.flatnonzero(np.diff(kind, prepend=-2))
    depth = counts.sum(axis=1)
    for first, last in zip(edges.tolist(), [*edges[1:].tolist(), len(kind)], strict=True):
        if kind[first] >= 0:
            at = slice(first, last)
            worst = (0, int(one[at].min()), int(both[at].min()))
            yield Block(start + first, start + last, int(depth[at].min()), worst, int(copies[first]))


def _band(quality: int) -> int:
    return int(np.searchsorted(BANDS, quality, side="right"))


@njit(cache=True, nogil=True)
def _count(  # type: ignore[no-untyped-def]
    read_start,
    read_end,
    mate,
    cigar,
    cigar_offset,
    tokens,
    quality,
    base_offset,
    reference,
    reference_start,
    start,
    end,
):
    counts = np.zeros((end - start, 2), np.int32)
    for i in range(read_start.size):
        if read_end[i] <= start or read_start[i] >= end:
            continue
        # What the first mate has told is not told again.
        told_end = read_end[mate[i]] if 0 <= mate[i] < i else read_start[i]
        query = base_offset[i]
        position = read_start[i]
        for k in range(cigar_offset[i], cigar_offset[i + 1]):
            op = cigar[k] & np.uint32(15)
            length = np.int64(cigar[k] >> np.uint32(4))
            if op == 0 or op == 7 or op == 8:
                for j in range(max(0, start - position, told_end - position), min(length, end - position)):
                    token = tokens[query + j]
                    base = reference[position + j - reference_start]
                    if token < 4 and base < 4 and quality[query + j] >= MIN_BASE_QUALITY:
                        counts[position + j - start, 0 if token == base else 1] += 1
                query += length
                position += length
            elif op == 2:
                for j in range(max(0, start - position, told_end - position), min(length, end - position)):
                    counts[position + j - start, 1] += 1
                position += length
            elif op == 1:
                if start < position <= end and position > told_end and counts[position - 1 - start, 0] > 0:
                    counts[position - 1 - start, 0] -= 1
                    counts[position - 1 - start, 1] += 1
                query += length
            elif op == 3:
                position += length
            elif op == 4:
                query += length
    return counts
