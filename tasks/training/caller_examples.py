"""Examples for the caller: call rows of simulated individuals, labelled with how many copies the truth holds."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tasks.calling.bam_stream import open_alignment
from tasks.calling.call_rows import collect_rows
from tasks.calling.evidence import NAMES
from tasks.files import whole_file
from tasks.intervals import from_position
from tasks.simulation.genome import simulate_genome
from tasks.simulation.individual import simulate_individual
from tasks.simulation.library import draw_library
from tasks.simulation.placing import Placer
from tasks.simulation.texts import write_fasta
from tasks.simulation.variants import simulate_alleles
from tasks.training.ancestry import POOL_FACTOR, draw_by_ancestry
from tasks.windows import CENTRE, UNKNOWN_TOKEN, WINDOW_BP

_STRETCH_BP = 100_000
_CONTIG_SHARES = (0.6, 0.4)
_HETEROZYGOSITY = (4e-4, 2e-3)
HARD_WEIGHT = 0.2
"""Hard individuals show what mistakes look like, but must not make them look as common as they are among them."""
_HARD_EVERY = 2
_HARD_HETEROZYGOSITY = (1.5e-4, 5e-4)
_DUPLICATED_SHARE = (0.03, 0.25)
_UNASSEMBLED_SHARE = (0.02, 0.15)
_STRUCTURE_PER_BP, _HARD_STRUCTURE_PER_BP = (1e-5, 3e-5), (3e-5, 1.5e-4)
_SYSTEMATIC_SHARE = (5e-4, 6e-3)
_MOST_OVERCONFIDENT, _MOST_CONTAMINATED = 0.12, 0.08
"""Every second individual has few variants, a genome full of paralogues and breakpoints, and a poor run: false
candidates then outnumber true ones, and the caller learns what they look like. The others are as the simulator makes
them by default, so that the share of true alleles among those that look well is a usual one."""


@dataclass(frozen=True, slots=True)
class CallExamples:
    """Examples of one or more individuals.

    Attributes:
        window: uint8 [n, WINDOW_BP], reference window of the allele.
        pileup: uint8 [n, positions, channels].
        evidence: float32 [n, columns].
        copies: int64 [n], how many of the individual's two haplotypes carry the allele.
        individual: int64 [n], which individual.
        num_missed: int64 [num_individuals, 2], SNVs and indels of the truth that no row shows.
        depth: float64 [num_individuals], mean depth of the library.
        weight: float32 [n], how much each counts where they are learnt from.
    """

    window: np.ndarray
    pileup: np.ndarray
    evidence: np.ndarray
    copies: np.ndarray
    individual: np.ndarray
    num_missed: np.ndarray
    depth: np.ndarray
    weight: np.ndarray

    @property
    def is_snv(self) -> np.ndarray:
        """Which examples are single-base changes: bool [n]."""
        is_snv: np.ndarray = self.evidence[:, NAMES.index("is_snv")] > 0.5
        return is_snv


def simulate_examples(folder: Path, seed: int, individual: int, genome_bp: int) -> Path:
    """Simulates one individual, on a genome of its own, and writes its examples; one that is there is kept.

    Args:
        folder: Where ``caller-SEED-INDIVIDUAL-BP.npz`` is written; the reads are removed again.
        seed: Seed of the whole training set.
        individual: Number of the individual; with the seed it decides everything.
        genome_bp: Length of the genome.

    Returns:
        The file of examples.
    """
    path = folder / f"caller-{seed}-{individual:04d}-{genome_bp}.npz"
    if path.exists():
        return path
    rng = np.random.default_rng([seed, individual])
    scratch = folder / f"individual-{individual:04d}"
    scratch.mkdir(parents=True, exist_ok=True)
    is_hard = is_hard_individual(individual)
    shares = {"duplicated_share": _DUPLICATED_SHARE, "unassembled_share": _UNASSEMBLED_SHARE} if is_hard else {}
    genome = simulate_genome(
        rng,
        [int(share * genome_bp) for share in _CONTIG_SHARES],
        **{name: _log_uniform(rng, bounds) for name, bounds in shares.items()},
    )
    heterozygosity = _log_uniform(rng, _HARD_HETEROZYGOSITY if is_hard else _HETEROZYGOSITY)
    alleles = simulate_alleles(rng, genome, heterozygosity=POOL_FACTOR * heterozygosity)
    carried = draw_by_ancestry(rng, alleles, heterozygosity, genome.num_bases)
    fasta = scratch / "genome.fa"
    write_fasta(fasta, genome)
    library = draw_library(rng)
    if is_hard:
        library = replace(
            library,
            systematic_share=_log_uniform(rng, _SYSTEMATIC_SHARE),
            overconfident_share=float(rng.uniform(0, _MOST_OVERCONFIDENT)),
            contamination_share=float(rng.uniform(0, _MOST_CONTAMINATED)),
        )
    files = simulate_individual(
        scratch,
        "individual",
        genome,
        alleles,
        rng,
        library,
        carried=carried,
        structure_per_bp=_log_uniform(rng, _HARD_STRUCTURE_PER_BP if is_hard else _STRUCTURE_PER_BP),
        placer=Placer(fasta, genome),
    )
    assert files.bam is not None, "a placer was given"
    truth = _read_truth(files.truth)
    windows, pileups, evidences, copies = [], [], [], []
    with open_alignment(files.bam, None, fasta) as alignment:
        for tid, (name, tokens) in enumerate(zip(genome.names, genome.tokens, strict=True)):
            padded = np.pad(tokens, WINDOW_BP, constant_values=UNKNOWN_TOKEN)
            for start in range(0, tokens.size, _STRETCH_BP):
                rows, _ = collect_rows(alignment, tid, tokens, start, min(start + _STRETCH_BP, tokens.size))
                keys = zip(rows.start.tolist(), rows.ref, rows.alt, strict=True)
                copies += [truth.pop((name, *key), 0) for key in keys]
                first = rows.start + WINDOW_BP - CENTRE
                windows.append(padded[first[:, None] + np.arange(WINDOW_BP)])
                pileups.append(rows.pileup)
                evidences.append(rows.evidence)
    missed = [sum(len(ref) == len(alt) for _, _, ref, alt in truth), 0]
    missed[1] = len(truth) - missed[0]
    with whole_file(path) as aside, open(aside, "wb") as handle:
        np.savez(
            handle,
            window=np.concatenate(windows),
            pileup=np.concatenate(pileups),
            evidence=np.concatenate(evidences),
            copies=np.array(copies, np.int64),
            num_missed=np.array([missed], np.int64),
            depth=np.array([library.depth]),
        )
    for file in sorted(scratch.iterdir()):
        file.unlink()
    scratch.rmdir()
    return path


def is_hard_individual(individual: int) -> bool:
    """Whether an individual of the training set has an unusually misleading genome and run."""
    return individual % _HARD_EVERY == _HARD_EVERY - 1


def load_examples(paths: list[Path]) -> CallExamples:
    """Joins the examples of individuals, which are numbered in the order given; hard ones count `HARD_WEIGHT`."""
    parts = [dict(np.load(path, allow_pickle=False)) for path in paths]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    sizes = [part["copies"].size for part in parts]
    individual = np.repeat(np.arange(len(parts)), sizes)
    weight = np.array([HARD_WEIGHT if is_hard_individual(number) else 1.0 for number in range(len(parts))], np.float32)
    return CallExamples(individual=individual, weight=weight[individual], **joined)


def select_individuals(examples: CallExamples, chosen: np.ndarray) -> CallExamples:
    """The examples of the individuals where `chosen`, bool [num_individuals], is true; they are numbered anew."""
    rows = chosen[examples.individual]
    return CallExamples(
        examples.window[rows],
        examples.pileup[rows],
        examples.evidence[rows],
        examples.copies[rows],
        (np.cumsum(chosen) - 1)[examples.individual[rows]],
        examples.num_missed[chosen],
        examples.depth[chosen],
        examples.weight[rows],
    )


def _log_uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(*np.log(bounds))))


def _read_truth(path: Path) -> dict[tuple[str, int, str, str], int]:
    """Copies of each allele of a one-sample VCF with one ALT a record."""
    truth: dict[tuple[str, int, str, str], int] = {}
    with gzip.open(path, "rt") as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            contig, position, _, ref, alt, *_, genotype = line.rstrip("\n").split("\t")
            copies = genotype.split(":")[0].count("1")
            if copies:
                truth[contig, from_position(int(position)), ref, alt] = copies
    return truth
