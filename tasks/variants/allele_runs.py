"""Allele runs: the distinct alleles of a stretch of one sample's records, sorted by key, one Parquet file each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.errors import BalanceError
from tasks.files import whole_file
from tasks.variants.alleles import ALLELE_SCHEMA

BIN_SHIFT = 14
"""Bits of a locus below its bin: bins are 16,384 bp wide."""
RUN_ALLELES = 250_000
"""A run is closed when it holds this many alleles, or `RUN_BYTES` of them."""
RUN_BYTES = 64 << 20
_ROW_GROUP_ROWS = 16_384
_PASS_ROWS = 2_000_000
_KEY = ["locus", "code"]


class RunWriter:
    """Gathers alleles and writes them as runs ``alleles-0000.parquet``, ``alleles-0001.parquet``, ... of a folder.

    Attributes:
        paths: The runs written so far.
        num_distinct: Rows in them, summed; an allele that stands in two runs counts twice.
    """

    def __init__(self, folder: Path) -> None:
        self.paths: list[Path] = []
        self.num_distinct = 0
        self._folder = folder
        self._tables: list[pa.Table] = []
        self._num_alleles = 0
        self._num_bytes = 0

    def add(self, alleles: pa.Table) -> None:
        """Takes alleles in any order: `ALLELE_SCHEMA`."""
        self._tables.append(alleles)
        self._num_alleles += alleles.num_rows
        self._num_bytes += alleles.nbytes
        if self._num_alleles >= RUN_ALLELES or self._num_bytes >= RUN_BYTES:
            self._flush()

    def close(self) -> None:
        """Writes what is left, and removes runs of an earlier try that this one did not replace."""
        if self._num_alleles:
            self._flush()
        for path in self._folder.glob("alleles-*.parquet"):
            if path not in self.paths:
                path.unlink()

    def _flush(self) -> None:
        run = sort_distinct(pa.concat_tables(self._tables))
        path = self._folder / f"alleles-{len(self.paths):04d}.parquet"
        with whole_file(path) as aside:
            pq.write_table(run, aside, row_group_size=_ROW_GROUP_ROWS, compression="zstd")
        self.paths.append(path)
        self.num_distinct += run.num_rows
        self._tables, self._num_alleles, self._num_bytes = [], 0, 0


def sort_distinct(alleles: pa.Table) -> pa.Table:
    """Sorts alleles by key and keeps one of each.

    Raises:
        BalanceError: Two different alleles have the same key.
    """
    locus, code = alleles["locus"].to_numpy(), alleles["code"].to_numpy()
    order = np.lexsort((code, locus))
    locus, code = locus[order], code[order]
    is_same = np.zeros(len(order), dtype=bool)
    is_same[1:] = (locus[1:] == locus[:-1]) & (code[1:] == code[:-1])
    repeats = np.flatnonzero(is_same & (code >> np.uint64(63) == 1))
    if len(repeats):
        # Only hashed keys can be equal for different alleles.
        one, other = alleles.take(order[repeats - 1]), alleles.take(order[repeats])
        for column in {"ref", "alt"} & set(alleles.column_names):
            if not pc.all(pc.equal(one[column], other[column])).as_py():
                raise BalanceError(
                    "two long alleles at one place have the same 63-bit hash: tasks.variants.alleles needs another"
                )
    return alleles.take(order[~is_same])


def distinct_alleles(runs: Sequence[Path], locus_start: int, locus_end: int) -> pa.Table:
    """The distinct alleles of many runs whose locus lies in ``[locus_start, locus_end)``.

    Only row groups that overlap the range are read.

    Args:
        runs: Run files, of any number of samples.
        locus_start: First locus of the range.
        locus_end: One past its last.

    Returns:
        `ALLELE_SCHEMA`, sorted by key.
    """
    return _distinct(runs, locus_start, locus_end, ALLELE_SCHEMA.names)


def locus_histogram(runs: Sequence[Path]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Counts the distinct alleles of many runs by bin, in bounded memory.

    Args:
        runs: Run files, of any number of samples.

    Returns:
        uint64 [k], sorted bins (locus >> 14) that hold an allele, and int64 [k], the alleles in each.
    """
    bins, counts = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int64)]
    for start, end in _passes(runs):
        locus = _distinct(runs, start, end, _KEY)["locus"].to_numpy()
        found, number = np.unique(locus >> np.uint64(BIN_SHIFT), return_counts=True)
        bins.append(found)
        counts.append(number.astype(np.int64))
    return np.concatenate(bins), np.concatenate(counts)


def _distinct(runs: Sequence[Path], start: int, end: int, columns: list[str]) -> pa.Table:
    """Distinct rows of a range of loci, merged before many copies of them pile up."""
    tables = [ALLELE_SCHEMA.empty_table().select(columns)]
    num_rows = 0
    for table in _slices(runs, start, end, columns):
        tables.append(table)
        num_rows += table.num_rows
        if num_rows > _PASS_ROWS:
            tables = [sort_distinct(pa.concat_tables(tables))]
            num_rows = 0
    return sort_distinct(pa.concat_tables(tables)).combine_chunks()


def _slices(runs: Sequence[Path], start: int, end: int, columns: list[str]) -> Iterator[pa.Table]:
    """The rows of each run within a range of loci."""
    for run in runs:
        with pq.ParquetFile(run) as file:
            groups = [group for group, (low, high, _) in enumerate(_spans(file)) if low < end and high >= start]
            if groups:
                table = file.read_row_groups(groups, columns=columns)
                locus = table["locus"].to_numpy()
                first, last = np.searchsorted(locus, np.array([start, end - 1], dtype=np.uint64), side="left")
                last += np.searchsorted(locus[last:], np.uint64(end - 1), side="right")
                yield table.slice(first, last - first)


def _spans(file: pq.ParquetFile) -> list[tuple[int, int, int]]:
    """First locus, last locus and number of rows of each row group."""
    metadata = file.metadata
    groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
    return [(group.column(0).statistics.min, group.column(0).statistics.max, group.num_rows) for group in groups]


def _passes(runs: Sequence[Path]) -> list[tuple[int, int]]:
    """Cuts all loci at bins into ranges that hold about `_PASS_ROWS` rows of all runs."""
    spans = []
    for run in runs:
        with pq.ParquetFile(run) as file:
            spans.extend(_spans(file))
    if not spans:
        return []
    spans.sort()
    width = 1 << BIN_SHIFT
    starts, rows = [spans[0][0] // width * width], 0
    for low, _, num_rows in spans:
        if rows + num_rows > _PASS_ROWS and low // width * width > starts[-1]:
            starts.append(low // width * width)
            rows = 0
        rows += num_rows
    end = (max(high for _, high, _ in spans) // width + 1) * width
    return list(zip(starts, [*starts[1:], end], strict=True))
