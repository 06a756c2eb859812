"""Columns of a variant table, cut out of blocks of VCF text without a step per record."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.variants.consequences import find_consequences
from tasks.variants.header import Declaration, VariantHeader
from tasks.variants.lines import ALT, CHROM, FILTER, FORMAT, ID, INFO, QUAL, REF, Lines
from tasks.variants.name_ids import NameIds
from tasks.variants.spans import format_ends, info_entries, sample_values, split_values, string_column

MAX_UNDECLARED = 1000
"""Columns for keys that the header does not declare; further ones are left out."""
_SEMICOLON = ord(";")
_ESCAPED_COMMA = "%2C"
"""How values of ours hold a comma, which in INFO ends a value."""
_FLAG, _ONE, _PER_ALLELE, _LIST, _TEXT = "flag", "one", "per allele", "list", "text"
_TYPES = {"Integer": pa.int64(), "Float": pa.float64()}
_PLACE_COLUMNS = [
    ("contig", pa.string()),
    ("pos", pa.int64()),
    ("id", pa.string()),
    ("ref", pa.string()),
    ("alt", pa.string()),
    ("qual", pa.float64()),
    ("filter", pa.string()),
]


class TableColumns:
    """Which columns a table has; learns from the records what the header does not say.

    Attributes:
        schema: The columns known so far.
        consequences: Readers of what VEP or SnpEff wrote, by INFO key.
    """

    def __init__(
        self, header: VariantHeader, own_ids: Collection[str], *, info_ids: Collection[str] | None = None
    ) -> None:
        """Starts from what a header declares.

        Args:
            header: The file's.
            own_ids: INFO IDs that keep their names as columns.
            info_ids: The INFO IDs that become columns; None for all, those that are not declared too.
        """
        self._own_ids = frozenset(own_ids)
        self._num_samples = len(header.samples)
        self._qual_type = pa.float64()
        self._info: dict[bytes, tuple[str, pa.DataType]] = {}
        for name, declaration in header.info.items():
            if info_ids is None or name in info_ids:
                self._info[name.encode()] = _declared(declaration)
        self.consequences = {reader.key.encode(): reader for reader in find_consequences(header)}
        self._formats: dict[bytes, tuple[str, pa.DataType]] = {}
        for name, declaration in header.formats.items() if self._num_samples else ():
            self._formats[name.encode()] = _declared_format(name, declaration)
        self._takes_all = info_ids is None
        self._num_undeclared = 0
        self._info_ids, self._format_ids, self._layout_ids = NameIds(), NameIds(), NameIds()
        self.schema = self._make_schema()

    def _make_schema(self) -> pa.Schema:
        columns = [*_PLACE_COLUMNS[:5], ("qual", self._qual_type), _PLACE_COLUMNS[6]]
        names = sorted(self._info, key=lambda key: key.decode() not in self._own_ids)
        columns.extend((self._info_column(key), self._info[key][1]) for key in names)
        columns.extend((name, reader.TYPE) for reader in self.consequences.values() for name in reader.columns)
        for key, (mode, kind) in self._formats.items():
            of_sample = pa.list_(kind) if mode == _LIST else kind
            columns.append((f"FORMAT_{key.decode()}", of_sample if self._num_samples == 1 else pa.list_(of_sample)))
        return pa.schema(columns)

    def _info_column(self, key: bytes) -> str:
        return key.decode() if key.decode() in self._own_ids else f"INFO_{key.decode()}"

    def rows(self, lines: Lines) -> pa.Table:
        """The rows of a block in `schema`, which is changed first where the block does not fit it."""
        text = _valid_text(lines.text)
        num_rows_of = np.maximum(lines.num_alleles, 1)
        first_row = np.concatenate(([0], np.cumsum(num_rows_of)))[:-1].astype(np.int64)
        record_of = np.repeat(np.arange(lines.num_records), num_rows_of)
        columns = self._place_columns(text, lines, first_row, len(record_of))
        is_repeated = len(record_of) > lines.num_records
        per_record = pa.array(record_of)
        for name in columns:
            if name != "alt" and is_repeated:
                columns[name] = columns[name].take(per_record)
        for name, (array, is_per_allele) in self._info_columns(text, lines, first_row, len(record_of)).items():
            columns[name] = array.take(per_record) if is_repeated and not is_per_allele else array
        for name, array in self._format_columns(text, lines).items():
            columns[name] = array.take(per_record) if is_repeated else array
        self.schema = self._make_schema()
        return pa.table([columns[name] for name in self.schema.names], schema=self.schema)

    def _place_columns(
        self, text: NDArray[np.uint8], lines: Lines, first_row: NDArray[np.int64], num_rows: int
    ) -> dict[str, Any]:
        def column(place: int) -> pa.StringArray:
            return string_column(text, lines.begin_of(place), lines.end_of(place))

        alt_begin, alt_end = np.empty(num_rows, dtype=np.int64), np.empty(num_rows, dtype=np.int64)
        begin = np.where(lines.num_alleles > 0, lines.begin_of(ALT), -1)
        split_values(text, begin, lines.end_of(ALT), lines.num_alleles, first_row, alt_begin, alt_end)
        qual = _cast(column(QUAL), self._qual_type)
        if qual is None:
            self._qual_type = pa.string()
            qual = column(QUAL)
        return {
            "contig": column(CHROM),
            "pos": pa.array(lines.position),
            "id": column(ID),
            "ref": column(REF),
            "alt": string_column(text, alt_begin, alt_end),
            "qual": qual,
            "filter": column(FILTER),
        }

    def _info_columns(
        self, text: NDArray[np.uint8], lines: Lines, first_row: NDArray[np.int64], num_rows: int
    ) -> dict[str, tuple[Any, bool]]:
        begin, end = lines.begin_of(INFO), lines.end_of(INFO)
        max_entries = lines.num_records + int(np.count_nonzero(text == _SEMICOLON))
        record, key_end = np.empty(max_entries, dtype=np.int64), np.empty(max_entries, dtype=np.int64)
        span = np.empty((max_entries, 2), dtype=np.int64)
        number = info_entries(text, begin, end, record, key_end, span)
        record, key_end, span = record[:number], key_end[:number], span[:number]
        ids = self._info_ids.ids(text, span[:, 0].copy(), key_end)
        order = np.argsort(ids, kind="stable")[::-1]
        bounds = np.searchsorted(-ids[order], -np.arange(-1, len(self._info_ids.names)))
        found: dict[bytes, NDArray[np.int64]] = {}
        for number, key in enumerate(self._info_ids.names):
            entries = order[bounds[number + 1] : bounds[number]]
            if len(entries):
                found[key] = entries
        for key, entries in found.items():
            self._learn(key, has_values=bool((span[entries, 1] > key_end[entries]).any()))
        columns: dict[str, tuple[Any, bool]] = {}
        for key in list(self._info):
            value_begin = np.full(lines.num_records, -1, dtype=np.int64)
            value_end = np.full(lines.num_records, -1, dtype=np.int64)
            entries = found.get(key, np.empty(0, dtype=np.int64))
            # Entries come last first: where a record repeats a key, the first one stays.
            value_begin[record[entries]] = np.minimum(key_end[entries] + 1, span[entries, 1])
            value_end[record[entries]] = span[entries, 1]
            if key in self.consequences:
                told = self.consequences[key].rows(text, lines, value_begin, value_end, first_row, num_rows)
                columns |= {name: (array, True) for name, array in told.items()}
            mode, kind = self._info[key]
            if mode == _PER_ALLELE:
                cut_begin, cut_end = np.empty(num_rows, dtype=np.int64), np.empty(num_rows, dtype=np.int64)
                if split_values(text, value_begin, value_end, lines.num_alleles, first_row, cut_begin, cut_end):
                    texts = string_column(text, cut_begin, cut_end)
                    values = _cast(texts, kind)
                    if values is None:
                        self._info[key] = (_PER_ALLELE, pa.string())
                        values = texts
                    if key.decode() in self._own_ids and values.type == pa.string():
                        values = pc.replace_substring(values, _ESCAPED_COMMA, ",")
                    columns[self._info_column(key)] = (values, True)
                    continue
                self._info[key] = (_TEXT, pa.string())
            if mode == _FLAG:
                columns[self._info_column(key)] = (pa.array(value_begin >= 0), False)
                continue
            texts = string_column(text, value_begin, value_end)
            values = _cast(texts, kind) if mode == _ONE else texts
            if values is None:
                self._info[key] = (_TEXT, pa.string())
            columns[self._info_column(key)] = (texts if values is None else values, False)
        return columns

    def _learn(self, key: bytes, has_values: bool) -> None:
        """Takes in what a block shows of a key."""
        if key not in self._info:
            if self._takes_all and self._num_undeclared < MAX_UNDECLARED:
                self._num_undeclared += 1
                self._info[key] = (_TEXT, pa.string()) if has_values else (_FLAG, pa.bool_())
        elif has_values and self._info[key][0] == _FLAG:
            self._info[key] = (_TEXT, pa.string())

    def _format_columns(self, text: NDArray[np.uint8], lines: Lines) -> dict[str, Any]:
        if not self._num_samples:
            return {}
        begin = lines.field[:, FORMAT].copy()
        end = format_ends(text, begin, lines.record_end)
        layout = self._layout_ids.ids(text, begin, end)
        keys_of = [names.split(b":") if names != b"." else [] for names in self._layout_ids.names]
        for keys in (keys_of[number] for number in np.unique(layout).tolist()):
            for key in keys:
                if key and key not in self._formats and self._num_undeclared < MAX_UNDECLARED:
                    self._num_undeclared += 1
                    self._formats[key] = (_TEXT, pa.string())
        columns = {}
        size = lines.num_records * self._num_samples
        for key in list(self._formats):
            places = np.array([keys.index(key) if key in keys else -1 for keys in keys_of] or [-1], dtype=np.int64)
            value_begin, value_end = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
            sample_values(text, begin, lines.record_end, places[layout], self._num_samples, value_begin, value_end)
            values = self._format_values(key, string_column(text, value_begin, value_end))
            if self._num_samples > 1:
                offsets = np.arange(lines.num_records + 1, dtype=np.int32) * self._num_samples
                values = pa.ListArray.from_arrays(pa.array(offsets), values)
            columns[f"FORMAT_{key.decode()}"] = values
        return columns

    def _format_values(self, key: bytes, texts: pa.StringArray) -> pa.Array:
        """The values of one key as its type holds them; a value that is not of it makes the column text."""
        mode, kind = self._formats[key]
        values = texts
        if mode == _ONE:
            values = _cast(texts, kind)
        elif mode == _LIST:
            parts = pc.split_pattern(texts, ",")
            items = _cast(pc.if_else(pc.equal(parts.values, "."), None, parts.values), kind)
            if items is not None:
                return pa.ListArray.from_arrays(parts.offsets, items, mask=parts.is_null())
            values = None
        if values is None:
            self._formats[key] = (_TEXT, pa.string())
        return texts if values is None else values


def _declared_format(name: str, declaration: Declaration) -> tuple[str, pa.DataType]:
    kind = _TYPES.get(declaration.kind, pa.string())
    # Haploid genotypes alone would pass for numbers.
    if name == "GT" or declaration.number == "0":
        return _TEXT, pa.string()
    return (_ONE if declaration.number == "1" else _LIST), kind


def _declared(declaration: Declaration) -> tuple[str, pa.DataType]:
    kind = _TYPES.get(declaration.kind, pa.string())
    if declaration.kind == "Flag" or declaration.number == "0":
        return _FLAG, pa.bool_()
    if declaration.number == "1":
        return _ONE, kind
    if declaration.number == "A":
        return _PER_ALLELE, kind
    return _TEXT, pa.string()


def _cast(texts: pa.StringArray, kind: pa.DataType) -> Any:
    """The values as numbers; None if one of them is none."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return None


def _valid_text(text: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The text, or a copy in which the bytes above ASCII are ``?`` where it is not UTF-8."""
    if text.max(initial=0) < 0x80:
        return text
    try:
        text.tobytes().decode()
    except UnicodeDecodeError:
        return np.where(text < 0x80, text, np.uint8(ord("?"))).astype(np.uint8)
    return text
