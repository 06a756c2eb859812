"""Small genomes, VCF text and score tables for the tests of the VCF engine."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.bgzf import BgzfWriter
from tasks.genome.reference import Reference, prepare_reference
from tasks.genome.regions import Regions
from tasks.pipelines import OutputField
from tasks.variants.allele_runs import distinct_alleles
from tasks.variants.annotating import annotate_variants
from tasks.variants.header import REASON_ID
from tasks.variants.scanning import scan_variants
from tasks.variants.score_table import ScoreTable
from tasks.variants.table import write_variant_table

SCORE = OutputField("CF_TEST", "Float", "A", "A number", decimals=4)
LENGTH_BP = 2000
COLUMNS = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"


def make_genome(folder: Path) -> tuple[Reference, dict[str, str]]:
    """Two random contigs (``chr1`` and ``2:x``), with a poly-A run at 0-based 100-119 of both."""
    random = np.random.default_rng(7)
    sequences = {}
    for name in ("chr1", "2:x"):
        letters = "".join("ACGT"[token] for token in random.integers(0, 4, LENGTH_BP))
        sequences[name] = letters[:99] + "C" + "A" * 20 + "G" + letters[121:]
    fasta = folder / "genome.fa"
    fasta.write_text("".join(f">{name}\n{sequence}\n" for name, sequence in sequences.items()))
    return prepare_reference(fasta, folder / "prepared"), sequences


def vcf_text(
    records: Sequence[str],
    *,
    header: Sequence[str] = ("##fileformat=VCFv4.2", "##contig=<ID=chr1,length=2000>", "##contig=<ID=2:x,length=2000>"),
    columns: str = COLUMNS,
) -> str:
    """A VCF; spaces of the records become tabs."""
    return "".join(f"{line}\n" for line in [*header, columns, *(record.replace(" ", "\t") for record in records)])


def write_bgzip(path: Path, text: bytes) -> Path:
    """Writes text as bgzip."""
    with open(path, "wb") as handle, BgzfWriter(handle) as writer:
        writer.write(text)
    return path


def score_of(locus: int, code: int) -> float:
    """The score that the tests' tables give an allele."""
    return (locus * 31 + code % 9973) % 10_000 / 10_000


def make_scores(
    path: Path,
    runs: Sequence[Path],
    reference: Reference,
    reasons: dict[str, str] | None = None,
    row_group: int = 65_536,
) -> Path:
    """Gives every allele of the runs a score; those whose ALT is in `reasons` that reason instead."""
    alleles = distinct_alleles(runs, 0, 1 << 63)
    reason = [(reasons or {}).get(alt) for alt in alleles["alt"].to_pylist()]
    scores = [
        None if why else score_of(locus, code)
        for locus, code, why in zip(alleles["locus"].to_pylist(), alleles["code"].to_pylist(), reason, strict=True)
    ]
    table = pa.table(
        {
            "locus": alleles["locus"],
            "code": alleles["code"],
            "contig": pa.array([reference.contigs[at].name for at in alleles["contig"].to_pylist()], pa.string()),
            "pos": pc.add(alleles["start"], 1),
            "ref": alleles["ref"],
            "alt": alleles["alt"],
            SCORE.name: pa.array(scores, pa.float64()),
            "reason": pa.array(reason, pa.string()),
        }
    )
    pq.write_table(table, path, row_group_size=row_group)
    return path


def annotate(
    path: Path,
    reference: Reference,
    folder: Path,
    *,
    regions: Regions | None = None,
    vcf_sample: str | None = None,
    reasons: dict[str, str] | None = None,
    row_group: int = 65_536,
) -> dict[str, Any]:
    """Scans a file, scores its alleles, annotates it as sample ``S``; returns the summary."""
    scan = scan_variants(path, reference, folder / "work", regions=regions, vcf_sample=vcf_sample)
    runs = [folder / "work" / name for name in scan["runs"]]
    table = make_scores(folder / "alleles.parquet", runs, reference, reasons, row_group)
    with ScoreTable(table, [SCORE]) as scores:
        summary = annotate_variants(
            path,
            reference,
            scores,
            [SCORE],
            folder / "out",
            "S",
            header_lines=["##cohortflow=<Version=1>"],
            regions=regions,
            vcf_sample=vcf_sample,
        )
    outputs = folder / "out"
    summary |= write_variant_table(outputs / "S.vcf.gz", outputs / "S.parquet", [SCORE.name, REASON_ID], {})
    for name in ("records_in", "records", "rejected", "alleles", "sorted", "contigs"):
        assert summary[name] == scan[name]
    assert summary["records_in"] == summary["records_out"] + summary["rejected"]
    assert summary["alleles"] == summary["scored"] + sum(summary["skipped"].values())
    return summary


def output_lines(folder: Path) -> tuple[list[str], list[str]]:
    """Header and record lines of the annotated VCF."""
    lines = gzip.decompress((folder / "out" / "S.vcf.gz").read_bytes()).decode(errors="surrogateescape").split("\n")
    assert lines.pop() == ""
    header = [line for line in lines if line.startswith("#")]
    return header, lines[len(header) :]
