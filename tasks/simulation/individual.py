"""One sequenced individual: its truth, its reads, and the reads placed on the reference."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.files import make_folder
from tasks.simulation.fragments import draw_fragments, share_out
from tasks.simulation.genome import Genome
from tasks.simulation.haplotypes import Molecules, build_haplotypes
from tasks.simulation.library import Library
from tasks.simulation.placing import Placer, sort_alignments
from tasks.simulation.reads import Pairs, Sequencer
from tasks.simulation.structure import NO_STRUCTURE, Structure, draw_structure
from tasks.simulation.texts import FastqWriter, write_vcf
from tasks.simulation.variants import Alleles, atomise

_PAIRS_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class Individual:
    """The files of one individual; `bam` and `fastq` are None where they were not asked for."""

    truth: Path
    bam: Path | None
    fastq: tuple[Path, Path] | None


def simulate_individual(
    folder: Path,
    name: str,
    genome: Genome,
    alleles: Alleles,
    rng: np.random.Generator,
    library: Library,
    *,
    carried: npt.NDArray[np.bool_] | None = None,
    structure_per_bp: float = 0.0,
    placer: Placer | None = None,
    fastq: bool = False,
) -> Individual:
    """Writes ``NAME.truth.vcf.gz`` and, as asked, ``NAME.bam`` (sorted, indexed) and ``NAME_R1.fastq.gz``, ``_R2``.

    Args:
        folder: Where to write; made when missing.
        name: The individual's sample name.
        genome: The reference.
        alleles: The population it belongs to; a contaminant is another draw from it.
        rng: Source of all randomness.
        library: How it is sequenced.
        carried: bool [num_alleles, 2], its haplotypes; drawn from the population when None.
        structure_per_bp: Large deletions and insertions a base, which the truth does not hold.
        placer: Aligns the reads; no BAM when None.
        fastq: Whether to write the reads as FASTQ.

    Returns:
        The files. The truth holds every carried allele, trimmed, left-aligned, phased, MNVs split into SNVs, sites
        with two alternatives as two records.
    """
    make_folder(folder)
    if carried is None:
        carried = alleles.draw(rng)
    structure, carried = draw_structure(rng, genome, alleles, carried, structure_per_bp)
    truth = folder / f"{name}.truth.vcf.gz"
    primitive, primitive_carried = atomise(alleles, carried)
    write_vcf(truth, genome, primitive, [name], primitive_carried[:, None])
    if placer is None and not fastq:
        return Individual(truth, None, None)
    individual = Individual(
        truth,
        folder / f"{name}.bam" if placer else None,
        (folder / f"{name}_R1.fastq.gz", folder / f"{name}_R2.fastq.gz") if fastq else None,
    )
    batches = sequence_individual(genome, alleles, carried, rng, library, structure)
    _write_reads(individual, name, batches, placer)
    return individual


def sequence_individual(
    genome: Genome,
    alleles: Alleles,
    carried: npt.NDArray[np.bool_],
    rng: np.random.Generator,
    library: Library,
    structure: Structure = NO_STRUCTURE,
) -> Iterator[Pairs]:
    """Yields the read pairs of an individual, at most 20,000 at once, haplotype after haplotype."""
    sources = list(build_haplotypes(genome, alleles, carried, structure))
    weights = [1 - library.contamination_share] * 2
    if library.contamination_share > 0:
        sources += build_haplotypes(genome, alleles, alleles.draw(rng))
        weights += [library.contamination_share] * 2
    num_bases = genome.num_bases + sum(map(len, genome.unassembled))
    num_pairs = int(library.depth * num_bases / (2 * library.read_length_bp))
    for molecules, share in zip(sources, share_out(rng, num_pairs, weights), strict=True):
        yield from _sequence(molecules, share, rng, library)


def _sequence(molecules: Molecules, num_pairs: int, rng: np.random.Generator, library: Library) -> Iterator[Pairs]:
    fragments = draw_fragments(rng, molecules, num_pairs, library)
    sequencer = Sequencer(molecules, library)
    for first in range(0, len(fragments.start), _PAIRS_AT_ONCE):
        yield sequencer.read(rng, fragments, slice(first, first + _PAIRS_AT_ONCE))


def _write_reads(individual: Individual, name: str, batches: Iterator[Pairs], placer: Placer | None) -> None:
    writer = FastqWriter(*individual.fastq, name) if individual.fastq else None
    with tempfile.TemporaryDirectory() as scratch:
        sam = Path(scratch) / "reads.sam"
        with open(sam, "w") as lines:
            if placer:
                lines.write(placer.header(name))
            num_pairs = 0
            for pairs in batches:
                if placer:
                    placer.place(pairs, name, num_pairs, lines)
                if writer:
                    writer.write(pairs)
                num_pairs += len(pairs.bases)
        if individual.bam:
            sort_alignments(sam, individual.bam)
    if writer:
        writer.close()
