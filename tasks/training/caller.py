"""Training of the caller: fitted on simulated individuals, calibrated on others, measured on either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
_EXACT_COLUMNS = (
    (NAMES.index("likelihood_reference"), NAMES.index("likelihood_reference_per_read")),
    (NAMES.index("is_snv"), NAMES.index("log_length")),
)
_MAPPING_SPREAD = 0.45
"""minimap2 gives most reads 60; other aligners give good reads 37, 42 or 50: the scale is drawn for each example."""

_NUM_TEACHERS = 3
_SMOOTHING = 0.005
_NOISE = 0.05
_QUALITY_NOISE = 0.10
_MAX_STEPS = 200
_RESTRAINT = 1e-3
"""Pull of the calibration towards none at all: a few examples must not set it."""

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
    validation: CallExamples,
    embed: Embed,
    embedding_size: int,
    *,
    seed: int,
    num_epochs: int,
) -> Caller:
    """Trains on some individuals and calibrates on others; the same seed gives the same weights on one machine.

    Networks that begin differently learn the examples' copies, and one more learns to answer as they do on average: it
    is nearly as good as all of them together, and runs once. Source: Hinton et al. 2015, arXiv:1503.02531.

    Args:
        train: Examples to learn from.
        validation: Examples of other individuals; they set the calibration, by kind of allele.
        embed: The embedder.
        embedding_size: Length of its vector.
        seed: Of the initial weights, the order of the batches and the noise.
        num_epochs: Passes over the training examples.
    """
    # Sums split over threads would differ from machine to machine.
    torch.set_num_threads(1)
    inputs = _tensors(train, embed)
    scale = (train.evidence.std(axis=0) + 0.05).astype(np.float32)
    new_model = partial(Caller, embedding_size, train.evidence.mean(axis=0), scale)
    weight = torch.from_numpy(train.weight / train.weight.mean())
    target = functional.one_hot(torch.from_numpy(train.copies), 3).to(torch.float32)
    target = target * (1 - _SMOOTHING) + _SMOOTHING / 3
    teachers = []
    for number in range(_NUM_TEACHERS):
        teacher = _fit(new_model, inputs, target, weight, seed=seed + number, num_epochs=num_epochs)
        with torch.inference_mode():
            teachers.append(torch.log_softmax(teacher.scores(*inputs), dim=1))
    target = torch.softmax(torch.stack(teachers).mean(dim=0), dim=1)
    model = _fit(new_model, inputs, target, weight, seed=seed + _NUM_TEACHERS, num_epochs=num_epochs)
    _calibrate(model, validation, embed)
    return model


def _fit(
    new_model: Callable[[], Caller],
    inputs: tuple[Tensor, Tensor, Tensor],
    target: Tensor,
    weight: Tensor,
    *,
    seed: int,
    num_epochs: int,
) -> Caller:
    """Trains a network to give probabilities, float32 [n, 3], with noise on the evidence."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = new_model()
    noise = _NOISE * model.scale
    noise[list(_QUALITY_COLUMNS)] = _QUALITY_NOISE
    for first, end in _EXACT_COLUMNS:
        noise[first:end] = 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    num_steps = num_epochs * -(-len(target) // _BATCH_ROWS)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=num_steps)
    model.train()
    for _ in range(num_epochs):
        for rows in torch.randperm(len(target), generator=generator).split(_BATCH_ROWS):  # type: ignore[no-untyped-call]
            embedding, pileup, evidence = (tensor[rows] for tensor in inputs)
            # Aligners and base callers differ in what their numbers mean: no column may be read too finely.
            evidence = evidence + noise * torch.randn(evidence.shape, generator=generator)
            evidence[:, _MAPPING_COLUMNS] *= 1 - _MAPPING_SPREAD * torch.rand((len(rows), 1), generator=generator)
            losses = functional.cross_entropy(model.scores(embedding, pileup, evidence), target[rows], reduction="none")
            loss = (losses * weight[rows]).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    model.eval()
    return model


def measure(model: Caller, examples: CallExamples, embed: Embed, *, snv: bool) -> Quality:
    """Compares calls with the truth, alleles that no row shows counted as missed."""
    with torch.inference_mode():
        probability = model(*_tensors(examples, embed))[0].numpy()
    rows = examples.is_snv == snv
    return _quality(probability[rows], examples.copies[rows], int(examples.num_missed[:, 0 if snv else 1].sum()))


def _tensors(examples: CallExamples, embed: Embed) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.from_numpy(embed(examples.window)),
        torch.from_numpy(examples.pileup),
        torch.from_numpy(examples.evidence),
    )


def _calibrate(model: Caller, validation: CallExamples, embed: Embed) -> None:
    """Sets temperature and shifts so that stated probabilities are those observed, and notes the prior they hold.

    The prior is that of all candidates: that an allele is an insertion or deletion is part of what is seen, and makes
    "no copy" likelier.
    """
    with torch.inference_mode():
        all_scores = model.scores(*_tensors(validation, embed))
    all_copies, all_weights = torch.from_numpy(validation.copies), torch.from_numpy(validation.weight)
    prior = torch.bincount(all_copies, all_weights, minlength=3) + 1
    prior = prior / prior.sum()
    for kind, snv in enumerate((True, False)):
        rows = torch.from_numpy(validation.is_snv == snv)
        if rows.any():
            calibration = _fit_calibration(all_scores[rows].clone(), all_copies[rows], all_weights[rows])
            model.calibration[kind] = torch.cat((*calibration, prior.log()))


def _fit_calibration(score: Tensor, copies: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The temperature, float32 [1], and the shifts, float32 [3], under which the copies seen are likeliest."""
    log_temperature, shift = torch.zeros(1, requires_grad=True), torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_temperature, shift], max_iter=_MAX_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        losses = functional.cross_entropy(score / log_temperature.exp() + shift, copies, reduction="none")
        value = (losses * weight).sum() / weight.sum()
        value = value + _RESTRAINT * (log_temperature.square().sum() + shift.square().sum())
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return log_temperature.detach().exp(), shift.detach()


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
