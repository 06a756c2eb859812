"""A small simulated cohort, one sample of each kind: ``python -m tasks.simulation.cohort DIR``."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tasks.files import make_folder, write_bytes
from tasks.simulation.genes import Transcript, bed_lines, plant_genes
from tasks.simulation.genome import Genome, simulate_genome
from tasks.simulation.individual import simulate_individual
from tasks.simulation.library import Library
from tasks.simulation.placing import Placer
from tasks.simulation.texts import write_fasta, write_vcf
from tasks.simulation.variants import simulate_alleles

CONTIGS_BP = (250_000, 100_000)
_TARGET_PADDING_BP = 50
_NUM_RELATED = 24
_NUM_THREADS = 2
_SHEET = """\
sample,patient,sex,status,fastq_1,fastq_2,bam,vcf,regions
reads,alice,XX,0,reads_R1.fastq.gz,reads_R2.fastq.gz,,,
aligned,bob,XY,0,,,aligned.bam,,
panel,carol,XX,0,,,panel.bam,,targets.bed
single,dave,XY,0,,,,single.vcf,
population,,,,,,,population.vcf.gz,
"""


def simulate_cohort(folder: Path, seed: int, *, contigs_bp: tuple[int, ...] = CONTIGS_BP) -> Path:
    """Writes a reference, genes, targets and five samples; the same seed gives the same bytes.

    ``reads`` is a FASTQ pair (20x), ``aligned`` a BAM (25x), ``panel`` a BAM (25x) whose work keeps to the exons,
    ``single`` a plain VCF of one individual and ``population`` a VCF of 24. All are draws from one population; the
    truth of each individual lies beside its reads.

    Args:
        folder: Where to write; made when missing.
        seed: Of everything.
        contigs_bp: Length of each contig of the reference.

    Returns:
        The sample sheet.
    """
    make_folder(folder)
    rng = np.random.default_rng(seed)
    genome, transcripts = plant_genes(rng, simulate_genome(rng, contigs_bp))
    alleles = simulate_alleles(rng, genome)
    fasta = folder / "reference.fa.gz"
    write_fasta(fasta, genome)
    write_bytes(folder / "genes.bed", bed_lines(genome, transcripts).encode())
    write_bytes(folder / "targets.bed", _targets(genome, transcripts).encode())
    placer = Placer(fasta, genome, num_threads=_NUM_THREADS)
    simulate_individual(folder, "reads", genome, alleles, rng, Library(depth=20, read_length_bp=150), fastq=True)
    simulate_individual(folder, "aligned", genome, alleles, rng, Library(depth=25, read_length_bp=100), placer=placer)
    panel = Library(depth=25, quality_steps="binned", duplicate_share=0.15)
    simulate_individual(folder, "panel", genome, alleles, rng, panel, placer=placer)
    carried = np.stack([alleles.draw(rng) for _ in range(_NUM_RELATED + 1)], axis=1)
    write_vcf(folder / "single.vcf", genome, alleles, ["single"], carried[:, :1], joined=True)
    names = [f"member{number:02d}" for number in range(1, _NUM_RELATED + 1)]
    write_vcf(folder / "population.vcf.gz", genome, alleles, names, carried[:, 1:], joined=True)
    sheet = folder / "sheet.csv"
    write_bytes(sheet, _SHEET.encode())
    return sheet


def _targets(genome: Genome, transcripts: tuple[Transcript, ...]) -> str:
    """All exons with 50 bases around them, as BED."""
    return "".join(
        f"{genome.names[transcript.contig]}\t{start - _TARGET_PADDING_BP}\t{end + _TARGET_PADDING_BP}\n"
        for transcript in transcripts
        for start, end in transcript.exons
    )


def main() -> None:
    """Runs the module's command line."""
    parser = argparse.ArgumentParser(description="Writes a small simulated cohort and its sample sheet.")
    parser.add_argument("folder", type=Path, help="where to write")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(simulate_cohort(arguments.folder, arguments.seed))


if __name__ == "__main__":
    main()
