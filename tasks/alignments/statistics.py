"""What is counted of alignments, in one pass over all records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from tasks.alignments.records import int32_at
from tasks.alignments.windows import WINDOW_BP
from tasks.genome.reference import Reference

KINDS = (
    "used",
    "unmapped",
    "secondary",
    "supplementary",
    "qc_failed",
    "duplicate",
    "unknown_contig",
    "low_mapping_quality",
)
"""What a record is counted as; the first that applies, `used` when none does."""

MAX_LENGTH_BP = 1 << 16
"""Longer reads are counted as this long where a median is asked for."""
MAX_TEMPLATE_BP = 2_000
MIN_BASE_QUALITY = 10
"""Bases below are not compared with the reference."""

_NUM_TOTALS = 8
_OVERLAPS, _ALIGNED, _COVERED, _COVER_END, _LAST_TID, _LAST_START, _UNSORTED, _PAST_END = range(_NUM_TOTALS)
# The four-bit base codes of BAM as tokens. Source: SAM v1, section 4.2.3.
_TOKEN_OF_CODE = np.array([4, 0, 1, 4, 2, 4, 4, 4, 3, 4, 4, 4, 4, 4, 4, 4], dtype=np.uint8)

Counts = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class AlignmentStatistics:
    """Sums over the records of a file, in the file's order.

    Attributes:
        reference_index: int32 [num_contigs], where the header's contigs are in the reference, -1 for nowhere.
        min_mapping_quality: Reads mapped with less are not used.
        window_offsets: int64 [contigs of the reference + 1], see `tasks.alignments.windows`.
        kinds: int64 [len(KINDS)], records by kind.
        contigs: int64 [num_contigs + 1, 2], mapped and unmapped records by contig, the last row for those without.
        compared: int64 [num_contigs, 2], bases of used reads compared with the reference, and those that differ.
        lengths: int64 [MAX_LENGTH_BP + 1], primary reads by length.
        templates: int64 [MAX_TEMPLATE_BP + 1], proper pairs of used reads by template length.
        qualities: int64 [256], bases of used reads by quality.
        windows: int64 [windows], aligned bases of the used reads that start in each.
    """

    reference_index: npt.NDArray[np.int32]
    min_mapping_quality: int
    window_offsets: Counts
    kinds: Counts = field(init=False)
    contigs: Counts = field(init=False)
    compared: Counts = field(init=False)
    lengths: Counts = field(init=False)
    templates: Counts = field(init=False)
    qualities: Counts = field(init=False)
    windows: Counts = field(init=False)
    _totals: Counts = field(init=False)

    def __post_init__(self) -> None:
        num_contigs = len(self.reference_index)
        self.kinds = np.zeros(len(KINDS), dtype=np.int64)
        self.contigs = np.zeros((num_contigs + 1, 2), dtype=np.int64)
        self.compared = np.zeros((num_contigs, 2), dtype=np.int64)
        self.lengths = np.zeros(MAX_LENGTH_BP + 1, dtype=np.int64)
        self.templates = np.zeros(MAX_TEMPLATE_BP + 1, dtype=np.int64)
        self.qualities = np.zeros(256, dtype=np.int64)
        self.windows = np.zeros(int(self.window_offsets[-1]), dtype=np.int64)
        self._totals = np.zeros(_NUM_TOTALS, dtype=np.int64)

    def add_records(self, data: npt.NDArray[np.uint8], reference: Reference) -> None:
        """Adds whole BAM records that lie back to back, uint8 [num_bytes], and follow those added before."""
        _add(
            data,
            self.reference_index,
            np.asarray(reference.tokens),
            reference.offsets,
            self.min_mapping_quality,
            _TOKEN_OF_CODE,
            self.kinds,
            self.contigs,
            self.compared,
            self.lengths,
            self.templates,
            self.qualities,
            self.window_offsets,
            self.windows,
            self._totals,
        )

    def add_unread(self, tids: Sequence[int], num_records: Counts) -> None:
        """Counts the records of contigs that are not in the reference and were not read; int64 [num_contigs]."""
        for tid in tids:
            self.contigs[tid, 0] += num_records[tid]
            self.kinds[KINDS.index("unknown_contig")] += num_records[tid]

    @property
    def num_records(self) -> int:
        """Number of records added."""
        return int(self.kinds.sum())

    @property
    def is_unsorted(self) -> bool:
        """Whether a record came before the one it follows."""
        return bool(self._totals[_UNSORTED])

    def to_json(self) -> dict[str, Any]:
        """Counts, rates and means as JSON values; rates are rounded to six decimals."""
        counts = {kind: int(count) for kind, count in zip(KINDS, self.kinds, strict=True)}
        num_primary = self.num_records - counts["secondary"] - counts["supplementary"]
        num_compared, num_different = (int(value) for value in self.compared.sum(axis=0))
        num_lengths, num_templates = int(self.lengths.sum()), int(self.templates.sum())
        known = self.qualities[:255]
        touched = np.flatnonzero(self.windows)
        return {
            "counts": {"total": self.num_records, **counts},
            "mates_overlapping": int(self._totals[_OVERLAPS]),
            "past_contig_end": int(self._totals[_PAST_END]),
            "mapping_rate": _rate(num_primary - counts["unmapped"], num_primary),
            "duplicate_rate": _rate(counts["duplicate"], num_primary),
            "mismatch_rate": _rate(num_different, num_compared),
            "mean_depth": round(int(self._totals[_ALIGNED]) / max(int(self._totals[_COVERED]), 1), 3),
            "aligned_bp": int(self._totals[_ALIGNED]),
            "covered_bp": int(self._totals[_COVERED]),
            "base_quality_mean": round(float(known @ np.arange(255)) / max(int(known.sum()), 1), 3),
            "read_length_mean": round(float(self.lengths @ np.arange(MAX_LENGTH_BP + 1)) / max(num_lengths, 1), 2),
            "read_length_median": _median(self.lengths),
            "insert_size_mean": round(
                float(self.templates @ np.arange(MAX_TEMPLATE_BP + 1)) / max(num_templates, 1), 2
            ),
            "insert_size_median": _median(self.templates),
            "windows": [touched.tolist(), self.windows[touched].tolist()],
            "insert_sizes": self.templates[: int(np.flatnonzero(self.templates).max(initial=-1)) + 1].tolist(),
        }


@njit(cache=True, nogil=True)
def _add(
    data: npt.NDArray[np.uint8],
    reference_index: npt.NDArray[np.int32],
    tokens: npt.NDArray[np.uint8],
    offsets: Counts,
    min_mapping_quality: int,
    token_of_code: npt.NDArray[np.uint8],
    kinds: Counts,
    contigs: Counts,
    compared: Counts,
    lengths: Counts,
    templates: Counts,
    qualities: Counts,
    window_offsets: Counts,
    windows: Counts,
    totals: Counts,
) -> None:
    """Adds records to the sums. Source: SAM v1, section 4.2 (BAM), 1.4 (flags)."""
    num_contigs = reference_index.shape[0]
    at: Any = 0
    while at < data.shape[0]:
        record = at + 4
        at = record + int32_at(data, at)
        tid = int32_at(data, record)
        start = int32_at(data, record + 4)
        name_length = np.int64(data[record + 8])
        mapping_quality = np.int64(data[record + 9])
        num_ops = np.int64(data[record + 12]) | (np.int64(data[record + 13]) << 8)
        flag = np.int64(data[record + 14]) | (np.int64(data[record + 15]) << 8)
        num_bases = int32_at(data, record + 16)
        mate_tid = int32_at(data, record + 20)
        mate_start = int32_at(data, record + 24)
        template = int32_at(data, record + 28)
        row = tid if 0 <= tid < num_contigs else num_contigs

        # Coordinate order: those without a contig come last, whatever their position says.
        if row < totals[_LAST_TID] or (row == totals[_LAST_TID] and row < num_contigs and start < totals[_LAST_START]):
            totals[_UNSORTED] = 1
        if row != totals[_LAST_TID]:
            totals[_COVER_END] = 0
        totals[_LAST_TID] = row
        totals[_LAST_START] = start

        is_unmapped = flag & 0x4 != 0 or row == num_contigs or start < 0
        contigs[row, 1 if is_unmapped else 0] += 1
        if flag & 0x900 == 0 and num_bases > 0:
            lengths[min(num_bases, lengths.shape[0] - 1)] += 1
        place = np.int64(-1) if row == num_contigs else np.int64(reference_index[row])
        kind = 0
        if is_unmapped:
            kind = 1
        elif flag & 0x100:
            kind = 2
        elif flag & 0x800:
            kind = 3
        elif flag & 0x200:
            kind = 4
        elif flag & 0x400:
            kind = 5
        elif place < 0:
            kind = 6
        elif mapping_quality < min_mapping_quality:
            kind = 7
        kinds[kind] += 1
        if kind != 0:
            continue

        cigar = record + 32 + name_length
        bases = cigar + 4 * num_ops
        base_qualities = bases + (num_bases + 1) // 2
        has_qualities = num_bases > 0 and data[base_qualities] != 255
        if has_qualities:
            for quality_at in range(base_qualities, base_qualities + num_bases):
                qualities[data[quality_at]] += 1
        contig_start = offsets[place]
        contig_length = offsets[place + 1] - contig_start
        read_place = np.int64(0)
        end = start
        num_compared = 0
        num_different = 0
        num_aligned = 0
        for op_index in range(num_ops):
            op = int32_at(data, cigar + 4 * op_index)
            op_length = (op >> 4) & 0x0FFFFFFF
            op_kind = op & 15
            if op_kind == 0 or op_kind == 7 or op_kind == 8:  # M = X
                last = min(op_length, num_bases - read_place, contig_length - end)
                for step in range(max(last, 0)):
                    here = read_place + step
                    if has_qualities and data[base_qualities + here] < MIN_BASE_QUALITY:
                        continue
                    codes = np.int64(data[bases + here // 2])
                    token = token_of_code[codes & 15 if here & 1 else codes >> 4]
                    reference_token = tokens[contig_start + end + step]
                    if token < 4 and reference_token < 4:
                        num_compared += 1
                        num_different += token != reference_token
                num_aligned += op_length
                read_place += op_length
                end += op_length
            elif op_kind == 2 or op_kind == 3:  # D N
                end += op_length
            elif op_kind == 1 or op_kind == 4:  # I S
                read_place += op_length
        totals[_ALIGNED] += num_aligned
        windows[min(window_offsets[place] + start // WINDOW_BP, window_offsets[place + 1] - 1)] += num_aligned
        compared[row, 0] += num_compared
        compared[row, 1] += num_different
        if end > contig_length:
            totals[_PAST_END] += 1
        totals[_COVERED] += max(end - max(start, totals[_COVER_END]), 0)
        totals[_COVER_END] = max(end, totals[_COVER_END])
        if flag & 0x1 and flag & 0x8 == 0 and mate_tid == tid:
            is_left = mate_start > start or (mate_start == start and flag & 0x40 != 0)
            if is_left and mate_start < end:
                totals[_OVERLAPS] += 1
            if is_left and flag & 0x2 and template != 0:
                templates[min(abs(template), templates.shape[0] - 1)] += 1


def _rate(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def _median(counts: Counts) -> int:
    """The value that at least half of what was counted does not exceed; 0 when nothing was."""
    total = int(counts.sum())
    return int(np.searchsorted(np.cumsum(counts), total / 2)) if total else 0
