"""What a sample sheet's lines must be, by themselves and beside each other."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from tasks.sheets.faults import Faults
from tasks.sheets.table import NOT_DECODED, SheetRow, SheetTable
from tasks.sheets.values import (
    Kind,
    Sex,
    column_of,
    id_fault,
    names_sex,
    parse_answer,
    parse_sex,
    parse_status,
    path_fault,
    protocol_fault,
    sheet_path,
    text_fault,
)

KIND_OF_COLUMN: dict[str, Kind] = {"vcf": "vcf", "bam": "bam", "cram": "cram", "fastq_1": "fastq"}
PATH_COLUMNS = ("vcf", "bam", "bai", "cram", "crai", "fastq_1", "fastq_2", "regions")
# Columns that mean something only beside another one.
_NEEDS = {
    "fastq_2": "fastq_1",
    "interleaved": "fastq_1",
    "bai": "bam",
    "crai": "cram",
    "vcf_sample": "vcf",
}
_SAME_IN_SAMPLE = ("patient", "sex", "status", "protocol", "vcf_sample", "regions")
# XX and female are one value.
_MEANING_OF: dict[str, Callable[[str], object]] = {"sex": parse_sex, "status": parse_status}
_UNDERSTOOD = frozenset(
    {
        *("sample", "patient", "sex", "status", "lane", "interleaved", "protocol", "vcf_sample", "variantcaller"),
        *PATH_COLUMNS,
    }
)
_KEPT = frozenset({"paternal_id", "maternal_id", "phenotype", "case_id"})
_OTHER_NAMES = {
    **dict.fromkeys(("sampleid", "samplename", "id", "name", "individual"), "sample"),
    **dict.fromkeys(("fastq", "fq1", "r1", "read1", "reads1", "forward"), "fastq_1"),
    **dict.fromkeys(("fq2", "r2", "read2", "reads2", "reverse"), "fastq_2"),
    **dict.fromkeys(("bcf", "gvcf", "variants"), "vcf"),
    "sam": "bam",
    "bed": "regions",
    "gender": "sex",
    "caller": "variantcaller",
}
# How alike two names are, by difflib: ``sx`` and ``sex`` 0.8, ``sez`` and ``sex`` 0.67.
_VERY_LIKE, _RATHER_LIKE = 0.8, 0.6


def known_columns(table: SheetTable, faults: Faults) -> dict[str, str]:
    """Maps the names this program knows, and a lab's own, to the header's spelling; notes what is misspelt."""
    understood = {column.lower(): column for column in table.columns if column.lower() in _UNDERSTOOD | _KEPT}
    others = [column for column in table.columns if column and column.lower() not in understood]
    line = table.header_line
    no_input = not set(KIND_OF_COLUMN) & set(understood)
    for column in others:
        meant = _meant(column, eager=no_input or "sample" not in understood)
        if meant is not None and meant not in understood:
            faults.add(line, column, None, f"not a column of a sample sheet; is {meant!r} meant?")
    have = f"the header has {', '.join(map(repr, table.columns))}; columns are separated by commas, tabs or semicolons"
    if "sample" not in understood:
        faults.add(line, "sample", None, f"there is no such column; {have}")
    if no_input:
        faults.add(line, "", None, f"none of the columns vcf, bam, cram, fastq_1 is there; {have}")
    return understood | {column: column for column in others}


def _meant(column: str, eager: bool) -> str | None:
    """The known column that an unknown one is a misspelling of.

    Args:
        column: The unknown name.
        eager: Whether a column that must be there is missing, so that a wide guess helps more than it annoys.
    """
    plain = _plain(column)
    by_plain = {_plain(known): known for known in _UNDERSTOOD | _KEPT}
    if plain in by_plain:
        return by_plain[plain]
    if eager and plain in _OTHER_NAMES:
        return _OTHER_NAMES[plain]
    long_names = [name for name in by_plain if eager or len(name) > 5]
    close = difflib.get_close_matches(plain, sorted(long_names), n=1, cutoff=0.7 if eager else 0.86)
    return by_plain[close[0]] if close else None


def _plain(column: str) -> str:
    return re.sub(r"[^a-z0-9]", "", column.lower())


def column_warnings(table: SheetTable) -> list[str]:
    """Tells which of a lab's own columns may be misspelt ones of ours; they are kept as they are."""
    missing = sorted((_UNDERSTOOD | _KEPT) - {column.lower() for column in table.columns})
    warnings = []
    for column in table.columns:
        if not column or column.lower() in _UNDERSTOOD | _KEPT:
            continue
        values = {row.values[column] for row in table.rows} - {""}
        meant = next((known for known in missing if _may_be(column, known, values)), None)
        if meant is not None:
            warnings.append(
                f"line {table.header_line}, column {column}: not a column that this program knows, it has no effect; "
                f"if {meant!r} is meant, rename it"
            )
    return warnings


