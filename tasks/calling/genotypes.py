"""Genotypes: what a sample carries at a site, from the copies of each allele that the model believes in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from tasks.calling.observations import ALTERNATE, REFERENCE
from tasks.genome.ploidy import COPIES, MITOCHONDRIAL

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
    """One record of a genotyped VCF.

    Attributes:
        start: 0-based place of the first base of `ref`.
        ref: Reference allele.
        alts: Alternate alleles, each carried at least once.
        qual: Phred-scaled probability that the sample carries none of them, two decimals.
        alleles: The alleles carried, 0 for `ref`, ascending: two, one where the sample has one copy of the place, none
            on the mitochondrion, of which a cell has many copies.
        genotype_quality: GQ, by how much `alleles` are likelier than any other genotype, at most 99: the second
            smallest of `likelihoods`. None on the mitochondrion.
        depth: DP, fragments that tell.
        allele_depths: AD, fragments that show `ref` and each of `alts`.
        likelihoods: PL, Phred-scaled, one per genotype in VCF's order, least 0; no prior is in them. Empty on the
            mitochondrion.
        next_alt: The single-base change of the next place that most fragments with this one show; empty where there is
            none, or where this is no single-base change.
        together: Fragments that show both.
        apart: Fragments that show one of them, and tell of the other.
    """

    start: int
    ref: str
    alts: tuple[str, ...]
    qual: float
    alleles: tuple[int, ...]
    genotype_quality: int | None
    depth: int
    allele_depths: tuple[int, ...]
    likelihoods: tuple[int, ...]
    next_alt: str = ""
    together: int = 0
    apart: int = 0

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
    ploidy: np.ndarray,
) -> Iterator[Call]:
    """Joins the alleles of each site and yields the sites that are called, in order.

    A site is a start, apart for single-base changes and for insertions and deletions (these begin after the base they
    are written at). The alleles of a site share the sample's haplotypes: no genotype carries more of them than there
    are. Where the sample has one copy, an allele in half of the reads is none: what the model takes for one copy of two
    counts as no copy. Where the sample has no copy, nothing is called.

    Args:
        start: int64 [n], ascending, single-base changes of a start before its insertions and deletions.
        ref: n reference alleles.
        alt: n alternate alleles.
        counts: int32 [n, 3], fragments that show reference, allele, something else.
        copies: float32 [n, 3], probability of 0, 1 and 2 copies of two.
        log_likelihood: float32 [n, 3], natural logarithm of the likelihood of 0, 1 and 2 copies, to a constant.
        ploidy: uint8 [n], codes of `tasks.genome.ploidy.ploidy_of`.
    """
    keys = [(int(place), len(before) == len(after)) for place, before, after in zip(start, ref, alt, strict=True)]
    for _, group in groupby(range(len(keys)), key=keys.__getitem__):
        rows = list(group)
        code = ploidy[rows[0]]
        is_mitochondrial, num_copies = bool(code & MITOCHONDRIAL), int(code & COPIES)
        if not num_copies and not is_mitochondrial:
            continue
        if len(rows) > MAX_SITE_ALLELES:
            rows = sorted(sorted(rows, key=lambda row: float(copies[row, 0]))[:MAX_SITE_ALLELES])
        believed = np.log(np.maximum(np.asarray(copies[rows], np.float64), _MIN_PROBABILITY))
        likely = np.asarray(log_likelihood[rows], np.float64)
        if num_copies == 1:
            believed, likely = _of_one_copy(believed), _of_one_copy(likely)
        genotype = _genotype(believed, likely, 1 if num_copies == 1 else 2)
        if genotype is None:
            continue
        rows = [rows[allele] for allele in genotype.carried]
        longest = max((ref[row] for row in rows), key=len)
        own = counts[rows]
        yield Call(
            start=int(start[rows[0]]),
            ref=longest,
            alts=tuple(alt[row] + longest[len(ref[row]) :] for row in rows),
            qual=round(-10.0 * math.log10(genotype.reference_probability), 2),
            alleles=() if is_mitochondrial else genotype.alleles,
            genotype_quality=None if is_mitochondrial else genotype.quality,
            depth=int(own.sum(axis=1).max()),
            allele_depths=(int(own[:, REFERENCE].min()), *(int(depth) for depth in own[:, ALTERNATE])),
            likelihoods=() if is_mitochondrial else genotype.likelihoods,
        )


def doubts_of(start: np.ndarray, log_likelihood: np.ndarray, ploidy: np.ndarray) -> dict[int, tuple[int, int]]:
    """By how much no copy is likelier than one and than two, Phred-scaled, at the places of weighed alleles.

    Args:
        start: int64 [n].
        log_likelihood: float32 [n, 3], as for `call_genotypes`.
        ploidy: uint8 [n]; where there is one copy of the place both numbers are of that.

    Returns:
        By place, the least of its alleles' numbers; below 0 where an allele is likelier than the reference.
    """
    doubts: dict[int, tuple[int, int]] = {}
    likely = np.asarray(log_likelihood, np.float64)
    one_copy = (ploidy & COPIES) == 1
    none = np.where(one_copy, np.logaddexp(likely[:, 0], likely[:, 1]), likely[:, 0])
    one = _PHRED * (none - np.where(one_copy, likely[:, 2], likely[:, 1]))
    two = _PHRED * (none - likely[:, 2])
    for place, less, more in zip(start.tolist(), np.rint(one).tolist(), np.rint(two).tolist(), strict=True):
        known = doubts.get(place, (less, more))
        doubts[place] = int(min(known[0], less)), int(min(known[1], more))
    return doubts


@dataclass(frozen=True, slots=True)
class _Genotype:
    """What is carried at a site: rows among its alleles, and the genotype that numbers them from 1."""

    carried: tuple[int, ...]
    alleles: tuple[int, ...]
    reference_probability: float
    quality: int
    likelihoods: tuple[int, ...]


def _genotype(believed: np.ndarray, likely: np.ndarray, num_copies: int) -> _Genotype | None:
    """Chooses the genotype of a site; None where that is most probably the reference alone.

    Args:
        believed: float64 [k, num_copies + 1], log-probabilities of the copies of each allele.
        likely: float64 [k, num_copies + 1], log-likelihoods of them.
        num_copies: Copies of the place.
    """
    genotypes = _genotypes(len(believed), num_copies)
    probability = _probabilities(_joint(believed, genotypes))
    if 1.0 - probability[0] < MIN_CALL_PROBABILITY:
        return None
    best = genotypes[1 + int(np.argmax(probability[1:]))]
    carried = tuple(sorted({allele - 1 for allele in best if allele}))
    # What is not carried leaves the record; the rest is weighed among itself.
    rows, genotypes = list(carried), _genotypes(len(carried), num_copies)
    log_weight = _joint(likely[rows], genotypes)
    phred = _PHRED * (log_weight.max() - log_weight)
    candidates = [place for place, each in enumerate(genotypes) if set(each) >= set(range(1, len(rows) + 1))]
    chosen = min(candidates, key=lambda place: phred[place])
    margin = np.delete(phred, chosen).min() - phred[chosen]
    return _Genotype(
        carried=carried,
        alleles=genotypes[chosen],
        reference_probability=float(_probabilities(_joint(believed[rows], genotypes))[0]),
        quality=min(MAX_GENOTYPE_QUALITY, max(0, round(float(margin)))),
        likelihoods=tuple(int(value) for value in np.rint(phred)),
    )


def _of_one_copy(log_weight: np.ndarray) -> np.ndarray:
    """Log-weights of 0 and 1 copies of one, float64 [k, 2], from those of 0, 1 and 2 of two."""
    return np.stack((np.logaddexp(log_weight[:, 0], log_weight[:, 1]), log_weight[:, 2]), axis=1)


def _genotypes(num_alleles: int, num_copies: int) -> list[tuple[int, ...]]:
    """Unordered choices of alleles in VCF's order of genotypes (VCF 4.x, section 1.6.2, GL)."""
    if num_copies == 1:
        return [(allele,) for allele in range(num_alleles + 1)]
    return [(low, high) for high in range(num_alleles + 1) for low in range(high + 1)]


def _joint(log_weight: np.ndarray, genotypes: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Log-weight of each genotype of a site, float64, when the alleles' copies are independent but for their sum."""
    return np.array([sum(row[each.count(allele)] for allele, row in enumerate(log_weight, 1)) for each in genotypes])


def _probabilities(log_weight: np.ndarray) -> np.ndarray:
    """Normalises log-weights to probabilities of at least 1e-10."""
    probability = np.exp(log_weight - log_weight.max())
    clipped: np.ndarray = np.maximum(probability / probability.sum(), _MIN_PROBABILITY)
    return clipped
