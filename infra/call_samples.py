"""The samples that callers are compared on: the real slice, and simulated individuals that no model was trained on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from call_tools import Sample
from call_truth import run_shell

from tasks.genome.reference import prepare_reference
from tasks.reads.aligning import align_reads
from tasks.simulation.genome import Genome, simulate_genome
from tasks.simulation.individual import simulate_individual
from tasks.simulation.library import Library, draw_library
from tasks.simulation.placing import Placer
from tasks.simulation.texts import write_fasta
from tasks.simulation.variants import simulate_alleles
from tasks.training.ancestry import POOL_FACTOR, draw_by_ancestry

REPOSITORY = Path(__file__).resolve().parent.parent
REAL_REGION = "chr20:10000001-10100000"
DEPTHS = (5, 10, 30, 60)
_SUBSAMPLES = {"10x": "7.2", "5x": "7.1"}
_SEED = 20_240_601
"""Training draws from seeds of its own: none of these individuals is among its."""
_HETEROZYGOSITY = 1.2e-3
_HARD_GENOME = {"duplicated_share": 0.12, "unassembled_share": 0.05}
_HARD_LIBRARY = {"systematic_share": 1.5e-3, "overconfident_share": 0.04}
_STRUCTURE_PER_BP, _HARD_STRUCTURE_PER_BP = 2e-5, 5e-5


@dataclass(frozen=True, slots=True)
class Individual:
    """A simulated individual, sequenced to several depths.

    Attributes:
        genome: Its reference.
        samples: For each depth and contig a sample.
    """

    genome: Genome
    samples: dict[int, tuple[Sample, ...]]


def shared_data() -> Path | None:
    """Where the real slice is (COHORTFLOW_SHARED_DATA); None where it is not."""
    folder = Path(os.environ.get("COHORTFLOW_SHARED_DATA", REPOSITORY.parent / "shared" / "data")) / "na12878"
    return folder if folder.is_dir() else None


def simulated(folder: Path, *, depth: float = 30, length_bp: int = 200_000, seed: int = _SEED) -> Sample:
    """Simulates an individual with the simulator's usual library."""
    rng = np.random.default_rng(seed)
    genome = simulate_genome(rng, [length_bp])
    alleles = simulate_alleles(rng, genome)
    fasta = folder / "simulated.fa"
    write_fasta(fasta, genome)
    library = Library(depth=depth)
    files = simulate_individual(folder, "simulated", genome, alleles, rng, library, placer=Placer(fasta, genome))
    assert files.bam is not None
    return Sample(f"simulated, {depth:g}x", files.bam, fasta, files.truth, f"chr1:1-{length_bp}")


def real_bam(data: Path) -> Sample:
    """The real slice as its BAM was handed out."""
    return Sample(
        "NA12878, 52x, real",
        data / "NA12878_S1.chr20.10_10p1mb.bam",
        data / "ucsc.hg19.chr20.unittest.fasta.gz",
        data / "test_nist.b37_chr20_100kbp_at_10mb.vcf.gz",
        REAL_REGION,
    )


def real_bed(data: Path) -> Path:
    """Where the real slice's truth is sure."""
    return data / "test_nist.b37_chr20_100kbp_at_10mb.bed"


def real_fastq(data: Path, folder: Path) -> Sample:
    """The real slice's reads, aligned by this program."""
    as_bam = real_bam(data)
    reference = prepare_reference(as_bam.fasta, folder / "reference")
    bam = folder / "aligned.bam"
    lane = {
        "name": "1",
        "fastq_1": str(data / "NA12878_chr20_10_10p1mb_R1.fastq.gz"),
        "fastq_2": str(data / "NA12878_chr20_10_10p1mb_R2.fastq.gz"),
        "interleaved": False,
    }
    align_reads([lane], str(reference.folder), str(bam), str(folder / "work"), "NA12878", threads=2, facts={})
    return replace(as_bam, name="NA12878, 52x, real, from FASTQ", bam=bam)


def thinned(sample: Sample, folder: Path) -> Iterator[Sample]:
    """A sample at full depth, then with some of its reads."""
    yield sample
    for depth, fraction in _SUBSAMPLES.items():
        bam = folder / f"{depth}.bam"
        run_shell(f"samtools view -b -s {fraction} -o '{bam}' '{sample.bam}' && samtools index '{bam}'")
        yield replace(sample, name=sample.name.replace("52x", depth), bam=bam)


def individual(folder: Path, number: int, length_bp: int, *, is_hard: bool) -> Individual:
    """Simulates one individual and sequences it to each of `DEPTHS`.

    Args:
        folder: Where its files are written.
        number: Which one; it decides everything.
        length_bp: Length of the genome, three fifths of which are one contig.
        is_hard: Whether it has a genome full of paralogues and breakpoints, and a poor run.
    """
    rng = np.random.default_rng([_SEED, number])
    lengths = (length_bp * 3 // 5, length_bp * 2 // 5)
    genome = simulate_genome(rng, lengths, **(_HARD_GENOME if is_hard else {}))
    alleles = simulate_alleles(rng, genome, heterozygosity=POOL_FACTOR * _HETEROZYGOSITY)
    carried = draw_by_ancestry(rng, alleles, _HETEROZYGOSITY, genome.num_bases)
    fasta = folder / "genome.fa"
    write_fasta(fasta, genome)
    placer = Placer(fasta, genome)
    library = replace(draw_library(rng), **(_HARD_LIBRARY if is_hard else {}))
    structure_seed = int(rng.integers(1 << 32))
    samples = {}
    for depth in DEPTHS:
        # One seed for all depths: the same breakpoints, and so the same truth.
        files = simulate_individual(
            folder / str(depth),
            "individual",
            genome,
            alleles,
            np.random.default_rng(structure_seed),
            replace(library, depth=float(depth)),
            carried=carried,
            structure_per_bp=_HARD_STRUCTURE_PER_BP if is_hard else _STRUCTURE_PER_BP,
            placer=placer,
        )
        assert files.bam is not None
        samples[depth] = tuple(
            Sample(f"{'hard' if is_hard else 'usual'} {number}, {depth}x", files.bam, fasta, files.truth, region)
            for region in (f"{name}:1-{bases.size}" for name, bases in zip(genome.names, genome.tokens, strict=True))
        )
    return Individual(genome, samples)
