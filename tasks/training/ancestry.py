"""The haplotypes of an individual whose variants lie as common ancestry leaves them: in crowds, and together on one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tasks.simulation.variants import Alleles

POOL_FACTOR = 1.8
"""A population must have this many times an individual's heterozygosity, for the crowds to be drawn from."""

_BLOCK_BP = 1500.0
_RATE_SPREAD = 0.7
"""Mean length of a block with one ancestry, and log-normal spread of the mutation rate from block to block."""

_SECOND_ALTERNATIVE = 0.5


def draw_by_ancestry(
    rng: np.random.Generator, alleles: Alleles, heterozygosity: float, length_bp: int
) -> npt.NDArray[np.bool_]:
    """Draws which alleles the two haplotypes of an individual carry.

    In each block, the reference and the two haplotypes are three lineages of a neutral genealogy: two of them meet
    first, the third long before. What lies on the third one's branch is a crowd that one haplotype carries whole, or
    both when it is the reference's. Drawn one by one instead, a crowd of heterozygous variants on one haplotype would
    always be a paralogue.

    Args:
        rng: Source of all randomness.
        alleles: The population's alleles, of `POOL_FACTOR` times the heterozygosity.
        heterozygosity: Expected heterozygous variants a base.
        length_bp: Length of the genome.

    Returns:
        bool [num_alleles, 2].

    Source: Hudson 1990, Oxford Surveys in Evolutionary Biology 7:1 (times of the coalescent).
    """
    carried = np.zeros((len(alleles), 2), np.bool_)
    if not len(alleles):
        return carried
    first = np.searchsorted(alleles.site, np.unique(alleles.site))
    size = np.diff(np.append(first, len(alleles)))
    place = (alleles.contig[first].astype(np.int64) << 40) + alleles.start[first]
    # A site's block: blocks end at random, as recombination ends them.
    gap = np.diff(place, prepend=place[0])
    block = np.cumsum(rng.random(len(first)) < 1 - np.exp(-gap / _BLOCK_BP))
    num_blocks = int(block[-1]) + 1
    young = rng.exponential(1 / 3, num_blocks)
    old = rng.exponential(1.0, num_blocks)
    outlier = rng.integers(0, 3, num_blocks)
    branch = np.repeat(young[:, None], 3, axis=1)
    branch[np.arange(num_blocks), outlier] += 2 * old
    rate = np.exp(rng.normal(-(_RATE_SPREAD**2) / 2, _RATE_SPREAD, num_blocks)) * heterozygosity / 2
    share = (branch * rate[:, None])[block] * length_bp / len(first)
    # Mutations of the three branches of a site exclude each other; the least lies below the running sum of shares.
    lineage = (rng.random(len(first))[:, None] >= np.cumsum(share, axis=1)).sum(axis=1)
    other = first + (size > 1) * (rng.random(len(first)) < _SECOND_ALTERNATIVE)
    for haplotype in range(2):
        # Lineage 2 is the reference: what changed on it is what both haplotypes carry.
        is_carried = (lineage == haplotype) | (lineage == 2)
        rows = np.where((lineage == 2) & (haplotype == 1), other, first)
        carried[rows[is_carried], haplotype] = True
    return carried
