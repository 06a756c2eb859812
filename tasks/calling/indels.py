"""Insertions and deletions of aligned reads, moved to the left as far as they go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import njit

from tasks.calling.aligned_reads import MIN_BASE_QUALITY, AlignedReads, LocalReference

MAX_SHIFT_BP = 1000
"""An insertion or deletion moves at most so far: what a shard must load stays bounded."""

SNV, INSERTION, DELETION = 0, 1, 2
"""Kinds of alleles."""

MAX_PACKED_BASES = 31
"""Longest insertion whose bases fit its code, two bits each; a longer one's are hashed."""


@dataclass(frozen=True, slots=True)
class Indels:
    """Distinct insertions and deletions, trimmed and left-aligned, in order of (start, kind, length, bases).

    Attributes:
        start: int64 [n], the base before the change.
        kind: uint8 [n], `INSERTION` or `DELETION`.
        length_bp: int32 [n], inserted or deleted bases.
        code: uint64 [n], an insertion's bases packed (or hashed when longer than 31), 0 for a deletion.
        event_offset: int64 [n + 1], each one's events in `event_read`.
        event_read: int32 [num_events], reads that show it, ascending.
        inserted: One bytes object of tokens each, empty for deletions.
    """

    start: np.ndarray
    kind: np.ndarray
    length_bp: np.ndarray
    code: np.ndarray
    event_offset: np.ndarray
    event_read: np.ndarray
    inserted: tuple[bytes, ...]

    @property
    def num_events(self) -> np.ndarray:
        """How often reads show each: int64 [n]."""
        size: np.ndarray = np.diff(self.event_offset)
        return size


