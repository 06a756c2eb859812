"""Depth along a contig: over each position, and of a place beside its wide surroundings."""

from __future__ import annotations

import numpy as np

from tasks.calling.aligned_reads import AlignedReads
from tasks.calling.bam_records import TILE_BP

WIDE_TILES = 32
"""The usual depth at a place is that of so many tiles on both sides: most paralogues are shorter."""

_NEAR_TILES = 1
_HIGHEST_RATIO = 4.0


def count_depth(reads: AlignedReads, start: int, end: int) -> np.ndarray:
    """Counts the reads whose span covers each position of ``[start, end)``; returns int32 [end - start]."""
    change = np.zeros(end - start + 1, np.int32)
    np.add.at(change, np.clip(reads.start, start, end) - start, 1)
    np.add.at(change, np.clip(reads.end, start, end) - start, -1)
    return np.cumsum(change[:-1], dtype=np.int32)


def wide_depth_ratios(tile_bases: np.ndarray, first_tile: int, start: np.ndarray) -> np.ndarray:
    """Divides the depth around each place by the usual depth of its wide surroundings.

    The usual depth is the median over sequenced bases, not over tiles: where only some tiles were captured, it is
    theirs. A paralogue that the reference lacks doubles the depth over its whole length.

    Args:
        tile_bases: int64 [num_tiles], aligned bases of the reads that start in each tile of the contig's grid; holds
            `WIDE_TILES` beyond every place, but for the contig's ends.
        first_tile: Number of the first of them on the contig.
        start: int64 [n], places.

    Returns:
        float64 [n], 0 to 4.
    """
    tiles, member = np.unique(start // TILE_BP - first_tile, return_inverse=True)
    ratios = np.zeros(tiles.size, np.float64)
    for row, tile in enumerate(tiles.tolist()):
        wide = np.sort(tile_bases[max(0, tile - WIDE_TILES) : tile + WIDE_TILES + 1])
        running = np.cumsum(wide)
        usual = wide[np.searchsorted(2 * running, running[-1])]
        near = tile_bases[max(0, tile - _NEAR_TILES) : tile + _NEAR_TILES + 1]
        covered = near[near > 0]
        if covered.size and usual:
            ratios[row] = min(covered.mean() / usual, _HIGHEST_RATIO)
    spread: np.ndarray = ratios[member]
    return spread
