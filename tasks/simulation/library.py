"""A sequencing library and its machine: everything that decides how molecules become reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

LEAST_FRAGMENT_BP = 50


@dataclass(frozen=True, slots=True)
class Library:
    """How one sample is sequenced. Shares are of all read pairs.

    Attributes:
        depth: Mean number of reads that cover a base, duplicates included.
        read_length_bp: Length of both mates.
        insert_mean_bp: Mean fragment length; fragments shorter than a read run into the adapter.
        insert_sd_bp: Its standard deviation.
        quality_steps: Qualities as read (``continuous``, HiSeq) or in four bins (``binned``, NovaSeq).
        quality_shift: Added to every quality before errors are drawn: a good run is above 0.
        error_scale: Errors a base relative to what the qualities claim.
        overconfident_share: Pairs with ten times more errors than their qualities claim.
        stutter_scale: Indel errors in tandem repeats relative to a library amplified by PCR.
        systematic_share: Sequence contexts after which one strand is often misread.
        duplicate_share: Pairs that are copies of another pair.
        chimera_share: Pairs whose mates come from two places.
        gc_bias: How strongly GC far from 42 % lowers the depth (0 not at all).
        contamination_share: Pairs that come from another individual.
    """

    depth: float = 30.0
    read_length_bp: int = 150
    insert_mean_bp: float = 380.0
    insert_sd_bp: float = 90.0
    quality_steps: Literal["continuous", "binned"] = "continuous"
    quality_shift: float = 0.0
    error_scale: float = 1.0
    overconfident_share: float = 0.02
    stutter_scale: float = 1.0
    systematic_share: float = 4e-4
    duplicate_share: float = 0.05
    chimera_share: float = 0.004
    gc_bias: float = 1.0
    contamination_share: float = 0.0


def draw_library(rng: np.random.Generator) -> Library:
    """Draws a library as a sequencing centre might have made it: 5-100x, 2x100 to 2x150, good runs and poor ones."""
    return Library(
        depth=float(np.exp(rng.uniform(np.log(5), np.log(100)))),
        read_length_bp=int(rng.choice((100, 101, 125, 150, 151))),
        insert_mean_bp=float(rng.uniform(230, 500)),
        insert_sd_bp=float(rng.uniform(30, 120)),
        quality_steps="binned" if rng.random() < 0.4 else "continuous",
        quality_shift=float(rng.normal(0, 2)),
        error_scale=float(np.exp(rng.normal(0, 0.4))),
        overconfident_share=float(rng.uniform(0, 0.05)),
        stutter_scale=float(np.exp(rng.uniform(np.log(0.1), np.log(1.5)))),
        systematic_share=float(np.exp(rng.uniform(np.log(5e-5), np.log(1e-3)))),
        duplicate_share=float(rng.uniform(0, 0.2)),
        chimera_share=float(rng.uniform(0, 0.01)),
        gc_bias=float(rng.uniform(0, 2)),
        contamination_share=float(rng.uniform(0, 0.04)) if rng.random() < 0.25 else 0.0,
    )
