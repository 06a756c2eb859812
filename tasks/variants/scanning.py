"""The first reading of a sample's VCF: every record checked, every allele normalised and written to allele runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.errors import ReferenceError, VariantFileError
from tasks.files import make_folder
from tasks.genome.contigs import mixed_names
from tasks.genome.header_check import check_header_contigs
from tasks.genome.reference import Reference
from tasks.genome.regions import Regions
from tasks.quoting import quoted
from tasks.variants.allele_kernels import REF_DIFFERS, REF_MATCHES, REF_PAST_END, SKIP_REASONS
from tasks.variants.allele_runs import RunWriter
from tasks.variants.alleles import allele_table
from tasks.variants.binary import as_text
from tasks.variants.lines import FAULT_TEXTS, LINE_FAULTS
from tasks.variants.records import RecordBlock, RecordReader
from tasks.variants.rejected import RejectedLines

MAX_REJECTED_SHARE = 0.01
"""A file with more lines than this that are not records is refused."""
MAX_MISMATCH_SHARE = 0.02
"""A sample with more records than this whose REF is not the reference was made with another one; a single one among
several says nothing about the reference, but about that record."""
_FAULTS_SHOWN = 10

Observer = Callable[[RecordReader], Callable[[RecordBlock], None]]
"""Looks at a file while it is read: takes its header, returns what takes its blocks."""


class ScanCounts:
    """Counts over the blocks of one reading, the same in both readings of a file.

    Attributes:
        records_in: Lines after the header that are not blank.
        records: Those that are records.
        rejected: The others.
        faults: Of the first rejected lines: line, reason.
        alleles: ALT alleles.
        skipped: Alleles that are not to be scored, by reason.
        without_alt: Records with ALT ``.``.
        refs_checked: Records whose REF could be compared with the reference.
        refs_differ: Of those, the ones that differ, or that go past the end of their contig.
        last_is_short: Whether the last line has too few (or too many) fields.
        is_sorted: Whether contigs stand together and positions rise in each.
        max_position: Largest end of a REF, 1-based.
    """

    def __init__(self) -> None:
        self.records_in = self.records = self.rejected = 0
        self.faults: list[dict[str, Any]] = []
        self.alleles = self.without_alt = 0
        self.skipped: dict[str, int] = {}
        self.refs_checked = self.refs_differ = 0
        self.is_sorted = True
        self.last_is_short = False
        self.max_position = 0
        self._per_contig = np.zeros(0, dtype=np.int64)
        self._last_contig, self._last_position = -1, -1

    def add(self, block: RecordBlock) -> None:
        """Counts a block."""
        bad = block.lines.bad_lines
        if len(block.lines.fault):
            self.last_is_short = LINE_FAULTS[block.lines.fault[-1]] == "FIELD_COUNT"
        self.records += block.lines.num_records
        self.rejected += len(bad)
        self.records_in += block.lines.num_records + len(bad)
        for row in bad[: _FAULTS_SHOWN - len(self.faults)].tolist():
            reason = LINE_FAULTS[block.lines.fault[row]]
            self.faults.append({"line": block.lines.first_line + row, "reason": reason, "found": FAULT_TEXTS[reason]})
        self.alleles += len(block.keys.skip)
        for code, number in enumerate(np.bincount(block.keys.skip).tolist()):
            if code and number:
                self.skipped[SKIP_REASONS[code]] = self.skipped.get(SKIP_REASONS[code], 0) + number
        self.without_alt += int(np.count_nonzero(np.diff(block.records.first_allele) == 0))
        differ = int(np.count_nonzero((block.ref_state == REF_DIFFERS) | (block.ref_state == REF_PAST_END)))
        self.refs_differ += differ
        self.refs_checked += differ + int(np.count_nonzero(block.ref_state == REF_MATCHES))
        if block.lines.num_records:
            per_contig = np.bincount(block.contig_name, minlength=len(self._per_contig))
            per_contig[: len(self._per_contig)] += self._per_contig
            self.is_sorted = self.is_sorted and self._continues_sorted(block.contig_name, block.lines.position)
            self._per_contig = per_contig
            ends = block.lines.position + (block.records.ref_end - block.records.ref_begin) - 1
            self.max_position = max(self.max_position, int(ends.max()))

    def _continues_sorted(self, contig: NDArray[np.int32], position: NDArray[np.int64]) -> bool:
        contig = np.append(np.int32(self._last_contig), contig)
        position = np.append(np.int64(self._last_position), position)
        self._last_contig, self._last_position = int(contig[-1]), int(position[-1])
        changes = np.diff(contig) != 0
        if (np.diff(position)[~changes] < 0).any():
            return False
        # A contig's number is given at first sight: one that was seen before has come back.
        begun = contig[1:][changes]
        known = max(len(self._per_contig), 0)
        return bool((begun >= known).all() and (np.diff(begun) > 0).all())

    def contigs(self, names: list[str]) -> dict[str, int]:
        """Records on each contig, in the order of first sight."""
        return dict(zip(names, self._per_contig.tolist(), strict=True))

    def check(self, what: str, path: Path) -> None:
        """Refuses a file that is damaged beyond a few lines, or that was made with another reference.

        Raises:
            VariantFileError: More than 1 % of the lines are not records (TOO_MANY_REJECTED).
            ReferenceError: More than 2 % of the REF alleles are not the reference, and more than one among several.
        """
        if self.rejected > MAX_REJECTED_SHARE * self.records_in:
            first = self.faults[0]
            raise VariantFileError(
                f"{path}: {self.rejected:,} of {self.records_in:,} lines after the header are not VCF records, more "
                f"than {MAX_REJECTED_SHARE:.0%}; the first is line {first['line']}: {first['found']}",
                reason="TOO_MANY_REJECTED",
            )
        is_single = self.refs_differ == 1 < self.refs_checked
        if self.refs_differ > MAX_MISMATCH_SHARE * self.refs_checked and not is_single:
            raise ReferenceError(
                f"{what}: wrong reference? REF differs from the reference, or goes past its contig's end, in "
                f"{self.refs_differ:,} of {self.refs_checked:,} records ({self.refs_differ / self.refs_checked:.1%}), "
                f"more than {MAX_MISMATCH_SHARE:.0%} and more than a single one among several; give the FASTA that the "
                "file was made with",
                field="reference",
            )

    def summary(self) -> dict[str, Any]:
        """The counts as JSON values."""
        return {
            "records_in": self.records_in,
            "records": self.records,
            "rejected": self.rejected,
            "rejected_lines": self.faults,
            "records_without_alt": self.without_alt,
            "alleles": self.alleles,
            "scorable": self.alleles - sum(self.skipped.values()),
            "skipped": dict(sorted(self.skipped.items())),
            "refs_checked": self.refs_checked,
            "refs_differ": self.refs_differ,
            "sorted": self.is_sorted,
            "max_position": self.max_position,
        }


def scan_variants(
    path: Path,
    reference: Reference,
    folder: Path,
    *,
    regions: Regions | None = None,
    vcf_sample: str | None = None,
    what: str = "",
    observer: Observer | None = None,
    rejected: Path | None = None,
    keeps_records: bool = False,
) -> dict[str, Any]:
    """Checks every record of a VCF or BCF and writes its distinct normalised alleles as runs.

    Args:
        path: The file, plain, gzip, bgzip or BCF.
        reference: The genome.
        folder: Receives ``alleles-NNNN.parquet``.
        regions: Alleles outside are counted as OFF_TARGET and not written.
        vcf_sample: The column to keep in the output, checked here.
        what: The sample, for messages.
        observer: Sees the header, then every block.
        rejected: Receives the lines that are not records, if there are any: also of a file with too many of them.
        keeps_records: Whether alleles are written as their records have them, not normalised.

    Returns:
        The counts of `ScanCounts`, and ``runs`` (file names), ``contigs`` (records on each), ``samples``, ``build`` (of
        the header), ``mixed_names`` (`tasks.genome.contigs.mixed_names`), ``repairs`` by kind, and ``warnings``.

    Raises:
        VariantFileError: The file is empty, damaged, truncated, not a VCF, or has too many bad lines.
        ReferenceError: The file was made with another reference.
    """
    what = f"{what} ({path.name})" if what else path.name
    make_folder(folder)
    with as_text(path, folder) as text:
        reader = RecordReader(text, reference, regions, keeps_records=keeps_records)
        check_sample(path, reader.header.samples, vcf_sample)
        counts, runs = ScanCounts(), RunWriter(folder)
        observe = observer(reader) if observer else None
        with RejectedLines(rejected) if rejected else nullcontext() as rejects:
            for block in reader.blocks():
                counts.add(block)
                if observe:
                    observe(block)
                if rejects:
                    rejects.add(block)
                runs.add(allele_table(block.lines.text, block.records, block.keys, reference))
        _check_last_line(path, reader, counts)
        counts.check(what, path)
        contigs = counts.contigs(reader.contig_names)
        build = _check_contigs(what, reader, contigs, reference)
        runs.close()
    return {
        **counts.summary(),
        "runs": [run.name for run in runs.paths],
        "contigs": contigs,
        "samples": list(reader.header.samples),
        "build": build,
        "mixed_names": mixed_names([name for name, number in contigs.items() if number], reference),
        "repairs": dict(sorted(reader.repairs.items())),
        "warnings": regions.warnings if regions else [],
    }


def _check_last_line(path: Path, reader: RecordReader, counts: ScanCounts) -> None:
    """Refuses a file that ends inside a line: no newline, and too few fields."""
    if "final_newline" in reader.repairs and counts.last_is_short:
        raise VariantFileError(
            f"{path}: cut off: the last line has no newline and too few fields, after {counts.records:,} records; copy "
            "the file again",
            reason="TRUNCATED",
        )


def check_sample(path: Path, samples: tuple[str, ...], vcf_sample: str | None) -> None:
    """Refuses a sample column that the file does not have.

    Raises:
        VariantFileError: There is no such column; the message names those there are.
    """
    if vcf_sample is not None and vcf_sample not in samples:
        some = ", ".join(samples[:10]) + ", ..." * (len(samples) > 10)
        raise VariantFileError(
            f"{path}: no sample {quoted(vcf_sample)}; it has {some or 'none'}",
            field="vcf_sample",
            reason="NO_SUCH_SAMPLE",
        )


def _check_contigs(what: str, reader: RecordReader, contigs: dict[str, int], reference: Reference) -> str | None:
    """Refuses a header of another build; returns the build that it looks like."""
    header = reader.header
    names = list(dict.fromkeys([*header.contig_lengths_bp, *contigs]))
    check = check_header_contigs(
        what,
        names,
        [header.contig_lengths_bp.get(name) for name in names],
        [header.contig_md5s.get(name) for name in names],
        [contigs.get(name, 0) for name in names],
        reference,
    )
    return check.build
