"""Lines of a VCF as arrays: where the fields of each record stand, and what is wrong with the other lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.variants.text import TextBlock

NUM_FIELDS = 8
"""Columns that every record has; FORMAT and samples follow."""
CHROM, POS, ID, REF, ALT, QUAL, FILTER, INFO, FORMAT = range(9)
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
    "BAD_POS": "POS is not a whole number, 0 or more",
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
class Lines:
    """The lines of a block of text, and the records among them.

    Attributes:
        text: uint8 [size]; valid until the next block is asked for.
        first_line: Number of the first line in the file, from 1.
        line_begin: int64 [lines].
        fault: uint8 [lines], places in `LINE_FAULTS`.
        num_returns: Carriage returns before line ends.
        field: int64 [n, 9], for each record where fields 0 to 7 begin, then one past the end of field 7 and its tab.
        record_end: int64 [n], where each record's line ends, its newline and carriage return left out.
        position: int64 [n], POS as written.
        num_alleles: int64 [n], alleles in ALT; 0 for ``.``.
    """

    text: NDArray[np.uint8]
    first_line: int
    line_begin: NDArray[np.int64]
    fault: NDArray[np.uint8]
    num_returns: int
    field: NDArray[np.int64]
    record_end: NDArray[np.int64]
    position: NDArray[np.int64]
    num_alleles: NDArray[np.int64]

    @property
    def num_records(self) -> int:
        """Lines that are records."""
        return len(self.position)

    @property
    def num_blank(self) -> int:
        """Lines with nothing in them."""
        return int(np.count_nonzero(self.fault == _BLANK))

    @property
    def bad_lines(self) -> NDArray[np.int64]:
        """int64, the lines that are neither records nor blank."""
        return np.flatnonzero((self.fault != 0) & (self.fault != _BLANK))

    def line(self, row: int) -> bytes:
        """A line as it is in the file, with its newline."""
        end = self.line_begin[row + 1] if row + 1 < len(self.line_begin) else len(self.text)
        return self.text[self.line_begin[row] : end].tobytes()

    def begin_of(self, column: int) -> NDArray[np.int64]:
        """int64 [n], where one of the fields 0 to 7 begins."""
        return self.field[:, column].copy()

    def end_of(self, column: int) -> NDArray[np.int64]:
        """int64 [n], where one of the fields 0 to 7 ends."""
        end: NDArray[np.int64] = self.field[:, column + 1] - 1
        return end


def split_lines(block: TextBlock, num_columns: int) -> Lines:
    """Finds the lines of a block, their fields and their faults.

    Args:
        block: Whole lines.
        num_columns: Fields that a record must have.
    """
    text, size = block.text, block.num_lines
    line_begin, line_end = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    fault = np.empty(size, dtype=np.uint8)
    field = np.empty((size, NUM_FIELDS + 1), dtype=np.int64)
    position, num_alleles = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    newline = np.flatnonzero(text == _NEWLINE)
    has_nul = not text.all()
    num_returns = _split_lines(
        text, newline, num_columns, has_nul, line_begin, line_end, fault, field, position, num_alleles
    )
    is_record = fault == 0
    if not is_record.all():
        field, line_end = field[is_record], line_end[is_record]
        position, num_alleles = position[is_record], num_alleles[is_record]
    return Lines(text, block.first_line, line_begin, fault, num_returns, field, line_end, position, num_alleles)
