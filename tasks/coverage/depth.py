"""Depth of a stretch of a contig, base by base, from one stream of its records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from tasks.alignments.records import int32_at, raw_chunks
from tasks.calling.aligned_reads import MIN_BASE_QUALITY, MISSING_QUALITY
from tasks.calling.bam_records import MIN_MAPPING_QUALITY
from tasks.errors import AlignmentError

_MERGE_GAP_BP = 2_000
"""Windows that lie nearer to each other are read in one go: seeking costs more than the reads between them."""

# Unmapped, secondary, QC-failed, duplicate, supplementary (SAM v1, section 1.4): never counted.
_LEFT_OUT = 0x4 | 0x100 | 0x200 | 0x400 | 0x800
_WELL, _POORLY, _NOT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Depth:
    """Depths over ``[start, start + n)`` of a contig. Bases inside a read's deletion or intron are not covered by it.

    Attributes:
        start: First position, 0-based.
        usable: int32 [n], fragments with a base of good quality in a read that maps well; overlapping mates count once.
        well_mapped: int32 [n], reads at or above the mapping-quality floor, whatever the base's quality.
        poorly_mapped: int32 [n], reads below the mapping-quality floor.
        num_on_target: Well mapped reads with an aligned base in a target, each counted where its first such base is.
        num_near_target: The same for the padded targets.
    """

    start: int
    usable: np.ndarray
    well_mapped: np.ndarray
    poorly_mapped: np.ndarray
    num_on_target: int
    num_near_target: int


def measure_depth(
    alignment: Any,
    tid: int,
    start: int,
    end: int,
    *,
    contig_length_bp: int,
    windows: np.ndarray,
    targets: np.ndarray | None = None,
    padded: np.ndarray | None = None,
    min_mapping_quality: int = MIN_MAPPING_QUALITY,
    min_base_quality: int = MIN_BASE_QUALITY,
) -> Depth:
    """Measures ``[start, end)`` of contig `tid`; memory depends on its length and not on the number of reads.

    Unmapped, secondary, supplementary, duplicate and QC-failed records are left out, and so are those without bases,
    with a CIGAR that does not fit them, or that end past the contig: the caller leaves them out too. Unlike the caller
    this counts reads of any span and thins nothing.

    Args:
        alignment: An open, indexed `pysam.AlignmentFile`.
        tid: The contig's index in the alignment's header.
        start: First position, 0-based.
        end: Past the last position.
        contig_length_bp: Length of the contig.
        windows: int64 [m, 2], disjoint, sorted parts of the stretch: only there are the depths whole.
        targets: int64 [k, 2], the contig's targets, disjoint and sorted; None for none.
        padded: int64 [l, 2], the same with padding.
        min_mapping_quality: Reads mapped with less are `poorly_mapped`.
        min_base_quality: Bases called with less are not `usable`.

    Raises:
        AlignmentError: A record cannot be read.
    """
    usable = np.zeros(end - start, np.int32)
    well, poorly = (np.zeros(end - start + 1, np.int32) for _ in range(2))
    stamp = np.zeros(end - start, np.int32)
    on_target = np.zeros(2, np.int64)
    none = np.zeros((0, 2), np.int64)
    # Contiguous, whatever is handed in: another layout would be compiled anew.
    exact, wide = (
        np.ascontiguousarray((none if intervals is None else intervals).T) for intervals in (targets, padded)
    )
    carried = np.zeros(0, np.uint8)
    num_carried = num_seen = 0
    try:
        for chunk in raw_chunks(alignment, _records(alignment, tid, windows)):
            if not chunk.size:
                continue
            data = np.concatenate((carried, chunk))
            offset, kind, first, last = _add_records(
                data, num_carried, num_seen, contig_length_bp, min_mapping_quality, min_base_quality, start, usable,
                well, poorly, stamp, exact[0], exact[1], wide[0], wide[1], on_target,
            )  # fmt: skip
            num_seen += offset.size
            # A mate that starts in the next chunk overlaps only a read that reaches it.
            kept = np.flatnonzero((kind == _WELL) & (last > first[-1]))
            bounds = np.append(offset, data.size)
            carried = np.concatenate([data[:0], *(data[bounds[i] : bounds[i + 1]] for i in kept)])
            num_carried = kept.size
    except (OSError, ValueError) as error:
        name = os.fsdecode(alignment.filename)
        raise AlignmentError(f"{name}: cannot be read near base {start + 1:,} of contig {tid}: {error}") from error
    return Depth(
        start=start,
        usable=usable,
        well_mapped=np.cumsum(well[:-1], dtype=np.int32),
        poorly_mapped=np.cumsum(poorly[:-1], dtype=np.int32),
        num_on_target=int(on_target[0]),
        num_near_target=int(on_target[1]),
    )


def _records(alignment: Any, tid: int, windows: np.ndarray) -> Iterator[Any]:
    """Yields every record over the windows once, in the file's order."""
    if not len(windows):
        return
    is_first = np.append(True, windows[1:, 0] - windows[:-1, 1] > _MERGE_GAP_BP)
    is_last = np.append(is_first[1:], True)
    reached = -1
    for start, end in zip(windows[is_first, 0].tolist(), windows[is_last, 1].tolist(), strict=True):
        for record in alignment.fetch(tid=tid, start=start, stop=end):
            # What starts before the end of the part read before, and reaches into this one, was over that one too.
            if record.reference_start >= reached:
                yield record
        reached = end


