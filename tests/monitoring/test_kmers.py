"""K-mer profiles equal a plain count."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.kmers import MAX_K, MIN_K, KmerProfile, canonical_kmers, num_canonical

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def plain_counts(sequence: str, k: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for start in range(len(sequence) - k + 1):
        kmer = sequence[start : start + k]
        if "N" not in kmer:
            counts[min(kmer, kmer.translate(COMPLEMENT)[::-1])] += 1
    return counts


def tokens_of(sequence: str) -> np.ndarray:
    return np.array(["ACGTN".index(base) for base in sequence], dtype=np.uint8)


@settings(max_examples=60, deadline=None)
@given(st.text("ACGTN", max_size=300), st.integers(MIN_K, MAX_K))
def test_equals_a_plain_count(sequence: str, k: int) -> None:
    profile = KmerProfile.of_tokens(tokens_of(sequence), k)
    counted = {kmer: n for kmer, n in zip(canonical_kmers(k), profile.counts.tolist(), strict=True) if n}
    assert counted == plain_counts(sequence, k)


@given(st.text("ACGTN", max_size=200))
def test_the_strand_does_not_matter(sequence: str) -> None:
    reverse = tokens_of(sequence.translate(COMPLEMENT)[::-1])
    assert np.array_equal(KmerProfile.of_tokens(tokens_of(sequence)).counts, KmerProfile.of_tokens(reverse).counts)


@given(st.lists(st.text("ACGTN", max_size=60), max_size=5))
def test_sequences_add_up(sequences: list[str]) -> None:
    together = KmerProfile.of_tokens(tokens_of("N".join(sequences)))
    apart = sum(
        (KmerProfile.of_tokens(tokens_of(one)) for one in sequences), start=KmerProfile.of_tokens(tokens_of(""))
    )
    assert np.array_equal(together.counts, apart.counts)
    assert together.frequencies().sum() == pytest.approx(1 if together.total else 0)


def test_number_of_canonical_kmers() -> None:
    assert {k: num_canonical(k) for k in (4, 5, 6)} == {4: 136, 5: 512, 6: 2080}
    assert canonical_kmers(4) == sorted(canonical_kmers(4))


def test_json_round_trip_and_refusals() -> None:
    profile = KmerProfile.of_tokens(tokens_of("ACGTACGTTTTGCA"), 5)
    assert np.array_equal(KmerProfile.from_json(profile.to_json()).counts, profile.counts)
    with pytest.raises(ValueError, match="k must be"):
        KmerProfile(3, np.zeros(32, dtype=np.int64))
    with pytest.raises(ValueError, match="2080 int64"):
        KmerProfile(6, np.zeros(10, dtype=np.int64))
    with pytest.raises(ValueError, match="do not add up"):
        profile + KmerProfile.of_tokens(tokens_of("ACGTAA"), 6)


@settings(max_examples=30, deadline=None)
@given(st.text("ACGTN", min_size=8, max_size=200))
def test_entropy_and_the_most_common_are_those_of_a_plain_count(sequence: str) -> None:
    profile, counted = KmerProfile.of_tokens(tokens_of(sequence), 4), plain_counts(sequence, 4)
    shares = {kmer: number / counted.total() for kmer, number in counted.items()}
    assert profile.entropy_bits == pytest.approx(-sum(share * math.log2(share) for share in shares.values()))
    expected = sorted(shares, key=lambda kmer: (-counted[kmer], kmer))[:3]
    assert profile.most_common(3) == pytest.approx({kmer: shares[kmer] for kmer in expected})
    assert list(profile.most_common(3)) == expected
