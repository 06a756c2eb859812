"""The keys of the cohort's alleles, shard by shard: tells which alleles of a file the cohort has."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.variants.key_table import find_keys

_SHARDS_HELD = 64
Keys = tuple[NDArray[np.uint64], NDArray[np.uint64]]


class ShardKeys:
    """Look-ups in tables of ascending loci; some of them are kept in memory."""

    def __init__(self, starts: Sequence[int], paths: Sequence[Path]) -> None:
        """Sets the shards.

        Args:
            starts: The first locus of each, rising.
            paths: Their tables, sorted by (locus, code).
        """
        self._starts = np.array(starts, dtype=np.uint64)
        self._paths = tuple(paths)
        self._held: OrderedDict[int, Keys] = OrderedDict()

    def contains(self, locus: NDArray[np.uint64], code: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Tells of each allele whether any shard has it: bool [n].

        Args:
            locus: uint64 [n]; fastest where neighbours lie near each other.
            code: uint64 [n].
        """
        is_there = np.zeros(len(locus), dtype=np.bool_)
        shard = np.searchsorted(self._starts, locus, side="right") - 1
        for number in np.unique(shard).tolist():
            asked = np.flatnonzero(shard == number)
            table_locus, table_code = self._keys(number)
            row = np.empty(len(asked), dtype=np.int64)
            find_keys(table_locus, table_code, locus[asked], code[asked], row)
            is_there[asked] = row >= 0
        return is_there

    def _keys(self, number: int) -> Keys:
        if number not in self._held:
            table = pq.read_table(self._paths[number], columns=["locus", "code"])
            # Copies: one compiled kernel for writable arrays.
            self._held[number] = table["locus"].to_numpy().copy(), table["code"].to_numpy().copy()
            if len(self._held) > _SHARDS_HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(number)
        return self._held[number]
