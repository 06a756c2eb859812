"""The callers that are compared: ours, bcftools, freebayes, and a one-line rule on our candidates."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from call_truth import Call, Calls, read_calls, run_shell

from serving.server import ModelServer
from tasks.calling.bam_stream import open_alignment
from tasks.calling.call_rows import collect_rows
from tasks.calling.calling import Alignment, call_shard, finish_calls, plan_call_shards
from tasks.genome.reference import Reference
from tasks.intervals import parse_region

MODELS = Path(__file__).resolve().parent.parent / "data" / "models"
STATE_SIZE = 128
OURS, BCFTOOLS, FREEBAYES, RULE = "cohortflow", "bcftools", "freebayes, QUAL > 20", "rule: 5 reads, 30 %"
_RULE_FRACTION, _RULE_READS, _RULE_HOMOZYGOUS = 0.3, 5, 0.8


@dataclass(frozen=True, slots=True)
class Sample:
    """An aligned sample with a truth over one region."""

    name: str
    bam: Path
    fasta: Path
    truth: Path
    region: str


@dataclass(frozen=True, slots=True)
class Called:
    """What a caller found in a sample, and the seconds that it took on one core; None where they say nothing."""

    calls: Calls
    seconds: float | None


def run_callers(sample: Sample, reference: Reference, folder: Path, *, timed: bool) -> dict[str, Called]:
    """Calls a sample with every caller that is installed.

    Args:
        sample: The sample.
        reference: Its prepared reference.
        folder: For files on the way.
        timed: Whether our own calling is done twice: the first round compiles.
    """
    fasta = reference.fasta_path
    vcf, seconds = call_ours(sample, reference, folder, rounds=2 if timed else 1)
    found = {OURS: Called(read_calls(vcf, fasta, sample.region), seconds if timed else None)}
    vcf, seconds = call_bcftools(sample, fasta, folder)
    found[BCFTOOLS] = Called(read_calls(vcf, fasta, sample.region), seconds)
    if shutil.which("freebayes"):
        vcf, seconds = call_freebayes(sample, fasta, folder)
        found[FREEBAYES] = Called(read_calls(vcf, fasta, sample.region), seconds)
    found[RULE] = Called(call_rule(sample, reference), None)
    return found


def call_ours(sample: Sample, reference: Reference, folder: Path, *, rounds: int) -> tuple[Path, float]:
    """Calls with the shipped models; returns the VCF and the seconds of the last round's shards."""
    interval = parse_region(sample.region, {contig.name: contig.length_bp for contig in reference.contigs})
    alignment = Alignment(path=str(sample.bam), index_path=f"{sample.bam}.bai", kind="bam", sample_id="sample")
    vcf = folder / "ours.vcf.gz"
    seconds = 0.0
    with ModelServer(MODELS, models=["reads"]) as server:
        for _ in range(rounds):
            planned = plan_call_shards(reference, {interval.contig: 1}, None)
            shards = [shard for shard in planned if shard.start < interval.end and shard.end > interval.start]
            paths = [folder / f"shard-{number}.parquet" for number in range(len(shards))]
            began = time.perf_counter()
            for shard, path in zip(shards, paths, strict=True):
                call_shard(alignment, reference, shard, server.infer, path, state_size=STATE_SIZE)
            seconds = time.perf_counter() - began
            finish_calls(paths, reference, vcf, "sample")
    return vcf, seconds


def call_bcftools(sample: Sample, fasta: Path, folder: Path) -> tuple[Path, float]:
    """Calls with ``bcftools mpileup | bcftools call``."""
    vcf = folder / "bcftools.vcf.gz"
    began = time.perf_counter()
    run_shell(
        f"bcftools mpileup -f '{fasta}' -r {sample.region} '{sample.bam}' 2>/dev/null | "
        f"bcftools call -mv --ploidy 2 -Oz -o '{vcf}'"
    )
    return vcf, time.perf_counter() - began


def call_freebayes(sample: Sample, fasta: Path, folder: Path) -> tuple[Path, float]:
    """Calls with freebayes; it reads no bgzip, so its reference is unpacked first and not timed."""
    plain = folder / "plain.fa"
    run_shell(f"samtools faidx '{fasta}' {sample.region.split(':')[0]} > '{plain}' && samtools faidx '{plain}'")
    region = parse_region(sample.region, {sample.region.split(":")[0]: 1 << 40})
    vcf = folder / "freebayes.vcf.gz"
    began = time.perf_counter()
    run_shell(
        f"freebayes -f '{plain}' -r {region.contig}:{region.start}-{region.end} '{sample.bam}' | "
        f"bcftools view -i 'QUAL>20' -Oz -o '{vcf}'"
    )
    return vcf, time.perf_counter() - began


def call_rule(sample: Sample, reference: Reference) -> Calls:
    """Alleles that at least five fragments and 30 % of them show; both copies from 80 % on."""
    interval = parse_region(sample.region, {contig.name: contig.length_bp for contig in reference.contigs})
    tokens = reference.contig_tokens(reference.contig_index(interval.contig))
    with open_alignment(sample.bam, None, reference.fasta_path) as alignment:
        tid = alignment.get_tid(interval.contig)
        rows, _ = collect_rows(alignment, tid, tokens, interval.start, interval.end)
    shown = rows.counts[:, 1]
    share = shown / np.maximum(rows.counts.sum(axis=1), 1)
    keep = np.flatnonzero((shown >= _RULE_READS) & (share >= _RULE_FRACTION))
    return {
        (interval.contig, int(rows.start[row]) + 1, rows.ref[row], rows.alt[row]): Call(
            2 if share[row] >= _RULE_HOMOZYGOUS else 1
        )
        for row in keep.tolist()
    }
