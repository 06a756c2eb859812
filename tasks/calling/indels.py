"""Insertions and deletions of aligned reads, moved to the left as far as they go."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.calling.aligned_reads import MIN_BASE_QUALITY

MAX_SHIFT_BP = 1000
"""An insertion or deletion moves at most so far: what a shard must load stays bounded."""

SNV, INSERTION, DELETION = 0, 1, 2
"""Kinds of alleles."""

MAX_PACKED_BASES = 31
"""Longest insertion whose bases fit its code, two bits each; a longer one's are hashed."""


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
