"""Raw BAM records of one stretch of a contig: streamed, filtered, thinned, and counted by what was left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from tasks.alignments.records import int32_at
from tasks.calling.bam_stream import fetch_chunks

MIN_MAPPING_QUALITY = 10
"""A read mapped with less says nothing about an allele; only how many there are is used."""

MAX_SPAN_BP = 1024
"""A read that spans more of the reference is left out (`too_long`): what overhangs a shard stays bounded."""

TILE_BP = 512
MAX_TILE_READS = 2048
"""Of the reads that start in one tile of the contig's fixed grid, at most this many are kept (about 400x of 100-base
reads): those whose names hash lowest. The choice depends on the tile's own reads alone, never on the shard."""

REASONS = (
    "usable",
    "unmapped",
    "secondary",
    "supplementary",
    "qc_failed",
    "duplicate",
    "no_sequence",
    "bad_cigar",
    "too_long",
    "past_contig_end",
    "low_mapping_quality",
)
"""Why a record is left out, by code; the first that applies counts. `thinned` is counted apart."""

_USABLE, _LOW_MAPPING_QUALITY = 0, 10


@dataclass(frozen=True, slots=True)
class RawRecords:
    """Records kept of a stretch ``[start, end)`` of a contig, in file order, and the depth of a wider one.

    Attributes:
        data: uint8 [num_bytes], whole BAM records back to back (SAM v1, section 4.2), each with its block_size.
        offset: int64 [num_records], where each record begins in `data`.
        name_hash: uint64 [num_records], FNV-1a of the read name.
        low_quality_depth: int32 [end - start], reads below the mapping-quality floor over each position.
        tile_bases: int64 [num_tiles], aligned bases of the reads that start in each tile of the wider stretch, also of
            those that were thinned out or lie below the mapping-quality floor.
        counts: Records by reason among those that start in the counted interval.
    """

    data: np.ndarray
    offset: np.ndarray
    name_hash: np.ndarray
    low_quality_depth: np.ndarray
    tile_bases: np.ndarray
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Block:
    """Kept records of one chunk, in file order."""

    data: np.ndarray
    offset: np.ndarray
    length: np.ndarray
    start: np.ndarray
    name_hash: np.ndarray

    def take(self, index: np.ndarray) -> _Block:
        length = self.length[index]
        data = _gather(self.data, self.offset[index], length)
        offset = np.cumsum(length) - length
        return _Block(data, offset, length, self.start[index], self.name_hash[index])

    def join(self, other: _Block) -> _Block:
        return _Block(
            np.concatenate((self.data, other.data)),
            np.concatenate((self.offset, other.offset + self.data.size)),
            np.concatenate((self.length, other.length)),
            np.concatenate((self.start, other.start)),
            np.concatenate((self.name_hash, other.name_hash)),
        )


