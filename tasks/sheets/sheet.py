"""The sample sheet: which samples a run has, and which files each of them is.

Columns (any order, any letter case; the nf-core names):

===================  ================================================================================================
sample               the sample's id; names its files and folder (letters, digits, ``_ . + -``)
vcf                  VCF or BCF; several of one sample need different ``variantcaller`` values, and each becomes an
                     output of its own with the id ``SAMPLE.CALLER``
bam / cram           alignments; several of one sample are read together
bai / crai           their indices, where they do not lie beside them
fastq_1, fastq_2     reads; one line a lane, lanes of one sample are merged; no ``fastq_2`` means single reads
interleaved          yes: ``fastq_1`` holds both reads of each pair in turn
lane                 the lane's name (default: 1, 2, ... in the sheet's order)
patient, sex,        as in sarek and raredisease; checked, and the same on all lines of a sample
status
protocol             amplicon: reads of amplicons, whose duplicates are not marked, or used where a BAM has them marked
vcf_sample           the column of a many-sample VCF to keep
variantcaller        what made the VCF
regions              a BED that this sample's work keeps to
===================  ================================================================================================

Other columns (paternal_id, maternal_id, phenotype, case_id, a lab's own) are kept as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.sheets.faults import Faults
from tasks.sheets.rules import (
    KIND_OF_COLUMN,
    PATH_COLUMNS,
    check_ids,
    check_parents,
    check_patients,
    check_repeats,
    check_row,
    check_sample,
    column_warnings,
    kind_of,
    known_columns,
)
from tasks.sheets.table import SheetRow, read_table
from tasks.sheets.values import Kind, Sex, is_amplicon, parse_answer, parse_sex, parse_status, sheet_path

_INDEX_COLUMNS = {"bam": "bai", "cram": "crai"}


@dataclass(frozen=True, slots=True)
class Lane:
    """One pair (or file) of reads.

    Attributes:
        name: The lane's name, different for each lane of a sample.
        line: Its line of the sheet.
        fastq_1: First reads, or all of them.
        fastq_2: Second reads; None for single or interleaved reads.
        interleaved: Whether `fastq_1` holds both reads of each pair in turn.
    """

    name: str
    line: int
    fastq_1: Path
    fastq_2: Path | None
    interleaved: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample: one output of a run.

    Attributes:
        id: Its name in all outputs; safe as a file name, and no two differ in letter case alone.
        patient: The person it is of; the sample itself where the sheet does not say.
        sex: ``XX``, ``XY`` or ``NA``; None where the sheet does not say.
        status: 0 normal, 1 tumour; None where the sheet does not say.
        is_amplicon: Whether its reads are of amplicons: equal ends are no sign of a duplicate.
        kind: What its files are.
        paths: Its VCF, BAM or CRAM files (a VCF is always one file); empty for FASTQ.
        index_paths: For each of `paths` the index the sheet names, or None.
        lanes: Its FASTQ files; empty for the other kinds.
        vcf_sample: The column of its VCF to keep; None for all.
        variantcaller: What made its VCF; None where the sheet does not say.
        regions: A BED that its work keeps to.
        columns: The sheet's values as they stand there, without paths and empty ones; where lanes differ, their values
            joined by ``;``.
        line: Its first line of the sheet.
    """

    id: str
    patient: str
    sex: Sex | None
    status: int | None
    is_amplicon: bool
    kind: Kind
    paths: tuple[Path, ...]
    index_paths: tuple[Path | None, ...]
    lanes: tuple[Lane, ...]
    vcf_sample: str | None
    variantcaller: str | None
    regions: Path | None
    columns: dict[str, str]
    line: int

    @property
    def files(self) -> tuple[Path, ...]:
        """All data files, in the sheet's order: what a digest of the inputs covers."""
        reads = (path for lane in self.lanes for path in (lane.fastq_1, lane.fastq_2))
        return (*self.paths, *(path for path in reads if path is not None))

    def to_json(self) -> dict[str, Any]:
        """The sample as JSON values, for work in other processes."""
        return {
            "id": self.id,
            "patient": self.patient,
            "sex": self.sex,
            "status": self.status,
            "is_amplicon": self.is_amplicon,
            "kind": self.kind,
            "paths": [str(path) for path in self.paths],
            "index_paths": [str(path) if path else None for path in self.index_paths],
            "lanes": [
                {
                    "name": lane.name,
                    "fastq_1": str(lane.fastq_1),
                    "fastq_2": str(lane.fastq_2) if lane.fastq_2 else None,
                    "interleaved": lane.interleaved,
                    "line": lane.line,
                }
                for lane in self.lanes
            ],
            "vcf_sample": self.vcf_sample,
            "variantcaller": self.variantcaller,
            "regions": str(self.regions) if self.regions else None,
            "columns": dict(self.columns),
            "line": self.line,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Sample:
        """The sample of which `value` is `to_json`."""
        lanes = (
            {**lane, "fastq_1": Path(lane["fastq_1"]), "fastq_2": Path(lane["fastq_2"]) if lane["fastq_2"] else None}
            for lane in value["lanes"]
        )
        return cls(
            **{
                **value,
                "paths": tuple(Path(path) for path in value["paths"]),
                "index_paths": tuple(Path(path) if path else None for path in value["index_paths"]),
                "lanes": tuple(Lane(**lane) for lane in lanes),
                "regions": Path(value["regions"]) if value["regions"] else None,
            }
        )


@dataclass(frozen=True, slots=True)
class SampleSheet:
    """A sheet without a fault.

    Attributes:
        path: The sheet.
        samples: In the order of their first lines.
        warnings: What is hardly meant as it stands there, for people.
    """

    path: Path
    samples: tuple[Sample, ...]
    warnings: tuple[str, ...] = ()


def read_sheet(path: Path) -> SampleSheet:
    """Reads a sample sheet and checks it, down to the presence of every file it names.

    Args:
        path: CSV, TSV or semicolons; UTF-8 or marked UTF-16. Relative paths in it start from its folder.

    Raises:
        SheetError: With every fault: line, column, value, what would be right.
    """
    faults = Faults()
    table = read_table(path, faults)
    columns = known_columns(table, faults)
    rows = [SheetRow(row.line, {known: row.values[column] for known, column in columns.items()}) for row in table.rows]
    for row in rows:
        check_row(row, path.parent, faults)
    if "sample" not in columns or not KIND_OF_COLUMN.keys() & columns.keys():
        faults.raise_any(path)
    check_repeats(rows, path.parent, faults)
    check_parents(rows, faults)
    by_sample: dict[str, list[SheetRow]] = {}
    for row in rows:
        if row.values["sample"]:
            by_sample.setdefault(row.values["sample"], []).append(row)
    for sample_rows in by_sample.values():
        # What is wrong with lines that are the same is said already.
        distinct = {tuple(row.values.items()): row for row in reversed(sample_rows)}
        check_sample(sorted(distinct.values(), key=lambda row: row.line), faults)
    check_patients(rows, faults)
    units = [unit for sample_id, sample_rows in by_sample.items() for unit in _units(sample_id, sample_rows)]
    check_ids(units, faults)
    faults.raise_any(path)
    samples = [_sample(sample_id, unit_rows, path.parent) for sample_id, unit_rows in units]
    return SampleSheet(path, tuple(sorted(samples, key=lambda sample: sample.line)), tuple(column_warnings(table)))


def _units(sample_id: str, rows: list[SheetRow]) -> list[tuple[str, list[SheetRow]]]:
    """Splits a sample into its outputs: several VCFs are one each, lanes are one together."""
    if len(rows) > 1 and all(kind_of(row) == "vcf" for row in rows):
        return [(f"{sample_id}.{row.values.get('variantcaller', '')}", [row]) for row in rows]
    return [(sample_id, rows)]


def _sample(sample_id: str, rows: list[SheetRow], folder: Path) -> Sample:
    """Makes the sample of lines that have no fault."""
    first = rows[0].values
    kind = kind_of(rows[0])
    assert kind is not None

    def path(row: SheetRow, column: str | None) -> Path | None:
        value = row.values.get(column, "") if column else ""
        return sheet_path(value, folder) if value else None

    is_fastq = kind == "fastq"
    return Sample(
        id=sample_id,
        patient=first.get("patient") or first["sample"],
        sex=parse_sex(first.get("sex", "")),
        status=parse_status(first.get("status", "")),
        is_amplicon=is_amplicon(first.get("protocol", "")),
        kind=kind,
        paths=() if is_fastq else tuple(sheet_path(row.values[kind], folder) for row in rows),
        index_paths=() if is_fastq else tuple(path(row, _INDEX_COLUMNS.get(kind)) for row in rows),
        lanes=_lanes(rows, folder) if is_fastq else (),
        vcf_sample=first.get("vcf_sample") or None,
        variantcaller=first.get("variantcaller") or None,
        regions=path(rows[0], "regions"),
        columns=_columns(rows),
        line=rows[0].line,
    )


def _columns(rows: list[SheetRow]) -> dict[str, str]:
    joined = {
        column: ";".join(dict.fromkeys(row.values[column] for row in rows if row.values[column]))
        for column in rows[0].values
        if column not in PATH_COLUMNS
    }
    return {column: value for column, value in joined.items() if value}


def _lanes(rows: list[SheetRow], folder: Path) -> tuple[Lane, ...]:
    given = {row.values.get("lane", "") for row in rows}
    free = (name for name in map(str, range(1, 2 * len(rows) + 1)) if name not in given)
    return tuple(
        Lane(
            name=row.values.get("lane") or next(free),
            line=row.line,
            fastq_1=sheet_path(row.values["fastq_1"], folder),
            fastq_2=sheet_path(row.values["fastq_2"], folder) if row.values.get("fastq_2") else None,
            interleaved=bool(parse_answer(row.values.get("interleaved", ""))),
        )
        for row in rows
    )
