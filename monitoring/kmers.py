"""K-mer profiles: how often each canonical k-mer occurs in sequences of tokens.

A k-mer and its reverse complement are one (canonical) k-mer, named by the lower of the two codes. A token that is not a
base (4) breaks k-mers, so that sequences are profiled together when one such token stands between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

MIN_K = 4
MAX_K = 8
DEFAULT_K = 6
_BASES = "ACGT"

Tokens = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def add_kmers(tokens: Tokens, k: int, counts: Counts) -> None:
    """Adds the k-mers of `tokens` to `counts`, each on the strand it is read from.

    Args:
        tokens: uint8 [num_tokens]: A0 C1 G2 T3, everything else breaks a k-mer.
        k: Length of a k-mer, in bases.
        counts: int64 [4**k], by code: two bits a base, the first base highest. Changed in place.
    """
    mask = (1 << (2 * k)) - 1
    code = 0
    num_bases = 0
    for index in range(tokens.shape[0]):
        token = tokens[index]
        if token > 3:
            num_bases = 0
            continue
        code = ((code << 2) | token) & mask
        num_bases += 1
        if num_bases >= k:
            counts[code] += 1


@lru_cache(maxsize=MAX_K)
def _canonical_index(k: int) -> tuple[Counts, npt.NDArray[np.int32]]:
    """Returns the canonical codes, int64 [num_canonical] ascending, and each code's place among them, int32 [4**k]."""
    codes = np.arange(4**k, dtype=np.int64)
    complement = np.zeros_like(codes)
    rest = codes.copy()
    for _ in range(k):
        complement = (complement << 2) | (3 - (rest & 3))
        rest >>= 2
    canonical, index = np.unique(np.minimum(codes, complement), return_inverse=True)
    return canonical, index.astype(np.int32)


def num_canonical(k: int) -> int:
    """Number of canonical k-mers: half of all, and the half of those that are their own reverse complement."""
    return len(_canonical_index(k)[0])


def canonical_kmers(k: int) -> list[str]:
    """The canonical k-mers in the order of a profile's counts (alphabetical)."""
    codes = _canonical_index(k)[0]
    return ["".join(_BASES[(int(code) >> (2 * (k - 1 - place))) & 3] for place in range(k)) for code in codes]


@dataclass(frozen=True, slots=True)
class KmerProfile:
    """Counts of the canonical k-mers of some sequences.

    Attributes:
        k: Length of a k-mer, 4 to 8 bases.
        counts: int64 [num_canonical(k)], in the order of `canonical_kmers`.
    """

    k: int
    counts: Counts = field(repr=False)

    def __post_init__(self) -> None:
        if not MIN_K <= self.k <= MAX_K:
            raise ValueError(f"k must be {MIN_K} to {MAX_K}, not {self.k}")
        if self.counts.shape != (num_canonical(self.k),) or self.counts.dtype != np.int64:
            raise ValueError(f"a profile of k={self.k} has {num_canonical(self.k)} int64 counts")

    @classmethod
    def from_stranded(cls, k: int, stranded: Counts) -> KmerProfile:
        """Folds the counts that `add_kmers` gathered, int64 [4**k], onto canonical k-mers."""
        canonical, index = _canonical_index(k)
        counts = np.zeros(len(canonical), dtype=np.int64)
        np.add.at(counts, index, stranded)
        return cls(k, counts)

    @classmethod
    def of_tokens(cls, tokens: Tokens, k: int = DEFAULT_K) -> KmerProfile:
        """Profiles sequences given as tokens, uint8 [num_tokens], a 4 between any two."""
        stranded = np.zeros(4**k, dtype=np.int64)
        add_kmers(np.ascontiguousarray(tokens), k, stranded)
        return cls.from_stranded(k, stranded)

    @property
    def total(self) -> int:
        """Number of k-mers counted."""
        return int(self.counts.sum())

    def __add__(self, other: KmerProfile) -> KmerProfile:
        if self.k != other.k:
            raise ValueError(f"profiles of k={self.k} and k={other.k} do not add up")
        return KmerProfile(self.k, self.counts + other.counts)

    def frequencies(self) -> npt.NDArray[np.float64]:
        """Shares of the total, float64 [num_canonical]; all zero where nothing was counted."""
        return self.counts / max(self.total, 1)

    @property
    def entropy_bits(self) -> float:
        """Shannon entropy of the frequencies, in bits: the more k-mers recur, the lower; 0 of nothing."""
        frequencies = self.frequencies()
        found = frequencies[frequencies > 0]
        return float(-(found * np.log2(found)).sum())

    def most_common(self, number: int) -> dict[str, float]:
        """The most frequent k-mers and their shares of the total, most frequent first, then by name."""
        order = np.argsort(-self.counts, kind="stable")[:number]
        names, shares = canonical_kmers(self.k), self.frequencies()
        return {names[place]: float(shares[place]) for place in order if self.counts[place]}

    def to_json(self) -> dict[str, Any]:
        """The profile as JSON values."""
        return {"k": self.k, "counts": self.counts.tolist()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> KmerProfile:
        """Reads what `to_json` gave."""
        return cls(int(value["k"]), np.asarray(value["counts"], dtype=np.int64))
