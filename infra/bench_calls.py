"""Prints how well and how fast variants are called, beside bcftools, freebayes and a one-line rule.

Without arguments: a simulated individual, and the real slice where its files are (COHORTFLOW_SHARED_DATA).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from serving.server import ModelServer
from tasks.calling.bam_stream import open_alignment
from tasks.calling.call_rows import collect_rows
from tasks.calling.calling import Alignment, call_shard, finish_calls, plan_call_shards
from tasks.genome.reference import Reference, prepare_reference
from tasks.intervals import parse_region
from tasks.simulation.genome import simulate_genome
from tasks.simulation.individual import simulate_individual
from tasks.simulation.library import Library
from tasks.simulation.placing import Placer
from tasks.simulation.texts import write_fasta
from tasks.simulation.variants import simulate_alleles

REPOSITORY = Path(__file__).resolve().parent.parent
MODELS = REPOSITORY / "data" / "models"
STATE_SIZE = 128
REAL_REGION = "chr20:10000001-10100000"
_RULE_FRACTION, _RULE_READS = 0.3, 5

Allele = tuple[str, str, str, str]


@dataclass(frozen=True)
class Sample:
    """An aligned sample with a truth over one region."""

    name: str
    bam: Path
    fasta: Path
    truth: Path
    region: str


@dataclass(frozen=True)
class Score:
    """Alleles called right, wrong and not at all."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        """Share of the called alleles that are true."""
        return self.right / max(self.right + self.wrong, 1)

    @property
    def recall(self) -> float:
        """Share of the true alleles that are called."""
        return self.right / max(self.right + self.missed, 1)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.right / max(2 * self.right + self.wrong + self.missed, 1)


def samples(folder: Path) -> Iterator[Sample]:
    """A simulated individual, then the real slice where it is."""
    yield simulated(folder)
    data = Path(os.environ.get("COHORTFLOW_SHARED_DATA", REPOSITORY.parent / "shared" / "data")) / "na12878"
    if data.is_dir():
        yield Sample(
            "NA12878, 52x, real",
            data / "NA12878_S1.chr20.10_10p1mb.bam",
            data / "ucsc.hg19.chr20.unittest.fasta.gz",
            data / "test_nist.b37_chr20_100kbp_at_10mb.vcf.gz",
            REAL_REGION,
        )


def simulated(folder: Path, *, depth: float = 30, length_bp: int = 200_000, seed: int = 20_240_601) -> Sample:
    """Simulates an individual that no model was trained on."""
    rng = np.random.default_rng(seed)
    genome = simulate_genome(rng, [length_bp])
    alleles = simulate_alleles(rng, genome)
    fasta = folder / "simulated.fa"
    write_fasta(fasta, genome)
    library = Library(depth=depth)
    files = simulate_individual(folder, "simulated", genome, alleles, rng, library, placer=Placer(fasta, genome))
    assert files.bam is not None
    return Sample(f"simulated, {depth:g}x", files.bam, fasta, files.truth, f"chr1:1-{length_bp}")


def call_ours(sample: Sample, reference: Reference, folder: Path) -> tuple[Path, float, float]:
    """Calls with the shipped models; returns the VCF, and seconds of the shards' work and of everything, warm."""
    interval = parse_region(sample.region, {contig.name: contig.length_bp for contig in reference.contigs})
    alignment = Alignment(path=str(sample.bam), index_path=f"{sample.bam}.bai", kind="bam", sample_id="sample")
    vcf = folder / "ours.vcf.gz"
    with ModelServer(MODELS, models=["reads"]) as server:
        for _ in range(2):  # the first round compiles
            began = time.perf_counter()
            planned = plan_call_shards(reference, {interval.contig: 1}, None)
            shards = [shard for shard in planned if shard.start < interval.end and shard.end > interval.start]
            paths = []
            shard_s = 0.0
            for number, shard in enumerate(shards):
                paths.append(folder / f"shard-{number}.parquet")
                shard_began = time.perf_counter()
                call_shard(alignment, reference, shard, server.infer, paths[-1], state_size=STATE_SIZE)
                shard_s += time.perf_counter() - shard_began
            finish_calls(paths, reference, vcf, "sample")
            whole_s = time.perf_counter() - began
    return vcf, shard_s, whole_s


def call_bcftools(sample: Sample, fasta: Path, folder: Path) -> tuple[Path, float]:
    """Calls with ``bcftools mpileup | bcftools call``."""
    vcf = folder / "bcftools.vcf.gz"
    began = time.perf_counter()
    _shell(
        f"bcftools mpileup -f '{fasta}' -r {sample.region} '{sample.bam}' 2>/dev/null | "
        f"bcftools call -mv --ploidy 2 -Oz -o '{vcf}'"
    )
    return vcf, time.perf_counter() - began


