"""Places of INFO entries and of samples' values in blocks of VCF text, found by compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from tasks.variants.alleles import string_array

_SEMICOLON, _EQUALS, _COMMA, _COLON, _DOT, _TAB = ord(";"), ord("="), ord(","), ord(":"), ord("."), ord("\t")


@njit(cache=True, nogil=True)
def info_entries(text: Any, begin: Any, end: Any, record: Any, key_end: Any, span: Any) -> int:
    """Finds INFO entries: their records, where keys end, [k, 2] where entries begin and end; returns how many."""
    number = 0
    for row in range(len(begin)):
        if end[row] == begin[row] + 1 and text[begin[row]] == _DOT:
            continue
        at = begin[row]
        while at < end[row]:
            stop, equals = at, -1
            while stop < end[row] and text[stop] != _SEMICOLON:
                if equals < 0 and text[stop] == _EQUALS:
                    equals = stop
                stop += 1
            if stop > at and equals != at:
                record[number] = row
                key_end[number] = equals if equals >= 0 else stop
                span[number, 0], span[number, 1] = at, stop
                number += 1
            at = stop + 1
    return number


@njit(cache=True, nogil=True)
def split_values(
    text: Any, begin: Any, end: Any, num_alleles: Any, first_row: Any, out_begin: Any, out_end: Any
) -> bool:
    """Cuts each record's values at commas, one for each row; False if a record has not as many as rows."""
    for record in range(len(begin)):
        row, num_rows = first_row[record], max(num_alleles[record], 1)
        at, stop = begin[record], end[record]
        if at < 0 or (stop == at + 1 and text[at] == _DOT):
            out_begin[row : row + num_rows] = -1
            out_end[row : row + num_rows] = -1
            continue
        found = 0
        for comma in range(at, stop + 1):
            if comma == stop or text[comma] == _COMMA:
                if found == num_rows:
                    return False
                out_begin[row + found], out_end[row + found] = at, comma
                found += 1
                at = comma + 1
        if found != num_rows:
            return False
    return True


@njit(cache=True, nogil=True)
def sample_values(
    text: Any, format_begin: Any, record_end: Any, place: Any, num_samples: int, out_begin: Any, out_end: Any
) -> None:
    """Finds each sample's value of one FORMAT key: [n * samples]; -1 where there is none."""
    for record in range(len(place)):
        at = format_begin[record]
        end = record_end[record]
        while at < end and text[at] != _TAB:
            at += 1
        for sample in range(num_samples):
            slot = record * num_samples + sample
            out_begin[slot], out_end[slot] = -1, -1
            at += 1
            value, found = at, 0
            while at < end and text[at] != _TAB:
                if text[at] == _COLON:
                    if found == place[record]:
                        out_begin[slot], out_end[slot] = value, at
                    found += 1
                    value = at + 1
                at += 1
            if found == place[record]:
                out_begin[slot], out_end[slot] = value, at


@njit(cache=True, nogil=True)
def _gather(text: Any, begin: Any, offsets: Any, out: Any) -> None:
    for row in range(len(begin)):
        for offset in range(offsets[row + 1] - offsets[row]):
            out[offsets[row] + offset] = text[begin[row] + offset]


def string_column(text: NDArray[np.uint8], begin: NDArray[np.int64], end: NDArray[np.int64]) -> pa.StringArray:
    """The strings at these places; null where `begin` is negative or the string is ``.``."""
    is_there = begin >= 0
    is_there &= ~((end == begin + 1) & (text[begin] == _DOT))
    offsets = np.zeros(len(begin) + 1, dtype=np.int64)
    np.cumsum(np.where(is_there, end - begin, 0), out=offsets[1:])
    out = np.empty(offsets[-1], dtype=np.uint8)
    _gather(text, begin, offsets, out)
    return string_array(out, offsets, is_there)


@njit(cache=True, nogil=True)
def _find_tabs(text: Any, begin: Any, stop: Any, out: Any) -> None:
    for row in range(len(begin)):
        at = begin[row]
        while at < stop[row] and text[at] != _TAB:
            at += 1
        out[row] = at


def format_ends(text: NDArray[np.uint8], begin: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64 [n], where the FORMAT column ends."""
    out = np.empty(len(begin), dtype=np.int64)
    _find_tabs(text, begin, stop, out)
    return out