def _may_be(column: str, known: str, values: set[str]) -> bool:
    """Whether a lab's column is likely a misspelt one.

    Words are near each other (``set``, ``seq`` and ``sex``): a name by itself tells only where hardly a letter is
    missing or too many (``sx``, ``lanes``); else the values must be such as the known column holds.
    """
    plain = _plain(column)
    likeness = difflib.SequenceMatcher(None, plain, known).ratio()
    if known in ("sex", "lane") and likeness >= _VERY_LIKE and abs(len(plain) - len(known)) == 1:
        return True
    if likeness < _RATHER_LIKE and _OTHER_NAMES.get(plain) != known:
        return False
    if known == "sex":
        return bool(values) and all(map(names_sex, values))
    holds = "fastq_1" if known == "fastq_2" else known
    return known in PATH_COLUMNS and bool(values) and all(column_of(value) == holds for value in values)


def check_row(row: SheetRow, folder: Path, faults: Faults) -> None:
    """Checks the values of one line by themselves; what a column means that is missing is not asked again."""
    values, line = row.values, row.line
    if not values.get("sample", "-"):
        faults.add(line, "sample", "", "empty; each line names its sample")
    elif "sample" in values and (fault := id_fault(values["sample"])):
        faults.add(line, "sample", values["sample"], fault)
    inputs = [column for column in KIND_OF_COLUMN if values.get(column)]
    has_inputs = any(column in values for column in KIND_OF_COLUMN)
    if not inputs and has_inputs:
        faults.add(line, "", None, "no input; fill one of vcf, bam, cram, fastq_1")
    elif len(inputs) > 1:
        faults.add(line, "", None, f"two kinds of input, {' and '.join(inputs)}; keep one, or use two samples")
    for column, needed in _NEEDS.items():
        is_set = bool(values.get(column)) and not (column == "interleaved" and not parse_answer(values[column]))
        if is_set and has_inputs and needed not in inputs:
            faults.add(line, column, values[column], f"means nothing without {needed}")
    for column in PATH_COLUMNS:
        value = values.get(column, "")
        if value and NOT_DECODED not in value and (fault := path_fault(column, value, folder)):
            faults.add(line, column, value, fault)
    if values.get("sex") and parse_sex(values["sex"]) is None:
        faults.add(line, "sex", values["sex"], "write XX or female or 2, XY or male or 1, NA or 0 where not known")
    if values.get("status") and parse_status(values["status"]) is None:
        faults.add(line, "status", values["status"], "write 0 for normal, 1 for tumour")
    if values.get("interleaved") and parse_answer(values["interleaved"]) is None:
        faults.add(line, "interleaved", values["interleaved"], "write yes or no")
    elif parse_answer(values.get("interleaved", "")) and values.get("fastq_2"):
        faults.add(line, "fastq_2", values["fastq_2"], "leave it empty: interleaved reads are all in fastq_1")
    if fault := protocol_fault(values.get("protocol", "")):
        faults.add(line, "protocol", values["protocol"], fault)
    for column in ("patient", "lane", "vcf_sample"):
        if fault := text_fault(values.get(column, "")):
            faults.add(line, column, values[column], fault)
    caller = values.get("variantcaller", "")
    if caller and values.get("vcf") and (fault := id_fault(caller)):
        faults.add(line, "variantcaller", caller, fault)


def check_parents(rows: list[SheetRow], faults: Faults) -> None:
    """Refuses samples that are parents of themselves, and parents of the other sex.

    A parent is named by sample or by patient.
    """
    sexes: dict[str, str | None] = {}
    for row in rows:
        for column in ("sample", "patient"):
            if row.values.get(column):
                sexes[row.values[column]] = parse_sex(row.values.get("sex", ""))
    for row in rows:
        own = {row.values.get("sample"), row.values.get("patient")} - {None, ""}
        for column, sex, word in (("paternal_id", "XX", "father"), ("maternal_id", "XY", "mother")):
            parent = row.values.get(column, "")
            if parent in own:
                faults.add(row.line, column, parent, f"nobody is the {word} of themselves")
            elif parent and sexes.get(parent) == sex:
                faults.add(row.line, column, parent, f"is a {word} here, and its own line says sex {sex}")


