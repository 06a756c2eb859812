"""The cohort's score table: the text of its values, looked up by key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tasks.pipelines import OutputField
from tasks.variants.key_table import KeyTable

MISSING = "."
# What may not stand in an INFO value, and what does instead. Source: VCF 4.3, section 1.2.
_ESCAPES = {"%": "%25", ";": "%3B", "=": "%3D", "\t": "%09", "\n": "%0A", "\r": "%0D", " ": "%20"}
_COMMA_ESCAPE = {",": "%2C"}


class ScoreTable(KeyTable):
    """Reads ``alleles.parquet``: the texts of its fields, then of the reason."""

    def __init__(self, path: Path, fields: Sequence[OutputField]) -> None:
        """Opens the table.

        Args:
            path: Sorted by (locus, code).
            fields: The columns to look up; ``reason`` comes with them.
        """
        super().__init__(path, [*(field.name for field in fields), "reason"])
        self._fields = tuple(fields)

    def _texts(self, table: pa.Table) -> tuple[pa.StringArray, ...]:
        values = (value_texts(table[field.name], field) for field in self._fields)
        return (*values, _filled(table["reason"].cast(pa.string())))


def value_texts(values: pa.ChunkedArray, field: OutputField) -> pa.StringArray:
    """Prints values as INFO has them: ``.`` where missing (null, NaN, empty), never -0, reserved letters escaped."""
    if field.kind == "Float":
        numbers = values.cast(pa.float64())
        # Adding zero turns -0.0 into 0.0.
        numbers = pc.add(pc.if_else(pc.is_finite(numbers), numbers, None), 0.0)
        return _filled(numbers.cast(pa.string()))
    texts = values.cast(pa.string())
    if field.kind == "String":
        for letter, escape in (_ESCAPES | (_COMMA_ESCAPE if field.number == "A" else {})).items():
            texts = pc.replace_substring(texts, letter, escape)
    return _filled(texts)


def _filled(texts: pa.ChunkedArray) -> pa.StringArray:
    filled = pc.fill_null(pc.if_else(pc.equal(texts, ""), None, texts), MISSING)
    return pa.concat_arrays(filled.chunks) if filled.num_chunks else pa.array([], pa.string())