def read_records(
    alignment: Any,
    tid: int,
    start: int,
    end: int,
    *,
    wide: tuple[int, int],
    counted: tuple[int, int],
    contig_length_bp: int,
) -> RawRecords:
    """Reads the records that start in ``[start, end)`` of contig `tid`.

    Args:
        alignment: An open, indexed `pysam.AlignmentFile`.
        tid: The contig's index in the alignment's header.
        start: First position, 0-based, a multiple of `TILE_BP`.
        end: Past the last position, a multiple of `TILE_BP`.
        wide: The stretch whose depth is measured, in multiples of `TILE_BP`; holds ``[start, end)``.
        counted: The interval whose records are counted, so that shards of a contig add up to the contig.
        contig_length_bp: Length of the contig.

    Raises:
        AlignmentError: A record cannot be read.
    """
    depth_change = np.zeros(end - start + 1, np.int32)
    tile_bases = np.zeros((wide[1] - wide[0]) // TILE_BP, np.int64)
    totals = np.zeros(len(REASONS), np.int64)
    pieces: list[_Block] = []
    carry: _Block | None = None
    num_thinned = 0
    for data in fetch_chunks(alignment, tid, wide[0], min(wide[1], contig_length_bp)):
        offset, length, position, span, reason, name_hash = _scan(
            data, contig_length_bp, MIN_MAPPING_QUALITY, MAX_SPAN_BP
        )
        inside = (position >= start) & (position < end)
        is_counted = (position >= counted[0]) & (position < counted[1])
        totals += np.bincount(reason[is_counted], minlength=len(REASONS))
        is_measured = (position >= wide[0]) & ((reason == _USABLE) | (reason == _LOW_MAPPING_QUALITY))
        tile = (position[is_measured] - wide[0]) // TILE_BP
        tile_bases += np.bincount(tile, span[is_measured], minlength=tile_bases.size).astype(np.int64)
        low = inside & (reason == _LOW_MAPPING_QUALITY)
        np.add.at(depth_change, position[low] - start, 1)
        np.add.at(depth_change, np.minimum(position[low] + span[low], end) - start, -1)
        keep = np.flatnonzero(inside & (reason == _USABLE))
        block = _Block(data, offset, length, position, name_hash).take(keep)
        if carry is not None:
            block = carry.join(block)
        if not block.start.size:
            continue
        block, dropped = _thin(block)
        num_thinned += int(np.count_nonzero((dropped >= counted[0]) & (dropped < counted[1])))
        # The last tile may go on in the next chunk; the lowest hashes of a part and the rest are those of the whole.
        is_open = block.start // TILE_BP == block.start[-1] // TILE_BP
        pieces.append(block.take(np.flatnonzero(~is_open)))
        carry = block.take(np.flatnonzero(is_open))
    if carry is not None:
        pieces.append(carry)
    counts = {name: int(total) for name, total in zip(REASONS, totals, strict=True)}
    counts["usable"] -= num_thinned
    counts["thinned"] = num_thinned
    sizes = [piece.data.size for piece in pieces]
    bases = np.cumsum([0, *sizes])
    empty = np.zeros(0, np.uint8)
    return RawRecords(
        data=np.concatenate([piece.data for piece in pieces]) if pieces else empty,
        offset=np.concatenate([p.offset + base for p, base in zip(pieces, bases, strict=False)])
        if pieces
        else empty.astype(np.int64),
        name_hash=np.concatenate([piece.name_hash for piece in pieces]) if pieces else empty.astype(np.uint64),
        low_quality_depth=np.cumsum(depth_change[:-1], dtype=np.int32),
        tile_bases=tile_bases,
        counts=counts,
    )


def _thin(block: _Block) -> tuple[_Block, np.ndarray]:
    """Keeps the `MAX_TILE_READS` lowest name hashes of each tile; returns the starts of what was dropped too."""
    tile = block.start // TILE_BP
    if np.bincount(tile - tile[0]).max() <= MAX_TILE_READS:
        return block, block.start[:0]
    order = np.lexsort((np.arange(tile.size), block.name_hash, tile))
    first = np.searchsorted(tile[order], tile[order])
    keep = np.zeros(tile.size, np.bool_)
    keep[order[np.arange(tile.size) - first < MAX_TILE_READS]] = True
    return block.take(np.flatnonzero(keep)), block.start[~keep]


@njit(cache=True, nogil=True)
def _count_records(data):  # type: ignore[no-untyped-def]
    num_records = 0
    at = 0
    while at < data.size:
        at += 4 + int32_at(data, at)
        num_records += 1
    return num_records


@njit(cache=True, nogil=True)
def _scan(data, contig_length_bp, min_mapping_quality, max_span_bp):  # type: ignore[no-untyped-def]
    """Finds each record's place, start, span, reason to leave it out (an index of `REASONS`) and name hash."""
    num_records = _count_records(data)
    offset = np.empty(num_records, np.int64)
    length = np.empty(num_records, np.int64)
    start = np.empty(num_records, np.int64)
    span = np.zeros(num_records, np.int64)
    reason = np.zeros(num_records, np.int64)
    name_hash = np.empty(num_records, np.uint64)
    at = 0
    for i in range(num_records):
        offset[i] = at
        length[i] = 4 + int32_at(data, at)
        start[i] = int32_at(data, at + 8)
        name_length = np.int64(data[at + 12])
        mapping_quality = np.int64(data[at + 13])
        num_ops = np.int64(data[at + 16]) | (np.int64(data[at + 17]) << 8)
        flag = np.int64(data[at + 18]) | (np.int64(data[at + 19]) << 8)
        num_bases = int32_at(data, at + 20)
        digest = np.uint64(14695981039346656037)
        for k in range(at + 36, at + 36 + name_length - 1):
            digest = (digest ^ np.uint64(data[k])) * np.uint64(1099511628211)
        name_hash[i] = digest
        query = 0
        for k in range(num_ops):
            op = int32_at(data, at + 36 + name_length + 4 * k)
            op_length = (op >> 4) & 0x0FFFFFFF
            kind = op & 15
            if kind == 0 or kind == 2 or kind == 3 or kind == 7 or kind == 8:
                span[i] += op_length
            if kind == 0 or kind == 1 or kind == 4 or kind == 7 or kind == 8:
                query += op_length
        if flag & 0x4:
            reason[i] = 1
        elif flag & 0x100:
            reason[i] = 2
        elif flag & 0x800:
            reason[i] = 3
        elif flag & 0x200:
            reason[i] = 4
        elif flag & 0x400:
            reason[i] = 5
        elif num_bases == 0:
            reason[i] = 6
        elif query != num_bases or span[i] == 0:
            reason[i] = 7
        elif span[i] > max_span_bp:
            reason[i] = 8
        elif start[i] + span[i] > contig_length_bp:
            reason[i] = 9
        elif mapping_quality < min_mapping_quality:
            reason[i] = 10
        at += length[i]
    return offset, length, start, span, reason, name_hash


@njit(cache=True, nogil=True)
def _gather(data, offset, length):  # type: ignore[no-untyped-def]
    """Copies the records at `offset`, back to back."""
    gathered = np.empty(length.sum(), np.uint8)
    at = 0
    for i in range(offset.size):
        gathered[at : at + length[i]] = data[offset[i] : offset[i] + length[i]]
        at += length[i]
    return gathered
