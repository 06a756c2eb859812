"""Clips: reads whose clipped end fits the reference behind a gap are aligned through it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit

from tasks.calling.aligned_reads import AlignedReads, LocalReference, agreement, sort_reads

LEAST_CLIP_BP = 16
"""Shorter clips fit too many places by chance."""

MAX_GAP_BP = 100
"""Longer deletions and insertions are not looked for."""

MAX_READ_BP = 320
"""Longer reads stay as they are: what a row depends on stays within what a shard loads."""

_LEAST_SCORE = 14


def open_clips(reads: AlignedReads, reference: LocalReference) -> AlignedReads:
    """Aligns the clipped ends of reads behind the one deletion or insertion that explains them best.

    Aligners clip a read rather than open a long gap near its end. An insertion is found where the clip holds all of it
    and enough bases behind it.

    Args:
        reads: The aligned reads.
        reference: Covers the reads and `MAX_GAP_BP` on both sides.

    Returns:
        All reads, again by start.
    """
    start, cigar, cigar_offset, num_opened = _open_clips(
        reads.start, reads.end, reads.query_start, reads.query_end, reads.cigar, reads.cigar_offset, reads.tokens,
        reads.quality, reads.base_offset, reference.tokens, reference.start,
    )  # fmt: skip
    if not num_opened:
        return reads
    return sort_reads(replace(reads, start=start, cigar=cigar, cigar_offset=cigar_offset), reference)


@njit(cache=True, nogil=True)
def _fit(query, position, step, first, num_bases, tokens, quality, reference, reference_start):  # type: ignore[no-untyped-def]
    """Lays the bases from `query` on over the reference from `position` on; returns the best score and its length."""
    score = 0
    best = 0
    best_length = 0
    length = 0
    while 0 <= query < num_bases and 0 <= position - reference_start < reference.size:
        at = first + query
        score += agreement(tokens[at], reference[position - reference_start], quality[at])
        length += 1
        if score > best:
            best = score
            best_length = length
        elif score < best - 8:
            break
        query += step
        position += step
    return best, best_length


@njit(cache=True, nogil=True)
def _open_clips(  # type: ignore[no-untyped-def]
    start,
    end,
    query_start,
    query_end,
    cigar,
    cigar_offset,
    tokens,
    quality,
    base_offset,
    reference,
    reference_start,
):
    """Returns start, cigar and cigar_offset of the reads, in their old order, and how many clips were opened."""
    num_reads = start.size
    new_start = start.copy()
    # Each side gains at most a gap and an aligned stretch.
    new_cigar = np.empty(cigar.size + 4 * num_reads, np.uint32)
    new_offset = np.zeros(num_reads + 1, np.int64)
    n = 0
    num_opened = 0
    for i in range(num_reads):
        num_bases = base_offset[i + 1] - base_offset[i]
        gap = np.zeros(2, np.int64)
        laid = np.zeros(2, np.int64)
        clip = (np.int64(query_start[i]), num_bases - np.int64(query_end[i]))
        if num_bases <= MAX_READ_BP and end[i] - start[i] <= MAX_READ_BP:
            for side in range(2):
                if clip[side] < LEAST_CLIP_BP:
                    continue
                step = 1 if side else -1
                query = np.int64(query_end[i]) if side else np.int64(query_start[i]) - 1
                position = end[i] if side else start[i] - 1
                best = _LEAST_SCORE - 1
                for size in range(1, MAX_GAP_BP + 1):
                    # Above 0: bases deleted; below 0: bases inserted.
                    score, length = _fit(
                        query, position + step * size, step, base_offset[i], num_bases, tokens, quality, reference,
                        reference_start,
                    )  # fmt: skip
                    if score > best:
                        best, gap[side], laid[side] = score, size, length
                    if clip[side] - size < LEAST_CLIP_BP:
                        continue
                    score, length = _fit(
                        query + step * size, position, step, base_offset[i], num_bases, tokens, quality, reference,
                        reference_start,
                    )  # fmt: skip
                    if score > best:
                        best, gap[side], laid[side] = score, -size, length
        first, last = cigar_offset[i], cigar_offset[i + 1]
        # A hard clip is said no more; the soft clip that is opened is written anew.
        if gap[0] != 0 or gap[1] != 0:
            num_opened += 1
            while first < last and (
                cigar[first] & np.uint32(15) == 5 or (gap[0] != 0 and cigar[first] & np.uint32(15) == 4)
            ):
                first += 1
            while last > first and (
                cigar[last - 1] & np.uint32(15) == 5 or (gap[1] != 0 and cigar[last - 1] & np.uint32(15) == 4)
            ):
                last -= 1
        if gap[0] != 0:
            unused = clip[0] - laid[0] - max(-gap[0], 0)
            if unused > 0:
                new_cigar[n] = np.uint32((unused << 4) | 4)
                n += 1
            new_cigar[n] = np.uint32(laid[0] << 4)
            new_cigar[n + 1] = np.uint32((abs(gap[0]) << 4) | (2 if gap[0] > 0 else 1))
            n += 2
            new_start[i] = start[i] - laid[0] - max(gap[0], 0)
        for k in range(first, last):
            new_cigar[n] = cigar[k]
            n += 1
        if gap[1] != 0:
            new_cigar[n] = np.uint32((abs(gap[1]) << 4) | (2 if gap[1] > 0 else 1))
            new_cigar[n + 1] = np.uint32(laid[1] << 4)
            n += 2
            unused = clip[1] - laid[1] - max(-gap[1], 0)
            if unused > 0:
                new_cigar[n] = np.uint32((unused << 4) | 4)
                n += 1
        new_offset[i + 1] = n
    return new_start, new_cigar[:n], new_offset, num_opened
