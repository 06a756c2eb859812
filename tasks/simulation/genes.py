"""Simulated genes: transcripts with introns, whose signals stand in the genome's sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tasks.simulation.genome import UNKNOWN, Genome, Tokens, encode, reverse_complement

_BP_PER_GENE = 14_000
_PROMOTER_BP, _MOTIF_PLACE = 100, 40
MOTIF = "GGGCGGAAGTGA"
"""What stands 60 bases before each simulated gene; loosely an SP1 and ETS site."""
_KOZAK = "GCCACC"
DONOR, ACCEPTOR = "GTAAGT", "CAG"
"""How introns begin and end; GT and AG always do."""
_SIGNAL_KEPT = 0.85
"""Share of splice signal bases, beyond GT and AG, that follow the consensus."""
_TRACT_BP, _PYRIMIDINES = 16, 0.85
STOPS = ("TAA", "TAG", "TGA")
"""The codons that end a protein."""
_CODON_SKEW = 1.3
"""Standard deviation of log codon weights: coding sequence can be told from its codons alone."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """One simulated transcript; it is its gene.

    Attributes:
        name: Its name, also the gene's.
        contig: Index of its contig.
        reverse: Whether it lies on the reverse strand.
        exons: [start, end) on the contig, 0-based, by start.
        coding: [start, end) of the coding sequence, start and stop codon included, introns inside.
        motif: [start, end) of its promoter motif.
    """

    name: str
    contig: int
    reverse: bool
    exons: tuple[tuple[int, int], ...]
    coding: tuple[int, int]
    motif: tuple[int, int]

    @property
    def span(self) -> tuple[int, int]:
        """[start, end) on the contig of everything planted: exons, introns, motif."""
        return min(self.exons[0][0], self.motif[0]), max(self.exons[-1][1], self.motif[1])


def plant_genes(rng: np.random.Generator, genome: Genome) -> tuple[Genome, tuple[Transcript, ...]]:
    """Writes genes over a genome, about one every 14,000 bases, none over an N or another gene.

    Each has a promoter motif, untranslated ends, a Kozak start, codons from one skewed table, a stop, and introns that
    begin with GT and end with AG within degenerate consensus signals.

    Returns:
        The new genome and its transcripts in reference order.
    """
    contigs = [tokens.copy() for tokens in genome.tokens]
    codons, weights = _codon_table()
    transcripts: list[Transcript] = []
    for contig, tokens in enumerate(contigs):
        position = int(rng.integers(0, _BP_PER_GENE))
        while True:
            layout = _Layout.draw(rng)
            end = position + layout.length_bp
            if end >= len(tokens):
                break
            if not (tokens[position:end] == UNKNOWN).any():
                reverse = bool(rng.random() < 0.5)
                gene = tokens[position:end]
                gene = reverse_complement(gene) if reverse else gene.copy()
                layout.write(rng, gene, codons, weights)
                tokens[position:end] = reverse_complement(gene) if reverse else gene
                name = f"GENE{len(transcripts) + 1}"
                transcripts.append(layout.transcript(name, contig, position, reverse))
            position = end + int(rng.exponential(_BP_PER_GENE - 5000)) + 200
    return replace(genome, tokens=tuple(contigs)), tuple(transcripts)


def bed_lines(genome: Genome, transcripts: Sequence[Transcript]) -> str:
    """The transcripts as BED12 text."""
    lines = []
    for transcript in transcripts:
        start, end = transcript.exons[0][0], transcript.exons[-1][1]
        sizes = ",".join(str(last - first) for first, last in transcript.exons)
        starts = ",".join(str(first - start) for first, _ in transcript.exons)
        columns = (genome.names[transcript.contig], start, end, transcript.name, 0, "-" if transcript.reverse else "+")
        thick = (*transcript.coding, 0, len(transcript.exons), sizes, starts)
        lines.append("\t".join(map(str, (*columns, *thick))) + "\n")
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class _Layout:
    """A gene in its own direction: promoter, then exons; coordinates from the promoter's first base."""

    exons: tuple[tuple[int, int], ...]
    coding: tuple[int, int]

    @classmethod
    def draw(cls, rng: np.random.Generator) -> _Layout:
        """Draws 2-9 exons of about 140 bases and introns of 70 bases and more; the coding length is whole codons."""
        num_exons = int(rng.integers(2, 10))
        lengths_bp = np.maximum(45, np.rint(np.exp(rng.normal(np.log(140), 0.4, num_exons)))).astype(int)
        first_utr_bp, last_utr_bp = int(rng.integers(20, 120)), int(rng.integers(60, 300))
        lengths_bp[0] += first_utr_bp
        lengths_bp[-1] += last_utr_bp
        lengths_bp[-1] -= (lengths_bp.sum() - first_utr_bp - last_utr_bp) % 3
        exons, position = [], _PROMOTER_BP
        for length_bp in lengths_bp:
            exons.append((position, position + int(length_bp)))
            position += int(length_bp) + 70 + int(rng.exponential(500))
        return cls(tuple(exons), (exons[0][0] + first_utr_bp, exons[-1][1] - last_utr_bp))

    @property
    def length_bp(self) -> int:
        """Bases from the promoter to the end of the last exon."""
        return self.exons[-1][1]

    def write(self, rng: np.random.Generator, gene: Tokens, codons: Tokens, weights: npt.NDArray[np.float64]) -> None:
        """Writes all signals into uint8 [length_bp] tokens in the gene's direction."""
        gene[_MOTIF_PLACE : _MOTIF_PLACE + len(MOTIF)] = encode(MOTIF)
        start, end = self.coding
        gene[start - len(_KOZAK) : start] = _degenerate(rng, encode(_KOZAK))
        coding = np.concatenate([np.arange(max(first, start), min(last, end)) for first, last in self.exons])
        text = codons[rng.choice(len(codons), len(coding) // 3, p=weights)]
        text[0], text[-1] = encode("ATG"), encode(STOPS[rng.integers(3)])
        gene[coding] = text.reshape(-1)
        for (_, donor), (acceptor, _) in zip(self.exons[:-1], self.exons[1:], strict=True):
            gene[donor : donor + len(DONOR)] = _degenerate(rng, encode(DONOR), kept=slice(0, 2))
            tract = rng.choice(4, _TRACT_BP, p=_tract_weights())
            gene[acceptor - 4 - _TRACT_BP : acceptor - 4] = tract
            gene[acceptor - 3 : acceptor] = _degenerate(rng, encode(ACCEPTOR), kept=slice(1, 3))

    def transcript(self, name: str, contig: int, position: int, reverse: bool) -> Transcript:
        """Places the gene on a contig, its leftmost base at `position`."""

        def placed(interval: tuple[int, int]) -> tuple[int, int]:
            first, last = interval
            if reverse:
                first, last = self.length_bp - last, self.length_bp - first
            return position + first, position + last

        exons = tuple(sorted(map(placed, self.exons)))
        motif = placed((_MOTIF_PLACE, _MOTIF_PLACE + len(MOTIF)))
        return Transcript(name, contig, reverse, exons, placed(self.coding), motif)


def _tract_weights() -> tuple[float, ...]:
    return tuple(_PYRIMIDINES / 2 if base in "CT" else (1 - _PYRIMIDINES) / 2 for base in "ACGT")


def _degenerate(rng: np.random.Generator, consensus: Tokens, kept: slice = slice(0, 0)) -> Tokens:
    """A site that follows its consensus but for some bases outside `kept`."""
    change = rng.random(len(consensus)) >= _SIGNAL_KEPT
    change[kept] = False
    return np.where(change, rng.integers(0, 4, len(consensus)), consensus).astype(np.uint8)


def _codon_table() -> tuple[Tokens, npt.NDArray[np.float64]]:
    """The 61 codons that are no stops, uint8 [61, 3], and how often each is used; the same in every genome."""
    texts = [first + second + third for first in "ACGT" for second in "ACGT" for third in "ACGT"]
    codons = np.stack([encode(text) for text in texts if text not in STOPS])
    weights = np.exp(np.random.default_rng(64).normal(0, _CODON_SKEW, len(codons)))
    return codons, weights / weights.sum()
