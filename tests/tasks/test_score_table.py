"""The score table: look-ups across row groups, in bounded memory, and the text of values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.pipelines import OutputField
from tasks.variants import key_table
from tasks.variants.score_table import ScoreTable, value_texts

FIELDS = [OutputField("CF_F", "Float", "A", "f", 4), OutputField("CF_S", "String", "A", "s")]


def write_table(path: Path, keys: list[tuple[int, int]], row_group: int) -> None:
    table = pa.table(
        {
            "locus": pa.array([locus for locus, _ in keys], pa.uint64()),
            "code": pa.array([code for _, code in keys], pa.uint64()),
            "CF_F": pa.array([(locus * 7 + code) % 1000 / 1000 for locus, code in keys], pa.float64()),
            "CF_S": pa.array([f"{locus}/{code}" for locus, code in keys], pa.string()),
            "reason": pa.array([None if code % 5 else "TOO_LONG" for _, code in keys], pa.string()),
        }
    )
    pq.write_table(table, path, row_group_size=row_group)


@settings(max_examples=60, deadline=None)
@given(
    keys=st.sets(st.tuples(st.integers(0, 30), st.integers(0, 20) | st.just((1 << 64) - 1)), max_size=200),
    asked=st.lists(st.tuples(st.integers(0, 31), st.integers(0, 20)), max_size=60),
    row_group=st.integers(1, 50),
)
def test_finds_what_is_there_and_nothing_else(
    keys: set[tuple[int, int]],
    asked: list[tuple[int, int]],
    row_group: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("scores") / "alleles.parquet"
    write_table(path, sorted(keys), row_group)
    queries = asked + sorted(keys)[::3]
    with ScoreTable(path, FIELDS) as scores:
        found = scores.lookup(
            np.array([locus for locus, _ in queries], dtype=np.uint64),
            np.array([code for _, code in queries], dtype=np.uint64),
        )
    texts = [column.to_pylist() for column in found.texts]
    for query, row in zip(queries, found.row.tolist(), strict=True):
        assert (row >= 0) == (query in keys)
        if row >= 0:
            assert float(texts[0][row]) == (query[0] * 7 + query[1]) % 1000 / 1000
            assert texts[1][row] == f"{query[0]}/{query[1]}"
            assert texts[2][row] == ("." if query[1] % 5 else "TOO_LONG")


def test_keeps_no_more_row_groups_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_table, "CACHE_BYTES", 40_000)
    path = tmp_path / "alleles.parquet"
    write_table(path, [(locus, 1) for locus in range(20_000)], 500)
    with ScoreTable(path, FIELDS) as scores:
        for start in range(0, 20_000, 100):
            locus = np.arange(start, start + 100, dtype=np.uint64)
            assert (scores.lookup(locus, np.ones(100, dtype=np.uint64)).row >= 0).all()
            assert sum(group.num_bytes for group in scores._cache.values()) <= 40_000


@pytest.mark.parametrize(
    ("field", "values", "texts"),
    [
        (
            FIELDS[0],
            [0.1234, -0.0, 0.0, None, float("nan"), float("inf"), 1.0, -0.5],
            ["0.1234", "0", "0", ".", ".", ".", "1", "-0.5"],
        ),
        (OutputField("I", "Integer", "A", "i"), [3, None, -2], ["3", ".", "-2"]),
        (FIELDS[1], ["a b;c=d,e%f\tg", "", None], ["a%20b%3Bc%3Dd%2Ce%25f%09g", ".", "."]),
        (OutputField("L", "String", ".", "l"), ["A|g1,A|g2"], ["A|g1,A|g2"]),
    ],
)
def test_prints_values_as_info_has_them(field: OutputField, values: list[object], texts: list[str]) -> None:
    assert value_texts(pa.chunked_array([pa.array(values)]), field).to_pylist() == texts
