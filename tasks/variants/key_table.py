"""A sorted Parquet table of alleles, looked up by key in bounded memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit
from numpy.typing import NDArray

from tasks.errors import BalanceError

CACHE_BYTES = 32 << 20
"""Row groups kept in memory."""


@njit(cache=True, nogil=True)
def find_keys(table_locus: Any, table_code: Any, locus: Any, code: Any, out: Any) -> None:
    """Rows of sorted keys: int64 out, -1 where a key is not there."""
    for query in range(len(locus)):
        low, high = 0, len(table_locus)
        while low < high:
            middle = (low + high) >> 1
            is_before = table_locus[middle] < locus[query] or (
                table_locus[middle] == locus[query] and table_code[middle] < code[query]
            )
            if is_before:
                low = middle + 1
            else:
                high = middle
        found = low < len(table_locus) and table_locus[low] == locus[query] and table_code[low] == code[query]
        out[query] = low if found else -1


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Answers to a look-up of `n` alleles.

    Attributes:
        row: int64 [n], each allele's row in `texts`, -1 if the table does not have it.
        texts: For each column an Arrow string array of INFO values, ``.`` where missing.
    """

    row: NDArray[np.int64]
    texts: tuple[pa.StringArray, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    locus: NDArray[np.uint64]
    code: NDArray[np.uint64]
    texts: tuple[pa.StringArray, ...]
    num_bytes: int


class KeyTable(ABC):
    """Reads a table sorted by (locus, code) row group by row group; a context manager."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """Opens the table.

        Args:
            path: Sorted by (locus, code).
            columns: The columns to look up.
        """
        self.path = path
        self._columns = tuple(columns)
        self._file = pq.ParquetFile(path)
        metadata = self._file.metadata
        place = self._file.schema_arrow.get_field_index("locus")
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        # A table without rows has a row group without statistics.
        spans = [
            (group.column(place).statistics.min, group.column(place).statistics.max)
            for group in groups
            if group.num_rows
        ]
        self._low = np.array([low for low, _ in spans], dtype=np.uint64)
        self._high = np.array([high for _, high in spans], dtype=np.uint64)
        self._cache: OrderedDict[int, _Group] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._file.close()

    def lookup(self, locus: NDArray[np.uint64], code: NDArray[np.uint64]) -> Found:
        """Finds alleles by their keys.

        Args:
            locus: uint64 [n], in any order; keys that are near each other share a row group.
            code: uint64 [n].
        """
        row = np.full(len(locus), -1, dtype=np.int64)
        pieces: list[tuple[pa.StringArray, ...]] = []
        num_rows = 0
        # The alleles of one locus may go on in the next row groups.
        first = np.searchsorted(self._high, locus, side="left")
        last = np.searchsorted(self._low, locus, side="right") - 1
        for number in _between(first, last, len(self._low)):
            asked = np.flatnonzero((first <= number) & (number <= last) & (row < 0))
            group = self._group(number)
            found = np.empty(len(asked), dtype=np.int64)
            find_keys(group.locus, group.code, locus[asked], code[asked], found)
            hits = found >= 0
            row[asked[hits]] = num_rows + np.arange(np.count_nonzero(hits))
            num_rows += int(np.count_nonzero(hits))
            rows = pa.array(found[hits])
            pieces.append(tuple(text.take(rows) for text in group.texts))
        if not pieces:
            return Found(row, tuple(pa.array([], pa.string()) for _ in self._columns))
        return Found(row, tuple(pa.concat_arrays(column) for column in zip(*pieces, strict=True)))

    @abstractmethod
    def _texts(self, table: pa.Table) -> tuple[pa.StringArray, ...]:
        """A row group's values as INFO has them, column by column, without nulls."""

    def _group(self, number: int) -> _Group:
        if number not in self._cache:
            table = self._file.read_row_group(number, columns=["locus", "code", *self._columns])
            locus, code = table["locus"].to_numpy(), table["code"].to_numpy()
            if len(locus) > 1 and (np.diff(locus.astype(np.int64)) < 0).any():
                raise BalanceError(f"{self.path}: row group {number} is not sorted by locus")
            texts = self._texts(table)
            size = locus.nbytes + code.nbytes + sum(text.nbytes for text in texts)
            held = sum(group.num_bytes for group in self._cache.values())
            while self._cache and held + size > CACHE_BYTES:
                held -= self._cache.popitem(last=False)[1].num_bytes
            self._cache[number] = _Group(locus.copy(), code.copy(), texts, size)
        self._cache.move_to_end(number)
        return self._cache[number]


def _between(first: NDArray[np.int64], last: NDArray[np.int64], num_groups: int) -> list[int]:
    """Row groups that lie in any of the ranges ``first..last``."""
    is_range = first <= last
    begun = np.bincount(first[is_range], minlength=num_groups + 1)
    ended = np.bincount(last[is_range] + 1, minlength=num_groups + 1)
    needed: list[int] = np.flatnonzero(np.cumsum(begun - ended)[:num_groups] > 0).tolist()
    return needed
