"""Consequences that VEP or SnpEff wrote into INFO, told allele by allele.

Both write a list of entries, one for each allele and transcript, whose parts are separated by ``|``; the header says
which part is what. An entry names its allele:

- by ``ALLELE_NUM``, where VEP was asked for it (the only form that is never ambiguous);
- VEP else by the ALT as it stands, or, where a record's ALTs differ from REF in length and all begin as REF does, by
  the ALT without its first base, ``-`` if nothing is left;
- SnpEff by the ALT as it stands;
- VEP with ``--minimal`` by the ALT without all that it shares with REF at either end.

These are tried in this order, upper and lower case alike. The last form is ambiguous: two ALTs of one record can come
to the same letters, and then the first of them gets the entries of both. A record's only ALT, if it is symbolic, gets
all entries. Entries that fit no ALT (of alleles that were split off, say) are counted as unmatched and left out.

Source: Ensembl VEP documentation, "Output formats"; Ensembl's Parser::VCF; "Variant annotations in VCF format" 1.0.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from tasks.variants.header import VariantHeader
from tasks.variants.lines import ALT, REF, Lines
from tasks.variants.spans import string_column

_PARTS = {
    "CSQ": {name: name for name in ("SYMBOL", "Gene", "Feature", "Consequence", "IMPACT")},
    "ANN": {
        "SYMBOL": "Gene_Name",
        "Gene": "Gene_ID",
        "Feature": "Feature_ID",
        "Consequence": "Annotation",
        "IMPACT": "Annotation_Impact",
    },
}
"""For each INFO key the columns of the table and the parts they are made of."""
_FORMATS = {
    "CSQ": re.compile(r"Format:\s*(?P<parts>[^\"]+)"),
    "ANN": re.compile(r"[Ff]unctional annotations:\s*(?P<parts>.+)"),
}
_COMMA, _BAR, _DOT, _DASH, _STAR, _LESS = ord(","), ord("|"), ord("."), ord("-"), ord("*"), ord("<")
_ZERO, _NINE = ord("0"), ord("9")
_MALFORMED, _UNMATCHED = 0, 1
_VEP, _AS_WRITTEN, _MINIMAL = 0, 1, 2


@njit(cache=True, nogil=True)
def _upper(letter: int) -> int:
    return letter - 32 if 97 <= letter <= 122 else letter


@njit(cache=True, nogil=True)
def _is_spelled(text: Any, begin: int, end: int, low: int, high: int) -> bool:
    """Whether an entry's allele is text[low:high], ``-`` if that is empty."""
    if low >= high:
        return end == begin + 1 and text[begin] == _DASH
    if end - begin != high - low:
        return False
    offset = 0
    while offset < high - low and _upper(text[begin + offset]) == _upper(text[low + offset]):
        offset += 1
    return offset == high - low


@njit(cache=True, nogil=True)
def _shares_first_base(text: Any, ref: int, ref_end: int, alt: int, alts_end: int) -> bool:
    """Whether VEP takes the first base off: an ALT is of another length than REF, and all of them begin as it does."""
    is_indel = False
    while alt <= alts_end:
        end = alt
        while end < alts_end and text[end] != _COMMA:
            end += 1
        if text[alt] != _STAR:
            if _upper(text[alt]) != _upper(text[ref]):
                return False
            is_indel = is_indel or end - alt != ref_end - ref
        alt = end + 1
    return is_indel


@njit(cache=True, nogil=True)
def _named_alt(
    text: Any, begin: int, end: int, ref: int, ref_end: int, alts: int, alts_end: int, shares_first: bool
) -> int:
    """The ALT that an entry's allele names, from 0; -1 if none."""
    for form in (_VEP, _AS_WRITTEN, _MINIMAL):
        alt, number = alts, 0
        while alt <= alts_end:
            alt_end = alt
            while alt_end < alts_end and text[alt_end] != _COMMA:
                alt_end += 1
            low, high = alt, alt_end
            if form == _VEP and shares_first and text[alt] != _STAR:
                low += 1
            elif form == _MINIMAL:
                first, last = ref, ref_end
                while low < high and first < last and _upper(text[low]) == _upper(text[first]):
                    low += 1
                    first += 1
                while low < high and first < last and _upper(text[high - 1]) == _upper(text[last - 1]):
                    high -= 1
                    last -= 1
            if _is_spelled(text, begin, end, low, high):
                return number
            if form == _MINIMAL and alt == alts and alt_end == alts_end and text[alt] == _LESS:
                return 0
            number += 1
            alt = alt_end + 1
    return -1


@njit(cache=True, nogil=True)
def _alt_number(text: Any, begin: int, end: int, num_alts: int) -> int:
    """The ALT of an ``ALLELE_NUM``, from 0; -1 if that is no number of an ALT."""
    number = 0
    for at in range(begin, end):
        if text[at] < _ZERO or text[at] > _NINE or number > num_alts:
            return -1
        number = 10 * number + (text[at] - _ZERO)
    return number - 1 if number <= num_alts else -1


