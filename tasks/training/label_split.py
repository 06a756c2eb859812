"""Which labelled alleles train a model and which are held out: by stretches of genome, lest neighbours leak."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.training.labels import LabelledAlleles

BLOCK_SHIFT = 20
"""Bits of a locus below its block: blocks are 1,048,576 bp wide."""
GAP_BP = 256
"""Alleles for training keep this far from blocks that are held out: more than a window and an allele."""
HELD_OUT_SHARE = 0.2
LEAST_FREQUENCY_SHARE = 0.5
"""Frequency takes part in the matching if it leaves this share of what is matched by consequence alone."""
_CONTIG_BLOCKS = 1 << (40 - BLOCK_SHIFT)


@dataclass(frozen=True, slots=True)
class LabelSplit:
    """Rows of `LabelledAlleles`.

    Attributes:
        training: int64, matched: in each group of consequences as many pathogenic alleles as benign ones, and within it
            by frequency where both classes state it.
        held_out: int64, all alleles of the held-out blocks, not matched.
        held_out_matched: int64, of these as many pathogenic alleles as benign ones in each group of consequences.
        num_near: Alleles left out since they lie too near to a held-out block.
        num_unmatched: Alleles left out of training, since their group has too few of the other class.
        unmatched_groups: Groups that have one class alone: nothing of them is trained on.
        is_frequency_matched: Whether frequency took part in the matching.
    """

    training: npt.NDArray[np.int64]
    held_out: npt.NDArray[np.int64]
    held_out_matched: npt.NDArray[np.int64]
    num_near: int
    num_unmatched: int
    unmatched_groups: tuple[str, ...]
    is_frequency_matched: bool


def split_labels(labels: LabelledAlleles, seed: int, *, held_out_share: float = HELD_OUT_SHARE) -> LabelSplit:
    """Holds blocks of the genome out and matches what is left.

    Args:
        labels: The alleles.
        seed: Of the choice of blocks and of alleles.
        held_out_share: Share of the alleles, about, whose blocks are held out.
    """
    rng = np.random.default_rng(seed)
    locus = labels.alleles["locus"].to_numpy().astype(np.int64)
    block = locus >> BLOCK_SHIFT
    blocks, size = np.unique(block, return_counts=True)
    order = rng.permutation(len(blocks))
    chosen = order[np.cumsum(size[order]) - size[order] < held_out_share * len(labels)]
    held_out_blocks = blocks[chosen]
    is_held_out = np.isin(block, held_out_blocks)
    is_near = ~is_held_out & (
        _is_held_out_at(locus, -GAP_BP, held_out_blocks) | _is_held_out_at(locus, GAP_BP, held_out_blocks)
    )
    candidates = np.flatnonzero(~is_held_out & ~is_near)
    anywhere = np.zeros(len(labels), dtype=np.int64)
    training, groups = _matched(labels, candidates, anywhere, rng)
    is_stated = np.isfinite(labels.frequency[candidates])
    is_frequency_matched = False
    if is_stated.any():
        closer, closer_groups = _matched(labels, candidates, _decades(labels.frequency), rng)
        # Classes whose frequencies hardly meet would leave too little.
        if len(closer) and len(closer) >= LEAST_FREQUENCY_SHARE * len(training):
            training, groups, is_frequency_matched = closer, closer_groups, True
    held_out = np.flatnonzero(is_held_out)
    return LabelSplit(
        training,
        held_out,
        _matched(labels, held_out, anywhere, rng)[0],
        int(is_near.sum()),
        len(candidates) - len(training),
        groups,
        is_frequency_matched,
    )


def _is_held_out_at(
    locus: npt.NDArray[np.int64], offset_bp: int, held_out: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Whether what lies so far away on the same contig is held out."""
    other = (locus + offset_bp) >> BLOCK_SHIFT
    is_same_contig = other // _CONTIG_BLOCKS == (locus >> BLOCK_SHIFT) // _CONTIG_BLOCKS
    found: npt.NDArray[np.bool_] = is_same_contig & np.isin(other, held_out)
    return found


def _decades(frequency: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Decades of frequencies, from -6 to 0; -7 where there is none."""
    decade = np.full(len(frequency), -7, dtype=np.int64)
    is_stated = np.isfinite(frequency)
    decade[is_stated] = np.floor(np.log10(np.clip(frequency[is_stated], 1e-6, 1.0))).astype(np.int64)
    return decade


def _matched(
    labels: LabelledAlleles, rows: npt.NDArray[np.int64], decade: npt.NDArray[np.int64], rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Rows with as many of either class in each stratum, and the groups that have no stratum of both classes."""
    label, consequence, place = labels.label[rows], labels.consequence[rows].astype(str), decade[rows]
    kept: list[npt.NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    groups = set()
    for group in np.unique(consequence).tolist():
        for one in np.unique(place[consequence == group]).tolist():
            stratum = np.flatnonzero((consequence == group) & (place == one))
            positive, negative = stratum[label[stratum]], stratum[~label[stratum]]
            number = min(len(positive), len(negative))
            if number:
                groups.add(group)
                kept += [rng.permutation(positive)[:number], rng.permutation(negative)[:number]]
    return np.sort(rows[np.concatenate(kept)]), tuple(sorted(set(consequence.tolist()) - groups))
