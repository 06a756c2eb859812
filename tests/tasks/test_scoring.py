"""Scoring shards: they cover the genome, none is too large, and joined they are one table."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tasks.pipelines import make_pipeline
from tasks.scoring import ROW_GROUP_ALLELES, _regrouped, plan_score_shards, score_schema
from tasks.variants.allele_runs import BIN_SHIFT, RunWriter, distinct_alleles
from tasks.variants.alleles import ALLELE_SCHEMA


def write_run(folder: Path, contig: np.ndarray, start: np.ndarray) -> str:
    """Writes a run of SNVs at these places."""
    locus = contig.astype(np.uint64) << np.uint64(40) | start.astype(np.uint64)
    columns = [locus, np.ones(len(start)), contig, start, ["A"] * len(start), ["C"] * len(start)]
    writer = RunWriter(folder)
    writer.add(pa.table(dict(zip(ALLELE_SCHEMA.names, columns, strict=True))).cast(ALLELE_SCHEMA))
    writer.close()
    return str(writer.paths[0])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two samples that share half their alleles, on three contigs, with a crowd in one place."""
    rng = np.random.default_rng(5)
    contig = rng.integers(0, 3, 6000)
    start = np.where(rng.random(6000) < 0.3, rng.integers(100_000, 110_000, 6000), rng.integers(0, 3_000_000, 6000))
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    shares = (slice(4000), slice(2000, None))
    return [write_run(folder, contig[rows], start[rows]) for folder, rows in zip(folders, shares, strict=True)]


@pytest.mark.parametrize("most", [50, 1000, 10**9])
def test_shards_cover_everything_once_and_none_is_too_large(runs: list[str], most: int) -> None:
    shards = plan_score_shards(runs, most)
    assert shards[0].locus_start == 0
    assert all(left.locus_end == right.locus_start for left, right in pairwise(shards))
    paths = [Path(run) for run in runs]
    tables = [distinct_alleles(paths, shard.locus_start, shard.locus_end) for shard in shards]
    everything = distinct_alleles(paths, 0, 1 << 63)
    assert pa.concat_tables(tables).equals(everything)
    for table in tables:
        num_bins = len(np.unique(table["locus"].to_numpy() >> np.uint64(BIN_SHIFT)))
        assert table.num_rows <= most or num_bins == 1
    assert (len(shards) == 1) == (most == 10**9)


def test_no_alleles_make_one_shard() -> None:
    assert [(shard.locus_start, shard.locus_end) for shard in plan_score_shards([])] == [(0, 1 << 63)]


def test_groups_do_not_depend_on_the_cuts() -> None:
    schema = score_schema(make_pipeline("demo-effect").fields)
    locus = np.arange(2 * ROW_GROUP_ALLELES + 5, dtype=np.uint64)
    others = [pa.nulls(len(locus), field.type) for field in schema][1:]
    whole = pa.table([pa.array(locus), *others], schema=schema)
    for cuts in ([], [3], [70_000, 70_001, 140_000]):
        edges = [0, *cuts, len(locus)]
        groups = list(_regrouped((whole.slice(a, b - a) for a, b in pairwise(edges)), schema))
        assert [group.num_rows for group in groups] == [ROW_GROUP_ALLELES, ROW_GROUP_ALLELES, 5]
        assert pa.concat_tables(groups).equals(whole)
