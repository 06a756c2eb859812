"""Records with INFO fields of ours spliced into their text; every other byte is copied."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from tasks.variants.lines import FORMAT, INFO
from tasks.variants.records import RecordBlock

_SEMICOLON, _EQUALS, _COMMA, _DOT, _TAB, _NEWLINE = ord(";"), ord("="), ord(","), ord("."), ord("\t"), ord("\n")
_MISSING_AT = 0


class Values(NamedTuple):
    """What to write into a block's INFO.

    Attributes:
        blob: uint8, all texts; its first byte is the ``.`` of a missing value.
        begin: int64 [fields, m], where each allele's value begins in `blob`; 0 where missing.
        end: int64 [fields, m], one past its last byte.
        prefix: int64 [fields + 1], offsets of ``NAME=`` in `prefixes`.
        prefixes: uint8.
        is_list: bool [fields], a field whose values of several alleles are joined without the missing ones.
        is_optional: bool [fields], a field that is left out where all values are missing.
    """

    blob: NDArray[np.uint8]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    prefix: NDArray[np.int64]
    prefixes: NDArray[np.uint8]
    is_list: NDArray[np.bool_]
    is_optional: NDArray[np.bool_]


class Names(NamedTuple):
    """Names laid end to end.

    Attributes:
        text: uint8.
        offsets: int64 [n + 1].
    """

    text: NDArray[np.uint8]
    offsets: NDArray[np.int64]


@njit(cache=True, nogil=True)
def _copy(source: Any, begin: int, end: int, out: Any, at: int) -> int:
    for offset in range(end - begin):
        out[at + offset] = source[begin + offset]
    return at + end - begin


@njit(cache=True, nogil=True)
def _is_replaced(text: Any, begin: int, end: int, replaced: Any) -> bool:
    """Whether an INFO entry's key is among the names."""
    for name in range(len(replaced.offsets) - 1):
        low = replaced.offsets[name]
        length = replaced.offsets[name + 1] - low
        if end - begin < length or (end - begin > length and text[begin + length] != _EQUALS):
            continue
        offset = 0
        while offset < length and text[begin + offset] == replaced.text[low + offset]:
            offset += 1
        if offset == length:
            return True
    return False


@njit(cache=True, nogil=True)
def _kept_info(text: Any, begin: int, end: int, replaced: Any, out: Any, at: int) -> int:
    """Copies INFO without the replaced entries; ``.`` counts as empty."""
    if end == begin + 1 and text[begin] == _DOT:
        return at
    num_entries = 0
    entry = begin
    while entry <= end:
        entry_end = entry
        while entry_end < end and text[entry_end] != _SEMICOLON:
            entry_end += 1
        if not _is_replaced(text, entry, entry_end, replaced):
            if num_entries > 0:
                out[at] = _SEMICOLON
                at += 1
            num_entries += 1
            at = _copy(text, entry, entry_end, out, at)
        entry = entry_end + 1
    return at


@njit(cache=True, nogil=True)
def _put_values(values: Any, field: int, first: int, last: int, out: Any, at: int) -> int:
    """Writes one field's values of a record's alleles."""
    begun = at
    for allele in range(first, last):
        is_missing = values.begin[field, allele] == _MISSING_AT
        if values.is_list[field] and is_missing:
            continue
        if at > begun:
            out[at] = _COMMA
            at += 1
        at = _copy(values.blob, values.begin[field, allele], values.end[field, allele], out, at)
    return at if at > begun else _copy(values.blob, _MISSING_AT, _MISSING_AT + 1, out, at)


@njit(cache=True, nogil=True)
def _splice(
    text: Any, field_at: Any, record_end: Any, first_allele: Any, values: Any, replaced: Any, column: int, out: Any
) -> int:
    """Writes a block's records; returns the bytes written.

    Args:
        text: uint8 [size].
        field_at: int64 [n, 9], see `tasks.variants.lines.Lines`.
        record_end: int64 [n].
        first_allele: int64 [n + 1].
        values: `Values`.
        replaced: `Names` of INFO entries to leave out.
        column: The one sample column to keep, counted from CHROM as 0; -1 keeps all.
        out: uint8, long enough.
    """
    at = 0
    for record in range(len(record_end)):
        end = record_end[record]
        info, info_end = field_at[record, INFO], field_at[record, FORMAT] - 1
        at = _copy(text, field_at[record, 0], info, out, at)
        info_at = at
        at = _kept_info(text, info, info_end, replaced, out, at)
        first, last = first_allele[record], first_allele[record + 1]
        if first < last:
            for field in range(len(values.is_list)):
                if values.is_optional[field]:
                    is_absent = True
                    for allele in range(first, last):
                        is_absent = is_absent and values.begin[field, allele] == _MISSING_AT
                    if is_absent:
                        continue
                if at > info_at and out[at - 1] != _SEMICOLON:
                    out[at] = _SEMICOLON
                    at += 1
                at = _copy(values.prefixes, values.prefix[field], values.prefix[field + 1], out, at)
                at = _put_values(values, field, first, last, out, at)
        elif at == info_at:
            at = _copy(values.blob, _MISSING_AT, _MISSING_AT + (info_end > info), out, at)
        if column < 0:
            at = _copy(text, info_end, end, out, at)
        else:
            found = FORMAT - 1
            tab = info_end
            while tab < end:
                next_tab = tab + 1
                while next_tab < end and text[next_tab] != _TAB:
                    next_tab += 1
                found += 1
                if found in (FORMAT, column):
                    at = _copy(text, tab, next_tab, out, at)
                tab = next_tab
        out[at] = _NEWLINE
        at += 1
    return at


