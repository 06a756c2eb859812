"""What is counted of a sample's variants for its quality: kinds of alleles, genotypes, percentiles of scores."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.pipelines import OutputField

PERCENTILES = (5, 25, 50, 75, 95)
_TRANSITIONS = frozenset({"AG", "GA", "CT", "TC"})
_BASES = frozenset("ACGT")
_GENOTYPE = "FORMAT_GT"
_SEPARATOR = re.compile(r"[/|]")


def variant_statistics(table: Path, fields: Sequence[OutputField]) -> dict[str, Any]:
    """Counts over a sample's table (`tasks.variants.table`), and percentiles of its Float scores.

    Args:
        table: One row for each allele of each record.
        fields: The pipeline's fields.

    Returns:
        ``transitions``, ``transversions``, ``insertions``, ``deletions`` (alleles as they are written); ``het`` and
        ``hom`` (records whose genotype has two different alleles, or one that is not REF twice; absent without
        genotypes or with several samples); ``scores``, for each field that has values its `PERCENTILES`.
    """
    file = pq.ParquetFile(table)
    scores = [field.name for field in fields if field.kind == "Float" and field.number == "A"]
    has_genotypes = _GENOTYPE in file.schema_arrow.names and pa.types.is_string(file.schema_arrow.field(_GENOTYPE).type)
    columns = ["contig", "pos", "ref", "alt", *scores, *([_GENOTYPE] if has_genotypes else [])]
    changes: Counter[str] = Counter()
    genotypes: Counter[str] = Counter()
    values: dict[str, list[NDArray[np.float64]]] = {name: [] for name in scores}
    for batch, is_first_allele in _batches(file, columns):
        changes.update(_changes(batch))
        if has_genotypes:
            genotypes.update(_counted(pc.drop_null(batch[_GENOTYPE].filter(is_first_allele))))
        for name in scores:
            values[name].append(batch[name].drop_null().cast(pa.float64()).to_numpy(zero_copy_only=False))
    summary: dict[str, Any] = dict(changes)
    if has_genotypes:
        kinds = {"het": 0, "hom": 0}
        for genotype, count in genotypes.items():
            kind = _zygosity(genotype)
            if kind:
                kinds[kind] += count
        summary |= kinds
    summary["scores"] = {
        name: _percentiles(np.concatenate(parts)) for name, parts in values.items() if any(map(len, parts))
    }
    return summary


def _batches(file: pq.ParquetFile, columns: list[str]) -> Iterator[tuple[pa.RecordBatch, pa.BooleanArray]]:
    """Yields the rows, and which of them are the first of their record; the others repeat its place and genotype."""
    last: tuple[Any, ...] | None = None
    for batch in file.iter_batches(columns=columns):
        if not batch.num_rows:
            continue
        position = batch["pos"].to_numpy()
        contig, ref = batch["contig"], batch["ref"]
        is_first = np.ones(batch.num_rows, dtype=np.bool_)
        is_first[0] = last != (position[0], contig[0].as_py(), ref[0].as_py())
        for row in (np.flatnonzero(position[1:] == position[:-1]) + 1).tolist():
            is_first[row] = not (contig[row].equals(contig[row - 1]) and ref[row].equals(ref[row - 1]))
        last = (position[-1], contig[-1].as_py(), ref[-1].as_py())
        yield batch, pa.array(is_first)


def _changes(batch: pa.RecordBatch) -> dict[str, int]:
    """Alleles of single bases as transitions and transversions, of other lengths as insertions and deletions."""
    ref, alt = pc.utf8_upper(batch["ref"]), pc.utf8_upper(batch["alt"])
    ref_bp, alt_bp = pc.utf8_length(ref), pc.utf8_length(alt)
    single = pc.and_(pc.equal(ref_bp, 1), pc.equal(alt_bp, 1))
    pairs = _counted(pc.binary_join_element_wise(ref.filter(single), alt.filter(single), ""))
    bases = {pair: count for pair, count in pairs.items() if set(pair) <= _BASES and len(set(pair)) == 2}
    spelled = pc.match_substring_regex(alt, "^[ACGTN]+$")
    transitions = sum(count for pair, count in bases.items() if pair in _TRANSITIONS)
    return {
        "transitions": transitions,
        "transversions": sum(bases.values()) - transitions,
        "insertions": pc.and_(spelled, pc.less(ref_bp, alt_bp)).true_count,
        "deletions": pc.and_(spelled, pc.greater(ref_bp, alt_bp)).true_count,
    }


def _counted(texts: pa.Array) -> dict[str, int]:
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(texts.drop_null()).to_pylist()}


def _zygosity(genotype: str) -> str | None:
    """``het``, ``hom`` (not REF), or None for REF, missing and haploid genotypes."""
    alleles = _SEPARATOR.split(genotype.split(":")[0])
    if len(alleles) != 2 or "." in alleles:
        return None
    if alleles[0] != alleles[1]:
        return "het"
    return "hom" if alleles[0] != "0" else None


def _percentiles(values: NDArray[np.float64]) -> list[float]:
    """Values that occur, so that none has more decimals than its field declares."""
    found: list[float] = np.percentile(values, PERCENTILES, method="inverted_cdf").tolist()
    return found
