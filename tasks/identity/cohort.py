"""The cohort's samples beside each other: every pair of them, and what contradicts the sheet."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.coverage.joining import CALLABLE, read_callable
from tasks.files import make_folder, read_json, whole_file, write_json
from tasks.genome.regions import Regions
from tasks.identity.kinship import RELATIONS, PairBlock, compare_pairs
from tasks.identity.pedigree import (
    Person,
    check_trios,
    pair_expectation,
    pair_warning,
    parent_warnings,
    read_persons,
)
from tasks.identity.sites import GenotypeFile, build_matrix
from tasks.identity.warnings import IdentityWarning, name_warning
from tasks.run import Run, load_run

MAX_DRAWN = 60
"""Rows of the matrix up to which their concordance is kept for a picture."""
PAIR_SCHEMA = pa.schema(
    [
        ("sample_1", pa.string()),
        ("column_1", pa.string()),
        ("sample_2", pa.string()),
        ("column_2", pa.string()),
        ("sites", pa.int64()),
        ("concordance", pa.float64()),
        ("ibs0", pa.int64()),
        ("stretches", pa.int64()),
        ("kinship", pa.float64()),
        ("relation", pa.string()),
        ("expected", pa.string()),
        ("warning", pa.string()),
    ]
)
"""Columns of ``cohort/identity.parquet``: a row for each two columns of the cohort's VCFs and calls."""
_MAX_FLAGGED = 200

Json = dict[str, Any]


def compare_cohort(root: str, sample_ids: list[str]) -> Json:
    """Compares the samples' genotypes, and what files say of themselves, with the sheet.

    Writes ``cohort/identity.parquet`` (`PAIR_SCHEMA`) and ``work/identity.json``, which is returned: ``subjects``
    (labels), ``sites``, ``sites_found``, ``pairs``, ``relations`` (pairs by relation), ``concordance`` (rows of the
    matrix, null where there is too little data; for at most `MAX_DRAWN` subjects), ``trios``, ``flagged`` (pairs with a
    warning) and ``warnings``.

    Args:
        root: The run's folder.
        sample_ids: Samples whose alleles were collected.
    """
    run = load_run(root)
    summaries = {sample_id: _summaries(run, sample_id) for sample_id in sample_ids}
    warnings = [
        each for sample_id in sample_ids for each in sample_warnings(run.sample(sample_id), summaries[sample_id])
    ]
    files = [
        GenotypeFile(sample_id, run.folder.genotypes(sample_id), _looked_at(run, sample_id)) for sample_id in sample_ids
    ]
    matrix = build_matrix(files)
    persons = read_persons(matrix.samples, matrix.columns, run.settings["samples"])
    strangers = parent_warnings(run.settings["samples"], (name for person in persons for name in person.names))
    warnings += [each for each in strangers if each.sample in sample_ids]
    relation = np.zeros((len(persons), len(persons)), dtype=np.uint8)
    concordance = np.full(relation.shape, np.nan) if len(persons) <= MAX_DRAWN else None
    relations: Counter[str] = Counter()
    flagged: list[Json] = []
    make_folder(run.folder.identity.parent)
    with whole_file(run.folder.identity) as aside, pq.ParquetWriter(aside, PAIR_SCHEMA, compression="zstd") as writer:
        for block in compare_pairs(matrix):
            rows = slice(block.first, block.first + len(block.sites))
            relation[rows] = block.relation
            if concordance is not None:
                concordance[rows] = _concordance(block)
            table, found = _pair_table(block, matrix.columns, persons)
            writer.write_table(table)
            relations.update(table["relation"].to_pylist())
            warnings += found
            flagged += table.filter(table["warning"].is_valid()).to_pylist()[: _MAX_FLAGGED - len(flagged)]
    trios = []
    for trio, warning in check_trios(matrix, persons, relation):
        trios.append(trio.to_json())
        warnings += [warning] if warning else []
    summary = {
        "subjects": [person.label for person in persons],
        "sites": int(matrix.values.shape[1]),
        "sites_found": matrix.num_sites_found,
        "sites_not_biallelic": matrix.num_not_biallelic,
        "pairs": sum(relations.values()),
        "relations": {word: relations[word] for word in RELATIONS if relations[word]},
        "concordance": None if concordance is None else _rounded(concordance),
        "trios": trios,
        "flagged": flagged,
        "warnings": [warning.to_json() for warning in warnings],
    }
    write_json(run.folder.identity_summary, summary)
    return {"subjects": len(persons), "warnings": len(warnings)}