@njit(cache=True, nogil=True)
def _cut_entries(
    text: Any,
    begin: Any,
    end: Any,
    ref: Any,
    alt: Any,
    num_alts: Any,
    first_row: Any,
    parts: Any,
    row: Any,
    span: Any,
    counts: Any,
) -> int:
    """Cuts records' entries; returns how many there are.

    Args:
        text: uint8 [size].
        begin: int64 [n], where the records' values begin, -1 where there is none.
        end: int64 [n].
        ref: int64 [n, 2], where REF begins and ends.
        alt: int64 [n, 2], where ALT begins and ends.
        num_alts: int64 [n].
        first_row: int64 [n], the row of each record's first ALT.
        parts: int64 [3 + columns]: parts of an entry, place of the allele, of ALLELE_NUM (or -1), of each column.
        row: Out, int64 [k], each entry's row, -1 if it fits none.
        span: Out, int64 [k, columns, 2], where the columns' values begin and end; -1 in entries that are malformed.
        counts: Out, int64 [2], malformed and unmatched entries are added.
    """
    number = 0
    for record in range(len(begin)):
        at, stop = begin[record], end[record]
        if at < 0 or at == stop or (stop == at + 1 and text[at] == _DOT) or num_alts[record] == 0:
            continue
        shares_first = _shares_first_base(text, ref[record, 0], ref[record, 1], alt[record, 0], alt[record, 1])
        while at <= stop:
            part, value = 0, at
            allele, allele_end, numbered = -1, -1, -1
            span[number] = -1
            while True:
                is_end = at == stop or text[at] == _COMMA
                if is_end or text[at] == _BAR:
                    if part == parts[1]:
                        allele, allele_end = value, at
                    elif part == parts[2]:
                        numbered = _alt_number(text, value, at, num_alts[record])
                    for column in range(span.shape[1]):
                        if part == parts[3 + column] and at > value:
                            span[number, column, 0], span[number, column, 1] = value, at
                    part += 1
                    value = at + 1
                at += 1
                if is_end:
                    break
            if part != parts[0]:
                counts[_MALFORMED] += 1
                span[number] = -1
                numbered = -1
            if numbered < 0 and allele >= 0:
                numbered = _named_alt(
                    text,
                    allele,
                    allele_end,
                    ref[record, 0],
                    ref[record, 1],
                    alt[record, 0],
                    alt[record, 1],
                    shares_first,
                )
            if numbered < 0:
                counts[_UNMATCHED] += 1
            row[number] = first_row[record] + numbered if numbered >= 0 else -1
            number += 1
    return number


class Consequences:
    """Reads one such INFO key.

    Attributes:
        key: ``CSQ`` or ``ANN``.
        columns: Names of the table's columns, of the type `TYPE`.
        counts: int64 [2], entries so far that have not as many parts as the header says (null in every column), and
            entries that name no ALT of their record.
    """

    TYPE = pa.list_(pa.string())

    def __init__(self, key: str, parts: list[str]) -> None:
        """Sets what an entry is made of.

        Args:
            key: The INFO key.
            parts: Names of an entry's parts.
        """
        wanted = {column: part for column, part in _PARTS[key].items() if part in parts}
        self.key = key
        self.columns = [f"{key}_{column}" for column in wanted]
        self.counts = np.zeros(2, dtype=np.int64)
        number = parts.index("ALLELE_NUM") if "ALLELE_NUM" in parts else -1
        places = [len(parts), parts.index("Allele"), number, *(parts.index(part) for part in wanted.values())]
        self._parts = np.array(places, dtype=np.int64)

    @property
    def summary(self) -> dict[str, int]:
        """The counts, by name."""
        return {"malformed": int(self.counts[_MALFORMED]), "unmatched": int(self.counts[_UNMATCHED])}

    def rows(
        self,
        text: NDArray[np.uint8],
        lines: Lines,
        begin: NDArray[np.int64],
        end: NDArray[np.int64],
        first_row: NDArray[np.int64],
        num_rows: int,
    ) -> dict[str, pa.ListArray]:
        """The entries of each allele, in their order, as list columns; null where an allele has none.

        Args:
            text: uint8 [size], valid UTF-8.
            lines: Its records.
            begin: int64 [n], where the key's values begin, -1 where a record has none.
            end: int64 [n].
            first_row: int64 [n], the row of each record's first ALT.
            num_rows: Rows of the block.
        """
        present = np.flatnonzero(begin >= 0)
        size = len(present) + int(np.count_nonzero(text == _COMMA))
        row = np.empty(size, dtype=np.int64)
        span = np.empty((size, len(self.columns), 2), dtype=np.int64)
        number = _cut_entries(
            text,
            begin[present],
            end[present],
            np.stack([lines.begin_of(REF)[present], lines.end_of(REF)[present]], axis=1),
            np.stack([lines.begin_of(ALT)[present], lines.end_of(ALT)[present]], axis=1),
            lines.num_alleles[present],
            first_row[present],
            self._parts,
            row,
            span,
            self.counts,
        )
        order = np.argsort(row[:number], kind="stable")
        order = order[row[order] >= 0]
        num_entries = np.bincount(row[order], minlength=num_rows)
        offsets = pa.array(np.concatenate(([0], np.cumsum(num_entries))).astype(np.int32))
        is_absent = pa.array(num_entries == 0)
        columns = {}
        for place, name in enumerate(self.columns):
            values = string_column(text, span[order, place, 0].copy(), span[order, place, 1].copy())
            columns[name] = pa.ListArray.from_arrays(offsets, values, mask=is_absent)
        return columns


def find_consequences(header: VariantHeader) -> list[Consequences]:
    """The keys that a header declares with a format that can be read."""
    found = []
    for key, pattern in _FORMATS.items():
        declared = header.info.get(key)
        match = pattern.search(declared.description) if declared else None
        parts = [part.strip(" '\"") for part in match["parts"].split("|")] if match else []
        if "Allele" in parts and set(parts) & set(_PARTS[key].values()):
            found.append(Consequences(key, parts))
    return found
