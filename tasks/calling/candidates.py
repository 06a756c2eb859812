"""Candidate alleles: the single-base changes, insertions and deletions that aligned reads show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from tasks.calling.aligned_reads import MIN_BASE_QUALITY, AlignedReads, LocalReference
from tasks.calling.indels import SNV, collect_indels, find_tract_ends

MIN_FRAGMENTS = 2
MIN_FRACTION = 0.1
MIN_LONE_FRACTION = 0.5
"""An allele is a candidate when so many fragments, and this share of those that tell, show it; where one or two tell,
one is enough."""

_MIN_READ_FRACTION = 0.05


@dataclass(frozen=True, slots=True)
class Candidates:
    """Alleles in order of (start, kind, length, bases). Positions are 0-based on the contig.

    An allele is trimmed and left-aligned: an SNV starts at its base, an insertion or deletion at the base before it
    (VCF 4.x, section 1.6.1, POS).

    Attributes:
        start: int64 [n].
        kind: uint8 [n], `SNV`, `INSERTION` or `DELETION`.
        length_bp: int32 [n], inserted or deleted bases; 0 for an SNV.
        code: uint64 [n], an SNV's alternate token, or as in `Indels`.
        reference_token: uint8 [n], the reference's base at the start.
        tract_end: int64 [n], past the last position where the same change could be written; start + 1 for an SNV.
        event_offset: int64 [n + 1], each candidate's events in `event_read`.
        event_read: int32 [num_events], reads that show an insertion or deletion; empty for an SNV.
        inserted: One bytes object of tokens per candidate, empty but for insertions.
    """

    start: np.ndarray
    kind: np.ndarray
    length_bp: np.ndarray
    code: np.ndarray
    reference_token: np.ndarray
    tract_end: np.ndarray
    event_offset: np.ndarray
    event_read: np.ndarray
    inserted: tuple[bytes, ...]

    def __len__(self) -> int:
        return int(self.start.size)

    def slice(self, first: int, last: int) -> Candidates:
        """The candidates ``[first, last)``."""
        events = slice(self.event_offset[first], self.event_offset[last])
        return Candidates(
            self.start[first:last],
            self.kind[first:last],
            self.length_bp[first:last],
            self.code[first:last],
            self.reference_token[first:last],
            self.tract_end[first:last],
            self.event_offset[first : last + 1] - self.event_offset[first],
            self.event_read[events],
            self.inserted[first:last],
        )


def find_candidates(
    reads: AlignedReads, reference: LocalReference, start: int, end: int, depth: np.ndarray, depth_start: int
) -> Candidates:
    """Collects the alleles that start in ``[start, end)`` and that enough reads show.

    The floors are applied loosely here, to reads; fragments are counted where the reads are observed.

    Args:
        reads: Every read that overlaps ``[start, end + MAX_SHIFT_BP]``.
        reference: Covers the reads and `MAX_SHIFT_BP` before them.
        start: First position, 0-based.
        end: Past the last position.
        depth: int32, reads over each position from `depth_start` on; covers ``[start, end)``.
        depth_start: Position of the first element of `depth`.
    """
    local_depth = depth[start - depth_start : end - depth_start]
    counts = _count_changes(
        reads.start, reads.end, reads.cigar, reads.cigar_offset, reads.tokens, reads.quality, reads.base_offset,
        reference.tokens, reference.start, start, end,
    )  # fmt: skip
    place, token = np.nonzero(_may_be_candidate(counts, local_depth[:, None]))
    indels = collect_indels(reads, reference, start, end, local_depth, _may_be_candidate)
    num_snvs = place.size
    all_start = np.concatenate((place + start, indels.start))
    all_kind = np.concatenate((np.full(num_snvs, SNV, np.uint8), indels.kind))
    all_length = np.concatenate((np.zeros(num_snvs, np.int32), indels.length_bp))
    all_code = np.concatenate((token.astype(np.uint64), indels.code))
    rank = np.lexsort((all_code, all_length, all_kind, all_start))
    # SNVs have no events: those of the indels stay in the indels' own order.
    size = np.concatenate((np.zeros(num_snvs, np.int64), indels.num_events))[rank]
    event_offset = np.concatenate((np.zeros(1, np.int64), np.cumsum(size)))
    all_inserted = (b"",) * num_snvs + indels.inserted
    inserted = tuple(all_inserted[row] for row in rank)
    tract_end = find_tract_ends(
        all_start[rank], all_kind[rank], all_length[rank],
        np.frombuffer(b"".join(inserted) + b"\0", np.uint8).copy(),
        np.concatenate((np.zeros(1, np.int64), np.cumsum([len(bases) for bases in inserted], dtype=np.int64))),
        reference.tokens, reference.start,
    )  # fmt: skip
    return Candidates(
        start=all_start[rank],
        kind=all_kind[rank],
        length_bp=all_length[rank],
        code=all_code[rank],
        reference_token=reference.tokens[all_start[rank] - reference.start],
        tract_end=tract_end,
        event_offset=event_offset,
        event_read=indels.event_read,
        inserted=inserted,
    )


def is_candidate(shown: np.ndarray, telling: np.ndarray) -> np.ndarray:
    """Whether alleles are candidates: bool, of the arguments' shape.

    Args:
        shown: Fragments that show the allele.
        telling: Fragments that tell, these among them.
    """
    return _is_shown(shown, telling, MIN_FRACTION)


def _may_be_candidate(shown: np.ndarray, depth: np.ndarray) -> np.ndarray:
    return _is_shown(shown, depth, _MIN_READ_FRACTION)


def _is_shown(shown: np.ndarray, depth: np.ndarray, min_fraction: float) -> np.ndarray:
    fraction = shown / np.maximum(depth, 1)
    is_shown: np.ndarray = (fraction >= min_fraction) & ((shown >= MIN_FRAGMENTS) | (fraction >= MIN_LONE_FRACTION))
    return is_shown


@njit(cache=True, nogil=True)
def _count_changes(  # type: ignore[no-untyped-def]
    read_start, read_end, cigar, cigar_offset, tokens, quality, base_offset, reference, reference_start, start, end
):
    """Counts reads with each other base; returns int32 [end - start, 4]."""
    counts = np.zeros((end - start, 4), np.int32)
    for i in range(read_start.size):
        if read_end[i] <= start or read_start[i] >= end:
            continue
        query = base_offset[i]
        position = read_start[i]
        for k in range(cigar_offset[i], cigar_offset[i + 1]):
            op = cigar[k] & np.uint32(15)
            length = np.int64(cigar[k] >> np.uint32(4))
            if op == 0 or op == 7 or op == 8:
                for j in range(max(0, start - position), min(length, end - position)):
                    token = tokens[query + j]
                    base = reference[position + j - reference_start]
                    if token != base and token < 4 and base < 4 and quality[query + j] >= MIN_BASE_QUALITY:
                        counts[position + j - start, token] += 1
                query += length
                position += length
            elif op == 1 or op == 4:
                query += length
            elif op == 2 or op == 3:
                position += length
    return counts