def _looked_at(run: Run, sample_id: str) -> Regions | None:
    """Where no record of a sample means the reference: its callable places, or else its regions."""
    if run.sample(sample_id)["kind"] == "vcf":
        return run.regions(sample_id)
    return read_callable(run.folder.sample(sample_id) / f"{sample_id}{CALLABLE}", run.reference)


def _summaries(run: Run, sample_id: str) -> Json:
    paths = {stage: run.folder.summary(sample_id, stage) for stage in ("intake", "alleles")}
    return {stage: read_json(path) for stage, path in paths.items() if path.exists()}


def sample_warnings(sample: Json, summaries: Json) -> list[IdentityWarning]:
    """What of one sample contradicts the sheet: the names in its files, its sex.

    Args:
        sample: The sheet's row.
        summaries: Of its finished stages.
    """
    alignment, alleles = summaries.get("intake", {}).get("alignment"), summaries["alleles"]
    own_names = [sample["id"], sample["columns"].get("sample", sample["id"]), sample["patient"]]
    warnings = []
    if alignment is not None and sample["kind"] != "fastq":
        names = [group["sample"] for group in alignment["read_groups"] if group["sample"]]
        warnings.append(name_warning(sample["id"], own_names, names, "the read groups (SM) name"))
    elif sample["kind"] == "vcf" and sample["vcf_sample"] is None and len(alleles["samples"]) == 1:
        warnings.append(name_warning(sample["id"], own_names, alleles["samples"], "the VCF's column names"))
    sex = alleles.get("sex")
    if sex and sex["differs"]:
        message = f"the sheet says {sample['sex']}, the data {sex['verdict']} ({sex['evidence']})"
        warnings.append(IdentityWarning(sample["id"], "SEX_DIFFERS", message))
    return [warning for warning in warnings if warning is not None]


def _concordance(block: PairBlock) -> npt.NDArray[np.float64]:
    """Share of identical genotypes, without sites at which both are REF; NaN where there are no others."""
    shares: npt.NDArray[np.float64] = np.where(block.sites > 0, block.identical / np.maximum(block.sites, 1), np.nan)
    return shares


def _pair_table(
    block: PairBlock, columns: tuple[str, ...], persons: list[Person]
) -> tuple[pa.Table, list[IdentityWarning]]:
    """The pairs of a block, each once."""
    num_rows = block.sites.shape[1]
    one = np.repeat(np.arange(len(block.sites)), num_rows)
    other = np.tile(np.arange(num_rows), len(block.sites))
    is_pair = other > one + block.first
    one, other = one[is_pair], other[is_pair]
    sites, kinship, relation = block.sites[one, other], block.kinship[one, other], block.relation[one, other]
    expected, words, warnings = [], [], []
    for place, (row, column) in enumerate(zip((one + block.first).tolist(), other.tolist(), strict=True)):
        left, right = persons[row], persons[column]
        expected.append(pair_expectation(left, right))
        warning = pair_warning(left, right, int(relation[place]), float(kinship[place]), int(sites[place]))
        words.append(warning.warning if warning else None)
        warnings += [warning] if warning else []
    names = np.array([person.sample for person in persons], dtype=object)
    titles = np.array(columns, dtype=object)
    table = pa.table(
        {
            "sample_1": pa.array(names[one + block.first], pa.string()),
            "column_1": pa.array(titles[one + block.first], pa.string()),
            "sample_2": pa.array(names[other], pa.string()),
            "column_2": pa.array(titles[other], pa.string()),
            "sites": sites,
            "concordance": pa.array(np.round(_concordance(block)[one, other], 6), pa.float64(), from_pandas=True),
            "ibs0": block.ibs0[one, other],
            "stretches": block.stretches[one, other],
            "kinship": pa.array(np.round(kinship, 6), pa.float64(), from_pandas=True),
            "relation": pa.array([RELATIONS[code] for code in relation.tolist()], pa.string()),
            "expected": pa.array(expected, pa.string()),
            "warning": pa.array(words, pa.string()),
        },
        schema=PAIR_SCHEMA,
    )
    return table, warnings


def _rounded(values: npt.NDArray[np.float64]) -> list[list[float | None]]:
    return [[None if np.isnan(value) else round(value, 4) for value in row] for row in values.tolist()]


def read_identity(path: Path) -> Json:
    """Reads ``work/identity.json``; empty where no cohort was compared."""
    found: Json = read_json(path) if path.exists() else {}
    return found
