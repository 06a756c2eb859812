"""Variation of a simulated population: alleles with frequencies, and the haplotypes an individual draws from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.simulation.genome import UNKNOWN, Genome, Tokens, decode, encode
from tasks.simulation.tracts import find_tracts

_RAREST = 1e-3
_INDELS_PER_SNV = 1 / 7
_MNV_SHARE, _SECOND_SNV, _SECOND_INDEL = 0.012, 0.006, 0.10
_TRANSITION_SHARE, _CPG_WEIGHT = 0.67, 8.0
_INDEL_IN_TRACT = 0.6
_LENGTHS = np.arange(1, 61)
_LENGTH_WEIGHTS = _LENGTHS**-1.9 * np.where(_LENGTHS % 4 == 0, 1.8, 1.0)
"""Indel lengths: a power law with more multiples of four. Source: Mills et al. 2011, Genome Research 21:830."""
_TRANSITION = np.array([2, 3, 0, 1], np.uint8)


@dataclass(frozen=True, slots=True)
class Alleles:
    """Alternative alleles of a population, trimmed, left-aligned, in reference order.

    Attributes:
        contig: int32 [n], index of the contig.
        start: int64 [n], 0-based start of `ref` (of the anchor base for an indel).
        ref: n upper-case reference alleles.
        alt: n upper-case alternative alleles.
        site: int32 [n], non-decreasing; alleles that share a number cannot be on one haplotype together.
        frequency: float64 [n], share of haplotypes that carry the allele.
    """

    contig: npt.NDArray[np.int32]
    start: npt.NDArray[np.int64]
    ref: list[str]
    alt: list[str]
    site: npt.NDArray[np.int32]
    frequency: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.start)

    def draw(self, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Draws one individual: bool [n, 2], which allele its two haplotypes carry."""
        num_sites = int(self.site[-1]) + 1 if len(self) else 0
        second = np.concatenate([[False], self.site[1:] == self.site[:-1]]) if len(self) else np.zeros(0, np.bool_)
        low = np.where(second, np.roll(self.frequency, 1), 0.0)[:, None]
        place = rng.random((num_sites, 2))[self.site]
        return (place >= low) & (place < low + self.frequency[:, None])


def simulate_alleles(rng: np.random.Generator, genome: Genome, *, heterozygosity: float = 0.9e-3) -> Alleles:
    """Draws the alleles of a population.

    Frequencies follow the neutral law (density 1/x above 0.001), so that an individual has about twice as many
    heterozygous as homozygous sites. SNVs have a transition to transversion ratio near 2 and favour CpG; indels
    follow a power law of length and favour homopolymers and microsatellites; some sites have two alternatives.

    Args:
        rng: Source of all randomness.
        genome: The reference; no allele touches an N.
        heterozygosity: Expected heterozygous SNVs a base of an individual.
    """
    contig: list[int] = []
    start: list[int] = []
    ref: list[str] = []
    alt: list[str] = []
    site: list[int] = []
    frequency: list[float] = []
    num_sites = 0
    for index, tokens in enumerate(genome.tokens):
        taken_until = 1
        for first, last, alternatives in _sites(rng, tokens, heterozygosity):
            if first <= taken_until or (tokens[first - 1 : last + 1] == UNKNOWN).any() or last + 1 >= len(tokens):
                continue
            taken_until = last
            shares = _RAREST ** rng.random() * rng.dirichlet(np.ones(len(alternatives)))
            for (at, before, after), share in sorted(zip(alternatives, shares, strict=True), key=lambda item: item[0]):
                contig.append(index)
                start.append(at)
                ref.append(before)
                alt.append(after)
                site.append(num_sites)
                frequency.append(float(share))
            num_sites += 1
    order = np.lexsort((np.array(start), np.array(contig)))
    assert (np.diff(np.array(site)[order]) >= 0).all(), "sites do not overlap, so their order is the alleles' order"
    return Alleles(
        np.array(contig, np.int32)[order],
        np.array(start, np.int64)[order],
        [ref[at] for at in order],
        [alt[at] for at in order],
        np.array(site, np.int32)[order],
        np.array(frequency)[order],
    )


def atomise(alleles: Alleles, carried: npt.NDArray[np.bool_]) -> tuple[Alleles, npt.NDArray[np.bool_]]:
    """Splits MNVs into their SNVs (all other alleles stay): the primitive alleles a pileup can show."""
    rows = [(at, offset) for at in range(len(alleles)) for offset in _differences(alleles.ref[at], alleles.alt[at])]
    at = np.array([row for row, _ in rows], np.int64)
    offset = np.array([0 if place is None else place for _, place in rows], np.int64)
    ref = [alleles.ref[row] if place is None else alleles.ref[row][place] for row, place in rows]
    alt = [alleles.alt[row] if place is None else alleles.alt[row][place] for row, place in rows]
    split = Alleles(alleles.contig[at], alleles.start[at] + offset, ref, alt, alleles.site[at], alleles.frequency[at])
    return split, carried[at]


Change = tuple[int, str, str]
Site = tuple[int, int, list[Change]]


