"""Runs: what an annotation file says of the cohort's alleles, sorted pieces of bounded size, and their merging."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.annotations.source import AnnotationSource
from tasks.files import whole_file

RUN_BYTES = 64 << 20
"""Rows are kept in memory until they are this many bytes."""
_ROW_GROUP_ROWS = 16_384


def run_schema(source: AnnotationSource) -> pa.Schema:
    """Columns of a run: an allele's key, and for each field the bytes of its value."""
    values = [(output.name, pa.binary()) for output in source.outputs]
    return pa.schema([("locus", pa.uint64()), ("code", pa.uint64()), *values])


class RunWriter:
    """Gathers rows and writes them as runs ``NAME-0000.parquet``, ``NAME-0001.parquet``, ... of a folder.

    Attributes:
        names: The runs written so far.
    """

    def __init__(self, source: AnnotationSource, folder: Path) -> None:
        self.names: list[str] = []
        self._name = source.name
        self._schema = run_schema(source)
        self._folder = folder
        self._held: list[pa.Table] = []
        self._num_bytes = 0

    def add(self, columns: Sequence[Any]) -> None:
        """Takes rows in the file's order, as columns of `run_schema`."""
        rows = pa.table(list(columns), schema=self._schema)
        self._held.append(rows)
        self._num_bytes += rows.nbytes
        if self._num_bytes >= RUN_BYTES:
            self.close()

    def close(self) -> None:
        """Writes what is held, sorted by key; rows of one allele stay in the file's order."""
        if not self._held:
            return
        rows = pa.concat_tables(self._held)
        rows = rows.take(np.lexsort((rows["code"].to_numpy(), rows["locus"].to_numpy())))
        name = f"{self._name}-{len(self.names):04d}.parquet"
        with whole_file(self._folder / name) as aside:
            pq.write_table(rows, aside, row_group_size=_ROW_GROUP_ROWS, compression="zstd")
        self.names.append(name)
        self._held, self._num_bytes = [], 0


class RunReader:
    """Merges runs, stretch by stretch.

    Attributes:
        num_found: Alleles read so far.
        num_repeated: Rows left out, since an earlier record of the file has the same allele.
    """

    def __init__(self, source: AnnotationSource, runs: Sequence[Path]) -> None:
        """Sets what is read.

        Args:
            source: The annotation.
            runs: Its runs, in the order in which they were written.
        """
        self.num_found = self.num_repeated = 0
        self._empty = run_schema(source).empty_table()
        self._runs = tuple(runs)

    def rows(self, locus_start: int, locus_end: int) -> pa.Table:
        """The rows of loci in ``[locus_start, locus_end)``, each allele once, sorted by key: `run_schema`."""
        start, end = pa.scalar(locus_start, pa.uint64()), pa.scalar(locus_end, pa.uint64())
        inside = (pc.field("locus") >= start) & (pc.field("locus") < end)
        rows = pa.concat_tables([self._empty, *(pq.read_table(run, filters=inside) for run in self._runs)])
        locus, code = rows["locus"].to_numpy(), rows["code"].to_numpy()
        # Stable: of equal keys the one of the first run, and in it of the first record, stays first.
        order = np.lexsort((code, locus))
        locus, code = locus[order], code[order]
        is_first = np.ones(len(order), dtype=np.bool_)
        is_first[1:] = (locus[1:] != locus[:-1]) | (code[1:] != code[:-1])
        self.num_found += int(np.count_nonzero(is_first))
        self.num_repeated += int(np.count_nonzero(~is_first))
        return rows.take(order[is_first]).combine_chunks()
