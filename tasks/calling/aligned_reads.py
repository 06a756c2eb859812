"""Aligned reads of one stretch of a contig as flat arrays: mates found, differences from the reference counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from tasks.calling.bam_records import RawRecords

MIN_BASE_QUALITY = 10
"""A base called with less is no evidence for or against an allele, and its mismatch is not counted."""

MISSING_QUALITY = 20
"""Assumed for reads that carry no qualities."""

MAX_QUALITY = 60

# SAM v1, section 4.2.3: the 4-bit codes "=ACMGRSVTWYHKDBN" as tokens; "=" (here 5) becomes the reference's base.
_NIBBLE_TOKEN = np.array([5, 0, 1, 4, 2, 4, 4, 4, 3, 4, 4, 4, 4, 4, 4, 4], np.uint8)
_SAME_AS_REFERENCE = 5

_MATCH, _MISMATCH = 1, -4
"""As bwa scores them. Source: Li 2013, arXiv:1303.3997."""


@dataclass(frozen=True, slots=True)
class AlignedReads:
    """Reads in file order (their starts never fall). Positions are 0-based on the contig.

    Attributes:
        start: int64 [num_reads], first reference position.
        end: int64 [num_reads], past the last reference position.
        flag: int32 [num_reads], SAM flags.
        mapping_quality: uint8 [num_reads].
        mate: int32 [num_reads], index of the other read of the same fragment, -1 if it is not here.
        cigar: uint32 [num_ops], as in BAM (length << 4 | op); `cigar_offset` int64 [num_reads + 1].
        tokens: uint8 [num_bases]; `quality` uint8 [num_bases]; `base_offset` int64 [num_reads + 1].
        query_start: int32 [num_reads], first base that is not soft-clipped.
        query_end: int32 [num_reads], past the last one.
        num_differences: int32 [num_reads], mismatches at or above `MIN_BASE_QUALITY`, insertions and deletions.
        num_indels: int32 [num_reads], insertions and deletions.
        max_span_bp: The longest reference span of a read, 0 if there is none.
    """

    start: np.ndarray
    end: np.ndarray
    flag: np.ndarray
    mapping_quality: np.ndarray
    mate: np.ndarray
    cigar: np.ndarray
    cigar_offset: np.ndarray
    tokens: np.ndarray
    quality: np.ndarray
    base_offset: np.ndarray
    query_start: np.ndarray
    query_end: np.ndarray
    num_differences: np.ndarray
    num_indels: np.ndarray

    @property
    def max_span_bp(self) -> int:
        """The longest reference span of a read, 0 if there is none."""
        return int((self.end - self.start).max(initial=0))


@dataclass(frozen=True, slots=True)
class LocalReference:
    """A stretch of a contig's tokens, held in memory.

    Attributes:
        start: Position of the first token.
        tokens: uint8 [length].
    """

    start: int
    tokens: np.ndarray

    @property
    def end(self) -> int:
        """Past the last position."""
        return self.start + int(self.tokens.size)


def unpack_reads(records: RawRecords, reference: LocalReference) -> AlignedReads:
    """Unpacks raw records; `reference` must cover every one of them."""
    num_reads = records.offset.size
    num_ops, num_bases = _measure(records.data, records.offset)
    cigar_offset = np.concatenate((np.zeros(1, np.int64), np.cumsum(num_ops)))
    base_offset = np.concatenate((np.zeros(1, np.int64), np.cumsum(num_bases)))
    reads = AlignedReads(
        start=np.zeros(num_reads, np.int64),
        end=np.zeros(num_reads, np.int64),
        flag=np.zeros(num_reads, np.int32),
        mapping_quality=np.zeros(num_reads, np.uint8),
        mate=np.full(num_reads, -1, np.int32),
        cigar=np.zeros(cigar_offset[-1], np.uint32),
        cigar_offset=cigar_offset,
        tokens=np.zeros(base_offset[-1], np.uint8),
        quality=np.zeros(base_offset[-1], np.uint8),
        base_offset=base_offset,
        query_start=np.zeros(num_reads, np.int32),
        query_end=np.zeros(num_reads, np.int32),
        num_differences=np.zeros(num_reads, np.int32),
        num_indels=np.zeros(num_reads, np.int32),
    )
    _unpack(
        records.data,
        records.offset,
        reads.start,
        reads.flag,
        reads.mapping_quality,
        reads.cigar,
        cigar_offset,
        reads.tokens,
        reads.quality,
        base_offset,
    )
    describe(reads, reference)
    _pair(np.lexsort((np.arange(num_reads), records.name_hash)), records.name_hash, reads.flag, reads.mate)
    return reads


def describe(reads: AlignedReads, reference: LocalReference) -> None:
    """Fills `end`, `query_start`, `query_end`, `num_differences` and `num_indels` from the rest, and spells out `=`."""
    _describe(
        reads.start,
        reads.cigar,
        reads.cigar_offset,
        reads.tokens,
        reads.quality,
        reads.base_offset,
        reference.tokens,
        reference.start,
        reads.end,
        reads.query_start,
        reads.query_end,
        reads.num_differences,
        reads.num_indels,
    )


def sort_reads(reads: AlignedReads, reference: LocalReference) -> AlignedReads:
    """Orders reads by `start` after their alignments changed, and tells anew what follows from these."""
    order = np.argsort(reads.start, kind="stable")
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    num_ops, num_bases = np.diff(reads.cigar_offset)[order], np.diff(reads.base_offset)[order]
    op, base = _members(reads.cigar_offset[order], num_ops), _members(reads.base_offset[order], num_bases)
    mate = reads.mate[order]
    ordered = AlignedReads(
        start=reads.start[order],
        end=np.zeros_like(reads.end),
        flag=reads.flag[order],
        mapping_quality=reads.mapping_quality[order],
        mate=np.where(mate >= 0, rank[mate], -1).astype(np.int32),
        cigar=reads.cigar[op],
        cigar_offset=np.concatenate((np.zeros(1, np.int64), np.cumsum(num_ops))),
        tokens=reads.tokens[base],
        quality=reads.quality[base],
        base_offset=np.concatenate((np.zeros(1, np.int64), np.cumsum(num_bases))),
        query_start=np.zeros_like(reads.query_start),
        query_end=np.zeros_like(reads.query_end),
        num_differences=np.zeros_like(reads.num_differences),
        num_indels=np.zeros_like(reads.num_indels),
    )
    describe(ordered, reference)
    return ordered


def _members(first: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Indices of runs that begin at `first` and hold `size` elements each."""
    end = np.cumsum(size)
    members: np.ndarray = np.repeat(first - (end - size), size) + np.arange(end[-1] if end.size else 0)
    return members