def _sites(rng: np.random.Generator, tokens: Tokens, heterozygosity: float) -> list[Site]:
    """Proposed sites of a contig by first base: [first, last] bases that they touch, and alternatives."""
    num_snvs = int(len(tokens) * heterozygosity * np.log(1 / _RAREST))
    sites = _snv_sites(rng, tokens, num_snvs) + _indel_sites(rng, tokens, int(num_snvs * _INDELS_PER_SNV))
    return sorted(sites, key=lambda site: site[:2])


def _snv_sites(rng: np.random.Generator, tokens: Tokens, num_sites: int) -> list[Site]:
    is_cpg = np.zeros(len(tokens), np.bool_)
    cpg = np.flatnonzero((tokens[:-1] == 1) & (tokens[1:] == 2))
    is_cpg[cpg] = is_cpg[cpg + 1] = True
    proposed = rng.integers(1, len(tokens) - 4, num_sites * int(2 * _CPG_WEIGHT))
    keep = rng.random(len(proposed)) < np.where(is_cpg[proposed], 1.0, 1 / _CPG_WEIGHT)
    sites: list[Site] = []
    for at in np.unique(proposed[keep & (tokens[proposed] < UNKNOWN)]):
        length_bp = 2 + int(rng.random() < 0.2) if rng.random() < _MNV_SHARE else 1
        ref = decode(tokens[at : at + length_bp])
        if "N" in ref:
            continue
        alts = {"".join(_substitute(rng, base) for base in ref)}
        if rng.random() < _SECOND_SNV and length_bp == 1:
            alts.add(_substitute(rng, ref))
        sites.append((int(at), int(at) + length_bp - 1, [(int(at), ref, alt) for alt in sorted(alts)]))
    chosen = rng.permutation(len(sites))[:num_sites]
    return [sites[row] for row in chosen]


def _substitute(rng: np.random.Generator, base: str) -> str:
    token = int(encode(base)[0])
    transition = int(_TRANSITION[token])
    if rng.random() < _TRANSITION_SHARE:
        return "ACGT"[transition]
    return "ACGT"[rng.choice([other for other in range(4) if other not in (token, transition)])]


def _indel_sites(rng: np.random.Generator, tokens: Tokens, num_sites: int) -> list[Site]:
    tracts = find_tracts(tokens)
    weight = (tracts.length_bp / tracts.unit_bp) ** 2.0
    num_in_tracts = int(num_sites * _INDEL_IN_TRACT) if len(tracts.start) else 0
    sites: list[Site] = []
    for row in rng.choice(len(tracts.start), num_in_tracts, p=weight / weight.sum()) if num_in_tracts else ():
        first, unit_bp, length_bp = (int(column[row]) for column in (tracts.start, tracts.unit_bp, tracts.length_bp))
        num_alts = 1 + int(rng.random() < 2 * _SECOND_INDEL)
        steps = {int(rng.choice((-1, 1)) * min(rng.geometric(0.65), length_bp // unit_bp - 1)) for _ in range(num_alts)}
        changes = [_tract_change(tokens, first, unit_bp, step) for step in sorted(steps) if step]
        if changes:
            sites.append((first - 1, first + length_bp, changes))
    for at in rng.integers(70, len(tokens) - 140, num_sites - num_in_tracts):
        change = _random_indel(rng, tokens, int(at))
        if change is not None:
            sites.append(change)
    return sites


def _tract_change(tokens: Tokens, first: int, unit_bp: int, step: int) -> Change:
    """Adds (or takes) `step` units at the left end of a tract; `first - 1` is the anchor."""
    anchor, change = decode(tokens[first - 1 : first]), decode(tokens[first : first + unit_bp]) * abs(step)
    return (first - 1, anchor, anchor + change) if step > 0 else (first - 1, anchor + change, anchor)


def _random_indel(rng: np.random.Generator, tokens: Tokens, at: int) -> Site | None:
    """A deletion before `at`, or an insertion there of random bases or of a copy of its neighbours, left-aligned."""
    length_bp = int(rng.choice(_LENGTHS, p=_LENGTH_WEIGHTS / _LENGTH_WEIGHTS.sum()))
    is_deletion = rng.random() < 0.55
    copied = is_deletion or rng.random() < 0.4
    piece = tokens[at : at + length_bp] if copied else rng.integers(0, 4, length_bp, np.uint8)
    first = at
    piece = piece.copy()
    # Moving an indel one base left turns its last base into its first.
    while first > 1 and tokens[first - 1] == piece[-1]:
        piece = np.roll(piece, 1)
        first -= 1
    if (tokens[first - 1 : at + length_bp + 1] == UNKNOWN).any():
        return None
    last, moving = at + length_bp * is_deletion, piece.copy()
    follow = first + length_bp * is_deletion
    while follow < len(tokens) - 1 and tokens[follow] == moving[0]:
        moving = np.roll(moving, -1)
        follow += 1
    anchor = decode(tokens[first - 1 : first])
    change = (first - 1, anchor + decode(piece), anchor) if is_deletion else (first - 1, anchor, anchor + decode(piece))
    return first - 1, max(last, follow), [change]


def _differences(ref: str, alt: str) -> list[int | None]:
    if len(ref) != len(alt) or len(ref) == 1:
        return [None]
    return [place for place, (before, after) in enumerate(zip(ref, alt, strict=True)) if before != after]