class Splicer:
    """Writes blocks of records with our fields in their INFO."""

    def __init__(
        self,
        names: Sequence[str],
        is_list: Sequence[bool],
        is_optional: Sequence[bool],
        replaced: Collection[str],
        column: int = -1,
    ) -> None:
        """Sets what is written.

        Args:
            names: INFO IDs of our fields, in the order in which they are put behind what is there.
            is_list: For each, whether values of several alleles are joined without the missing ones.
            is_optional: For each, whether it is left out of records where all its values are missing.
            replaced: INFO IDs that are taken out first.
            column: The one sample column to keep, counted from CHROM as 0; -1 keeps all.
        """
        prefixes = [f"{name}=".encode() for name in names]
        self._prefixes = _names(prefixes)
        self._longest = sum(len(prefix) + 2 for prefix in prefixes)
        self._is_list = np.array(is_list, dtype=bool)
        self._is_optional = np.array(is_optional, dtype=bool)
        self._replaced = _names([name.encode() for name in sorted(replaced)])
        self._column = column
        self._out = np.empty(0, dtype=np.uint8)

    def splice(self, block: RecordBlock, texts: Sequence[pa.StringArray], rows: NDArray[np.int64]) -> memoryview:
        """Returns the block's records, each ended by a newline; valid until the next call.

        Args:
            block: The records.
            texts: For each field a string array of values.
            rows: int64 [fields, m], for each field and allele the value's place in its array, -1 where missing.
        """
        values = self._values(texts, rows)
        num_bytes = int(len(block.lines.text) + (values.end - values.begin + 1).sum())
        num_bytes += block.lines.num_records * (self._longest + 1)
        if num_bytes > len(self._out):
            self._out = np.empty(num_bytes + num_bytes // 8, dtype=np.uint8)
        size = _splice(
            block.lines.text,
            block.lines.field,
            block.lines.record_end,
            block.records.first_allele,
            values,
            self._replaced,
            self._column,
            self._out,
        )
        return self._out[:size].data

    def _values(self, texts: Sequence[pa.StringArray], rows: NDArray[np.int64]) -> Values:
        begin, end = np.zeros(rows.shape, dtype=np.int64), np.ones(rows.shape, dtype=np.int64)
        blobs = [np.frombuffer(b".", dtype=np.uint8)]
        base = 1
        for field, (array, row) in enumerate(zip(texts, rows, strict=True)):
            data, offsets = string_bytes(array)
            is_there = row >= 0
            begin[field, is_there] = base + offsets[row[is_there]]
            end[field, is_there] = base + offsets[row[is_there] + 1]
            blobs.append(data)
            base += len(data)
        blob = np.concatenate(blobs)
        is_dot = (end == begin + 1) & (blob[begin] == _DOT)
        begin[is_dot], end[is_dot] = _MISSING_AT, _MISSING_AT + 1
        return Values(blob, begin, end, self._prefixes.offsets, self._prefixes.text, self._is_list, self._is_optional)


def string_bytes(array: pa.StringArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of an Arrow string array without nulls, and int64 [n + 1] offsets into them."""
    _, offset_buffer, data = array.buffers()
    if not len(array):
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    stored = np.frombuffer(offset_buffer, dtype=np.int32, offset=4 * array.offset, count=len(array) + 1)
    offsets: NDArray[np.int64] = stored.astype(np.int64)
    if data is None:
        return np.empty(0, dtype=np.uint8), offsets
    return np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]], offsets - offsets[0]


def _names(names: Sequence[bytes]) -> Names:
    offsets = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum([len(name) for name in names], out=offsets[1:])
    return Names(np.frombuffer(b"".join(names), dtype=np.uint8).copy(), offsets)
