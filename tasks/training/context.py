"""What the embedder must keep of a window besides what the effect model needs: its repeats, its GC and its centre."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tasks.windows import CENTRE, UNKNOWN_TOKEN

UNITS_BP = (1, 2, 3, 4)
NUM_TARGETS = 2 * len(UNITS_BP) + 1
CENTRAL = slice(CENTRE - 6, CENTRE + 10)
"""Bases that must be readable from an embedding."""


def context_targets(windows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Numbers that a caller wants to know of a place.

    Args:
        windows: uint8 [n, 128].

    Returns:
        float32 [n, 9], about 0 to 1: for each repeat unit of 1-4 bases, how far the sequence repeats itself to the
        right of the centre's base, and to the left from it (log2 of bases and 1, a sixth); then the share of G and C.
    """
    repeats = [_repeat_bp(windows[:, CENTRE + 1 :], unit_bp) for unit_bp in UNITS_BP]
    repeats += [_repeat_bp(windows[:, CENTRE::-1], unit_bp) for unit_bp in UNITS_BP]
    known = (windows < UNKNOWN_TOKEN).sum(axis=1)
    gc = ((windows == 1) | (windows == 2)).sum(axis=1) / np.maximum(known, 1)
    return np.stack([*(np.log2(1 + bp) / 6 for bp in repeats), gc], axis=1).astype(np.float32)


def _repeat_bp(sequence: npt.NDArray[np.uint8], unit_bp: int) -> npt.NDArray[np.int64]:
    """How many bases, from the first on, equal the base `unit_bp` later."""
    same = (sequence[:, :-unit_bp] == sequence[:, unit_bp:]) & (sequence[:, unit_bp:] < UNKNOWN_TOKEN)
    length_bp: npt.NDArray[np.int64] = np.where(same.all(axis=1), same.shape[1], (~same).argmax(axis=1))
    return length_bp
