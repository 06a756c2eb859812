"""The regions a run keeps to: a BED on the reference's contigs, sorted and merged."""

from __future__ import annotations

import gzip
import io
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tasks.bgzf import GZIP_MAGIC
from tasks.errors import RegionsError
from tasks.genome.contigs import match_contigs
from tasks.genome.reference import Reference
from tasks.quoting import quoted

_NUM_FAULTS_SHOWN = 10
_NUM_NAMES_SHOWN = 5
_LINE_BYTES = 1 << 20
_CONTIG_SHIFT = np.int64(40)


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """Disjoint intervals in the reference's order; no two of them touch.

    Attributes:
        contig: int32 [n], places in the reference's contigs.
        start: int64 [n], 0-based first bases.
        end: int64 [n], one past the last bases.
        dropped: Intervals that were left out, by reason: UNKNOWN_CONTIG, EMPTY_INTERVAL.
        unknown_contigs: Names the reference does not have, in the file's order.
    """

    contig: np.ndarray
    start: np.ndarray
    end: np.ndarray
    dropped: dict[str, int] = field(default_factory=dict)
    unknown_contigs: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What was left out: how many intervals and where, a colon, and why."""
        some = ", ".join(self.unknown_contigs[:_NUM_NAMES_SHOWN])
        some += ", ..." * (len(self.unknown_contigs) > _NUM_NAMES_SHOWN)
        texts = {
            "UNKNOWN_CONTIG": f" on {some}: intervals of the regions whose contig the reference does not have",
            "EMPTY_INTERVAL": ": intervals of the regions that are empty",
        }
        return [f"{count:,}{texts[reason]} were left out" for reason, count in self.dropped.items()]

    @property
    def length_bp(self) -> int:
        """Number of bases covered."""
        return int((self.end - self.start).sum())

    def contains(self, contig: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Tells which intervals overlap the regions by at least one base.

        Args:
            contig: int [k], places in the reference's contigs; -1 overlaps nothing.
            start: int [k], 0-based.
            end: int [k], exclusive; an empty interval counts as the base at its start.

        Returns:
            bool [k].
        """
        first = np.asarray(start, dtype=np.int64)
        last = np.maximum(np.asarray(end, dtype=np.int64) - 1, first)
        shelf = np.asarray(contig, dtype=np.int64) << _CONTIG_SHIFT
        own = self.contig.astype(np.int64) << _CONTIG_SHIFT
        # Disjoint and sorted: as many regions start at or before the last base as end before the first one, or more.
        num_started = np.searchsorted(own + self.start, shelf + last, side="right")
        num_ended = np.searchsorted(own + self.end, shelf + first, side="right")
        overlaps: np.ndarray = (num_started > num_ended) & (shelf >= 0)
        return overlaps

    def intervals_of(self, contig: int) -> np.ndarray:
        """The regions on one contig: int64 [m, 2], starts and ends, sorted."""
        low, high = np.searchsorted(self.contig, [contig, contig + 1])
        return np.stack([self.start[low:high], self.end[low:high]], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class BedIntervals:
    """The intervals of a BED in the file's order.

    Attributes:
        contig: int32 [n], places in the reference's contigs.
        start: int64 [n], 0-based first bases.
        end: int64 [n], one past the last bases.
        labels: n texts of the fourth column, empty where there is none.
        dropped: Intervals that were left out, by reason: UNKNOWN_CONTIG, EMPTY_INTERVAL.
        unknown_contigs: Names the reference does not have, in the file's order.
    """

    contig: np.ndarray
    start: np.ndarray
    end: np.ndarray
    labels: tuple[str, ...]
    dropped: dict[str, int]
    unknown_contigs: tuple[str, ...]


def merge_regions(contig: np.ndarray, start: np.ndarray, end: np.ndarray) -> Regions:
    """Sorts intervals and merges those that overlap or touch.

    Args:
        contig: int [n], places in the reference's contigs.
        start: int [n], 0-based.
        end: int [n], exclusive, past `start`.
    """
    order = np.lexsort((start, contig))
    contig, start, end = (np.asarray(values)[order] for values in (contig, start, end))
    shelf = contig.astype(np.int64) << _CONTIG_SHIFT
    reach = np.maximum.accumulate(shelf + end) if len(end) else shelf
    is_first = np.ones(len(start), dtype=bool)
    is_first[1:] = (shelf + start)[1:] > reach[:-1]
    # The last interval of each merged group carries the farthest end seen.
    is_last = np.append(is_first[1:], True)[: len(start)]
    return Regions(
        contig[is_first].astype(np.int32), start[is_first].astype(np.int64), (reach - shelf)[is_last].astype(np.int64)
    )


def read_bed(path: Path, reference: Reference, padding_bp: int = 0) -> Regions:
    """Reads a BED file (plain, gzip or bgzip; tabs or spaces; any line ends).

    ``track``, ``browser`` and ``#`` lines are not looked at. Intervals on contigs that the reference does not have, and
    empty ones, are dropped and counted.

    Args:
        path: The BED file.
        reference: Its contigs; ``chr1`` and ``1`` match.
        padding_bp: Added on both sides of each interval, up to the contig's ends.

    Raises:
        RegionsError: The file cannot be read, a line is not BED, an interval ends past its contig, or none is left;
            the message names the lines.
    """
    if padding_bp < 0:
        raise RegionsError(f"padding must be 0 or more bases, not {padding_bp}", field="padding_bp")
    found = read_intervals(path, reference)
    lengths_bp = np.diff(reference.offsets)
    merged = merge_regions(
        found.contig,
        np.maximum(found.start - padding_bp, 0),
        np.minimum(found.end + padding_bp, lengths_bp[found.contig]),
    )
    return Regions(merged.contig, merged.start, merged.end, found.dropped, found.unknown_contigs)


def read_intervals(path: Path, reference: Reference) -> BedIntervals:
    """Reads a BED file's lines as they are: not sorted, not merged, with the fourth column.

    Args:
        path: The BED file.
        reference: Its contigs; ``chr1`` and ``1`` match.

    Raises:
        RegionsError: As `read_bed`.
    """
    names, name_of, start, end, lines, labels = _read_lines(path)
    unstated = [None] * len(names)
    places = match_contigs(names, unstated, unstated, reference).index
    contig = places[name_of]
    lengths_bp = np.diff(reference.offsets)
    is_known = contig >= 0
    contig_end = np.where(is_known, lengths_bp[contig], np.iinfo(np.int64).max)
    past = np.flatnonzero(end > contig_end)
    if len(past):
        row = past[0]
        raise RegionsError(
            f"{path}: line {lines[row]}: {names[name_of[row]]}:{start[row]}-{end[row]} ends past the contig, which has "
            f"{contig_end[row]:,} bases in {reference.path.name} ({len(past):,} such lines); "
            "was the BED made for another build?",
            reason="PAST_CONTIG_END",
        )
    is_empty = is_known & (start == end)
    keep = is_known & ~is_empty
    if not keep.any():
        if is_empty.any():
            others = int((~is_known).sum())
            raise RegionsError(
                f"{path}: no region left: {int(is_empty.sum()):,} intervals are empty, the first on line "
                f"{lines[np.flatnonzero(is_empty)[0]]}: their start is their end"
                f"{f', and {others:,} are on contigs that the reference does not have' if others else ''}; a BED "
                "counts from 0 and its end is exclusive, so that base 100 alone is 99 to 100",
                reason="NO_REGIONS",
            )
        raise RegionsError(
            f"{path}: no interval on a contig of {reference.path.name}: the BED has "
            f"{', '.join(names[:5])}; the reference has "
            f"{', '.join(contig.name for contig in reference.contigs[:5])}",
            reason="NO_REGIONS",
        )
    dropped = {"UNKNOWN_CONTIG": int((~is_known).sum()), "EMPTY_INTERVAL": int(is_empty.sum())}
    return BedIntervals(
        contig[keep].astype(np.int32),
        start[keep],
        end[keep],
        tuple(labels[row] for row in np.flatnonzero(keep)),
        {reason: count for reason, count in dropped.items() if count},
        tuple(name for name, place in zip(names, places, strict=True) if place < 0),
    )


def _read_lines(path: Path) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Reads the lines' intervals; refuses the file with its first faults.

    Returns:
        The distinct names in the file's order; then int64 [n] each: the number of the line's name, start, end, and the
        line's own number; then the fourth columns.
    """
    number_of: dict[str, int] = {}
    names, starts, ends, numbers = (array("q") for _ in range(4))
    labels: list[str] = []
    faults: list[str] = []
    for number, line in enumerate(text_lines(path), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        fields = text.split("\t") if "\t" in text else text.split()
        if fields[0].split()[0] in ("track", "browser"):
            continue
        fault = _fault_of(fields)
        if fault:
            faults.append(f"  line {number}: {fault}")
            if len(faults) == _NUM_FAULTS_SHOWN:
                break
            continue
        names.append(number_of.setdefault(fields[0].strip(), len(number_of)))
        starts.append(int(fields[1]))
        ends.append(int(fields[2]))
        numbers.append(number)
        labels.append(fields[3].strip() if len(fields) > 3 else "")
    if faults:
        raise RegionsError(f"{path}: not BED (contig, start, end; 0-based, end exclusive):\n" + "\n".join(faults))
    if not names:
        raise RegionsError(f"{path}: no interval in it", reason="EMPTY_FILE")
    name_of, start, end, lines = (np.frombuffer(column, dtype=np.int64) for column in (names, starts, ends, numbers))
    return list(number_of), name_of, start, end, lines, labels


def _fault_of(fields: list[str]) -> str | None:
    shown = quoted("\t".join(fields), 80)
    if fields[0].startswith("@"):
        return f"{shown} is a line of an interval_list (1-based); convert it to BED"
    if len(fields) < 3:
        return f"{shown} has {len(fields)} columns, BED has at least 3"
    start, end = fields[1].strip(), fields[2].strip()
    if not (start.isascii() and start.isdigit() and end.isascii() and end.isdigit()):
        return f"{shown}: start and end must be whole numbers"
    if max(len(start), len(end)) > 12:
        return f"{shown}: start and end are longer than any contig"
    if int(start) > int(end):
        return f"{shown}: the start is past the end"
    return None


def text_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a text file, plain, gzip or bgzip.

    Raises:
        RegionsError: It cannot be read, or is not text.
    """
    try:
        with open(path, "rb") as plain:
            is_gzip = plain.read(2) == GZIP_MAGIC
            plain.seek(0)
            handle: BinaryIO = io.BufferedReader(gzip.GzipFile(fileobj=plain)) if is_gzip else plain
            while line := handle.readline(_LINE_BYTES):
                if b"\x00" in line:
                    raise RegionsError(f"{path}: not a text file; give a BED, GTF or GFF3")
                yield line.decode("utf-8-sig", errors="replace")
    except (OSError, EOFError, zlib.error) as error:
        raise RegionsError(f"{path}: cannot read it: {error}", field="regions") from error
