"""A finished cohort as a run leaves it: real plan, reference and score table, invented numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.files import make_folder, write_json
from tasks.folder import RunFolder
from tasks.genome.reference import prepare_reference
from tasks.pipelines import make_pipeline
from tasks.plan import Plan
from tasks.run import write_run
from tasks.scoring import score_schema

KINDS = ("vcf", "bam", "fastq", "cram")
STATISTICS = {
    "requests": 4, "rows": 900, "rows_executed": 700, "executions": 12, "cache_hits": 180, "cache_hits_redis": 60,
    "cache_misses": 700, "cache_coalesced": 20, "failures": {},
}  # fmt: skip
SECONDS = {
    "digest inputs": 0.41,
    "check inputs": 3.2,
    "align reads": 41.07,
    "call variants": 20.5,
    "score alleles": 6.12,
}


def make_cohort(
    root: Path, num_samples: int = 6, *, failed: dict[str, tuple[str, str]] | None = None, ids: Any = None
) -> RunFolder:
    """Writes the folder of a run over `num_samples` samples of all kinds in turn.

    Args:
        root: The output folder.
        num_samples: How many samples.
        failed: For each sample that failed its reason and message.
        ids: The samples' ids, if they matter.
    """
    folder = RunFolder(make_folder(root))
    rng = np.random.default_rng(7)
    failed = failed or {}
    ids = ids or [f"S{number:04d}" for number in range(1, num_samples + 1)]
    fasta = root.parent / "genome.fa"
    if not fasta.exists():
        fasta.write_text("".join(f">chr{n}\n{''.join(rng.choice(list('ACGT'), 400))}\n" for n in (1, 2)))
    reference = prepare_reference(fasta, folder.reference)
    pipeline = make_pipeline("demo-effect")
    recipe = {
        "version": "0.1.0",
        "reference": {"digest": reference.digest, "build": reference.build},
        "pipeline": {"name": pipeline.name, "options": {}},
        "models": {"variants": {"digest": "5b" * 32, "version": 1}, "reads": {"digest": "c4" * 32, "version": 1}},
        "regions": None,
        "padding_bp": 0,
    }
    kinds = {sample_id: KINDS[place % len(KINDS)] for place, sample_id in enumerate(ids)}
    plan = Plan(recipe, {sample_id: {"kind": kind, "files": ["ab" * 32]} for sample_id, kind in kinds.items()})
    settings = {
        "regions": None,
        "samples": {
            sample_id: {
                "kind": kind,
                "paths": [f"/lab/incoming/{sample_id}.{kind}"],
                "lanes": [],
                "regions": None,
                "columns": {"sample": sample_id, "patient": f"P-{sample_id}", "phenotype": "2"},
            }
            for sample_id, kind in kinds.items()
        },
    }
    write_run(folder, plan, settings)
    for sample_id, kind in kinds.items():
        make_folder(folder.sample(sample_id))
        if kind != "vcf":
            write_json(folder.summary(sample_id, "intake"), _intake(rng, sample_id, kind))
        if kind == "fastq":
            write_json(folder.summary(sample_id, "embedding"), _embedding(rng, sample_id))
        if sample_id in failed:
            reason, message = failed[sample_id]
            write_json(folder.summary(sample_id, "failed"), _failure(reason, message))
            continue
        output = _output(rng, kind) | {"variants": _variants(rng)}
        if kind != "vcf":
            write_json(folder.summary(sample_id, "calls"), _calls(rng, output["records_in"]))
        write_json(folder.summary(sample_id, "alleles"), output)
        write_json(folder.summary(sample_id, "output"), output)
        for ending in (".vcf.gz", ".vcf.gz.tbi", ".parquet", *([".bam", ".bam.bai"] if kind == "fastq" else [])):
            (folder.sample(sample_id) / f"{sample_id}{ending}").write_bytes(b"")
    _write_alleles(folder, rng)
    return folder


def _failure(reason: str, message: str) -> dict[str, Any]:
    status = "incomplete" if reason == "DEPTH_TOO_LOW" else "failed"
    return {"status": status, "reason": reason, "message": message, "blame": "input", "digests": {}}


def _output(rng: np.random.Generator, kind: str) -> dict[str, Any]:
    records = int(rng.integers(900, 1400))
    rejected = int(rng.integers(0, 3)) if kind == "vcf" else 0
    skipped = {"SYMBOLIC": 14, "SPANNING_DELETION": 9, "REF_MISMATCH": 3, "OFF_TARGET": 121, "TOO_LONG": 2}
    skipped = {reason: int(rng.poisson(count)) + 1 for reason, count in skipped.items()} if kind == "vcf" else {}
    alleles = records + int(rng.integers(5, 30))
    return {
        "records_in": records + rejected,
        "records": records,
        "records_out": records,
        "rejected": rejected,
        "rejected_lines": [{"line": 71, "reason": "BAD_POS", "found": "POS is not a whole number"}][:rejected],
        "records_without_alt": 0,
        "alleles": alleles,
        "scored": alleles - sum(skipped.values()),
        "skipped": skipped,
        "refs_checked": records,
        "refs_differ": skipped.get("REF_MISMATCH", 0),
        "sorted": True,
        "index": "tbi",
        "index_reason": "UNSORTED" if kind == "vcf" and records % 2 else None,
        "repairs": {"contig": 2} if kind == "vcf" else {},
    }


def _variants(rng: np.random.Generator) -> dict[str, Any]:
    scores = np.sort(rng.beta(0.8, 3.2, 400)).round(4)
    counts = {"transitions": 640, "transversions": int(rng.normal(312, 9)), "insertions": 60, "deletions": 71}
    return counts | {
        "het": 700,
        "hom": int(rng.normal(430, 12)),
        "scores": {"CF_DEMO_EFFECT": scores[[20, 100, 200, 300, 380]].tolist()},
    }


def _calls(rng: np.random.Generator, calls: int) -> dict[str, Any]:
    return {
        "calls": calls,
        "calls_found": calls + 9,
        "calls_contradicted": 2,
        "calls_halved": 3,
        "calls_joined": 7,
        "snv_calls": calls - 40,
        "low_quality": 31,
        "shards": 11,
        "counts": {"candidates": 2 * calls},
    }


def _intake(rng: np.random.Generator, sample_id: str, kind: str) -> dict[str, Any]:
    counts = {"used": 48_120, "unmapped": 162, "secondary": 0, "duplicate": 2_297, "low_mapping_quality": 2_210}
    summary: dict[str, Any] = {
        "alignment": {
            "counts": {"total": sum(counts.values()), **counts},
            "mean_depth": round(float(rng.normal(34, 5)), 3),
            "mapping_rate": round(float(1 - rng.gamma(2, 0.003)), 6),
            "duplicate_rate": round(float(rng.gamma(3, 0.02)), 6),
            "mismatch_rate": round(float(rng.gamma(9, 0.0004)), 6),
            "base_quality_mean": round(float(rng.normal(34, 1)), 3),
            "insert_size_median": int(rng.normal(318, 12)),
            "long_reads": False,
            "read_length_median": 101,
            "index_made": kind == "cram",
            "skipped": {"UNKNOWN_CONTIG": {"chrM": 212, "chr3": 9}} if kind == "bam" else {},
            "warnings": [f"{sample_id}.cram: the read groups name the sample NA12878, the sheet {sample_id}"]
            * (kind == "cram"),
        }
    }
    if kind == "fastq":
        files = [_reads(rng, f"{sample_id}_R{mate}.fastq.gz", mate) for mate in (1, 2)]
        summary["reads"] = {**files[0], "num_reads": 51_678, "files": files, "warnings": []}
    return summary


def _embedding(rng: np.random.Generator, sample_id: str) -> dict[str, Any]:
    """What 10,000 reads of one library give; those of S0007 are of another one."""
    mean = rng.normal(0, 0.01, 64) + 0.2 * (sample_id == "S0007")
    counts = {"num_reads": 10_000, "num_too_short": 12, "num_too_long": 0}
    return {**counts, "mean": mean.round(6).tolist(), "sd": [1.0] * 64}


def _reads(rng: np.random.Generator, name: str, mate: int) -> dict[str, Any]:
    place = np.arange(101)
    quality = 37.5 - mate * 1.6 * (place / 101) ** 2 * 4 - 4 * np.exp(-place / 4) + rng.normal(0, 0.12, 101)
    return {
        "name": name,
        "num_reads": 25_839,
        "length_bp": {
            "min": 90,
            "max": 101,
            "median": 101,
            "histogram": [[90, 90, 60], [97, 97, 420], [101, 101, 25_359]],
        },
        "quality": {
            "mean": round(float(quality.mean()), 3),
            "q30_share": 0.912,
            "mean_by_position": quality.round(2).tolist(),
        },
        "gc_share": round(float(rng.normal(0.41, 0.006)), 6),
        "n_share": 0.0004,
        "kmer_entropy_bits": 10.71,
        "common_kmers": {"AAAAAA": 0.0041, "AAAAAT": 0.0027},
        "long_reads": False,
    }


def _write_alleles(folder: RunFolder, rng: np.random.Generator, num_alleles: int = 5_000) -> None:
    schema = score_schema(make_pipeline("demo-effect").fields)
    reason = np.full(num_alleles, None, dtype=object)
    reason[::250] = "TOO_LONG"
    score = np.where(reason == None, np.round(rng.beta(0.8, 3.2, num_alleles), 4), np.nan)  # noqa: E711
    columns = {
        "locus": pa.array(np.arange(num_alleles), pa.uint64()),
        "code": pa.array(np.arange(num_alleles), pa.uint64()),
        "contig": pa.array(["chr1"] * num_alleles),
        "pos": pa.array(np.arange(1, num_alleles + 1)),
        "ref": pa.array(["A"] * num_alleles),
        "alt": pa.array(["C"] * num_alleles),
        "CF_DEMO_EFFECT": pa.array(score, pa.float64(), from_pandas=True),
        "reason": pa.array(reason, pa.string()),
    }
    make_folder(folder.alleles.parent)
    pq.write_table(pa.table(columns, schema=schema), folder.alleles)
