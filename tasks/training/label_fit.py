"""Fits the effect model to classified alleles, and says how well it tells those apart that it has not seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tasks.effect_pipelines import Pathogenicity
from tasks.genome.reference import Reference
from tasks.training.effect import Effect
from tasks.training.embedder import STATE
from tasks.training.label_figures import (
    MIN_HELD_OUT,
    CalibrationBin,
    HeldOutFigures,
    calibration_bins,
    held_out_figures,
)
from tasks.training.label_split import LabelSplit
from tasks.training.labels import LabelError, LabelledAlleles

MIN_TRAINING = 50
"""Alleles of either class below which there is no model."""

_BATCH = 256
_NUM_EPOCHS, _EPOCHS_TOLD = 40, 10
_PEAK_RATE = 2e-3
_WEIGHT_DECAY = 1e-2
_NUM_RUNS, _NUM_RUNS_KEPT = 20, 3
"""Training alleles are cut into so many runs of neighbours; those kept back choose the pass that is used."""
_SLICE = 16_384
"""Alleles whose windows are in memory together."""
_SHAPES = {"state": (STATE,)}

Embed = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]
"""Embeds windows: uint8 [n, 128] to float32 [n, EMBEDDING]."""


@dataclass(frozen=True, slots=True)
class FittedToLabels:
    """A trained effect model.

    Attributes:
        effect: The model.
        num_training: Alleles for training, half of them pathogenic.
        num_choosing: Of these, alleles that nothing was learnt from: they chose the pass.
        best_pass: The pass over the others after which those did best.
        groups: Of the alleles for training, how many are of each group of consequences.
        figures: Of held-out alleles: all, all matched by consequence, then each group of consequences.
        bins: How far the scores of all held-out alleles can be believed.
    """

    effect: Effect
    num_training: int
    num_choosing: int
    best_pass: int
    groups: dict[str, int]
    figures: tuple[HeldOutFigures, ...]
    bins: tuple[CalibrationBin, ...]


def with_windows(labels: LabelledAlleles, reference: Reference) -> LabelledAlleles:
    """The alleles that have a window; the others are counted by reason.

    They are left out before classes are matched: long alleles are pathogenic more often than not.
    """
    kept, left_out = [np.empty(0, np.int64)], Counter[str]()
    for first in range(0, len(labels), _SLICE):
        rows = Pathogenicity().expand(labels.alleles.slice(first, _SLICE), reference, _SHAPES)
        kept.append(first + rows.allele)
        left_out.update(f"no window: {reason}" for reason in rows.reason if reason)
    return replace(labels.take(np.concatenate(kept)), counts=labels.counts | dict(sorted(left_out.items())))


def fit_to_labels(
    labels: LabelledAlleles,
    split: LabelSplit,
    reference: Reference,
    embed: Embed,
    seed: int,
    report: Callable[[str], None],
) -> FittedToLabels:
    """Trains on the split's matched alleles; the same seed gives the same weights on the same machine.

    Args:
        labels: The alleles; each has a window.
        split: Which are learnt from and which are held out.
        reference: Their genome.
        embed: The embedder, which stays as it is.
        seed: Of first weights and batches.
        report: Is told how far it is.

    Raises:
        LabelError: A class has too few alleles to learn from, or to be judged by.
    """
    training, held_out = split.training, split.held_out
    label = labels.label
    for part, least, what in ((training, MIN_TRAINING, "learn from"), (held_out, MIN_HELD_OUT, "be judged by")):
        num_pathogenic = int(label[part].sum())
        if min(num_pathogenic, len(part) - num_pathogenic) < least:
            raise LabelError(
                f"{num_pathogenic} pathogenic and {len(part) - num_pathogenic} benign alleles to {what}, at least "
                f"{least} of either are needed; of the files: {labels.counts}, left out since a group of consequences "
                f"has one class alone or fewer of it: {split.num_unmatched}"
            )
    report(f"embedding {len(training):,} alleles to learn from and {len(held_out):,} held-out ones")
    tensors = _embedded(labels.take(training), reference, embed)
    kept = np.random.default_rng(seed).permutation(_NUM_RUNS)[:_NUM_RUNS_KEPT]
    is_choosing = np.isin(np.arange(len(training)) * _NUM_RUNS // len(training), kept)
    effect, best_pass = _fit(*tensors, label[training], is_choosing, seed, report)
    with torch.no_grad():
        score = torch.sigmoid(effect(*_embedded(labels.take(held_out), reference, embed))).numpy()
    truth, group = label[held_out], labels.consequence[held_out].astype(str)
    is_matched = np.isin(held_out, split.held_out_matched)
    figures = [
        held_out_figures("all", score, truth),
        held_out_figures("all, matched by consequence", score[is_matched], truth[is_matched]),
    ]
    figures += [
        held_out_figures(name, score[group == name], truth[group == name]) for name in np.unique(group).tolist()
    ]
    names, sizes = np.unique(labels.consequence[training].astype(str), return_counts=True)
    return FittedToLabels(
        effect=effect,
        num_training=len(training),
        num_choosing=int(is_choosing.sum()),
        best_pass=best_pass,
        groups=dict(zip(names.tolist(), sizes.tolist(), strict=True)),
        figures=tuple(figures),
        bins=calibration_bins(score, truth),
    )


def _embedded(labels: LabelledAlleles, reference: Reference, embed: Embed) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings of the windows without and with each allele, both float32 [n, EMBEDDING]."""
    parts = []
    for first in range(0, len(labels), _SLICE):
        windows = Pathogenicity().expand(labels.alleles.slice(first, _SLICE), reference, _SHAPES).inputs
        parts.append((embed(windows["reference_window"]), embed(windows["alternate_window"])))
    without, put_in = (torch.from_numpy(np.concatenate(each)) for each in zip(*parts, strict=True))
    return without, put_in


