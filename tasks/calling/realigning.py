"""Realignment: reads that run into an insertion or deletion which their aligner did not open are aligned through it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit

from tasks.calling.aligned_reads import AlignedReads, LocalReference, agreement, sort_reads
from tasks.calling.clips import MAX_GAP_BP, MAX_READ_BP, open_clips
from tasks.calling.indels import DELETION, collect_indels

REACH_BP = 3 * (MAX_READ_BP + 2 * MAX_GAP_BP)
"""How far from a place a read can lie that decides about another one's alignment there."""

_LEAST_EVENTS, _ONE_IN = 2, 10
_GAP = -3
"""Less than aligners ask for: other reads show the gap already."""

_NEW_OPS = 4


def realign(reads: AlignedReads, reference: LocalReference, depth: np.ndarray, depth_start: int) -> AlignedReads:
    """Aligns reads through the insertions and deletions that other reads show, where that explains them better.

    Long clips are opened first, each read for itself: what they show counts as shown. Then a read keeps its alignment
    on one side of a change and is aligned without gaps beyond it, its clipped bases too. Mismatches near the ends of
    reads, from which false single-base changes come, become support of the one event. After McKenna et al. 2010,
    Genome Research 20:1297 (the idea; each read is moved on its own here).

    Args:
        reads: The aligned reads.
        reference: Covers the reads and `MAX_SHIFT_BP` on both sides.
        depth: int32, reads over each position from `depth_start` on.
        depth_start: Position of the first element of `depth`.

    Returns:
        All reads, again by start.
    """
    reads = open_clips(reads, reference)
    indels = collect_indels(reads, reference, depth_start, depth_start + depth.size, depth, _is_enough)
    if not indels.start.size:
        return reads
    inserted_offset = np.concatenate(
        (np.zeros(1, np.int64), np.cumsum([len(b) for b in indels.inserted], dtype=np.int64))
    )
    start, cigar, cigar_offset = _realign(
        reads.start, reads.end, reads.query_start, reads.query_end, reads.cigar, reads.cigar_offset, reads.tokens,
        reads.quality, reads.base_offset, reads.max_span_bp, reference.tokens, reference.start, indels.start,
        indels.kind, indels.length_bp, indels.event_offset, indels.event_read,
        np.frombuffer(b"".join(indels.inserted) + b"\0", np.uint8).copy(), inserted_offset,
    )  # fmt: skip
    return sort_reads(replace(reads, start=start, cigar=cigar, cigar_offset=cigar_offset), reference)


def _is_enough(num_events: np.ndarray, depth: np.ndarray) -> np.ndarray:
    is_enough: np.ndarray = (num_events >= _LEAST_EVENTS) & (num_events * _ONE_IN >= depth)
    return is_enough


@njit(cache=True, nogil=True)
def _walk(i, place, start, cigar, cigar_offset, tokens, quality, base_offset, reference, reference_start):  # type: ignore[no-untyped-def]
    """Scores a read's alignment; returns its score, the part before `place`, and the base there (-1 if none)."""
    total = 0
    before = 0
    found = np.int64(-1)
    query = np.int64(0)
    position = start[i]
    first = base_offset[i]
    for k in range(cigar_offset[i], cigar_offset[i + 1]):
        op = cigar[k] & np.uint32(15)
        length = np.int64(cigar[k] >> np.uint32(4))
        if op == 0 or op == 7 or op == 8:
            for j in range(length):
                if position + j == place:
                    found = query + j
                    before = total
                at = first + query + j
                total += agreement(tokens[at], reference[position + j - reference_start], quality[at])
            query += length
            position += length
        elif op == 1:
            total += _GAP
            query += length
        elif op == 2:
            total += _GAP
            position += length
        elif op == 4:
            query += length
        elif op == 3:
            position += length
    return total, before, found


@njit(cache=True, nogil=True)
def _extend(  # type: ignore[no-untyped-def]
    query, position, step, first, num_bases, inserted, tokens, quality, reference, reference_start
):
    """Lays bases over an insertion's (none for a deletion) and then over the reference, as far as the score grows.

    Returns:
        The best score, and how many bases lie on the reference there; 0 bases when the read ends too soon.
    """
    score = 0
    for j in range(inserted.size):
        if not 0 <= query < num_bases:
            return 0, 0
        base = inserted[j] if step > 0 else inserted[inserted.size - 1 - j]
        score += agreement(tokens[first + query], base, quality[first + query])
        query += step
    best = -(1 << 30)
    best_length = 0
    length = 0
    while 0 <= query < num_bases and 0 <= position - reference_start < reference.size:
        score += agreement(tokens[first + query], reference[position - reference_start], quality[first + query])
        length += 1
        if score > best:
            best = score
            best_length = length
        query += step
        position += step
    return best, best_length


