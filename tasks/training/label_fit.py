"""Fits the effect model to classified alleles, and says how well it tells those apart that it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tasks.effect_pipelines import Pathogenicity
from tasks.genome.reference import Reference
from tasks.training.effect import Effect
from tasks.training.effect_fit import area_under_curve
from tasks.training.embedder import STATE
from tasks.training.label_split import LabelSplit
from tasks.training.labels import LabelError, LabelledAlleles

MIN_TRAINING, MIN_HELD_OUT = 50, 10
"""Alleles of either class below which there is no model, and no figure."""

_BATCH = 256
_NUM_EPOCHS = 40
_PEAK_RATE = 2e-3
_WEIGHT_DECAY = 1e-2

Embed = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]
"""Embeds windows: uint8 [n, 128] to float32 [n, EMBEDDING]."""


@dataclass(frozen=True, slots=True)
class HeldOutFigures:
    """How well alleles of one group that were held out are told apart.

    Attributes:
        group: Group of consequences, or ``all``.
        num_pathogenic: Pathogenic alleles.
        num_benign: Benign ones.
        auroc: Area under the ROC curve; NaN where a class has fewer than `MIN_HELD_OUT`.
    """

    group: str
    num_pathogenic: int
    num_benign: int
    auroc: float


@dataclass(frozen=True, slots=True)
class FittedToLabels:
    """A trained effect model.

    Attributes:
        effect: The model.
        num_training: Alleles that it learnt from, half of them pathogenic.
        groups: Of these, how many are of each group of consequences.
        num_unscored: Labelled alleles that have no window: too long, or without a reference sequence.
        figures: Of held-out alleles, for ``all`` and then for each group of consequences.
        brier: Mean squared error of held-out alleles, both classes weighed alike; 0.25 for always saying a half.
    """

    effect: Effect
    num_training: int
    groups: dict[str, int]
    num_unscored: int
    figures: tuple[HeldOutFigures, ...]
    brier: float


def fit_to_labels(
    labels: LabelledAlleles, split: LabelSplit, reference: Reference, embed: Embed, seed: int
) -> FittedToLabels:
    """Trains on the split's matched alleles; the same seed gives the same weights on the same machine.

    Args:
        labels: The alleles.
        split: Which are learnt from and which are held out.
        reference: Their genome.
        embed: The embedder, which stays as it is.
        seed: Of first weights and batches.

    Raises:
        LabelError: A class has too few alleles to learn from, or to be judged by.
    """
    rows = Pathogenicity().expand(labels.alleles, reference, {"state": (STATE,)})
    place = np.full(len(labels), -1, np.int64)
    place[rows.allele] = np.arange(len(rows.allele))
    training, held_out = (place[part][place[part] >= 0] for part in (split.training, split.held_out))
    label = labels.label[rows.allele]
    consequence = labels.consequence[rows.allele].astype(str)
    for part, least, what in ((training, MIN_TRAINING, "learn from"), (held_out, MIN_HELD_OUT, "be judged by")):
        num_pathogenic = int(label[part].sum())
        if min(num_pathogenic, len(part) - num_pathogenic) < least:
            raise LabelError(
                f"{num_pathogenic} pathogenic and {len(part) - num_pathogenic} benign alleles to {what}, at least "
                f"{least} of either are needed; of the files: {labels.counts}, left out since a group of consequences "
                f"has one class alone or fewer of it: {split.num_unmatched}"
            )
    embedded = embed(rows.inputs["reference_window"]), embed(rows.inputs["alternate_window"])
    tensors = tuple(torch.from_numpy(part) for part in embedded)
    effect = _fit(tensors[0][training], tensors[1][training], label[training], seed)
    with torch.no_grad():
        score = torch.sigmoid(effect(tensors[0][held_out], tensors[1][held_out])).numpy()
    truth, group = label[held_out], consequence[held_out]
    figures = [_figures("all", score, truth)]
    figures += [_figures(name, score[group == name], truth[group == name]) for name in np.unique(group).tolist()]
    names, sizes = np.unique(consequence[training], return_counts=True)
    error = (score - truth) ** 2
    return FittedToLabels(
        effect=effect,
        num_training=len(training),
        groups=dict(zip(names.tolist(), sizes.tolist(), strict=True)),
        num_unscored=len(labels) - len(rows.allele),
        figures=tuple(figures),
        brier=float((error[truth].mean() + error[~truth].mean()) / 2),
    )


def _fit(reference: torch.Tensor, alternate: torch.Tensor, label: npt.NDArray[np.bool_], seed: int) -> Effect:
    num_threads = torch.get_num_threads()
    # Sums split over threads would differ from run to run.
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            effect = Effect()
        generator = torch.Generator().manual_seed(seed)
        target = torch.from_numpy(label.astype(np.float32))
        optimiser = torch.optim.AdamW(effect.parameters(), lr=_PEAK_RATE, weight_decay=_WEIGHT_DECAY)
        num_steps = _NUM_EPOCHS * -(-len(target) // _BATCH)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _PEAK_RATE, total_steps=num_steps)
        for _ in range(_NUM_EPOCHS):
            for rows in torch.randperm(len(target), generator=generator).split(_BATCH):  # type: ignore[no-untyped-call]
                logit = effect(reference[rows], alternate[rows])
                loss = nn.functional.binary_cross_entropy_with_logits(logit, target[rows])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
        return effect
    finally:
        torch.set_num_threads(num_threads)


def _figures(group: str, score: npt.NDArray[np.float32], truth: npt.NDArray[np.bool_]) -> HeldOutFigures:
    num_pathogenic = int(truth.sum())
    num_benign = len(truth) - num_pathogenic
    is_judged = min(num_pathogenic, num_benign) >= MIN_HELD_OUT
    return HeldOutFigures(
        group, num_pathogenic, num_benign, area_under_curve(score, truth) if is_judged else float("nan")
    )