def _fit(
    reference: torch.Tensor,
    alternate: torch.Tensor,
    label: npt.NDArray[np.bool_],
    is_choosing: npt.NDArray[np.bool_],
    seed: int,
    report: Callable[[str], None],
) -> tuple[Effect, int]:
    """The model after the pass that the choosing alleles like best, and that pass."""
    num_threads = torch.get_num_threads()
    # Sums split over threads would differ from run to run.
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            effect = Effect()
        generator = torch.Generator().manual_seed(seed)
        target = torch.from_numpy(label.astype(np.float32))
        learning, choosing = (torch.from_numpy(np.flatnonzero(each)) for each in (~is_choosing, is_choosing))
        optimiser = torch.optim.AdamW(effect.parameters(), lr=_PEAK_RATE, weight_decay=_WEIGHT_DECAY)
        num_steps = _NUM_EPOCHS * -(-len(learning) // _BATCH)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _PEAK_RATE, total_steps=num_steps)
        best, best_pass, best_loss = effect, 0, float("inf")
        for epoch in range(1, _NUM_EPOCHS + 1):
            order = torch.randperm(len(learning), generator=generator)
            for rows in learning[order].split(_BATCH):  # type: ignore[no-untyped-call]
                loss = _loss(effect, reference, alternate, target, rows)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
            with torch.no_grad():
                now = float(_loss(effect, reference, alternate, target, choosing))
            if now < best_loss:
                best, best_pass, best_loss = deepcopy(effect), epoch, now
            if epoch % _EPOCHS_TOLD == 0:
                report(f"pass {epoch} of {_NUM_EPOCHS}; the best so far is {best_pass}, its loss {best_loss:.4f}")
        return best, best_pass
    finally:
        torch.set_num_threads(num_threads)


def _loss(
    effect: Effect, reference: torch.Tensor, alternate: torch.Tensor, target: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(effect(reference[rows], alternate[rows]), target[rows])
