"""How alike two persons' genotypes are, and what kin they would be.

Source: KING-robust between families, Manichaikul et al. 2010, Bioinformatics 26:2867 (equation 11, and table 1 for the
ranges, whose borders are 2 to the power of -1.5, -2.5, -3.5 and -4.5), as `plink2 --make-king` computes it; a missing
record is taken for REF where a sample was looked at, as somalier's ``--unknown`` does (Pedersen et al. 2020, Genome
Medicine 12:62).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.identity.sites import Matrix

RELATIONS = ("same person", "first degree", "second degree", "third degree", "unrelated", "unclear", "too little data")
"""What two samples are, by its code in arrays."""
SAME, FIRST, SECOND, THIRD, UNRELATED, UNCLEAR, TOO_LITTLE = range(len(RELATIONS))
MIN_KINSHIP = (2**-1.5, 2**-2.5, 2**-3.5, 2**-4.5)
"""Smallest kinship of the same person, and of kin of the first three degrees."""

MIN_SITES = 100
"""Sites that must be known of both, one of them not REF..."""
MIN_STRETCHES = 10
"""...and the stretches of a million bases that sites must lie in: neighbours are inherited together, and two strangers
agree all over one stretch in some percent of cases."""
MAX_ODDS = 3.0
"""Where one sample has more than this times as many variants of its own as the other, they were not looked at alike (an
exome and a genome without BED): only that they are one person can be told, by the variants of the smaller..."""
MIN_CONTAINED = 0.9
"""...of which the other must have this share."""

_BLOCK_ROWS = 256
_CHUNK_SITES = 8192


@dataclass(frozen=True, slots=True, eq=False)
class PairBlock:
    """Counts of a block of rows against all rows.

    Attributes:
        first: The first row of the block.
        sites: int64 [b, n], sites known of both at which one at least is not REF.
        identical: int64 [b, n], those of them with the same genotype.
        het_het: int64 [b, n], both heterozygous.
        ibs0: int64 [b, n], homozygous for different alleles.
        stretches: int64 [b, n], stretches of the genome in which both are known somewhere.
        kinship: float64 [b, n], KING-robust; NaN where neither is heterozygous anywhere.
        relation: uint8 [b, n], places in `RELATIONS`.
    """

    first: int
    sites: npt.NDArray[np.int64]
    identical: npt.NDArray[np.int64]
    het_het: npt.NDArray[np.int64]
    ibs0: npt.NDArray[np.int64]
    stretches: npt.NDArray[np.int64]
    kinship: npt.NDArray[np.float64]
    relation: npt.NDArray[np.uint8]


def compare_pairs(matrix: Matrix) -> Iterator[PairBlock]:
    """Compares every two rows, in blocks of rows.

    Counts are sums of products of matrices of zeros and ones, a few thousand sites at a time: whole numbers far below
    2 to the power of 24, so exact in float32 and the same on every machine.
    """
    num_rows = len(matrix.samples)
    spread = _known_stretches(matrix)
    for first in range(0, num_rows, _BLOCK_ROWS):
        rows = slice(first, min(first + _BLOCK_ROWS, num_rows))
        yield _compare(matrix, rows, spread)


def _known_stretches(matrix: Matrix) -> npt.NDArray[np.float32]:
    """Where each row is known at all: float32 [n, stretches], 0 or 1."""
    stretches = matrix.stretches()
    if not len(stretches):
        return np.zeros((len(matrix.samples), 0), dtype=np.float32)
    firsts = np.flatnonzero(np.diff(stretches, prepend=-1))
    return (np.maximum.reduceat(matrix.values, firsts, axis=1) >= 0).astype(np.float32)


def _compare(matrix: Matrix, rows: slice, spread: npt.NDArray[np.float32]) -> PairBlock:
    num_rows, num_sites = matrix.values.shape
    shape = (rows.stop - rows.start, num_rows)
    known, both_ref, het_het, hom_hom, ibs0, het_known, known_het, alt_ref, ref_alt = (
        np.zeros(shape, dtype=np.int64) for _ in range(9)
    )

    def dot(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        return (left @ right.T).astype(np.int64)

    for low in range(0, num_sites, _CHUNK_SITES):
        values = matrix.values[:, low : low + _CHUNK_SITES]
        is_known, ref, het, hom = ((values == kind).astype(np.float32) for kind in (-1, 0, 1, 2))
        is_known = 1 - is_known
        own_known, own_ref, own_het, own_hom = is_known[rows], ref[rows], het[rows], hom[rows]
        known += dot(own_known, is_known)
        both_ref += dot(own_ref, ref)
        het_het += dot(own_het, het)
        hom_hom += dot(own_hom, hom)
        ibs0 += dot(own_ref, hom) + dot(own_hom, ref)
        het_known += dot(own_het, is_known)
        known_het += dot(own_known, het)
        alt_ref += dot(own_het + own_hom, ref)
        ref_alt += dot(own_ref, het + hom)
    fewer = np.minimum(het_known, known_het)
    with np.errstate(divide="ignore", invalid="ignore"):
        kinship = (2.0 * het_het - 4.0 * ibs0 - het_known - known_het + 2.0 * fewer) / (4.0 * fewer)
    kinship[fewer == 0] = np.nan
    sites = known - both_ref
    stretches = dot(spread[rows], spread)
    relation = _relation(sites, stretches, kinship, alt_ref, ref_alt)
    return PairBlock(rows.start, sites, het_het + hom_hom, het_het, ibs0, stretches, kinship, relation)


def _relation(
    sites: npt.NDArray[np.int64],
    stretches: npt.NDArray[np.int64],
    kinship: npt.NDArray[np.float64],
    alt_ref: npt.NDArray[np.int64],
    ref_alt: npt.NDArray[np.int64],
) -> npt.NDArray[np.uint8]:
    """The verdict on each pair: uint8, places in `RELATIONS`."""
    relation = np.full(sites.shape, UNRELATED, dtype=np.uint8)
    for code, least in reversed(list(zip((SAME, FIRST, SECOND, THIRD), MIN_KINSHIP, strict=True))):
        relation[kinship >= least] = code
    # Variants that one has and the other has not balance between persons who were looked at alike.
    more, less = np.maximum(alt_ref, ref_alt), np.minimum(alt_ref, ref_alt)
    shared = sites - alt_ref - ref_alt
    is_uneven = (more > MAX_ODDS * less) & (more > MIN_SITES)
    is_uneven &= relation != SAME
    relation[is_uneven] = UNCLEAR
    relation[is_uneven & (shared >= MIN_SITES) & (shared >= MIN_CONTAINED * (shared + less))] = SAME
    relation[np.isnan(kinship) | (sites < MIN_SITES) | (stretches < MIN_STRETCHES)] = TOO_LITTLE
    return relation
