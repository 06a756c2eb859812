"""Records of a VCF as arrays: lines, fields, contigs and alleles of one block of text at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.allele_kernels import SKIP_REASONS
from tasks.alleles import AlleleKeys, Records, key_alleles
from tasks.contigs import match_contigs
from tasks.name_ids import NameIds
from tasks.reference import Reference
from tasks.regions import Regions
from tasks.vcf_header import VariantHeader, parse_header
from tasks.vcf_text import VariantText

NUM_FIELDS = 8
"""Columns that every record has; FORMAT and samples follow."""
POS, REF, ALT, INFO, FORMAT = 1, 3, 4, 7, 8
"""Places of columns."""

LINE_FAULTS = (
    "",
    "BLANK",
    "HEADER_LINE",
    "FIELD_COUNT",
    "BAD_POS",
    "EMPTY_FIELD",
    "NUL_BYTE",
)
"""What is wrong with a line, by its code in arrays."""
FAULT_TEXTS = {
    "HEADER_LINE": "a header line among the records",
    "FIELD_COUNT": "not as many tab-separated fields as the #CHROM line has",
    "BAD_POS": "POS is not a whole number",
    "EMPTY_FIELD": "CHROM, REF or ALT is empty",
    "NUL_BYTE": "a NUL byte",
}
_BLANK = LINE_FAULTS.index("BLANK")
_HEADER_LINE = LINE_FAULTS.index("HEADER_LINE")
_FIELD_COUNT = LINE_FAULTS.index("FIELD_COUNT")
_BAD_POS = LINE_FAULTS.index("BAD_POS")
_EMPTY_FIELD = LINE_FAULTS.index("EMPTY_FIELD")
_NUL_BYTE = LINE_FAULTS.index("NUL_BYTE")

_TAB, _NEWLINE, _RETURN, _HASH, _COMMA, _DOT = ord("\t"), ord("\n"), ord("\r"), ord("#"), ord(","), ord(".")
_ZERO, _NINE = ord("0"), ord("9")
_MAX_POS_DIGITS = 18


@njit(cache=True, nogil=True)
def _split_lines(
    text: Any,
    newline: Any,
    num_columns: int,
    has_nul: bool,
    line_begin: Any,
    line_end: Any,
    fault: Any,
    field: Any,
    position: Any,
    num_alleles: Any,
) -> int:
    """Finds the fields of each line and what is wrong with it; returns the carriage returns before line ends.

    Args:
        text: uint8 [size].
        newline: int64 [n], where the lines end.
        num_columns: Fields that a record must have.
        has_nul: Whether to look for NUL bytes.
        line_begin: Out, int64 [n].
        line_end: Out, int64 [n], without carriage return.
        fault: Out, uint8 [n], places in `LINE_FAULTS`.
        field: Out, int64 [n, 9], where fields 0 to 7 begin, then one past the tab or line end after field 7.
        position: Out, int64 [n], POS as written.
        num_alleles: Out, int64 [n], alleles in ALT; 0 for ``.``.
    """
    num_returns = 0
    begin = 0
    for row in range(len(newline)):
        end = newline[row]
        if end > begin and text[end - 1] == _RETURN:
            end -= 1
            num_returns += 1
        line_begin[row], line_end[row] = begin, end
        position[row], num_alleles[row] = 0, 0
        fault[row] = _line_fault(text, begin, end, num_columns, has_nul, field[row])
        if fault[row] == 0:
            number = 0
            for at in range(field[row, POS], field[row, POS + 1] - 1):
                number = number * 10 + (text[at] - _ZERO)
            position[row] = number
            alt, alt_end = field[row, ALT], field[row, ALT + 1] - 1
            if not (alt_end == alt + 1 and text[alt] == _DOT):
                num_alleles[row] = 1
                for at in range(alt, alt_end):
                    num_alleles[row] += text[at] == _COMMA
        begin = newline[row] + 1
    return num_returns


@njit(cache=True, nogil=True)
def _line_fault(text: Any, begin: int, end: int, num_columns: int, has_nul: bool, field: Any) -> int:
    """Fills in where the fields begin; returns what is wrong with the line, 0 if nothing."""
    if end == begin:
        return _BLANK
    if has_nul:
        for at in range(begin, end):
            if text[at] == 0:
                return _NUL_BYTE
    if text[begin] == _HASH:
        return _HEADER_LINE
    field[0] = begin
    found = 1
    at = begin
    while at < end and found <= NUM_FIELDS:
        if text[at] == _TAB:
            field[found] = at + 1
            found += 1
        at += 1
    if found == NUM_FIELDS:
        field[NUM_FIELDS] = end + 1
    more = 0
    for rest in range(at, end):
        more += text[rest] == _TAB
    if found < NUM_FIELDS or found + more != num_columns:
        return _FIELD_COUNT
    if field[1] == field[0] + 1 or field[REF + 1] == field[REF] + 1 or field[ALT + 1] == field[ALT] + 1:
        return _EMPTY_FIELD
    digits = field[POS + 1] - 1 - field[POS]
    if digits == 0 or digits > _MAX_POS_DIGITS:
        return _BAD_POS
    for at in range(field[POS], field[POS + 1] - 1):
        if text[at] < _ZERO or text[at] > _NINE:
            return _BAD_POS
    return 0


@dataclass(frozen=True, slots=True, eq=False)
class RecordBlock:
    """The lines of a block of text, and the records among them.

    Attributes:
        text: uint8 [size]; valid until the next block is asked for.
        first_line: Number of the first line in the file, from 1.
        line_begin: int64 [lines].
        line_end: int64 [lines], without the line's end.
        fault: uint8 [lines], places in `LINE_FAULTS`.
        field: int64 [n, 9], for each record where fields 0 to 7 begin, then one past the end of field 7 and its tab.
        record_end: int64 [n], where each record's line ends.
        contig_name: int32 [n], numbers of the contigs' names in the reader's `contig_names`.
        position: int64 [n], POS as written.
        records: Where the alleles stand.
        ref_state: uint8 [n], ``REF_*`` of `tasks.allele_kernels`.
        keys: The alleles.
    """

    text: NDArray[np.uint8]
    first_line: int
    line_begin: NDArray[np.int64]
    line_end: NDArray[np.int64]
    fault: NDArray[np.uint8]
    field: NDArray[np.int64]
    record_end: NDArray[np.int64]
    contig_name: NDArray[np.int32]
    position: NDArray[np.int64]
    records: Records
    ref_state: NDArray[np.uint8]
    keys: AlleleKeys

    @property
    def num_records(self) -> int:
        """Lines that are records."""
        return len(self.position)


class RecordReader:
    """Reads a VCF block by block, checking and keying everything in it.

    Attributes:
        path: The file.
        header: Its header.
        column_line: Its ``#CHROM`` line.
        repairs: What was mended so far, by kind.
        contig_names: Names of the contigs that records lie on, in the order of first sight.
        contig_lengths_bp: Their lengths in the reference or, failing that, the header; None where neither knows.
    """

    def __init__(self, path: Path, reference: Reference, regions: Regions | None = None) -> None:
        """Opens the file and reads its header.

        Raises:
            VariantFileError: See `tasks.vcf_text.VariantText`.
        """
        self._text = VariantText(path)
        self.path = path
        self.header: VariantHeader = parse_header(self._text.header)
        self.column_line = self._text.header[-1]
        self.repairs = self._text.repairs
        self.contig_names: list[str] = []
        self.contig_lengths_bp: list[int | None] = []
        self._reference = reference
        self._regions = regions
        self._ids = NameIds()
        self._places = np.empty(0, dtype=np.int32)
        self._skips = np.empty(0, dtype=np.uint8)

    def blocks(self) -> Iterator[RecordBlock]:
        """Yields the blocks, in order; blank lines are counted in `repairs` and belong to no record.

        Raises:
            VariantFileError: The file is damaged or truncated.
        """
        num_columns = len(self.header.columns)
        for block in self._text.blocks():
            text = block.text
            size = block.num_lines
            line_begin, line_end = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
            fault = np.empty(size, dtype=np.uint8)
            field = np.empty((size, NUM_FIELDS + 1), dtype=np.int64)
            position, num_alleles = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
            newline = np.flatnonzero(text == _NEWLINE)
            has_nul = not text.all()
            num_returns = _split_lines(
                text, newline, num_columns, has_nul, line_begin, line_end, fault, field, position, num_alleles
            )
            self._repaired("carriage_returns", num_returns)
            self._repaired("blank_lines", int(np.count_nonzero(fault == _BLANK)))
            is_record = fault == 0
            if not is_record.all():
                field, position, num_alleles = field[is_record], position[is_record], num_alleles[is_record]
            contig_name = self._ids.ids(text, field[:, 0].copy(), field[:, 1] - 1)
            self._match_new_contigs()
            records = Records(
                ref_begin=field[:, REF].copy(),
                ref_end=field[:, REF + 1] - 1,
                alt_begin=field[:, ALT].copy(),
                alt_end=field[:, ALT + 1] - 1,
                contig=self._places[contig_name],
                contig_skip=self._skips[contig_name],
                start=position - 1,
                first_allele=np.concatenate(([0], np.cumsum(num_alleles))).astype(np.int64),
            )
            ref_state, keys = key_alleles(text, records, self._reference, self._regions)
            yield RecordBlock(
                text=text,
                first_line=block.first_line,
                line_begin=line_begin,
                line_end=line_end,
                fault=fault,
                field=field,
                record_end=line_end[is_record],
                contig_name=contig_name,
                position=position,
                records=records,
                ref_state=ref_state,
                keys=keys,
            )

    def _repaired(self, kind: str, number: int) -> None:
        if number:
            self.repairs[kind] = self.repairs.get(kind, 0) + number

    def _match_new_contigs(self) -> None:
        new = [name.decode(errors="backslashreplace") for name in self._ids.names[len(self.contig_names) :]]
        if not new:
            return
        lengths_bp = [self.header.contig_lengths_bp.get(name) for name in new]
        match = match_contigs(new, lengths_bp, [self.header.contig_md5s.get(name) for name in new], self._reference)
        for place, length_bp in zip(match.index.tolist(), lengths_bp, strict=True):
            self.contig_lengths_bp.append(self._reference.contigs[place].length_bp if place >= 0 else length_bp)
        self.contig_names.extend(new)
        self._places = np.concatenate([self._places, match.index.astype(np.int32)])
        skips = [SKIP_REASONS.index(reason or "") for reason in match.reason]
        self._skips = np.concatenate([self._skips, np.array(skips, dtype=np.uint8)])