@njit(cache=True, nogil=True)
def _first_inside(position, length, starts, ends):  # type: ignore[no-untyped-def]
    """The first base of ``[position, position + length)`` in the disjoint sorted intervals, -1 if none is."""
    at = np.searchsorted(ends, position, side="right")
    if at < starts.size and starts[at] < position + length:
        return max(position, starts[at])
    return np.int64(-1)


@njit(cache=True, nogil=True)
def _add_records(  # type: ignore[no-untyped-def]
    data,
    num_carried,
    num_seen,
    contig_length_bp,
    min_mapping_quality,
    min_base_quality,
    start,
    usable,
    well,
    poorly,
    stamp,
    target_starts,
    target_ends,
    padded_starts,
    padded_ends,
    on_target,
):
    """Adds records to the depths; the first `num_carried` were added before and are only looked at as mates.

    `well` and `poorly` are changes of depth. Source: SAM v1, section 4.2 (BAM).
    """
    num_records = 0
    at = np.int64(0)
    while at < data.size:
        at += 4 + int32_at(data, at)
        num_records += 1
    offset = np.empty(num_records, np.int64)
    kind = np.empty(num_records, np.int64)
    first = np.empty(num_records, np.int64)
    last = np.empty(num_records, np.int64)
    mate = np.full(num_records, -1, np.int64)
    name_hash = np.empty(num_records, np.uint64)
    table_size = 16
    while table_size < 2 * num_records:
        table_size *= 2
    table = np.full(table_size, -1, np.int64)
    end = start + usable.size
    at = np.int64(0)
    for i in range(num_records):
        offset[i] = at
        position = int32_at(data, at + 8)
        name_length = np.int64(data[at + 12])
        num_ops = np.int64(data[at + 16]) | (np.int64(data[at + 17]) << 8)
        flag = np.int64(data[at + 18]) | (np.int64(data[at + 19]) << 8)
        num_bases = int32_at(data, at + 20)
        query = np.int64(0)
        first[i] = position
        for k in range(num_ops):
            op = int32_at(data, at + 36 + name_length + 4 * k)
            op_length = (op >> 4) & 0x0FFFFFFF
            code = op & 15
            if code == 0 or code == 2 or code == 3 or code == 7 or code == 8:
                position += op_length
            if code == 0 or code == 1 or code == 4 or code == 7 or code == 8:
                query += op_length
        last[i] = position
        is_whole = num_bases > 0 and query == num_bases and position > first[i] and position <= contig_length_bp
        if flag & _LEFT_OUT or not is_whole:
            kind[i] = _NOT
        elif np.int64(data[at + 13]) < min_mapping_quality:
            kind[i] = _POORLY
        else:
            kind[i] = _WELL
            digest = np.uint64(14695981039346656037)
            for k in range(at + 36, at + 36 + name_length - 1):
                digest = (digest ^ np.uint64(data[k])) * np.uint64(1099511628211)
            name_hash[i] = digest
            place = np.int64(digest & np.uint64(table_size - 1))
            while table[place] >= 0 and name_hash[table[place]] != digest:
                place = (place + 1) & (table_size - 1)
            other = table[place]
            if other >= 0:
                other_at = offset[other]
                other_flag = np.int64(data[other_at + 18]) | (np.int64(data[other_at + 19]) << 8)
                if (flag & 0xC0) ^ (other_flag & 0xC0) == 0xC0 and last[other] > first[i]:
                    mate[i] = other
            table[place] = i
        at += 4 + int32_at(data, at)

    for i in range(num_carried, num_records):
        if kind[i] == _NOT:
            continue
        mark = np.int32(num_seen + i + 1)
        if mate[i] >= 0:
            _walk_mate(data, offset[mate[i]], min_base_quality, start, end, mark, stamp)
        at = offset[i]
        cigar = at + 36 + np.int64(data[at + 12])
        num_ops = np.int64(data[at + 16]) | (np.int64(data[at + 17]) << 8)
        quality = cigar + 4 * num_ops + ((int32_at(data, at + 20) + 1) >> 1)
        has_quality = data[quality] != 255
        position = first[i]
        query = np.int64(0)
        on_exact = np.int64(-1)
        on_padded = np.int64(-1)
        for k in range(num_ops):
            op = int32_at(data, cigar + 4 * k)
            op_length = (op >> 4) & 0x0FFFFFFF
            code = op & 15
            if code == 0 or code == 7 or code == 8:
                low = max(position, start)
                high = min(position + op_length, end)
                if kind[i] == _POORLY:
                    if low < high:
                        poorly[low - start] += 1
                        poorly[high - start] -= 1
                else:
                    if on_exact < 0:
                        on_exact = _first_inside(position, op_length, target_starts, target_ends)
                    if on_padded < 0:
                        on_padded = _first_inside(position, op_length, padded_starts, padded_ends)
                    if low < high:
                        well[low - start] += 1
                        well[high - start] -= 1
                        shift = quality + query - position
                        if not has_quality:
                            if min_base_quality <= MISSING_QUALITY:
                                for x in range(low, high):
                                    usable[x - start] += stamp[x - start] != mark
                        elif mate[i] < 0:
                            for x in range(low, high):
                                usable[x - start] += data[shift + x] >= min_base_quality
                        else:
                            for x in range(low, high):
                                usable[x - start] += data[shift + x] >= min_base_quality and stamp[x - start] != mark
                position += op_length
                query += op_length
            elif code == 1 or code == 4:
                query += op_length
            elif code == 2 or code == 3:
                position += op_length
        on_target[0] += start <= on_exact < end
        on_target[1] += start <= on_padded < end
    return offset, kind, first, last


@njit(cache=True, nogil=True)
def _walk_mate(data, at, min_base_quality, start, end, mark, stamp):  # type: ignore[no-untyped-def]
    """Stamps `mark` on the positions where the record at `at` has been counted."""
    cigar = at + 36 + np.int64(data[at + 12])
    num_ops = np.int64(data[at + 16]) | (np.int64(data[at + 17]) << 8)
    quality = cigar + 4 * num_ops + ((int32_at(data, at + 20) + 1) >> 1)
    has_quality = data[quality] != 255
    position = int32_at(data, at + 8)
    query = np.int64(0)
    for k in range(num_ops):
        op = int32_at(data, cigar + 4 * k)
        op_length = (op >> 4) & 0x0FFFFFFF
        code = op & 15
        if code == 0 or code == 7 or code == 8:
            for x in range(max(position, start), min(position + op_length, end)):
                value = np.int64(data[quality + query + x - position]) if has_quality else MISSING_QUALITY
                if value >= min_base_quality:
                    stamp[x - start] = mark
            position += op_length
            query += op_length
        elif code == 1 or code == 4:
            query += op_length
        elif code == 2 or code == 3:
            position += op_length
