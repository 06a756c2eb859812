"""Allele runs: what many of them hold together is what a set would hold."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.errors import BalanceError
from tasks.variants import allele_runs
from tasks.variants.allele_runs import BIN_SHIFT, RunWriter, distinct_alleles, locus_histogram, sort_distinct
from tasks.variants.alleles import ALLELE_SCHEMA

Row = tuple[int, int, int, int, str, str]


def random_rows(seed: int, number: int) -> list[Row]:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        contig, start, alt = int(random.integers(0, 3)), int(random.integers(0, 300_000)), int(random.integers(0, 4))
        rows.append((contig << 40 | start, alt, contig, start, "A", "ACGT"[alt]))
    return rows


def as_table(rows: list[Row]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * 6, schema=ALLELE_SCHEMA)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Path], list[Row]]:
    monkeypatch.setattr(allele_runs, "RUN_ALLELES", 700)
    monkeypatch.setattr(allele_runs, "_ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(allele_runs, "_PASS_ROWS", 500)
    paths, rows = [], []
    for sample in range(4):
        (tmp_path / str(sample)).mkdir()
        writer = RunWriter(tmp_path / str(sample))
        # Samples 0 and 1 are copies of each other.
        own = random_rows(max(sample, 1), 2000)
        for at in range(0, len(own), 300):
            writer.add(as_table(own[at : at + 300]))
        writer.close()
        assert len(writer.paths) > 1
        assert writer.num_distinct == sum(pq.read_metadata(path).num_rows for path in writer.paths)
        paths += writer.paths
        rows += own
    return paths, rows


def test_distinct_alleles_of_a_range(runs: tuple[list[Path], list[Row]]) -> None:
    paths, rows = runs
    borders = [0, 5, 100_000, (1 << 40) + 77, (2 << 40) + 299_999, 1 << 63]
    for start, end in pairwise(borders):
        table = distinct_alleles(paths, start, end)
        assert table.schema == ALLELE_SCHEMA
        expected = sorted({row for row in rows if start <= row[0] < end})
        assert [tuple(row.values()) for row in table.to_pylist()] == expected


def test_an_allele_at_the_border_belongs_to_one_side(runs: tuple[list[Path], list[Row]]) -> None:
    paths, rows = runs
    for locus in sorted({row[0] for row in rows})[::97]:
        left, right = distinct_alleles(paths, 0, locus), distinct_alleles(paths, locus, 1 << 63)
        assert left.num_rows + right.num_rows == len(set(rows))
        assert right["locus"][0].as_py() == locus


def test_the_histogram_counts_distinct_alleles(runs: tuple[list[Path], list[Row]]) -> None:
    paths, rows = runs
    bins, counts = locus_histogram(paths)
    expected: dict[int, int] = {}
    for row in set(rows):
        expected[row[0] >> BIN_SHIFT] = expected.get(row[0] >> BIN_SHIFT, 0) + 1
    assert dict(zip(bins.tolist(), counts.tolist(), strict=True)) == expected
    assert (np.diff(bins.astype(np.int64)) > 0).all()


def test_no_runs_hold_nothing() -> None:
    assert distinct_alleles([], 0, 1 << 63).num_rows == 0
    assert [len(part) for part in locus_histogram([])] == [0, 0]


def test_a_second_try_leaves_no_old_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allele_runs, "RUN_ALLELES", 10)
    for number in (50, 15):
        writer = RunWriter(tmp_path)
        for row in random_rows(1, number):
            writer.add(as_table([row]))
        writer.close()
        assert sorted(tmp_path.iterdir()) == writer.paths
    assert len(writer.paths) == 2


def test_two_long_alleles_with_one_hash_are_not_taken_for_one() -> None:
    rows = [(5, 1 << 63, 0, 5, "A", "C" * 30), (5, 1 << 63, 0, 5, "A", "G" * 30)]
    with pytest.raises(BalanceError):
        sort_distinct(as_table(rows))
