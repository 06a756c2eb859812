"""What is counted of sequencing reads: lengths, qualities, bases and k-mers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from monitoring.kmers import DEFAULT_K, KmerProfile, add_kmers
from tasks.reads.records import NUM_POSITIONS, NUM_QUALITIES, RecordChunk

LONG_READ_BP = 600
"""Reads are called long when their median length is above; no short-read instrument reads further (2 x 300, merged)."""

_NUM_COMMON_KMERS = 10
_SHARE_DECIMALS = 6
_Q30 = 30
_MAX_LENGTH_BINS = 64
_MIN_OFFSET_BASES = 100


@dataclass(slots=True, eq=False)
class ReadsStatistics:
    """Sums over reads; two of them add up to that of all their reads.

    Attributes:
        k: Length of the k-mers, in bases.
        length_counts: Reads by length in bases.
        token_counts: int64 [5], bases by token.
        quality_counts: int64 [94], bases by quality.
        position_sums: int64 [512], qualities summed by place in the read.
        position_counts: int64 [512], bases by place in the read.
        kmer_counts: int64 [4**k], by code and strand, as `monitoring.kmers.add_kmers` gathers them.
    """

    k: int = DEFAULT_K
    length_counts: Counter[int] = field(default_factory=Counter)
    token_counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(5, dtype=np.int64))
    quality_counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(NUM_QUALITIES, dtype=np.int64))
    position_sums: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(NUM_POSITIONS, dtype=np.int64))
    position_counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(NUM_POSITIONS, dtype=np.int64))
    kmer_counts: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.kmer_counts = np.zeros(4**self.k, dtype=np.int64)

    def add_chunk(self, chunk: RecordChunk) -> None:
        """Adds the records of a chunk."""
        lengths_bp, counts = np.unique(chunk.lengths_bp, return_counts=True)
        self.length_counts.update(dict(zip(lengths_bp.tolist(), counts.tolist(), strict=True)))
        self.quality_counts += chunk.quality_counts
        self.token_counts[:4] += [np.count_nonzero(chunk.tokens == token) for token in range(4)]
        self.token_counts[4] = self.num_bases - self.token_counts[:4].sum()
        self.position_sums += chunk.position_sums
        self.position_counts += chunk.position_counts
        add_kmers(chunk.tokens, self.k, self.kmer_counts)

    def __iadd__(self, other: ReadsStatistics) -> ReadsStatistics:
        self.length_counts.update(other.length_counts)
        self.token_counts += other.token_counts
        self.quality_counts += other.quality_counts
        self.position_sums += other.position_sums
        self.position_counts += other.position_counts
        self.kmer_counts += other.kmer_counts
        return self

    @property
    def num_reads(self) -> int:
        """Number of reads."""
        return self.length_counts.total()

    @property
    def num_bases(self) -> int:
        """Number of bases."""
        return int(self.quality_counts.sum())

    @property
    def median_length_bp(self) -> int:
        """The length that at least half of the reads do not exceed; 0 without reads."""
        return _length_at(self.length_counts, self.num_reads / 2)

    @property
    def is_long(self) -> bool:
        """Whether these are long reads (`LONG_READ_BP`)."""
        return self.median_length_bp > LONG_READ_BP

    @property
    def mean_error(self) -> float:
        """Mean probability that a base is wrong, from the qualities; 0 without bases."""
        errors = 10.0 ** (-np.arange(NUM_QUALITIES) / 10)
        return float(self.quality_counts @ errors) / max(self.num_bases, 1)

    def has_offset_64(self) -> bool:
        """Whether the qualities look like Illumina 1.3-1.7's or Solexa's, written from ``@`` or ``;`` on.

        No quality is below Solexa's lowest, and some are above what short-read instruments write today (Q42). Fewer
        than 100 bases prove nothing.
        Source: Cock et al. 2010, Nucleic Acids Research 38:1767, table 1.
        """
        (seen,) = np.nonzero(self.quality_counts)
        if self.is_long or self.num_bases < _MIN_OFFSET_BASES:
            return False
        return bool(seen[0] >= ord(";") - 33 and seen[-1] > 42)

    def to_json(self) -> dict[str, Any]:
        """The summary of these reads, as JSON values; shares are rounded to six decimals."""
        num_bases = max(self.num_bases, 1)
        num_known = max(int(self.token_counts[:4].sum()), 1)
        num_places = int(np.count_nonzero(self.position_counts))
        kmers = KmerProfile.from_stranded(self.k, self.kmer_counts)
        by_position = self.position_sums[:num_places] / np.maximum(self.position_counts[:num_places], 1)
        lengths_bp = sorted(self.length_counts)
        return {
            "num_reads": self.num_reads,
            "num_bases": self.num_bases,
            "num_empty_reads": self.length_counts[0],
            "length_bp": {
                "min": lengths_bp[0] if lengths_bp else 0,
                "max": lengths_bp[-1] if lengths_bp else 0,
                "mean": round(self.num_bases / max(self.num_reads, 1), 2),
                "median": self.median_length_bp,
                "n50": _n50(self.length_counts),
                "histogram": _histogram(self.length_counts),
            },
            "quality": {
                "mean": round(float(self.quality_counts @ np.arange(NUM_QUALITIES)) / num_bases, 3),
                "q30_share": _share(int(self.quality_counts[_Q30:].sum()), num_bases),
                "mean_error": round(self.mean_error, _SHARE_DECIMALS),
                "counts": self.quality_counts.tolist(),
                "mean_by_position": [round(value, 2) for value in by_position.tolist()],
            },
            "n_share": _share(int(self.token_counts[4]), num_bases),
            "gc_share": _share(int(self.token_counts[1] + self.token_counts[2]), num_known),
            "long_reads": self.is_long,
            "kmer_entropy_bits": round(kmers.entropy_bits, 3),
            "common_kmers": {
                kmer: round(share, _SHARE_DECIMALS) for kmer, share in kmers.most_common(_NUM_COMMON_KMERS).items()
            },
            "kmers": kmers.to_json(),
        }


def _share(part: int, whole: int) -> float:
    return round(part / whole, _SHARE_DECIMALS)


def _length_at(length_counts: Counter[int], num_reads: float) -> int:
    """The length of the read at a place among all, shortest first."""
    seen = 0
    for length_bp in sorted(length_counts):
        seen += length_counts[length_bp]
        if seen >= num_reads:
            return length_bp
    return 0


def _n50(length_counts: Counter[int]) -> int:
    """The length of which at least half of all bases lie in reads as long or longer."""
    num_bases = sum(length_bp * count for length_bp, count in length_counts.items())
    seen = 0
    for length_bp in sorted(length_counts, reverse=True):
        seen += length_bp * length_counts[length_bp]
        if 2 * seen >= num_bases:
            return length_bp
    return 0


def _histogram(length_counts: Counter[int]) -> list[list[int]]:
    """Reads by length as [first, last, reads]: a bin a length while there are few, else bins of one width."""
    if not length_counts:
        return []
    shortest, longest = min(length_counts), max(length_counts)
    width_bp = 1 if len(length_counts) <= _MAX_LENGTH_BINS else -(-(longest - shortest + 1) // _MAX_LENGTH_BINS)
    bins: Counter[int] = Counter()
    for length_bp, count in length_counts.items():
        bins[(length_bp - shortest) // width_bp] += count
    return [[shortest + place * width_bp, shortest + (place + 1) * width_bp - 1, bins[place]] for place in sorted(bins)]