@njit(cache=True, nogil=True)
def agreement(token, base, quality):  # type: ignore[no-untyped-def]
    """Score of one base laid on one reference base; unknown and poor ones say nothing."""
    if token > 3 or base > 3 or quality < MIN_BASE_QUALITY:
        return 0
    return _MATCH if token == base else _MISMATCH


@njit(cache=True, nogil=True)
def _measure(data, offset):  # type: ignore[no-untyped-def]
    """Counts CIGAR operations and bases of each record."""
    num_ops = np.empty(offset.size, np.int64)
    num_bases = np.empty(offset.size, np.int64)
    for i in range(offset.size):
        at = offset[i]
        num_ops[i] = np.int64(data[at + 16]) | (np.int64(data[at + 17]) << 8)
        num_bases[i] = (
            np.int64(data[at + 20])
            | (np.int64(data[at + 21]) << 8)
            | (np.int64(data[at + 22]) << 16)
            | (np.int64(data[at + 23]) << 24)
        )
    return num_ops, num_bases


@njit(cache=True, nogil=True)
def _unpack(  # type: ignore[no-untyped-def]
    data,
    offset,
    start,
    flag,
    mapping_quality,
    cigar,
    cigar_offset,
    tokens,
    quality,
    base_offset,
):
    for i in range(offset.size):
        at = offset[i]
        start[i] = (
            np.int64(data[at + 8])
            | (np.int64(data[at + 9]) << 8)
            | (np.int64(data[at + 10]) << 16)
            | (np.int64(data[at + 11]) << 24)
        )
        # 255 is "not available" (SAM v1, section 1.4): taken at its word as any other high value.
        mapping_quality[i] = min(np.int64(data[at + 13]), MAX_QUALITY)
        flag[i] = np.int32(data[at + 18]) | (np.int32(data[at + 19]) << 8)
        cursor = at + 36 + np.int64(data[at + 12])
        for k in range(cigar_offset[i], cigar_offset[i + 1]):
            cigar[k] = (
                np.uint32(data[cursor])
                | (np.uint32(data[cursor + 1]) << np.uint32(8))
                | (np.uint32(data[cursor + 2]) << np.uint32(16))
                | (np.uint32(data[cursor + 3]) << np.uint32(24))
            )
            cursor += 4
        first = base_offset[i]
        num_bases = base_offset[i + 1] - first
        for k in range(num_bases):
            packed = np.int64(data[cursor + (k >> 1)])
            nibble = (packed >> 4) if k % 2 == 0 else (packed & 15)
            tokens[first + k] = _NIBBLE_TOKEN[nibble]
        cursor += (num_bases + 1) >> 1
        for k in range(num_bases):
            value = np.int64(data[cursor + k])
            quality[first + k] = MISSING_QUALITY if value == 255 else min(value, MAX_QUALITY)


@njit(cache=True, nogil=True)
def _describe(  # type: ignore[no-untyped-def]
    start,
    cigar,
    cigar_offset,
    tokens,
    quality,
    base_offset,
    reference,
    reference_start,
    end,
    query_start,
    query_end,
    num_differences,
    num_indels,
):
    for i in range(start.size):
        first = base_offset[i]
        query = np.int64(0)
        position = start[i]
        seen = False
        for k in range(cigar_offset[i], cigar_offset[i + 1]):
            op = cigar[k] & np.uint32(15)
            length = np.int64(cigar[k] >> np.uint32(4))
            if op == 0 or op == 7 or op == 8:
                if not seen:
                    query_start[i] = query
                    seen = True
                for j in range(length):
                    base = reference[position + j - reference_start]
                    if tokens[first + query + j] == _SAME_AS_REFERENCE:
                        tokens[first + query + j] = base
                    token = tokens[first + query + j]
                    if token != base and token < 4 and base < 4 and quality[first + query + j] >= MIN_BASE_QUALITY:
                        num_differences[i] += 1
                query += length
                position += length
                query_end[i] = query
            elif op == 1:
                query += length
                num_indels[i] += 1
                num_differences[i] += 1
            elif op == 2:
                position += length
                num_indels[i] += 1
                num_differences[i] += 1
            elif op == 3:
                position += length
            elif op == 4:
                query += length
        end[i] = position


@njit(cache=True, nogil=True)
def _pair(order, name_hash, flag, mate):  # type: ignore[no-untyped-def]
    """Joins neighbours in `order` that share a name and are first and last of their fragment (flags 0x40, 0x80)."""
    for k in range(1, order.size):
        i, j = order[k - 1], order[k]
        if name_hash[i] == name_hash[j] and (flag[i] & 0xC0) ^ (flag[j] & 0xC0) == 0xC0:
            mate[i] = j
            mate[j] = i
