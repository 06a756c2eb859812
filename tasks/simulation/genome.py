"""A simulated reference genome: contigs whose sequence is as uneven as a real one where it misleads a caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.uint8]

UNKNOWN = 4
BASES = np.frombuffer(b"ACGTN", np.uint8)
_GC_MEAN, _GC_SD, _GC_SPAN_BP = 0.41, 0.07, 2000
_CPG_LOST = 0.75
"""Share of CpG that decayed to TpG or CpA. Source: observed/expected CpG of 0.2-0.25 in the human genome."""
_HOMOPOLYMERS_PER_BP, _MICROSATELLITES_PER_BP = 1 / 900, 1 / 2200
_ALU_SHARE, _LINE_SHARE = 0.08, 0.10
_ALU_BP, _LINE_BP = 290, 6000
_SUBFAMILIES, _SUBFAMILY_DIVERGENCE = 4, (0.03, 0.10)
_COPY_DIVERGENCE = (0.01, 0.2)
"""Copies of a transposon differ from their subfamily by age. Source: Smit 1999, Curr. Opin. Genet. Dev. 9:657."""
_UNITS = ("AC", "AC", "AT", "AG", "AAT", "AAC", "AAAT", "AAAG", "GATA", "AAAAT")


@dataclass(frozen=True, slots=True)
class Genome:
    """Contigs of a simulated reference.

    Attributes:
        names: Contig names in reference order.
        tokens: One uint8 [length_bp] array per contig, A0 C1 G2 T3, 4 elsewhere.
        soft_masked: One bool [length_bp] array per contig: interspersed repeats, written in lower case.
        unassembled: uint8 sequences that every individual carries and the reference lacks: diverged copies of
            reference segments, whose reads are placed on the copy that is there.
        elements: uint8 sequences of the transposons whose copies the genome is strewn with.
    """

    names: tuple[str, ...]
    tokens: tuple[Tokens, ...]
    soft_masked: tuple[npt.NDArray[np.bool_], ...]
    unassembled: tuple[Tokens, ...]
    elements: tuple[Tokens, ...]

    @property
    def num_bases(self) -> int:
        """Summed length of the contigs in bases, N runs included."""
        return sum(len(tokens) for tokens in self.tokens)


def simulate_genome(
    rng: np.random.Generator,
    lengths_bp: Sequence[int],
    *,
    duplicated_share: float = 0.05,
    unassembled_share: float = 0.004,
) -> Genome:
    """Makes contigs named ``chr1``, ``chr2``, ... of the given lengths.

    Background with slowly varying GC and lost CpG, then interspersed repeats, homopolymers, microsatellites, segmental
    duplications (1-20 kb at 0.2-5 % divergence, on any contig and strand), N runs at both ends and inside.

    Args:
        rng: Source of all randomness.
        lengths_bp: Length of each contig; at least 10,000.
        duplicated_share: Share of the genome that is a copy of another part of it.
        unassembled_share: Summed length of the copies the reference lacks, as a share of the genome.
    """
    alus, lines = (_subfamilies(rng, length_bp) for length_bp in (_ALU_BP, _LINE_BP))
    contigs = [_background(rng, length_bp) for length_bp in lengths_bp]
    masks = [np.zeros(length_bp, np.bool_) for length_bp in lengths_bp]
    for tokens, mask in zip(contigs, masks, strict=True):
        _plant_family(rng, tokens, mask, lines, share=_LINE_SHARE, whole=False)
        _plant_family(rng, tokens, mask, alus, share=_ALU_SHARE, whole=True)
        _plant_tandem_repeats(rng, tokens)
    duplicated = _plant_duplications(rng, contigs, duplicated_share)
    unassembled = _copies(rng, contigs, unassembled_share, duplicated)
    for tokens in contigs:
        _plant_gaps(rng, tokens)
    names = tuple(f"chr{number}" for number in range(1, len(contigs) + 1))
    return Genome(names, tuple(contigs), tuple(masks), tuple(unassembled), (*alus, *lines))


def decode(tokens: Tokens) -> str:
    """Spells uint8 [n] tokens as upper-case text, N for 4."""
    return BASES[tokens].tobytes().decode("ascii")


def encode(text: str) -> Tokens:
    """Reads upper-case text into uint8 [n] tokens."""
    table = np.full(256, UNKNOWN, np.uint8)
    table[BASES[:4]] = np.arange(4)
    return table[np.frombuffer(text.encode("ascii"), np.uint8)]


def reverse_complement(tokens: Tokens) -> Tokens:
    """The other strand of uint8 [n] tokens; 4 stays 4."""
    return np.array([3, 2, 1, 0, 4], np.uint8)[tokens[::-1]]


def mutate(rng: np.random.Generator, tokens: Tokens, divergence: float) -> Tokens:
    """A copy with `divergence` differences a base: nine substitutions to one single-base insertion or deletion."""
    copy = tokens.copy()
    at = rng.random(len(copy)) < 0.9 * divergence
    copy[at] = (copy[at] + rng.integers(1, 4, int(at.sum()), np.uint8)) % 4
    repeats = np.ones(len(copy), np.int64)
    repeats[rng.random(len(copy)) < 0.05 * divergence] = 0
    repeats[rng.random(len(copy)) < 0.05 * divergence] = 2
    return np.repeat(copy, repeats)


def _background(rng: np.random.Generator, length_bp: int) -> Tokens:
    knots = rng.normal(_GC_MEAN, _GC_SD, length_bp // _GC_SPAN_BP + 2)
    gc = np.interp(np.arange(length_bp) / _GC_SPAN_BP, np.arange(len(knots)), knots)
    is_gc = rng.random(length_bp) < np.clip(gc, 0.25, 0.7)
    second = rng.random(length_bp) < 0.5
    tokens = np.where(is_gc, np.where(second, 1, 2), np.where(second, 0, 3)).astype(np.uint8)
    cpg = np.flatnonzero((tokens[:-1] == 1) & (tokens[1:] == 2) & (rng.random(length_bp - 1) < _CPG_LOST))
    to_tpg = rng.random(len(cpg)) < 0.5
    tokens[cpg[to_tpg]] = 3
    tokens[cpg[~to_tpg] + 1] = 0
    return tokens


def copy_element(rng: np.random.Generator, element: Tokens, length_bp: int, divergence: float) -> Tokens:
    """A copy of a transposon's last `length_bp` bases with an A tail, on a random strand."""
    tail = np.zeros(rng.geometric(1 / 14), np.uint8)
    copy = np.concatenate([mutate(rng, element[-length_bp:], divergence), tail])
    return copy if rng.random() < 0.5 else reverse_complement(copy)


