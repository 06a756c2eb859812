"""The molecules of a library: fragments of haplotypes, some amplified twice, some joined to a stranger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.simulation.haplotypes import Molecules, count_gc, count_unknown
from tasks.simulation.library import LEAST_FRAGMENT_BP, Library

_BEST_GC, _GC_WIDTH = 0.42, 0.22
_PATCH_BP, _PATCH_SD = 400, 0.15
"""Depth varies by a log-normal factor from patch to patch, beyond what GC explains."""


@dataclass(frozen=True, slots=True)
class Fragments:
    """Fragments of one haploid set, in the order they were drawn.

    Attributes:
        start: int64 [n], first base on the set's tokens.
        end: int64 [n], past the last base.
        mate_end: int64 [n], where the right-hand mate starts (downwards): `end`, but for a chimera elsewhere.
        flipped: bool [n], whether the first mate reads the right end.
        original: int64 [n], row of the fragment that this one is a PCR copy of; its own row otherwise.
    """

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    mate_end: npt.NDArray[np.int64]
    flipped: npt.NDArray[np.bool_]
    original: npt.NDArray[np.int64]


def draw_fragments(rng: np.random.Generator, molecules: Molecules, num_fragments: int, library: Library) -> Fragments:
    """Draws fragments by length and depth laws of a library; none holds an N or crosses a sequence's end.

    Raises:
        ValueError: The molecules are too short, or too full of N, for the library's fragments.
    """
    num_originals = num_fragments - int(rng.binomial(num_fragments, library.duplicate_share))
    drawn = _accepted(rng, molecules, library)
    starts: list[npt.NDArray[np.int64]] = []
    ends: list[npt.NDArray[np.int64]] = []
    while sum(map(len, starts)) < num_originals:
        start, end = next(drawn)
        starts.append(start)
        ends.append(end)
    start, end = (np.concatenate(parts)[:num_originals] if parts else np.zeros(0, np.int64) for parts in (starts, ends))
    mate_end = end.copy()
    chimeras = np.flatnonzero(rng.random(num_originals) < library.chimera_share)
    mate_end[chimeras] = end[rng.permutation(num_originals)[: len(chimeras)]]
    flipped = rng.random(num_originals) < 0.5
    copied = rng.integers(0, max(num_originals, 1), num_fragments - num_originals if num_originals else 0)
    original = np.concatenate([np.arange(num_originals), copied])
    return Fragments(start[original], end[original], mate_end[original], flipped[original], original)


def _accepted(
    rng: np.random.Generator, molecules: Molecules, library: Library
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yields accepted (start, end) of ever more proposals."""
    unknown, gc = count_unknown(molecules), count_gc(molecules)
    num_bases = len(molecules.tokens)
    patches = np.exp(rng.normal(0, _PATCH_SD, num_bases // _PATCH_BP + 1))
    patches /= patches.max()
    num_proposed, num_empty = max(4096, num_bases // 50), 0
    while num_empty < 20:
        start = rng.integers(0, num_bases, num_proposed)
        length_bp = np.rint(rng.normal(library.insert_mean_bp, library.insert_sd_bp, num_proposed)).astype(np.int64)
        end = start + np.maximum(length_bp, LEAST_FRAGMENT_BP)
        inside = end <= molecules.bounds[np.searchsorted(molecules.bounds, start, side="right")]
        start, end = start[inside], end[inside]
        gc_share = (gc[end] - gc[start]) / (end - start)
        weight = np.exp(-library.gc_bias * ((gc_share - _BEST_GC) / _GC_WIDTH) ** 2) * patches[start // _PATCH_BP]
        keep = (unknown[end] == unknown[start]) & (rng.random(len(start)) < weight)
        num_empty = 0 if keep.any() else num_empty + 1
        yield start[keep], end[keep]
    raise ValueError(f"no fragment of {library.insert_mean_bp:.0f} bp fits the simulated molecules")


def share_out(rng: np.random.Generator, num_pairs: int, weights: Sequence[float]) -> list[int]:
    """Splits a number of pairs at random over sources with the given weights."""
    total = float(sum(weights))
    return [int(count) for count in rng.multinomial(num_pairs, [weight / total for weight in weights])]
