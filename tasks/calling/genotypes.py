"""Genotypes: what a diploid sample carries at a site, from the copies of each allele that the model believes in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from tasks.calling.observations import ALTERNATE, REFERENCE

MIN_CALL_PROBABILITY = 0.5
"""A site is called when the sample carries any of its alleles with at least this probability: where F1 is best when
probabilities are calibrated."""

LOW_QUALITY = 5.0
"""Calls with a QUAL below this get the filter LowQual."""

MAX_GENOTYPE_QUALITY = 99
MAX_SITE_ALLELES = 4
"""Alleles weighed at one site; of more, those the model believes in most."""

_MIN_PROBABILITY = 1e-10
_PHRED = 10.0 / np.log(10.0)


@dataclass(frozen=True, slots=True)
class Call:
    """One record of a genotyped VCF. Diploid; sex and ploidy are not considered.

    Attributes:
        start: 0-based place of the first base of `ref`.
        ref: Reference allele.
        alts: Alternate alleles, each carried at least once.
        qual: Phred-scaled probability that the sample carries none of them, two decimals.
        alleles: The two alleles carried, 0 for `ref`, ascending.
        genotype_quality: GQ, by how much `alleles` are likelier than any other genotype, at most 99: the second
            smallest of `likelihoods`.
        depth: DP, fragments that tell.
        allele_depths: AD, fragments that show `ref` and each of `alts`.
        likelihoods: PL, Phred-scaled, one per genotype in VCF's order, least 0; no prior is in them.
    """

    start: int
    ref: str
    alts: tuple[str, ...]
    qual: float
    alleles: tuple[int, int]
    genotype_quality: int
    depth: int
    allele_depths: tuple[int, ...]
    likelihoods: tuple[int, ...]

    @property
    def filter(self) -> str:
        """PASS or LowQual."""
        return "LowQual" if self.qual < LOW_QUALITY else "PASS"


def call_genotypes(
    start: np.ndarray,
    ref: Sequence[str],
    alt: Sequence[str],
    counts: np.ndarray,
    copies: np.ndarray,
    log_likelihood: np.ndarray,
) -> Iterator[Call]:
    """Joins the alleles of each site and yields the sites that are called, in order.

    A site is a start, apart for single-base changes and for insertions and deletions (these begin after the base they
    are written at). Two alleles of a site share the sample's two haplotypes: no genotype carries more than two.

    Args:
        start: int64 [n], ascending, single-base changes of a start before its insertions and deletions.
        ref: n reference alleles.
        alt: n alternate alleles.
        counts: int32 [n, 3], fragments that show reference, allele, something else.
        copies: float32 [n, 3], probability of 0, 1 and 2 copies.
        log_likelihood: float32 [n, 3], natural logarithm of the likelihood of 0, 1 and 2 copies, to a constant.
    """
    keys = [(int(place), len(before) == len(after)) for place, before, after in zip(start, ref, alt, strict=True)]
    for _, group in groupby(range(len(keys)), key=keys.__getitem__):
        rows = list(group)
        if len(rows) > MAX_SITE_ALLELES:
            rows = sorted(sorted(rows, key=lambda row: float(copies[row, 0]))[:MAX_SITE_ALLELES])
        call = _call_site(rows, start, ref, alt, counts, copies, log_likelihood)
        if call is not None:
            yield call


def _call_site(
    rows: list[int],
    start: np.ndarray,
    ref: Sequence[str],
    alt: Sequence[str],
    counts: np.ndarray,
    copies: np.ndarray,
    log_likelihood: np.ndarray,
) -> Call | None:
    probability = _probabilities(copies[rows])
    if 1.0 - probability[0] < MIN_CALL_PROBABILITY:
        return None
    carried = _genotypes(len(rows))[1 + int(np.argmax(probability[1:]))]
    # What is not carried leaves the record; the rest is weighed among itself.
    rows = [rows[allele - 1] for allele in sorted({allele for allele in carried if allele})]
    log_weight = _joint(log_likelihood[rows])
    phred = _PHRED * (log_weight.max() - log_weight)
    alleles = min(((0, 1), (1, 1)), key=lambda pair: phred[_place(*pair)]) if len(rows) == 1 else (1, 2)
    margin = np.delete(phred, _place(*alleles)).min() - phred[_place(*alleles)]
    longest = max((ref[row] for row in rows), key=len)
    own = counts[rows]
    return Call(
        start=int(start[rows[0]]),
        ref=longest,
        alts=tuple(alt[row] + longest[len(ref[row]) :] for row in rows),
        qual=round(float(-10.0 * np.log10(_probabilities(copies[rows])[0])), 2),
        alleles=alleles,
        genotype_quality=min(MAX_GENOTYPE_QUALITY, max(0, round(float(margin)))),
        depth=int(own.sum(axis=1).max()),
        allele_depths=(int(own[:, REFERENCE].min()), *(int(depth) for depth in own[:, ALTERNATE])),
        likelihoods=tuple(int(value) for value in np.rint(phred)),
    )


def _genotypes(num_alleles: int) -> list[tuple[int, int]]:
    """Unordered pairs of alleles in VCF's order of genotypes (VCF 4.x, section 1.6.2, GL)."""
    return [(low, high) for high in range(num_alleles + 1) for low in range(high + 1)]


def _place(low: int, high: int) -> int:
    """Where VCF's order has a genotype."""
    return high * (high + 1) // 2 + low


def _joint(log_weight: np.ndarray) -> np.ndarray:
    """Weighs each genotype of a site when the alleles' copies are independent but for their sum.

    Args:
        log_weight: float [k, 3], of 0, 1 and 2 copies of each allele.

    Returns:
        float64 [(k + 1) * (k + 2) / 2], logarithms, in VCF's order.
    """
    weights = np.asarray(log_weight, np.float64)
    pairs = _genotypes(len(weights))
    return np.array([sum(row[pair.count(allele)] for allele, row in enumerate(weights, 1)) for pair in pairs])


def _probabilities(copies: np.ndarray) -> np.ndarray:
    """Probability of each genotype of a site, at least 1e-10, from those of the copies of each allele, float [k, 3]."""
    joint = _joint(np.log(np.maximum(np.asarray(copies, np.float64), _MIN_PROBABILITY)))
    probability = np.exp(joint - joint.max())
    clipped: np.ndarray = np.maximum(probability / probability.sum(), _MIN_PROBABILITY)
    return clipped
