"""Labelled alleles of simulated genomes, as the windows that the models see."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.genome.reference import prepare_reference
from tasks.simulation.consequences import damages
from tasks.simulation.genes import Transcript, plant_genes
from tasks.simulation.genome import UNKNOWN, Genome, decode, simulate_genome
from tasks.simulation.texts import write_fasta
from tasks.simulation.variants import simulate_alleles
from tasks.windows import alternate_windows, column_bases, reference_windows

_HETEROZYGOSITY = 2e-3
_NEAR_BP = 12
_NEAR_PER_GENE, _CODING_PER_GENE = 160, 120
_NEGATIVES_PER_POSITIVE = 3.0


@dataclass(frozen=True, slots=True)
class EffectExamples:
    """n alleles with windows and labels.

    Attributes:
        reference_window: uint8 [n, 128].
        alternate_window: uint8 [n, 128].
        label: float32 [n], 1 for damaging.
    """

    reference_window: npt.NDArray[np.uint8]
    alternate_window: npt.NDArray[np.uint8]
    label: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.label)


def draw_effect_examples(rng: np.random.Generator, length_bp: int) -> EffectExamples:
    """Simulates a genome with genes, and labels alleles of it.

    Alleles of a natural population, and others thrown near the genes' signals and into coding sequence, so that an
    undamaging allele is often close to a signal too. Three negatives to a positive, in random order.
    """
    genome, transcripts = plant_genes(rng, simulate_genome(rng, [length_bp]))
    population = simulate_alleles(rng, genome, heterozygosity=_HETEROZYGOSITY)
    start, ref, alt = _thrown(rng, genome, transcripts)
    start = np.concatenate([population.start, start])
    ref, alt = population.ref + ref, population.alt + alt
    contig = np.zeros(len(start), np.int32)
    label = damages(genome, transcripts, contig, start, ref, alt)
    rows = _balanced(rng, label)
    with tempfile.TemporaryDirectory() as scratch:
        fasta = Path(scratch) / "genome.fa"
        write_fasta(fasta, genome)
        reference = prepare_reference(fasta, Path(scratch) / "reference")
        ref_bp = np.array([len(ref[row]) for row in rows], np.int64)
        bases = column_bases(pa.array([alt[row] for row in rows], pa.string()))
        return EffectExamples(
            reference_windows(reference, contig[rows], start[rows]),
            alternate_windows(reference, contig[rows], start[rows], ref_bp, bases),
            label[rows].astype(np.float32),
        )


def _balanced(rng: np.random.Generator, label: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    positive, negative = np.flatnonzero(label), np.flatnonzero(~label)
    num_negative = min(len(negative), int(_NEGATIVES_PER_POSITIVE * len(positive)))
    rows = np.concatenate([positive, rng.permutation(negative)[:num_negative]])
    return rng.permutation(rows)


def _thrown(
    rng: np.random.Generator, genome: Genome, transcripts: Sequence[Transcript]
) -> tuple[npt.NDArray[np.int64], list[str], list[str]]:
    """Random alleles near signals and in coding sequence of the genome's one contig: start, ref, alt."""
    places: list[npt.NDArray[np.int64]] = []
    for transcript in transcripts:
        edges = [*transcript.coding, *transcript.motif, *(edge for exon in transcript.exons for edge in exon)]
        near = rng.choice(edges, _NEAR_PER_GENE) + rng.integers(-_NEAR_BP, _NEAR_BP, _NEAR_PER_GENE)
        exons = np.concatenate([np.arange(first, last) for first, last in transcript.exons])
        places += [near, rng.choice(exons, _CODING_PER_GENE)]
    tokens = genome.tokens[0]
    start: list[int] = []
    ref: list[str] = []
    alt: list[str] = []
    for place in map(int, np.concatenate(places)):
        if place < 100 or place + 100 > len(tokens) or (tokens[place - 1 : place + 30] == UNKNOWN).any():
            continue
        change = _substitution(rng, genome, place) if rng.random() < 0.8 else _indel(rng, genome, place)
        if change is not None:
            start.append(place)
            ref.append(change[0])
            alt.append(change[1])
    return np.array(start, np.int64), ref, alt


def _substitution(rng: np.random.Generator, genome: Genome, place: int) -> tuple[str, str]:
    token = int(genome.tokens[0][place])
    return "ACGT"[token], "ACGT"[(token + int(rng.integers(1, 4))) % 4]


def _indel(rng: np.random.Generator, genome: Genome, place: int) -> tuple[str, str] | None:
    """An indel anchored at `place`; None where it could be moved further left."""
    length_bp = min(int(rng.geometric(0.35)), 20)
    anchor = decode(genome.tokens[0][place : place + 1])
    if rng.random() < 0.5:
        piece = decode(genome.tokens[0][place + 1 : place + 1 + length_bp])
        return None if piece[-1] == anchor else (anchor + piece, anchor)
    piece = decode(rng.integers(0, 4, length_bp, np.uint8))
    return None if piece[-1] == anchor else (anchor, anchor + piece)
