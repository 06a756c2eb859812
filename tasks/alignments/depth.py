"""How deep the reads of a file lie where they lie, counted base by base in one pass over its records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from tasks.alignments.records import int32_at
from tasks.genome.regions import Regions

MAX_DEPTH = 10_000
"""Deeper bases are counted as this deep."""

_RING_BP = 1 << 16
"""Aligned bases further right of their read's start are not counted: beyond introns, and of very long reads."""
_NUM_STATES = 7
_TID, _NEXT, _COVER_END, _DEPTH, _REGION, _USED, _SPLICED = range(_NUM_STATES)
_EXCLUDED = 0x4 | 0x100 | 0x200 | 0x400 | 0x800

Counts = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class DepthCounter:
    """Counts the depth of used reads over the bases that they cover, and the reads that skip an intron.

    A base counts once for each read that has a base aligned to it: overlapping mates are two. Reads that are unmapped,
    secondary, supplementary, duplicates, failed or of low mapping quality are not used.

    Attributes:
        reference_index: int32 [num_contigs], where the header's contigs are in the reference, -1 for nowhere.
        min_mapping_quality: Reads mapped with less are not used.
        regions: Bases outside are not counted; None to count all.
        histogram: int64 [MAX_DEPTH + 1], covered bases by depth; filled by `finish`.
    """

    reference_index: npt.NDArray[np.int32]
    min_mapping_quality: int
    regions: Regions | None
    histogram: Counts = field(init=False)
    _region_first: Counts = field(init=False)
    _state: Counts = field(init=False)
    _ring: npt.NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        self.histogram = np.zeros(MAX_DEPTH + 1, np.int64)
        regions = self.regions
        contig = np.zeros(0, np.int32) if regions is None else regions.contig
        num_places = int(self.reference_index.max(initial=-1)) + 1
        self._region_first = np.searchsorted(contig, np.arange(num_places + 1)).astype(np.int64)
        self._state = np.zeros(_NUM_STATES, np.int64)
        self._state[_TID] = -1
        self._ring = np.zeros(_RING_BP, np.int32)

    def add_records(self, data: npt.NDArray[np.uint8]) -> None:
        """Adds whole BAM records back to back, uint8 [num_bytes], sorted by place, that follow those added before."""
        self._run(data)

    def finish(self) -> None:
        """Counts the bases that the last reads cover."""
        self._run(np.zeros(0, np.uint8))

    def _run(self, data: npt.NDArray[np.uint8]) -> None:
        regions = self.regions
        none = np.zeros(0, np.int64)
        _add(
            data,
            self.reference_index,
            self.min_mapping_quality,
            regions is not None,
            self._region_first,
            none if regions is None else regions.start.astype(np.int64),
            none if regions is None else regions.end.astype(np.int64),
            self._ring,
            self._state,
            self.histogram,
        )

    @property
    def usual_depth(self) -> int:
        """The depth around the usual read: that which half of all aligned bases share with so many reads or more.

        The median over aligned bases, not over places: where only some of a genome was captured, it is theirs, and a
        few very deep places do not move it. A read is not its own neighbour: the median is one too many when reads lie
        at random, and is lowered by one.
        """
        bases = self.histogram * np.arange(MAX_DEPTH + 1)
        total = int(bases.sum())
        return int(np.searchsorted(np.cumsum(bases), total / 2)) - 1 if total else 0

    @property
    def spliced_share(self) -> float:
        """Share of the used reads that skip a stretch of the reference (CIGAR N)."""
        return float(self._state[_SPLICED] / max(self._state[_USED], 1))

    def to_json(self) -> dict[str, Any]:
        """``usual_depth`` and ``spliced_share`` as JSON values."""
        return {"usual_depth": self.usual_depth, "spliced_share": round(self.spliced_share, 6)}


@njit(cache=True, nogil=True)
def _settle(
    until: int,
    place: int,
    has_regions: bool,
    region_first: Counts,
    region_start: Counts,
    region_end: Counts,
    ring: npt.NDArray[np.int32],
    state: Counts,
    histogram: Counts,
) -> None:
    """Counts the bases left of `until`: no later read reaches them."""
    mask = ring.shape[0] - 1
    last_region = region_first[place + 1]
    here = state[_NEXT]
    depth = state[_DEPTH]
    region = state[_REGION]
    for position in range(here, min(until, state[_COVER_END] + 1)):
        depth += ring[position & mask]
        ring[position & mask] = 0
        if depth == 0:
            continue
        if has_regions:
            while region < last_region and region_end[region] <= position:
                region += 1
            if region == last_region or position < region_start[region]:
                continue
        histogram[min(depth, histogram.shape[0] - 1)] += 1
    state[_NEXT] = max(until, here)
    state[_DEPTH] = depth
    state[_REGION] = region


@njit(cache=True, nogil=True)
def _add(
    data: npt.NDArray[np.uint8],
    reference_index: npt.NDArray[np.int32],
    min_mapping_quality: int,
    has_regions: bool,
    region_first: Counts,
    region_start: Counts,
    region_end: Counts,
    ring: npt.NDArray[np.int32],
    state: Counts,
    histogram: Counts,
) -> None:
    """Adds records; without any, settles what is open. Source: SAM v1, section 4.2 (BAM), 1.4 (flags)."""
    ring_bp = ring.shape[0]
    at: Any = 0
    while at <= data.shape[0]:
        is_end = at == data.shape[0]
        if is_end and data.shape[0] > 0:
            break
        record = at + 4
        tid = np.int64(-1)
        if not is_end:
            at = record + int32_at(data, at)
            tid = int32_at(data, record)
            flag = np.int64(data[record + 14]) | (np.int64(data[record + 15]) << 8)
            is_lost = tid < 0 or tid >= reference_index.shape[0] or int32_at(data, record + 4) < 0
            if is_lost or flag & _EXCLUDED or reference_index[tid] < 0 or data[record + 9] < min_mapping_quality:
                continue
        if tid != state[_TID]:
            if state[_TID] >= 0:
                place = int(reference_index[state[_TID]])
                _settle(
                    state[_COVER_END] + 1,
                    place,
                    has_regions,
                    region_first,
                    region_start,
                    region_end,
                    ring,
                    state,
                    histogram,
                )
            state[_TID] = tid
            state[_NEXT] = state[_COVER_END] = state[_DEPTH] = 0
            state[_REGION] = region_first[np.int64(reference_index[tid])] if tid >= 0 else 0
        if is_end:
            break
        start = int32_at(data, record + 4)
        place = int(reference_index[tid])
        _settle(start, place, has_regions, region_first, region_start, region_end, ring, state, histogram)
        num_ops = np.int64(data[record + 12]) | (np.int64(data[record + 13]) << 8)
        cigar = record + 32 + np.int64(data[record + 8])
        end = start
        is_spliced = False
        for op_index in range(num_ops):
            op = int32_at(data, cigar + 4 * op_index)
            op_length = (op >> 4) & 0x0FFFFFFF
            op_kind = op & 15
            if op_kind == 0 or op_kind == 7 or op_kind == 8:  # M = X
                first = max(end, state[_NEXT])
                last = min(end + op_length, start + ring_bp - 1)
                if first < last:
                    ring[first & (ring_bp - 1)] += 1
                    ring[last & (ring_bp - 1)] -= 1
                    state[_COVER_END] = max(state[_COVER_END], last)
                end += op_length
            elif op_kind == 2 or op_kind == 3:  # D N
                is_spliced = is_spliced or op_kind == 3
                end += op_length
        state[_USED] += 1
        state[_SPLICED] += is_spliced
