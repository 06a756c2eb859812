from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.calling.genotypes import Call, call_genotypes
from tasks.genome.ploidy import ASSUMED, MITOCHONDRIAL

PROBABILITIES = st.lists(st.floats(0, 1, width=32), min_size=3, max_size=3).filter(lambda p: sum(p) > 0.01)
PRIOR = np.array([0.2, 0.6, 0.2], np.float32)


def calls(*alleles: tuple[int, str, str, tuple[float, float, float]], ploidy: int = 2) -> list[Call]:
    start = np.array([allele[0] for allele in alleles], np.int64)
    counts = np.array([[5, 10 + number, 1] for number in range(len(alleles))], np.int32)
    copies = np.array([allele[3] for allele in alleles], np.float32)
    likelihood = np.log(np.maximum(copies / PRIOR, 1e-30))
    codes = np.full(len(alleles), ploidy, np.uint8)
    refs, alts = [a[1] for a in alleles], [a[2] for a in alleles]
    return list(call_genotypes(start, refs, alts, counts, copies, likelihood, codes))


@pytest.mark.parametrize(
    ("copies", "alleles"),
    [((0.01, 0.98, 0.01), (0, 1)), ((0.01, 0.02, 0.97), (1, 1)), ((0.4, 0.5, 0.1), (0, 1)), ((0.9, 0.05, 0.05), None)],
)
def test_one_allele_is_called_when_any_copy_is_more_likely_than_none(
    copies: tuple[float, float, float], alleles: tuple[int, int] | None
) -> None:
    found = calls((7, "A", "G", copies))
    assert [call.alleles for call in found] == ([alleles] if alleles else [])


def test_qualities_are_phred_scaled_and_bounded() -> None:
    (call,) = calls((7, "A", "G", (0.001, 0.989, 0.01)))
    assert call.qual == pytest.approx(30.0, abs=0.01)
    # The prior makes one copy three times as common as none or two.
    assert call.likelihoods == (25, 0, 15)
    assert call.genotype_quality == 15
    assert call.filter == "PASS"
    (sure,) = calls((7, "A", "G", (0.0, 1.0, 0.0)))
    assert 90 <= sure.genotype_quality <= 99
    assert np.isfinite(sure.qual)
    (unsure,) = calls((7, "A", "G", (0.4, 0.6, 0.0)))
    assert unsure.filter == "LowQual"


def test_two_alternatives_share_the_two_haplotypes() -> None:
    (call,) = calls((7, "A", "C", (0.01, 0.59, 0.4)), (7, "A", "G", (0.01, 0.39, 0.6)))
    assert call.alts == ("C", "G")
    assert call.alleles == (1, 2)
    assert call.allele_depths == (5, 10, 11)
    assert len(call.likelihoods) == 6
    assert call.likelihoods[4] == 0


def test_an_alternative_that_is_not_carried_leaves_the_record() -> None:
    (call,) = calls((7, "A", "C", (0.9, 0.1, 0.0)), (7, "A", "G", (0.01, 0.01, 0.98)))
    assert (call.alts, call.alleles) == (("G",), (1, 1))
    assert len(call.likelihoods) == 3


def test_deletions_of_two_lengths_share_one_reference_allele() -> None:
    (call,) = calls((7, "GA", "G", (0.0, 1.0, 0.0)), (7, "GAA", "G", (0.0, 1.0, 0.0)))
    assert (call.ref, call.alts, call.alleles) == ("GAA", ("GA", "G"), (1, 2))


def test_a_base_and_a_deletion_after_it_are_two_records() -> None:
    found = calls((7, "G", "T", (0.0, 0.0, 1.0)), (7, "GA", "G", (0.0, 0.0, 1.0)))
    assert [(call.ref, call.alts, call.alleles) for call in found] == [("G", ("T",), (1, 1)), ("GA", ("G",), (1, 1))]


@pytest.mark.parametrize(
    ("copies", "alleles"), [((0.0, 0.01, 0.99), (1,)), ((0.01, 0.98, 0.01), None), ((0.9, 0.05, 0.05), None)]
)
@pytest.mark.parametrize("flag", [0, ASSUMED])
def test_one_copy_of_a_place_carries_one_allele(
    copies: tuple[float, float, float], alleles: tuple[int] | None, flag: int
) -> None:
    found = calls((7, "A", "G", copies), ploidy=1 | flag)
    assert [call.alleles for call in found] == ([alleles] if alleles else [])
    for call in found:
        assert len(call.likelihoods) == 2
        assert call.likelihoods[1] == 0
        assert call.genotype_quality == call.likelihoods[0]
        assert call.qual == pytest.approx(20, abs=0.1)


def test_two_alternatives_cannot_share_one_copy() -> None:
    (call,) = calls((7, "A", "C", (0.0, 0.2, 0.8)), (7, "A", "G", (0.0, 0.4, 0.6)), ploidy=1)
    assert (call.alts, call.alleles) == (("C",), (1,))


def test_nothing_is_called_where_there_is_no_copy() -> None:
    assert calls((7, "A", "G", (0.0, 0.0, 1.0)), ploidy=0) == []


def test_the_mitochondrion_gets_no_genotype() -> None:
    (call,) = calls((7, "A", "G", (0.0, 1.0, 0.0)), ploidy=MITOCHONDRIAL)
    assert (call.alleles, call.genotype_quality, call.likelihoods) == ((), None, ())
    assert call.allele_depths == (5, 10)


@given(st.lists(PROBABILITIES, min_size=1, max_size=7))
def test_whatever_the_model_says_the_record_is_a_genotype(copies: list[list[float]]) -> None:
    alts = ["C" + "ACGTACGT"[: number + 1] for number in range(len(copies))]
    normalised = [tuple(np.array(each) / sum(each)) for each in copies]
    found = calls(*((7, "C", alt, each) for alt, each in zip(alts, normalised, strict=True)))
    assert len(found) <= 1
    for call in found:
        num_alleles = len(call.alts) + 1
        assert 0 <= call.alleles[0] <= call.alleles[1] < num_alleles
        assert set(range(1, num_alleles)) <= set(call.alleles)
        assert len(call.likelihoods) == num_alleles * (num_alleles + 1) // 2
        assert min(call.likelihoods) == 0
        assert 0 <= call.genotype_quality <= 99
        assert len(call.allele_depths) == num_alleles
