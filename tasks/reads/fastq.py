"""A sample's FASTQ files: every record checked, mates compared, reads counted."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from monitoring.kmers import DEFAULT_K
from tasks.bgzf import GZIP_MAGIC
from tasks.errors import ReadsError
from tasks.isolation import report_progress
from tasks.quoting import quoted
from tasks.reads.blocks import lacks_bgzip_end
from tasks.reads.records import read_records
from tasks.reads.sampling import count_by_fit
from tasks.reads.statistics import ReadsStatistics

Hashes = npt.NDArray[np.uint64]
_NO_HASHES: Hashes = np.zeros(0, dtype=np.uint64)


INTERLEAVED_AS_SINGLE = (
    "reads come in pairs of one name: interleaved, but read as single; say so in the sheet (interleaved = yes)"
)
MATES_SWAPPED = "the read names say that second mates stand where first ones belong: swap fastq_1 and fastq_2"
MATES_OUT_OF_TURN = "the read names say that the second mate of each interleaved pair comes first"


@dataclass(frozen=True, slots=True)
class Lane:
    """The FASTQ files of one lane, as the sheet gives them.

    Attributes:
        fastq_1: Single reads, first mates, or both mates in turn.
        fastq_2: Second mates, if they have a file of their own.
        interleaved: Whether `fastq_1` holds both mates in turn.
    """

    fastq_1: Path
    fastq_2: Path | None = None
    interleaved: bool = False

    @property
    def layout(self) -> Literal["single", "paired", "interleaved"]:
        """How mates lie in the files."""
        if self.fastq_2 is not None:
            return "paired"
        return "interleaved" if self.interleaved else "single"

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Lane:
        """Reads ``{"fastq_1": path, "fastq_2": path or null, "interleaved": bool}``; the last two may be absent."""
        second = value.get("fastq_2")
        return cls(Path(value["fastq_1"]), Path(second) if second else None, bool(value.get("interleaved", False)))


@dataclass(slots=True, eq=False)
class _File:
    """A file while it is read."""

    path: Path
    statistics: ReadsStatistics
    pending: list[Hashes] = field(default_factory=list)

    def hashes(self) -> Iterator[Hashes]:
        for chunk in read_records(self.path):
            self.statistics.add_chunk(chunk)
            report_progress({"num_reads": len(chunk.lengths_bp)})
            yield chunk.name_hashes


def check_reads(lanes: list[dict[str, Any]], k: int = DEFAULT_K) -> dict[str, Any]:
    """Reads every FASTQ file of a sample once: checks each record and each pair, and counts.

    Args:
        lanes: As `Lane.from_json` takes them.
        k: Length of the k-mers profiled, in bases.

    Returns:
        The summary of all reads (`ReadsStatistics.to_json`), with `layouts`, `num_pairs`, `files` (the summary of each
        without k-mers), `warnings` and `by_fit` (`tasks.reads.sampling.count_by_fit`).

    Raises:
        ReadsError: A record is wrong, mates disagree or are the same one twice, the quality offset is 64, or there are
            no reads.
    """
    total = ReadsStatistics(k)
    files: list[dict[str, Any]] = []
    warnings: list[str] = []
    num_pairs = 0
    read_lanes = [Lane.from_json(lane) for lane in lanes]
    for lane in read_lanes:
        paths = [lane.fastq_1] if lane.fastq_2 is None else [lane.fastq_1, lane.fastq_2]
        sources = [_File(path, ReadsStatistics(k)) for path in paths]
        if len(sources) == 2:
            num_pairs += _check_mates(*sources)
        else:
            num_pairs += _check_single(sources[0], lane, warnings)
        warnings += check_mate_numbers(lane)
        for source in sources:
            if source.statistics.has_offset_64():
                raise ReadsError(
                    f"{source.path}: the qualities are written with offset 64 (old Illumina or Solexa): convert them "
                    "to offset 33, as by seqtk seq -Q64 -V",
                    reason="QUALITY_OFFSET_64",
                )
            if lacks_bgzip_end(source.path):
                warnings.append(f"{source.path.name}: bgzip without its last, empty block; it may have been cut off")
            summary = source.statistics.to_json()
            del summary["kmers"]
            files.append({"name": source.path.name, **summary})
            total += source.statistics
    if total.num_reads == 0:
        raise ReadsError(f"{', '.join(str(lane.fastq_1) for lane in read_lanes)}: no reads", reason="NO_READS")
    return {
        **total.to_json(),
        "layouts": [lane.layout for lane in read_lanes],
        "num_pairs": num_pairs,
        "files": files,
        "warnings": warnings,
        "by_fit": count_by_fit(total.length_counts),
    }


def _check_single(source: _File, lane: Lane, warnings: list[str]) -> int:
    """Reads a file alone; returns its number of pairs, 0 where it is not interleaved."""
    num_reads = 0
    carry = _NO_HASHES
    all_pairs = True
    for chunk in source.hashes():
        hashes = np.concatenate((carry, chunk))
        num_even = len(hashes) - len(hashes) % 2
        (unequal,) = np.nonzero(hashes[0:num_even:2] != hashes[1:num_even:2])
        all_pairs &= not len(unequal)
        if lane.interleaved and len(unequal):
            first = num_reads + 2 * int(unequal[0])
            names = [_name(source.path, first), _name(source.path, first + 1)]
            raise ReadsError(
                f"{source.path}: records {first + 1:,} and {first + 2:,} should be mates (interleaved), but are "
                f"{quoted(names[0])} and {quoted(names[1])}",
                reason="MATES_DIFFER",
            )
        num_reads += num_even
        carry = hashes[num_even:]
    num_reads += len(carry)
    if lane.interleaved and len(carry):
        raise ReadsError(
            f"{source.path}: {num_reads:,} records, an odd number, but it is given as interleaved pairs",
            reason="MATES_DIFFER",
        )
    if not lane.interleaved and all_pairs and num_reads and not len(carry):
        warnings.append(f"{source.path.name}: {INTERLEAVED_AS_SINGLE}")
    return num_reads // 2 if lane.interleaved else 0


def _check_mates(first: _File, second: _File) -> int:
    """Reads two files side by side and compares their names; returns the number of pairs."""
    streams = [first.hashes(), second.hashes()]
    waiting = [_NO_HASHES, _NO_HASHES]
    num_pairs = 0
    while True:
        for side in range(2):
            if not len(waiting[side]):
                waiting[side] = next(streams[side], _NO_HASHES)
        num_compared = min(len(waiting[0]), len(waiting[1]))
        if not num_compared:
            break
        (unequal,) = np.nonzero(waiting[0][:num_compared] != waiting[1][:num_compared])
        if len(unequal):
            record = num_pairs + int(unequal[0])
            raise ReadsError(
                f"{first.path} and {second.path}: record {record + 1:,} should be one pair, but is "
                f"{quoted(_name(first.path, record))} and {quoted(_name(second.path, record))}",
                reason="MATES_DIFFER",
            )
        num_pairs += num_compared
        waiting = [hashes[num_compared:] for hashes in waiting]
    for stream in streams:
        for _ in stream:
            pass
    counts = [first.statistics.num_reads, second.statistics.num_reads]
    if counts[0] != counts[1]:
        raise ReadsError(
            f"{first.path} has {counts[0]:,} records, {second.path} has {counts[1]:,}: not mates, or one is cut off",
            reason="MATES_DIFFER",
        )
    return num_pairs


def check_mate_numbers(lane: Lane) -> list[str]:
    """Compares what the first reads of a lane say of themselves with where they stand.

    Args:
        lane: Its files are known to begin with whole records, or to hold none.

    Returns:
        A warning where second mates stand in the place of first ones; files without mate numbers say nothing.

    Raises:
        ReadsError: Both mates of the first pair have the same number.
    """
    if lane.fastq_2 is None and not lane.interleaved:
        return []
    places = [(lane.fastq_1, 0), (lane.fastq_2, 0) if lane.fastq_2 else (lane.fastq_1, 1)]
    headers = [_header(path, record) for path, record in places]
    mates = [_mate(header) for header in headers]
    if mates == ["2", "1"]:
        if lane.fastq_2 is None:
            return [f"{lane.fastq_1.name}: {MATES_OUT_OF_TURN}"]
        return [f"{lane.fastq_1.name} and {lane.fastq_2.name}: {MATES_SWAPPED}"]
    if mates[0] is not None and mates[0] == mates[1]:
        where = f"{lane.fastq_1} and {lane.fastq_2}: both hold" if lane.fastq_2 else f"{lane.fastq_1}: both reads are"
        raise ReadsError(
            f"{where} mate {mates[0]} ({quoted(headers[0])}); a pair is mate 1 and mate 2", reason="MATES_DIFFER"
        )
    return []


def _header(path: Path, record: int) -> str:
    """The first line of a record, without its ``@``; empty where the file has no such record."""
    with open(path, "rb") as handle:
        is_gzip = handle.read(2) == GZIP_MAGIC
    with gzip.open(path) if is_gzip else open(path, "rb") as lines:
        line: bytes = next(islice(lines, 4 * record, None), b"")
    return line[1:].decode("latin-1").strip()


def _name(path: Path, record: int) -> str:
    return _header(path, record).split()[0]


def _mate(header: str) -> str | None:
    """Which mate a read says it is: by ``/1`` and ``/2``, or by Casava's comment ``1:N:0:``."""
    name, _, comment = header.partition(" ")
    if name[-2:] in ("/1", "/2"):
        return name[-1]
    return comment[0] if comment[:2] in ("1:", "2:") else None
