"""Base qualities as a machine reports them, and the error rates behind them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tasks.simulation.library import Library

LOWEST, HIGHEST = 2, 41
_KNOT_CYCLES = 10
_TAIL_SHARE, _TAIL_CYCLES = 0.06, 18.0
_DIP_SHARE, _DIP = 0.012, 14.0
_BIN_EDGES = np.array([2.5, 17.5, 30.0])
_BINS = np.array([2, 12, 23, 37], np.uint8)
"""Source: NovaSeq 6000 reports Q2, Q12, Q23 and Q37 (Illumina, NovaSeq 6000 base calling, 2017)."""
_FLOOR = 1.2e-4
"""Errors that no quality knows of: made before sequencing."""
_OVERCONFIDENT = 10.0


def draw_qualities(rng: np.random.Generator, num_reads: int, mate: int, library: Library) -> npt.NDArray[np.uint8]:
    """Draws Phred qualities, uint8 [num_reads, read_length_bp], for first (0) or second (1) mates.

    A mean curve that rises over the first cycles and falls towards the end (sooner in second mates), a level and a
    slope of each read, a slow and a fast noise along it, isolated dips, and a Q2 tail in some reads.
    """
    length_bp = library.read_length_bp
    along = np.linspace(0, 1, length_bp, dtype=np.float32)
    mean = 38.5 - 6.0 * np.exp(-along * length_bp / 2.5) - (3.5 + 3.0 * mate) * along**2
    level = -rng.exponential(1.3 + 0.6 * mate, num_reads).astype(np.float32)
    slope = -rng.exponential(2.5 + 2.0 * mate, num_reads).astype(np.float32)
    knots = rng.normal(0, 1.6, (num_reads, length_bp // _KNOT_CYCLES + 2)).astype(np.float32)
    place = np.arange(length_bp) / _KNOT_CYCLES
    left, part = place.astype(np.int64), (place % 1).astype(np.float32)
    quality = rng.standard_normal((num_reads, length_bp), np.float32)
    quality += mean + library.quality_shift + level[:, None] + slope[:, None] * along**3
    quality += knots[:, left] * (1 - part) + knots[:, left + 1] * part
    quality -= np.float32(_DIP) * (rng.random((num_reads, length_bp), np.float32) < _DIP_SHARE)
    tail = length_bp - rng.exponential(_TAIL_CYCLES * (1 + mate), num_reads)
    tail[rng.random(num_reads) >= _TAIL_SHARE * (1 + mate)] = length_bp
    quality[np.arange(length_bp) >= tail[:, None]] = LOWEST
    whole = np.clip(np.rint(quality), LOWEST, HIGHEST).astype(np.uint8)
    return whole if library.quality_steps == "continuous" else _BINS[np.searchsorted(_BIN_EDGES, whole)]


def error_rates(rng: np.random.Generator, quality: npt.NDArray[np.uint8], library: Library) -> npt.NDArray[np.float32]:
    """The true chance of a wrong base, float32 [num_reads, read_length_bp], behind reported qualities."""
    scale = library.error_scale * np.exp(rng.normal(0, 0.3, len(quality)))
    scale[rng.random(len(quality)) < library.overconfident_share] *= _OVERCONFIDENT
    claimed = (10.0 ** (-np.arange(HIGHEST + 1) / 10)).astype(np.float32)
    # A Q2 base is a "do not use" mark, right four times in five.
    claimed[: LOWEST + 1] = 0.2
    rates: npt.NDArray[np.float32] = claimed[quality] * scale[:, None].astype(np.float32) + np.float32(_FLOOR)
    return np.minimum(rates, np.float32(0.5), out=rates)
