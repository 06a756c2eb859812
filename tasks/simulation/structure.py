"""Structural variation of one individual: pieces its haplotypes lack, and transposons that they alone carry.

None of it is in the truth, which holds small variants: it is what misleads a caller of these. Reads of an inserted
transposon are placed on its relatives, reads beside a breakpoint are clipped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.simulation.genome import UNKNOWN, Genome, Tokens, copy_element
from tasks.simulation.variants import Alleles

_DELETION_SHARE = 0.4
_DELETION_BP = (100, 4000)
_LEAST_INSERTION_BP, _INSERTION_BP = 200, 900
_INSERTION_DIVERGENCE = (0.002, 0.05)
_BOTH_SHARE = 0.35
"""Share of changes that both haplotypes carry."""


@dataclass(frozen=True, slots=True)
class Change:
    """One large change of a haplotype: `tokens` stand in the place of ``[start, end)`` of a contig."""

    contig: int
    start: int
    end: int
    tokens: Tokens


Structure = tuple[tuple[Change, ...], tuple[Change, ...]]
"""The changes of both haplotypes, in reference order; those of one do not overlap."""

NO_STRUCTURE: Structure = ((), ())


def draw_structure(
    rng: np.random.Generator, genome: Genome, alleles: Alleles, carried: npt.NDArray[np.bool_], per_bp: float
) -> tuple[Structure, npt.NDArray[np.bool_]]:
    """Draws deletions of 100 to 4,000 bases and insertions of transposons.

    Args:
        rng: Source of all randomness.
        genome: The reference.
        alleles: The population's alleles.
        carried: bool [num_alleles, 2], which of them each haplotype carries.
        per_bp: Changes a base of the reference.

    Returns:
        The structure, and `carried` without the alleles that it removes.
    """
    carried = carried.copy()
    changes: tuple[list[Change], list[Change]] = ([], [])
    first_base = alleles.start
    past_base = alleles.start + np.array([len(ref) for ref in alleles.ref], np.int64)
    for contig, tokens in enumerate(genome.tokens):
        free_from = 1
        for at in np.sort(rng.integers(1, len(tokens), rng.poisson(per_bp * len(tokens)))).tolist():
            change = _draw_change(rng, genome, contig, at)
            if change.start < free_from or change.end >= len(tokens) or _touches_unknown(tokens, change):
                continue
            free_from = change.end + 1
            haplotypes = (0, 1) if rng.random() < _BOTH_SHARE else (int(rng.integers(2)),)
            for haplotype in haplotypes:
                changes[haplotype].append(change)
                touched = (alleles.contig == contig) & (first_base <= change.end) & (past_base >= change.start)
                carried[touched, haplotype] = False
    return (tuple(changes[0]), tuple(changes[1])), carried


def _draw_change(rng: np.random.Generator, genome: Genome, contig: int, at: int) -> Change:
    if rng.random() < _DELETION_SHARE:
        length_bp = int(np.exp(rng.uniform(*np.log(_DELETION_BP))))
        return Change(contig, at, at + length_bp, np.zeros(0, np.uint8))
    element = genome.elements[rng.integers(len(genome.elements))]
    length_bp = min(len(element), _LEAST_INSERTION_BP + int(rng.exponential(_INSERTION_BP)))
    divergence = float(np.exp(rng.uniform(*np.log(_INSERTION_DIVERGENCE))))
    return Change(contig, at, at, copy_element(rng, element, length_bp, divergence))


def _touches_unknown(tokens: Tokens, change: Change) -> bool:
    return bool((tokens[change.start - 1 : change.end + 1] == UNKNOWN).any())
