"""Training of the caller: fitted on simulated individuals, calibrated on others, measured on either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tasks.calling.evidence import NAMES
from tasks.training.caller_examples import CallExamples
from tasks.training.caller_network import Caller

_BATCH_ROWS = 256
_LEARNING_RATE = 2e-3
_WEIGHT_DECAY = 1e-4
_QUALITY_COLUMNS = tuple(
    NAMES.index(f"{group}_{what}_quality") for group in ("alternate", "rest") for what in ("base", "mapping")
)
_MAPPING_COLUMNS = [NAMES.index(f"{group}_mapping_quality") for group in ("alternate", "rest")]
_MAPPING_SPREAD = 0.45
"""minimap2 gives most reads 60; other aligners give good reads 37, 42 or 50: the scale is drawn for each example."""

_SMOOTHING = 0.005
_NOISE = 0.05
_QUALITY_NOISE = 0.10
_TEMPERATURES = np.linspace(0.6, 2.5, 39)

Embed = Callable[[np.ndarray], np.ndarray]
"""Embeds reference windows: uint8 [n, WINDOW_BP] to float32 [n, E]."""


@dataclass(frozen=True, slots=True)
class Quality:
    """How well alleles of one kind are called at P(any copy) >= 0.5."""

    num_true: int
    precision: float
    recall: float
    genotype_concordance: float
    calibration_error: float

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def train_caller(
    train: CallExamples,
    weight: np.ndarray,
    validation: CallExamples,
    embed: Embed,
    embedding_size: int,
    *,
    seed: int,
    num_epochs: int,
) -> Caller:
    """Trains on some individuals and calibrates on others; the same seed gives the same weights on one machine.

    Args:
        train: Examples to learn from.
        weight: float32 [n], how much each of them counts.
        validation: Examples of other individuals; they set temperature and threshold, by kind of allele.
        embed: The embedder.
        embedding_size: Length of its vector.
        seed: Of the initial weights, the order of the batches and the noise.
        num_epochs: Passes over the training examples.
    """
    # Sums split over threads would differ from machine to machine.
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    scale = train.evidence.std(axis=0) + 0.05
    model = Caller(embedding_size, train.evidence.mean(axis=0), scale.astype(np.float32))
    inputs = _tensors(train, embed)
    copies = torch.from_numpy(train.copies)
    weights = torch.from_numpy(weight / weight.mean())
    noise = torch.full((len(NAMES),), _NOISE) * torch.from_numpy(scale)
    noise[list(_QUALITY_COLUMNS)] = _QUALITY_NOISE
    noise[NAMES.index("is_snv") : NAMES.index("log_length")] = 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    num_steps = num_epochs * -(-len(copies) // _BATCH_ROWS)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=num_steps)
    for _ in range(num_epochs):
        model.train()
        for rows in torch.randperm(len(copies), generator=generator).split(_BATCH_ROWS):  # type: ignore[no-untyped-call]
            embedding, pileup, evidence = (tensor[rows] for tensor in inputs)
            # Aligners and base callers differ in what their numbers mean: no column may be read too finely.
            evidence = evidence + noise * torch.randn(evidence.shape, generator=generator)
            evidence[:, _MAPPING_COLUMNS] *= 1 - _MAPPING_SPREAD * torch.rand((len(rows), 1), generator=generator)
            scores = model.scores(embedding, pileup, evidence)
            losses = functional.cross_entropy(scores, copies[rows], label_smoothing=_SMOOTHING, reduction="none")
            loss = (losses * weights[rows]).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    model.eval()
    _calibrate(model, validation, embed)
    return model


def measure(model: Caller, examples: CallExamples, embed: Embed, *, snv: bool) -> Quality:
    """Compares calls with the truth, alleles that no row shows counted as missed."""
    with torch.inference_mode():
        probability = model(*_tensors(examples, embed)).numpy()
    rows = examples.is_snv == snv
    return _quality(probability[rows], examples.copies[rows], int(examples.num_missed[:, 0 if snv else 1].sum()))


def _tensors(examples: CallExamples, embed: Embed) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.from_numpy(embed(examples.window)),
        torch.from_numpy(examples.pileup),
        torch.from_numpy(examples.evidence),
    )


def _calibrate(model: Caller, validation: CallExamples, embed: Embed) -> None:
    """Sets the temperature that fits best, then shifts no copy's score so that 0.5 is where F1 is best."""
    with torch.inference_mode():
        score = model.scores(*_tensors(validation, embed))
    for kind, snv in enumerate((True, False)):
        rows = torch.from_numpy(validation.is_snv == snv)
        copies = torch.from_numpy(validation.copies)[rows]
        if not len(copies):
            continue
        losses = [functional.cross_entropy(score[rows] / t, copies).item() for t in _TEMPERATURES]
        temperature = float(_TEMPERATURES[int(np.argmin(losses))])
        none, *some = torch.log_softmax(score[rows] / temperature, dim=1).unbind(1)
        odds = (torch.logsumexp(torch.stack(some), dim=0) - none).numpy()
        threshold = _best_threshold(odds, copies.numpy() > 0, int(validation.num_missed[:, kind].sum()))
        model.calibration[kind] = torch.tensor([temperature, threshold])


def _best_threshold(odds: np.ndarray, is_true: np.ndarray, num_missed: int) -> float:
    """The log-odds at which F1 is best: the middle of all thresholds within a thousandth of the best."""
    order = np.argsort(-odds)
    num_called = np.arange(1, odds.size + 1)
    f1 = 2 * np.cumsum(is_true[order]) / (num_called + is_true.sum() + num_missed)
    good = odds[order][f1 >= f1.max() - 1e-3]
    return float((good[0] + good[-1]) / 2)


def _quality(probability: np.ndarray, copies: np.ndarray, num_missed: int) -> Quality:
    called = probability[:, 0] <= 0.5
    right = called & (copies > 0)
    genotype = 1 + probability[:, 1:].argmax(axis=1)
    bins = np.minimum((10 * (1 - probability[:, 0])).astype(int), 9)
    error = sum(
        abs((1 - probability[bins == b, 0]).mean() - (copies[bins == b] > 0).mean()) * (bins == b).mean()
        for b in np.unique(bins)
    )
    num_true = int((copies > 0).sum()) + num_missed
    return Quality(
        num_true=num_true,
        precision=float(right.sum() / max(called.sum(), 1)),
        recall=float(right.sum() / max(num_true, 1)),
        genotype_concordance=float((genotype[right] == copies[right]).mean()) if right.any() else 0.0,
        calibration_error=float(error),
    )