@njit(cache=True, nogil=True)
def _realign(  # type: ignore[no-untyped-def]
    start,
    end,
    query_start,
    query_end,
    cigar,
    cigar_offset,
    tokens,
    quality,
    base_offset,
    max_span_bp,
    reference,
    reference_start,
    indel_start,
    indel_kind,
    indel_length,
    event_offset,
    event_read,
    inserted,
    inserted_offset,
):
    """Returns start, cigar and cigar_offset of the reads, in their old order."""
    num_reads = start.size
    best_score = np.zeros(num_reads, np.int64)
    is_scored = np.zeros(num_reads, np.bool_)
    choice = np.full(num_reads, -1, np.int64)
    is_left = np.zeros(num_reads, np.bool_)
    laid = np.zeros(num_reads, np.int64)
    supports = np.full(num_reads, -1, np.int64)
    for c in range(indel_start.size):
        length = np.int64(indel_length[c])
        if length > MAX_GAP_BP:
            continue
        for e in range(event_offset[c], event_offset[c + 1]):
            supports[event_read[e]] = c
        added = inserted[inserted_offset[c] : inserted_offset[c + 1]]
        left = indel_start[c]
        right = left + 1 + (length if indel_kind[c] == DELETION else 0)
        low = np.searchsorted(start, left - max_span_bp, side="right")
        high = np.searchsorted(start, right, side="right")
        for i in range(low, high):
            num_bases = base_offset[i + 1] - base_offset[i]
            if supports[i] == c or end[i] <= left or num_bases > MAX_READ_BP or end[i] - start[i] > MAX_READ_BP:
                continue
            for side in range(2):
                place = left if side == 0 else right
                if not start[i] <= place < end[i]:
                    continue
                total, before, found = _walk(
                    i, place, start, cigar, cigar_offset, tokens, quality, base_offset, reference, reference_start
                )
                if not is_scored[i]:
                    is_scored[i] = True
                    best_score[i] = total
                if found < 0:
                    continue
                at = base_offset[i] + found
                if side == 0:
                    kept = before + agreement(tokens[at], reference[place - reference_start], quality[at])
                    gained, on_reference = _extend(
                        found + 1, right, 1, base_offset[i], num_bases, added, tokens, quality, reference,
                        reference_start,
                    )  # fmt: skip
                else:
                    kept = total - before
                    gained, on_reference = _extend(
                        found - 1, left, -1, base_offset[i], num_bases, added, tokens, quality, reference,
                        reference_start,
                    )  # fmt: skip
                if on_reference > 0 and kept + gained + _GAP > best_score[i]:
                    best_score[i] = kept + gained + _GAP
                    choice[i] = c
                    is_left[i] = side == 0
                    laid[i] = on_reference
    new_start = start.copy()
    new_cigar = np.empty(cigar.size + _NEW_OPS * num_reads, np.uint32)
    new_offset = np.zeros(num_reads + 1, np.int64)
    n = 0
    for i in range(num_reads):
        if choice[i] < 0:
            for k in range(cigar_offset[i], cigar_offset[i + 1]):
                new_cigar[n] = cigar[k]
                n += 1
            new_offset[i + 1] = n
            continue
        c = choice[i]
        length = np.int64(indel_length[c])
        is_deletion = indel_kind[c] == DELETION
        left = indel_start[c]
        right = left + 1 + (length if is_deletion else 0)
        change = np.uint32(length << 4) | np.uint32(2 if is_deletion else 1)
        num_bases = base_offset[i + 1] - base_offset[i]
        query = np.int64(0)
        position = start[i]
        is_behind = False
        for k in range(cigar_offset[i], cigar_offset[i + 1]):
            op = cigar[k] & np.uint32(15)
            size = np.int64(cigar[k] >> np.uint32(4))
            is_aligned = op == 0 or op == 7 or op == 8
            if is_left[i] and is_aligned and position <= left < position + size:
                new_cigar[n] = np.uint32((left + 1 - position) << 4)
                new_cigar[n + 1] = change
                new_cigar[n + 2] = np.uint32(laid[i] << 4)
                n += 3
                used = query + left + 1 - position + (0 if is_deletion else length) + laid[i]
                if used < num_bases:
                    new_cigar[n] = np.uint32((num_bases - used) << 4) | np.uint32(4)
                    n += 1
                break
            if not is_left[i] and is_aligned and position <= right < position + size:
                unused = query + right - position - (0 if is_deletion else length) - laid[i]
                if unused > 0:
                    new_cigar[n] = np.uint32(unused << 4) | np.uint32(4)
                    n += 1
                new_cigar[n] = np.uint32(laid[i] << 4)
                new_cigar[n + 1] = change
                new_cigar[n + 2] = np.uint32((position + size - right) << 4)
                n += 3
                new_start[i] = left + 1 - laid[i]
                is_behind = True
            elif is_left[i] or is_behind:
                new_cigar[n] = cigar[k]
                n += 1
            if is_aligned or op == 2 or op == 3:
                position += size
            if is_aligned or op == 1 or op == 4:
                query += size
        new_offset[i + 1] = n
    return new_start, new_cigar[:n], new_offset