def check_repeats(rows: list[SheetRow], folder: Path, faults: Faults) -> None:
    """Refuses lines that are the same, and reads that are counted twice; samples may share a VCF."""
    lines_seen: dict[tuple[tuple[str, str], ...], int] = {}
    users: dict[Path, tuple[int, str, str]] = {}
    for row in rows:
        line, values = row.line, row.values
        content = tuple(sorted(values.items()))
        if content in lines_seen:
            faults.add(line, "", None, f"the same as line {lines_seen[content]}; delete one")
            continue
        lines_seen[content] = line
        for column in ("vcf", "bam", "cram", "fastq_1", "fastq_2"):
            if not values.get(column):
                continue
            sample = values["sample"]
            user = users.setdefault(sheet_path(values[column], folder), (line, column, sample))
            if user != (line, column, sample) and (column != "vcf" or user[2] == sample):
                faults.add(line, column, values[column], f"is already line {user[0]}'s {user[1]}, of sample {user[2]}")


def check_sample(rows: list[SheetRow], faults: Faults) -> None:
    """Checks the lines of one sample against each other."""
    first = rows[0]
    sample = first.values["sample"]
    for column in _SAME_IN_SAMPLE:
        for row in rows[1:]:
            value, expected = row.values.get(column, ""), first.values.get(column, "")
            # Several VCFs of a sample are outputs of their own, with a column and regions of their own.
            is_own = column in ("vcf_sample", "regions") and first.values.get("vcf") and row.values.get("vcf")
            meaning = _MEANING_OF.get(column, str)
            if meaning(value) != meaning(expected) and not is_own:
                faults.add(row.line, column, value, f"sample {sample} has {expected!r} here on line {first.line}")
    kinds = {kind: row for row in reversed(rows) for kind in [kind_of(row)] if kind is not None}
    if len(kinds) > 1:
        lines = " and ".join(f"{kind} on line {row.line}" for kind, row in sorted(kinds.items(), key=_line_of))
        faults.add(rows[-1].line, "sample", sample, f"two kinds of input for one sample: {lines}; use two samples")
    for column, kind, problem in (
        ("variantcaller", "vcf", "several VCFs of one sample; tell them apart by different values of variantcaller"),
        ("lane", "fastq", "several lanes of one sample have this name; give each its own"),
    ):
        seen: dict[str, int] = {}
        of_kind = [row for row in rows if kind_of(row) == kind]
        for row in of_kind:
            value = row.values.get(column, "")
            if value in seen and (value or kind == "vcf"):
                faults.add(row.line, column, value, f"{problem} (line {seen[value]})")
            elif not value and kind == "vcf" and len(of_kind) > 1:
                faults.add(row.line, column, value, problem)
            seen.setdefault(value, row.line)


def check_patients(rows: list[SheetRow], faults: Faults) -> None:
    """A patient has one sex."""
    sexes: dict[str, tuple[Sex, SheetRow]] = {}
    for row in rows:
        patient, sex = row.values.get("patient", ""), parse_sex(row.values.get("sex", ""))
        if not patient or sex is None or sex == "NA":
            continue
        known, where = sexes.setdefault(patient, (sex, row))
        if known != sex and where.values["sample"] != row.values["sample"]:
            faults.add(row.line, "sex", row.values["sex"], f"patient {patient} is {known} on line {where.line}")


def check_ids(units: list[tuple[str, list[SheetRow]]], faults: Faults) -> None:
    """No two outputs may have one file name, on file systems that fold letter case either."""
    seen: dict[str, tuple[str, SheetRow]] = {}
    for unit_id, rows in units:
        row = rows[0]
        other_id, other = seen.setdefault(unit_id.lower(), (unit_id, row))
        said_already = other_id == unit_id and other.values["sample"] == row.values["sample"]
        if other is row or said_already:
            continue
        message = f"gives the same file names as {other_id} on line {other.line}"
        if other_id != unit_id:
            message += "; letter case alone does not tell them apart everywhere"
        faults.add(row.line, "sample", unit_id, message)


def kind_of(row: SheetRow) -> Kind | None:
    """What a line's first input column says its file is; None for a line without input."""
    return next((kind for column, kind in KIND_OF_COLUMN.items() if row.values.get(column)), None)


def _line_of(entry: tuple[Kind, SheetRow]) -> int:
    return entry[1].line
