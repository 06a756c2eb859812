"""The table that a sample sheet's text holds: CSV, TSV or semicolons, as spreadsheets save them."""

from __future__ import annotations

import csv
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import SheetError
from tasks.sheets.faults import Faults, sheet_error

_MAX_BYTES = 256 << 20
_DELIMITERS = ",\t;"
# What people hand over by mistake, by the first bytes.
_OTHER_FORMATS = {
    b"PK\x03\x04": "an Excel workbook or a zip archive; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as CSV",
    b"\x1f\x8b": "compressed; unpack it, or if it is a VCF, BAM or FASTQ, name it in a sample sheet",
    b"CRAM": "a CRAM; name it in a sample sheet, column cram",
    b"##fileformat=VCF": "a VCF; name it in a sample sheet, column vcf",
    b"@HD\t": "a SAM file; name it in a sample sheet",
    b"{": "JSON; a sample sheet is CSV or TSV with a header line",
    b">": "FASTA; a sample sheet is CSV or TSV with a header line",
    b"%PDF": "a PDF; a sample sheet is CSV or TSV with a header line",
    b"<": "HTML or XML; a sample sheet is CSV or TSV with a header line",
}
NOT_DECODED = "\ufffd"
"""Stands where bytes were that are no text."""
_ILLUMINA_SECTION = re.compile(r"^\[(Header|Data|Reads|Settings|Manifests|BCLConvert_\w+|\w+_(Data|Settings))\]", re.I)


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One line of values.

    Attributes:
        line: Where it begins in the file, from 1.
        values: Column to value, stripped of spaces; empty where nothing stands.
    """

    line: int
    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class SheetTable:
    """A sheet's header and rows.

    Attributes:
        header_line: The header's line, from 1.
        columns: The header's names, stripped, in order.
        rows: All rows that hold a value.
    """

    header_line: int
    columns: tuple[str, ...]
    rows: tuple[SheetRow, ...]


def read_table(path: Path, faults: Faults) -> SheetTable:
    """Reads a sheet's text; blank lines and lines of empty values are left out.

    Args:
        path: The sheet.
        faults: Receives what is wrong with single lines.

    Raises:
        SheetError: The file cannot be read as a table at all, or has no header or no rows.
    """
    text = _read_text(path, faults)
    lines = text.split("\n")
    filled = [line for line in lines if line.strip()]
    if not filled:
        raise sheet_error(path, ["the file is empty; a sample sheet has a header and a line for each sample"])
    if _is_illumina(filled):
        raise _illumina_error(path, lines)
    declared = re.fullmatch(r'"?sep=(.)"?', filled[0].strip("\n"), re.I)
    skipped = lines.index(filled[0]) + 1 if declared else 0
    body = lines[skipped:]
    first = filled[1 if declared else 0] if len(filled) > bool(declared) else ""
    delimiter = declared[1] if declared else max(_DELIMITERS, key=_unquoted(first).count)
    records = list(_records(body, delimiter, skipped, faults))
    if not records:
        faults.raise_any(path)
        raise sheet_error(path, ["no header line; a sample sheet begins with its columns' names"])
    header_line, names = records[0]
    while names and not names[-1]:
        names.pop()
    columns = tuple(names)
    _check_columns(header_line, columns, faults)
    rows = []
    for line, values in records[1:]:
        surplus = [value for value in values[len(columns) :] if value]
        if surplus:
            faults.add(
                line,
                "",
                delimiter.join(values),
                f"{len(values)} values for {len(columns)} columns; quote a value that holds {delimiter!r}",
            )
        elif len(values) < len(columns):
            faults.add(
                line,
                "",
                delimiter.join(values),
                f"{len(values)} values for {len(columns)} columns; keep the place of an empty value with {delimiter!r}",
            )
        else:
            rows.append(SheetRow(line, dict(zip(columns, values, strict=False))))
    if len(records) == 1:
        faults.raise_any(path)
        raise sheet_error(path, ["only a header; a sample sheet has a line for each sample"])
    return SheetTable(header_line, columns, tuple(rows))


def _check_columns(line: int, columns: tuple[str, ...], faults: Faults) -> None:
    seen: dict[str, int] = {}
    for number, column in enumerate(columns, 1):
        if not column:
            faults.add(line, "", None, f"column {number} has no name")
        elif column.lower() in seen:
            faults.add(line, column, None, f"columns {seen[column.lower()]} and {number} have this name; keep one")
        else:
            seen[column.lower()] = number


def _read_text(path: Path, faults: Faults) -> str:
    """Decodes the file; all line ends become LF, and what is not UTF-8 becomes U+FFFD and a fault."""
    try:
        state = path.stat()
        if stat.S_ISDIR(state.st_mode):
            raise sheet_error(path, ["a folder; give the sample sheet itself"])
        if state.st_size > _MAX_BYTES:
            raise sheet_error(path, [f"{state.st_size:,} bytes: this is no sample sheet (CSV or TSV, a line a sample)"])
        content = path.read_bytes()
    except FileNotFoundError:
        raise sheet_error(path, ["no such file"]) from None
    except OSError as error:
        raise sheet_error(path, [f"cannot read it: {error.strerror}"]) from error
    for magic, what in _OTHER_FORMATS.items():
        if content.lstrip(b"\xef\xbb\xbf \r\n").startswith(magic):
            raise sheet_error(path, [f"this is {what}"])
    is_utf16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = content.decode("utf-16" if is_utf16 else "utf-8-sig", errors="replace")
    for number, line in enumerate(text.split("\n"), 1):
        if NOT_DECODED in line:
            faults.add(number, "", None, "bytes that are not UTF-8; save the sheet as CSV UTF-8")
    if "\x00" in text:
        raise sheet_error(path, ["a binary file, or UTF-16 without its mark; save the sheet as CSV UTF-8"])
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _unquoted(text: str) -> str:
    return re.sub(r'"[^"]*"', "", text)


def _records(lines: list[str], delimiter: str, num_skipped: int, faults: Faults) -> Iterator[tuple[int, list[str]]]:
    """Yields the first line and the stripped values of each record that holds one.

    A line whose quotes are wrong is noted and left out; those after it are read on their own, unless it is the header.
    """
    # Spaces between a closing quote and the delimiter are no part of the value.
    blank = " " if delimiter == "\t" else r"[ \t]"
    after_quote = re.compile(rf'"{blank}+(?=\{delimiter}|$)')
    tidy = [f"{after_quote.sub(chr(34), line)}\n" if '"' in line else f"{line}\n" for line in lines]
    begin, has_header = 0, False
    while begin < len(tidy):
        reader = csv.reader(tidy[begin:], delimiter=delimiter, skipinitialspace=True, strict=True)
        at = begin
        try:
            for values in reader:
                stripped = [value.strip() for value in values]
                if any(stripped):
                    has_header = True
                    yield num_skipped + at + 1, stripped
                at = begin + reader.line_num
            return
        except csv.Error as error:
            what = "a quote that is not closed" if "unexpected end" in str(error) else str(error)
            advice = "write a quote inside a quoted value twice"
            if "field limit" in str(error):
                what, advice = f"a value of more than {csv.field_size_limit():,} characters", "is a quote not closed?"
            faults.add(num_skipped + at + 1, "", None, f"{what}; {advice}")
            begin = at + 1 if has_header else len(tidy)


def _is_illumina(filled: list[str]) -> bool:
    """Whether these lines are an Illumina SampleSheet: by a section's head, or by its data's own columns."""
    columns = {name.strip(' "').lower() for name in filled[0].split(",")}
    is_data = {"sample_id", "index"} <= columns and not {"fastq_1", "bam", "cram", "vcf"} & columns
    return is_data or any(_ILLUMINA_SECTION.match(line.strip(' ",;\t')) for line in filled[:50])


def _illumina_error(path: Path, lines: list[str]) -> SheetError:
    """Answers an Illumina SampleSheet (v1 or v2) with the sheet to give instead."""
    ids: list[str] = []
    column = None
    in_data = not any(line.lstrip(' "').startswith("[") for line in lines)
    for line in lines:
        values = [value.strip(' "') for value in line.split(",")]
        if values[0].startswith("["):
            in_data, column = bool(re.match(r"\[(BCLConvert_)?Data\]", values[0], re.I)), None
        elif in_data and column is None and any(values):
            named = [value.lower() for value in values]
            column = named.index("sample_id") if "sample_id" in named else None
            in_data = column is not None
        elif in_data and column is not None and column < len(values) and values[column]:
            ids.append(values[column])
    distinct = list(dict.fromkeys(ids)) or ["SAMPLE"]
    example = [
        f"  {sample},{sample}_S{number}_L001_R1_001.fastq.gz,{sample}_S{number}_L001_R2_001.fastq.gz"
        for number, sample in enumerate(distinct[:3], 1)
    ]
    version = 2 if any(re.match(r'"?FileFormatVersion"?,', line, re.I) for line in lines) else 1
    return sheet_error(
        path,
        [
            f"this is Illumina's SampleSheet (v{version}), which names index sequences, not files. Demultiplex the run "
            "with it (BCL Convert, bcl2fastq), then give a sheet that names the FASTQ files, one line a lane:\n"
            + "\n".join(["  sample,fastq_1,fastq_2", *example])
        ],
    )