def collect_indels(
    reads: AlignedReads,
    reference: LocalReference,
    start: int,
    end: int,
    depth: np.ndarray,
    is_enough: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Indels:
    """Collects the insertions and deletions that start in ``[start, end)`` and that enough reads show.

    Args:
        reads: The aligned reads.
        reference: Covers the reads and `MAX_SHIFT_BP` before them.
        start: First position, 0-based.
        end: Past the last position.
        depth: int32 [end - start], reads over each position.
        is_enough: Which are kept, of the numbers of events and of reads over them.
    """
    events = find_indels(
        reads.start, reads.end, reads.cigar, reads.cigar_offset, reads.tokens, reads.quality, reads.base_offset,
        reference.tokens, reference.start, start, end,
    )  # fmt: skip
    event_start, event_kind, event_length, event_code, event_read, event_query, event_shift = events
    order = np.lexsort((event_read, event_code, event_length, event_kind, event_start))
    keys = np.stack((event_start, event_kind, event_length, event_code.view(np.int64)))[:, order]
    is_first = np.ones(order.size, np.bool_)
    is_first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    first = np.flatnonzero(is_first)
    size = np.diff(np.append(first, order.size))
    enough = is_enough(size, depth[event_start[order[first]] - start])
    first, size = first[enough], size[enough]
    example = order[first]
    event_offset = np.concatenate((np.zeros(1, np.int64), np.cumsum(size)))
    members = np.repeat(first - event_offset[:-1], size) + np.arange(event_offset[-1])
    return Indels(
        start=event_start[example],
        kind=event_kind[example].astype(np.uint8),
        length_bp=event_length[example].astype(np.int32),
        code=event_code[example],
        event_offset=event_offset,
        event_read=event_read[order[members]],
        inserted=tuple(
            _inserted(reads, int(event_read[e]), int(event_query[e]), int(event_length[e]), int(event_shift[e]))
            if event_kind[e] == INSERTION
            else b""
            for e in example
        ),
    )


def _inserted(reads: AlignedReads, read: int, query: int, length: int, shift: int) -> bytes:
    """Tokens of an insertion after it was moved `shift` bases to the left: each step turns them by one."""
    at = reads.base_offset[read] + query
    return np.roll(reads.tokens[at : at + length], shift % length).tobytes()


@njit(cache=True, nogil=True)
def find_indels(  # type: ignore[no-untyped-def]
    read_start, read_end, cigar, cigar_offset, tokens, quality, base_offset, reference, reference_start, start, end
):
    """Left-aligns every insertion and deletion that has aligned bases on both sides.

    Returns:
        start (of the base before), kind, length (int64), code (uint64), read, query index of the first inserted base,
        number of steps moved (int64), of those that start in ``[start, end)`` and hold no token 4.
    """
    size = 0
    for k in range(cigar.size):
        op = cigar[k] & np.uint32(15)
        if op == 1 or op == 2:
            size += 1
    out_start = np.empty(size, np.int64)
    out_kind = np.empty(size, np.int64)
    out_length = np.empty(size, np.int64)
    out_code = np.empty(size, np.uint64)
    out_read = np.empty(size, np.int32)
    out_query = np.empty(size, np.int64)
    out_shift = np.empty(size, np.int64)
    n = 0
    for i in range(read_start.size):
        query = np.int64(0)
        position = read_start[i]
        last_aligned = -1
        for k in range(cigar_offset[i], cigar_offset[i + 1]):
            op = cigar[k] & np.uint32(15)
            if op == 0 or op == 7 or op == 8:
                last_aligned = k
        seen = False
        first = base_offset[i]
        for k in range(cigar_offset[i], cigar_offset[i + 1]):
            op = cigar[k] & np.uint32(15)
            length = np.int64(cigar[k] >> np.uint32(4))
            if op == 0 or op == 7 or op == 8:
                seen = True
                query += length
                position += length
            elif op == 4:
                query += length
            elif op == 3:
                position += length
            elif op == 2:
                if seen and k < last_aligned:
                    at = position
                    shift = 0
                    while (
                        shift < MAX_SHIFT_BP
                        and at - 1 > reference_start
                        and reference[at - 1 - reference_start] < 4
                        and reference[at - 1 - reference_start] == reference[at + length - 1 - reference_start]
                    ):
                        at -= 1
                        shift += 1
                    known = at >= 1
                    for j in range(at - 1, at + length):
                        known = known and reference[j - reference_start] < 4
                    if known and start <= at - 1 < end:
                        out_start[n] = at - 1
                        out_kind[n] = DELETION
                        out_length[n] = length
                        out_code[n] = 0
                        out_read[n] = i
                        out_query[n] = query
                        out_shift[n] = shift
                        n += 1
                position += length
            elif op == 1:
                if seen and k < last_aligned:
                    at = position
                    shift = 0
                    while (
                        shift < MAX_SHIFT_BP
                        and at - 1 > reference_start
                        and reference[at - 1 - reference_start] < 4
                        and reference[at - 1 - reference_start] == tokens[first + query + (length - 1 - shift % length)]
                    ):
                        at -= 1
                        shift += 1
                    known = at >= 1 and reference[at - 1 - reference_start] < 4
                    total = 0
                    code = np.uint64(14695981039346656037) if length > MAX_PACKED_BASES else np.uint64(0)
                    for j in range(length):
                        token = tokens[first + query + (j - shift) % length]
                        known = known and token < 4
                        total += quality[first + query + j]
                        if length > MAX_PACKED_BASES:
                            code = (code ^ np.uint64(token)) * np.uint64(1099511628211)
                        else:
                            code = (code << np.uint64(2)) | np.uint64(token)
                    if known and total >= MIN_BASE_QUALITY * length and start <= at - 1 < end:
                        out_start[n] = at - 1
                        out_kind[n] = INSERTION
                        out_length[n] = length
                        out_code[n] = code
                        out_read[n] = i
                        out_query[n] = query
                        out_shift[n] = shift
                        n += 1
                query += length
    return out_start[:n], out_kind[:n], out_length[:n], out_code[:n], out_read[:n], out_query[:n], out_shift[:n]


@njit(cache=True, nogil=True)
def find_tract_ends(  # type: ignore[no-untyped-def]
    start, kind, length_bp, inserted, inserted_offset, reference, reference_start
):
    """Finds how far to the right each change could move; returns int64 [n], past the last base it could touch."""
    tract_end = np.empty(start.size, np.int64)
    last = reference_start + reference.size
    for i in range(start.size):
        at = start[i] + 1
        if kind[i] == SNV:
            tract_end[i] = at
        elif kind[i] == DELETION:
            shift = 0
            while (
                shift < MAX_SHIFT_BP
                and at + shift + length_bp[i] < last
                and reference[at + shift - reference_start] < 4
                and reference[at + shift - reference_start] == reference[at + shift + length_bp[i] - reference_start]
            ):
                shift += 1
            tract_end[i] = at + shift + length_bp[i]
        else:
            shift = 0
            while (
                shift < MAX_SHIFT_BP
                and at + shift < last
                and reference[at + shift - reference_start] == inserted[inserted_offset[i] + shift % length_bp[i]]
            ):
                shift += 1
            tract_end[i] = at + shift
    return tract_end
