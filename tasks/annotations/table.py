"""The joined table of an annotation: the file's bytes for each allele that the cohort and the file have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.annotations.runs import RunReader, run_schema
from tasks.annotations.source import AnnotationSource
from tasks.files import whole_file
from tasks.pipelines import OutputField
from tasks.variants.key_table import KeyTable, find_keys
from tasks.variants.score_table import MISSING

_ARROW_TYPES = {"Float": pa.float64(), "Integer": pa.int64(), "String": pa.string()}
ESCAPED_COMMA = "%2C"


class AnnotationTable(KeyTable):
    """Looks up the values of one annotation as INFO has them, ``.`` where missing.

    Attributes:
        source: The annotation.
    """

    def __init__(self, path: Path, source: AnnotationSource) -> None:
        super().__init__(path, [output.name for output in source.outputs])
        self.source = source

    def _texts(self, table: pa.Table) -> tuple[pa.StringArray, ...]:
        # Not necessarily UTF-8: only the buffers are used.
        columns = (pc.fill_null(_whole(table[output.name]), MISSING.encode()) for output in self.source.outputs)
        return tuple(column.view(pa.string()) for column in columns)


class AnnotationMerger:
    """Writes the joined table of one annotation while the cohort's alleles go by.

    Attributes:
        reader: Counts what was found.
    """

    def __init__(self, source: AnnotationSource, runs: Sequence[Path], writer: pq.ParquetWriter) -> None:
        self.reader = RunReader(source, runs)
        self._source = source
        self._writer = writer

    def columns(self, alleles: pa.Table, locus_start: int, locus_end: int) -> dict[str, pa.Array]:
        """Merges one stretch; returns its values, typed, null where an allele has none.

        Args:
            alleles: All alleles of the cohort in these loci, sorted by (locus, code).
            locus_start: First locus.
            locus_end: One past the last.
        """
        rows = self.reader.rows(locus_start, locus_end)
        if rows.num_rows:
            self._writer.write_table(rows)
        row = np.empty(alleles.num_rows, dtype=np.int64)
        keys = (rows["locus"], rows["code"], alleles["locus"], alleles["code"])
        # Copies: one compiled kernel for writable arrays.
        locus, code, asked_locus, asked_code = (key.to_numpy().copy() for key in keys)
        find_keys(locus, code, asked_locus, asked_code, row)
        place = pa.array(row, mask=row < 0)
        return {output.name: _typed(_whole(rows[output.name]), output).take(place) for output in self._source.outputs}


@contextmanager
def merging(source: AnnotationSource, runs: Sequence[Path], table: Path) -> Iterator[AnnotationMerger]:
    """Opens the joined table of an annotation for writing; it appears whole.

    Args:
        source: The annotation.
        runs: What `tasks.annotations.joining.join_file` wrote, in its order.
        table: The file to write.
    """
    with whole_file(table) as aside:
        with pq.ParquetWriter(aside, run_schema(source), compression="zstd") as writer:
            yield AnnotationMerger(source, runs, writer)


def _typed(values: pa.BinaryArray, output: OutputField) -> pa.Array:
    """Values of the field's type: numbers, or text in which ``%2C`` is a comma again."""
    if output.kind != "String":
        return pc.replace_substring_regex(values, r"^\+", b"").cast(pa.string()).cast(_ARROW_TYPES[output.kind])
    return pc.replace_substring(_valid_text(values), ESCAPED_COMMA, ",")


def _valid_text(values: pa.BinaryArray) -> pa.StringArray:
    """Bytes as UTF-8; where they are none, what is not is ``?``."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (None if value is None else value.decode(errors="replace") for value in values.to_pylist())
        return pa.array([text and text.replace("\ufffd", "?") for text in texts], pa.string())


def _whole(column: pa.ChunkedArray) -> Any:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