def _subfamilies(rng: np.random.Generator, length_bp: int) -> list[Tokens]:
    master = _background(rng, length_bp)
    return [mutate(rng, master, rng.uniform(*_SUBFAMILY_DIVERGENCE)) for _ in range(_SUBFAMILIES)]


def _plant_family(
    rng: np.random.Generator,
    tokens: Tokens,
    mask: npt.NDArray[np.bool_],
    family: list[Tokens],
    *,
    share: float,
    whole: bool,
) -> None:
    """Pastes diverged copies of a transposon (5' truncated unless `whole`) over `share` of a contig."""
    left = int(share * len(tokens))
    while left > 0:
        element = family[rng.integers(len(family))]
        length_bp = len(element) if whole else min(len(element), 200 + int(rng.exponential(900)))
        copy = copy_element(rng, element, length_bp, float(np.exp(rng.uniform(*np.log(_COPY_DIVERGENCE)))))
        start = int(rng.integers(0, len(tokens)))
        end = min(len(tokens), start + len(copy))
        tokens[start:end] = copy[: end - start]
        mask[start:end] = True
        left -= len(copy)


def _plant_tandem_repeats(rng: np.random.Generator, tokens: Tokens) -> None:
    """Pastes homopolymers (mostly A/T, 6 bp and longer) and microsatellites (units of 2-5 bp, some interrupted)."""
    for _ in range(int(len(tokens) * _HOMOPOLYMERS_PER_BP)):
        base = rng.choice(4, p=(0.43, 0.07, 0.07, 0.43))
        _paste(rng, tokens, np.full(min(6 + rng.geometric(0.2), 40), base, np.uint8))
    for _ in range(int(len(tokens) * _MICROSATELLITES_PER_BP)):
        unit = encode(_UNITS[rng.integers(len(_UNITS))])
        tract = np.tile(unit, 4 + rng.geometric(0.12))[:80]
        if rng.random() < 0.3:
            tract = mutate(rng, tract, 0.05)
        _paste(rng, tokens, tract if rng.random() < 0.5 else reverse_complement(tract))


def _paste(rng: np.random.Generator, tokens: Tokens, piece: Tokens) -> int:
    start = int(rng.integers(0, len(tokens) - len(piece)))
    tokens[start : start + len(piece)] = piece
    return start


def _copies(
    rng: np.random.Generator, contigs: list[Tokens], share: float, duplicated: list[tuple[int, int, int]]
) -> list[Tokens]:
    """Diverged copies of segments until their lengths sum to `share` of the contigs.

    Every second one is a copy of a place in `duplicated` (contig, start, end) when there is any: its reads then fit
    two places nearly as well.
    """
    left = int(share * sum(map(len, contigs)))
    copies = []
    while left > 0:
        length_bp = int(min(np.exp(rng.uniform(np.log(1000), np.log(20_000))), left + 1000))
        if duplicated and rng.random() < 0.5:
            contig, start, end = duplicated[rng.integers(len(duplicated))]
            end = min(end, start + length_bp)
        else:
            contig = int(rng.integers(len(contigs)))
            length_bp = min(length_bp, len(contigs[contig]) // 4)
            start = int(rng.integers(0, len(contigs[contig]) - length_bp))
            end = start + length_bp
        divergence = float(np.exp(rng.uniform(np.log(0.002), np.log(0.05))))
        copy = mutate(rng, contigs[contig][start:end], divergence)
        copies.append(copy if rng.random() < 0.5 else reverse_complement(copy))
        left -= len(copy)
    return copies


def _plant_duplications(rng: np.random.Generator, contigs: list[Tokens], share: float) -> list[tuple[int, int, int]]:
    """Pastes copies over other places; returns contig, start and end of each."""
    places = []
    for copy in _copies(rng, contigs, share, []):
        contig = int(rng.integers(len(contigs)))
        piece = copy[: min(map(len, contigs)) // 2]
        start = _paste(rng, contigs[contig], piece)
        places.append((contig, start, start + len(piece)))
    return places


def _plant_gaps(rng: np.random.Generator, tokens: Tokens) -> None:
    """Writes N over both ends of a contig and one place inside, about 1 % of it together."""
    unit_bp = max(20, len(tokens) // 400)
    tokens[: rng.integers(unit_bp, 2 * unit_bp)] = UNKNOWN
    tokens[len(tokens) - rng.integers(unit_bp, 2 * unit_bp) :] = UNKNOWN
    start = int(rng.integers(len(tokens) // 4, len(tokens) // 2))
    tokens[start : start + rng.integers(20, unit_bp + 20)] = UNKNOWN
