"""The haplotypes of a simulated individual: what its sequenced molecules are copies of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.simulation.genome import UNKNOWN, Genome, Tokens, encode
from tasks.simulation.structure import NO_STRUCTURE, Change, Structure
from tasks.simulation.variants import Alleles


@dataclass(frozen=True, slots=True)
class Molecules:
    """One haploid set of sequences that reads are drawn from.

    Attributes:
        tokens: uint8 [num_bases], the sequences laid end to end.
        bounds: int64 [num_sequences + 1], where each begins and the last one ends.
    """

    tokens: Tokens
    bounds: npt.NDArray[np.int64]


def build_haplotypes(
    genome: Genome, alleles: Alleles, carried: npt.NDArray[np.bool_], structure: Structure = NO_STRUCTURE
) -> tuple[Molecules, Molecules]:
    """Writes an individual's alleles and large changes into the reference.

    Args:
        genome: The reference. Its unassembled sequences become part of both haplotypes.
        alleles: The population's alleles, in reference order.
        carried: bool [num_alleles, 2], which of them each haplotype carries.
        structure: Large changes of both haplotypes; no carried allele touches one of its haplotype.
    """
    first, second = (_build(genome, alleles, np.flatnonzero(carried[:, h]), structure[h]) for h in range(2))
    return first, second


def _build(genome: Genome, alleles: Alleles, rows: npt.NDArray[np.int64], structure: tuple[Change, ...]) -> Molecules:
    sequences = []
    for index, reference in enumerate(genome.tokens):
        changes = [(change.start, change.end, change.tokens) for change in structure if change.contig == index]
        for row in rows[alleles.contig[rows] == index]:
            start = int(alleles.start[row])
            changes.append((start, start + len(alleles.ref[row]), encode(alleles.alt[row])))
        pieces, position = [], 0
        for start, end, tokens in sorted(changes, key=lambda change: change[:2]):
            pieces += [reference[position:start], tokens]
            position = end
        sequences.append(np.concatenate([*pieces, reference[position:]]))
    sequences += genome.unassembled
    bounds = np.cumsum([0, *(len(sequence) for sequence in sequences)])
    return Molecules(np.concatenate(sequences), bounds.astype(np.int64))


def count_unknown(molecules: Molecules) -> npt.NDArray[np.int32]:
    """Prefix sums, int32 [num_bases + 1], of unknown bases: an interval without any has equal sums at both ends."""
    return _prefix(molecules.tokens == UNKNOWN)


def count_gc(molecules: Molecules) -> npt.NDArray[np.int32]:
    """Prefix sums, int32 [num_bases + 1], of G and C."""
    return _prefix((molecules.tokens == 1) | (molecules.tokens == 2))


def _prefix(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(flags)]).astype(np.int32)