def call_freebayes(sample: Sample, fasta: Path, folder: Path) -> tuple[Path, float]:
    """Calls with freebayes; it reads no bgzip, so its reference is unpacked first and not timed."""
    plain = folder / "plain.fa"
    _shell(f"samtools faidx '{fasta}' {sample.region.split(':')[0]} > '{plain}' && samtools faidx '{plain}'")
    region = parse_region(sample.region, {sample.region.split(":")[0]: 1 << 40})
    vcf = folder / "freebayes.vcf.gz"
    began = time.perf_counter()
    _shell(
        f"freebayes -f '{plain}' -r {region.contig}:{region.start}-{region.end} '{sample.bam}' | "
        f"bcftools view -i 'QUAL>20' -Oz -o '{vcf}'"
    )
    return vcf, time.perf_counter() - began


def call_rule(sample: Sample, reference: Reference) -> set[Allele]:
    """Alleles that at least five fragments and 30 % of them show."""
    interval = parse_region(sample.region, {contig.name: contig.length_bp for contig in reference.contigs})
    tokens = reference.contig_tokens(reference.contig_index(interval.contig))
    with open_alignment(sample.bam, None, reference.fasta_path) as alignment:
        tid = alignment.get_tid(interval.contig)
        rows, _ = collect_rows(alignment, tid, tokens, interval.start, interval.end)
    shown = rows.counts[:, 1]
    keep = (shown >= _RULE_READS) & (shown >= _RULE_FRACTION * rows.counts.sum(axis=1))
    return {(interval.contig, str(rows.start[row] + 1), rows.ref[row], rows.alt[row]) for row in np.flatnonzero(keep)}


def called_alleles(vcf: Path, fasta: Path, region: str) -> set[Allele]:
    """Alleles that the first sample carries, split, normalised and upper-cased by bcftools."""
    text = _shell(
        f"bcftools norm -m -any -a -f '{fasta}' '{vcf}' 2>/dev/null | "
        f"bcftools norm -m -any -f '{fasta}' 2>/dev/null | "
        "bcftools query -i 'GT[0]=\"alt\"' -f '%CHROM\\t%POS\\t%REF\\t%ALT\\n'"
    )
    where = parse_region(region, {region.split(":")[0]: 1 << 40})
    found: set[Allele] = set()
    for line in text.splitlines():
        contig, position, ref, alt = line.upper().split("\t")
        if contig == where.contig.upper() and where.start < int(position) <= where.end and alt != "*":
            found.add((where.contig, position, ref, alt))
    return found


def compare(called: set[Allele], truth: set[Allele], *, snv: bool) -> Score:
    """Scores alleles of one kind."""
    ours = {allele for allele in called if (len(allele[2]) == len(allele[3])) == snv}
    theirs = {allele for allele in truth if (len(allele[2]) == len(allele[3])) == snv}
    return Score(len(ours & theirs), len(ours - theirs), len(theirs - ours))


def compare_callers(sample: Sample, folder: Path) -> dict[str, tuple[Score, Score, float | None]]:
    """SNV and indel scores and seconds of every caller on a sample."""
    reference = prepare_reference(sample.fasta, folder / "reference")
    fasta = reference.fasta_path
    truth = called_alleles(sample.truth, fasta, sample.region)
    vcf, shard_s, whole_s = call_ours(sample, reference, folder)
    found: dict[str, tuple[set[Allele], float | None]] = {
        "cohortflow, shards": (called_alleles(vcf, fasta, sample.region), shard_s),
        "cohortflow, whole": (called_alleles(vcf, fasta, sample.region), whole_s),
    }
    vcf, seconds = call_bcftools(sample, fasta, folder)
    found["bcftools"] = (called_alleles(vcf, fasta, sample.region), seconds)
    if shutil.which("freebayes"):
        vcf, seconds = call_freebayes(sample, fasta, folder)
        found["freebayes, QUAL > 20"] = (called_alleles(vcf, fasta, sample.region), seconds)
    found["rule: 5 reads, 30 %"] = (call_rule(sample, reference), None)
    return {
        name: (compare(alleles, truth, snv=True), compare(alleles, truth, snv=False), taken)
        for name, (alleles, taken) in found.items()
    }


def print_table(sample: Sample, results: dict[str, tuple[Score, Score, float | None]]) -> None:
    """Prints a sample's results, one line a caller."""
    print(f"\n{sample.name}, {sample.region}")
    print(f"{'':24}{'SNV F1':>8}{'prec.':>8}{'recall':>8}{'indel F1':>10}{'prec.':>8}{'recall':>8}{'s':>8}")
    for name, (snv, indel, taken) in results.items():
        numbers = f"{snv.f1:8.3f}{snv.precision:8.3f}{snv.recall:8.3f}{indel.f1:10.3f}{indel.precision:8.3f}"
        print(f"{name:24}{numbers}{indel.recall:8.3f}{'' if taken is None else f'{taken:8.2f}'}")


def _shell(command: str) -> str:
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def main() -> None:
    """Compares on every sample there is."""
    if shutil.which("bcftools") is None:
        raise SystemExit("bcftools is not installed: `make oracle-tools`")
    with tempfile.TemporaryDirectory() as scratch:
        for number, sample in enumerate(samples(Path(scratch))):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            print_table(sample, compare_callers(sample, folder))


if __name__ == "__main__":
    main()
