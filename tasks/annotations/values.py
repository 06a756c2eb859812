"""The values that alleles have in an annotation file's INFO, cut out of blocks of its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from tasks.annotations.source import JoinedField
from tasks.variants.lines import INFO
from tasks.variants.name_ids import NameIds
from tasks.variants.records import RecordBlock
from tasks.variants.spans import info_entries, string_column

_COMMA, _DOT, _SEMICOLON = ord(","), ord("."), ord(";")
_MISSING, _MALFORMED = -1, -2
# Source: VCF 4.3, section 1.3 (data types).
_NUMBERS = {
    "Integer": r"^[-+]?[0-9]{1,18}$",
    "Float": r"(?i)^([-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?(inf|infinity|nan))$",
}


@njit(cache=True, nogil=True)
def _nth_values(text: Any, begin: Any, end: Any, place: Any, num_expected: Any, out_begin: Any, out_end: Any) -> None:
    """Cuts one value out of each list of values: begin is -1 where missing, -2 where the list has another length."""
    for row in range(len(begin)):
        at, stop = begin[row], end[row]
        out_begin[row], out_end[row] = _MISSING, _MISSING
        if at < 0 or at == stop or (stop == at + 1 and text[at] == _DOT):
            continue
        found = 0
        for comma in range(at, stop + 1):
            if comma == stop or text[comma] == _COMMA:
                if found == place[row]:
                    out_begin[row], out_end[row] = at, comma
                found += 1
                at = comma + 1
        if found != num_expected[row]:
            out_begin[row], out_end[row] = _MALFORMED, _MALFORMED


class ValuePicker:
    """Cuts the values of some fields out of blocks.

    Attributes:
        malformed: For each output field the values that were left out so far: lists that do not have one value for each
            allele, single values that are lists, numbers that are none.
    """

    def __init__(self, fields: Sequence[JoinedField]) -> None:
        self._fields = tuple(fields)
        self._ids = NameIds()
        self.malformed = {field.output.name: 0 for field in fields}

    def pick(self, block: RecordBlock, alleles: NDArray[np.int64]) -> list[pa.BinaryArray]:
        """The values of some of a block's alleles: for each field a binary array as long as `alleles`, null if missing.

        Bytes are those of the file. Commas inside a value that is not one of a list become ``%2C``, since the output
        has one value for each allele.

        Args:
            block: Records of the file.
            alleles: int64 [n], places in `block.keys`.
        """
        lines, keys = block.lines, block.keys
        record, row = np.unique(keys.record[alleles], return_inverse=True)
        text = lines.text
        begin, end = lines.begin_of(INFO)[record], lines.end_of(INFO)[record]
        max_entries = len(record) + int(np.count_nonzero(text == _SEMICOLON))
        of, key_end = np.empty(max_entries, dtype=np.int64), np.empty(max_entries, dtype=np.int64)
        span = np.empty((max_entries, 2), dtype=np.int64)
        number = info_entries(text, begin, end, of, key_end, span)
        of, key_end, span = of[:number], key_end[:number], span[:number]
        ids = self._ids.ids(text, span[:, 0].copy(), key_end)
        place = alleles - block.records.first_allele[keys.record[alleles]]
        columns = []
        for field in self._fields:
            entries = self._entries(field, ids)
            value_begin = np.full(len(record), _MISSING, dtype=np.int64)
            value_end = np.full(len(record), _MISSING, dtype=np.int64)
            # Last first: where a record repeats a key, its first value stays.
            value_begin[of[entries]] = np.minimum(key_end[entries] + 1, span[entries, 1])
            value_end[of[entries]] = span[entries, 1]
            if field.is_flag:
                columns.append(pa.array(np.where(value_begin >= 0, b"1", b"0")[row].tolist(), pa.binary()))
                continue
            value_begin, value_end = value_begin[row], value_end[row]
            if field.is_per_allele:
                ref = int(field.number == "R")
                num_expected = lines.num_alleles[record][row] + ref
                cut_begin, cut_end = np.empty(len(row), dtype=np.int64), np.empty(len(row), dtype=np.int64)
                _nth_values(text, value_begin, value_end, place + ref, num_expected, cut_begin, cut_end)
                self.malformed[field.output.name] += int(np.count_nonzero(cut_begin == _MALFORMED))
                value_begin, value_end = cut_begin, cut_end
            columns.append(self._checked(field, string_column(text, value_begin, value_end).view(pa.binary())))
        return columns

    def _entries(self, field: JoinedField, ids: NDArray[np.int32]) -> NDArray[np.int64]:
        """The INFO entries of a field, last first."""
        name = field.id.encode()
        if name not in self._ids.names:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(ids == self._ids.names.index(name))[::-1]

    def _checked(self, field: JoinedField, values: pa.BinaryArray) -> pa.BinaryArray:
        """Empty values and numbers that are none become null; commas inside a value are escaped."""
        values = pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(None, pa.binary()), values)
        if field.output.kind == "String":
            return pc.replace_substring(values, b",", b"%2C")
        is_number = pc.fill_null(pc.match_substring_regex(values, _NUMBERS[field.output.kind]), False)
        self.malformed[field.output.name] += len(values) - values.null_count - is_number.true_count
        return pc.if_else(is_number, values, pa.scalar(None, pa.binary()))
