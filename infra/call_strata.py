"""The strata that a simulated allele belongs to: its kind, and what the reference is like around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from call_truth import Allele, is_snv

from tasks.simulation.genome import Genome

_KMER_BP = 24
_AROUND_BP, _GC_AROUND_BP = 250, 50
_DUPLICATED_KMERS = 0.2
"""A place is duplicated when so many of the 24-mers around it are elsewhere too: at 5 % divergence, 29 % still are."""
_INDEL_BINS = ((1, "1"), (5, "2-5"), (20, "6-20"), (1 << 40, "> 20"))
_RUN_BINS = ((5, "none"), (9, "6-9"), (1 << 40, ">= 10"))
_GC_BINS = ((0.30, "< 30 %"), (0.45, "30-45 %"), (0.60, "45-60 %"), (1.0, "> 60 %"))


@dataclass(frozen=True, slots=True)
class _Contig:
    """What is known of each place of a contig: length of the run it is in, GC around it, whether it is duplicated."""

    run_bp: np.ndarray
    gc: np.ndarray
    is_duplicated: np.ndarray


class Strata:
    """Tells the strata of the alleles of one genome."""

    def __init__(self, genome: Genome) -> None:
        kmers = [_kmers(tokens) for tokens in (*genome.tokens, *genome.unassembled)]
        values, counts = np.unique(np.concatenate(kmers), return_counts=True)
        repeated = values[counts > 1]
        self._contigs = {
            name: _Contig(
                _run_lengths(tokens),
                _mean_around(np.isin(tokens, (1, 2)), _GC_AROUND_BP),
                _mean_around(np.isin(own, repeated), _AROUND_BP, tokens.size) > _DUPLICATED_KMERS,
            )
            for name, tokens, own in zip(genome.names, genome.tokens, kmers, strict=False)
        }

    def of(self, allele: Allele) -> Iterator[tuple[str, str]]:
        """Yields each stratum of an allele: what is told apart, and where it falls."""
        contig, at = self._contigs[allele[0]], allele[1] - 1
        kind = "SNV" if is_snv(allele) else "indel"
        yield kind, "all"
        if kind == "indel":
            yield "indel, bp", _bin(abs(len(allele[3]) - len(allele[2])), _INDEL_BINS)
        run_bp = int(contig.run_bp[max(at - 1, 0) : at + 3].max())
        yield f"{kind}, homopolymer", _bin(run_bp, _RUN_BINS)
        yield f"{kind}, GC", _bin(float(contig.gc[at]), _GC_BINS)
        yield f"{kind}, sequence", "duplicated" if contig.is_duplicated[at] else "unique"


def _bin(value: float, bins: tuple[tuple[float, str], ...]) -> str:
    return next(name for last, name in bins if value <= last)


def _run_lengths(tokens: np.ndarray) -> np.ndarray:
    """Length of the run of one base that each position is in: int64 [n]."""
    starts = np.flatnonzero(np.diff(tokens, prepend=255))
    lengths = np.diff(starts, append=tokens.size)
    return np.repeat(np.where(tokens[starts] < 4, lengths, 0), lengths)


def _kmers(tokens: np.ndarray) -> np.ndarray:
    """Each k-mer as a number, the lesser of its two strands; those with N are all different: uint64 [n - k + 1]."""
    count = max(tokens.size - _KMER_BP + 1, 0)
    forward, backward = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    unknown = np.zeros(count, np.bool_)
    for step in range(_KMER_BP):
        base = tokens[step : step + count]
        unknown |= base > 3
        forward = (forward << np.uint64(2)) | (base & 3).astype(np.uint64)
        backward |= (3 - (base & 3)).astype(np.uint64) << np.uint64(2 * step)
    number = np.minimum(forward, backward)
    number[unknown] = np.uint64(1 << 63) + np.flatnonzero(unknown).astype(np.uint64)
    return number


def _mean_around(values: np.ndarray, distance: int, length: int | None = None) -> np.ndarray:
    """Mean of bool [n] within a distance of each position; the last value stands for those that are missing."""
    length = values.size if length is None else length
    running = np.concatenate([[0], np.cumsum(values)])
    at = np.arange(length)
    low, high = np.clip(at - distance, 0, values.size - 1), np.clip(at + distance + 1, 1, values.size)
    return (running[high] - running[low]) / np.maximum(high - low, 1)
