"""Fits the embedder and the effect model together on simulated alleles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tasks.training.context import CENTRAL, NUM_TARGETS, context_targets
from tasks.training.effect import Effect
from tasks.training.effect_examples import EffectExamples, draw_effect_examples
from tasks.training.embedder import EMBEDDING, Embedder
from tasks.windows import UNKNOWN_TOKEN

_BATCH = 256
_PEAK_RATE = 3e-3
_WEIGHT_DECAY = 1e-4
_CONTEXT_WEIGHT, _CENTRE_WEIGHT = 1.5, 0.2


@dataclass(frozen=True, slots=True)
class FittedEffect:
    """Trained modules, and what they reach on genomes that they have not seen.

    Attributes:
        embedder: The embedder.
        effect: The effect model.
        metrics: Held-out figures by name.
    """

    embedder: Embedder
    effect: Effect
    metrics: dict[str, float]


class _Heads(nn.Module):
    """What training reads off an embedding and the shipped models do not keep."""

    def __init__(self) -> None:
        super().__init__()
        self.context = nn.Linear(EMBEDDING, NUM_TARGETS)
        self.centre = nn.Linear(EMBEDDING, 4 * (CENTRAL.stop - CENTRAL.start))

    def loss(self, embedding: Tensor, windows: Tensor, targets: Tensor) -> Tensor:
        context = nn.functional.mse_loss(self.context(embedding), targets)
        logits = self.centre(embedding).reshape(len(embedding), -1, 4).transpose(1, 2)
        bases = windows[:, CENTRAL].long()
        centre = nn.functional.cross_entropy(logits, bases, ignore_index=UNKNOWN_TOKEN)
        return _CONTEXT_WEIGHT * context / 0.02 + _CENTRE_WEIGHT * centre


def fit_effect(seed: int, *, num_genomes: int, num_epochs: int, genome_bp: int) -> FittedEffect:
    """Trains on simulated genomes; the same seed gives the same weights on the same machine.

    Runs on one thread: sums split over threads would differ from run to run.

    Args:
        seed: Of genomes, alleles, first weights and batches.
        num_genomes: Genomes to train on; two more are held out.
        num_epochs: Passes over all examples.
        genome_bp: Length of each genome.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _fit(seed, num_genomes, num_epochs, genome_bp)
    finally:
        torch.set_num_threads(num_threads)


def _fit(seed: int, num_genomes: int, num_epochs: int, genome_bp: int) -> FittedEffect:
    seeds = np.random.SeedSequence(seed).spawn(num_genomes + 3)
    drawn = [draw_effect_examples(np.random.default_rng(source), genome_bp) for source in seeds[:-1]]
    training, held_out = _join(drawn[:-2]), _join(drawn[-2:])
    rng = np.random.default_rng(seeds[-1])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        embedder, effect, heads = Embedder(), Effect(), _Heads()
    modules = nn.ModuleList([embedder, effect, heads])
    optimiser = torch.optim.AdamW(modules.parameters(), lr=_PEAK_RATE, weight_decay=_WEIGHT_DECAY)
    num_steps = num_epochs * (len(training) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _PEAK_RATE, total_steps=num_steps, pct_start=0.1)
    targets = context_targets(training.reference_window)
    for _ in range(num_epochs):
        order = rng.permutation(len(training))
        for first in range(0, len(order) - _BATCH + 1, _BATCH):
            rows = order[first : first + _BATCH]
            windows = torch.from_numpy(training.reference_window[rows])
            reference, _ = embedder(windows)
            alternate, _ = embedder(torch.from_numpy(training.alternate_window[rows]))
            label = torch.from_numpy(training.label[rows])
            loss = nn.functional.binary_cross_entropy_with_logits(effect(reference, alternate), label)
            loss = loss + heads.loss(reference, windows, torch.from_numpy(targets[rows]))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(modules.parameters(), 1.0)
            optimiser.step()
            schedule.step()
    metrics = {"num_training": float(len(training)), **_evaluate(embedder, effect, heads, held_out)}
    return FittedEffect(embedder, effect, metrics)


def _join(parts: list[EffectExamples]) -> EffectExamples:
    return EffectExamples(
        np.concatenate([part.reference_window for part in parts]),
        np.concatenate([part.alternate_window for part in parts]),
        np.concatenate([part.label for part in parts]),
    )


@torch.no_grad()
def _evaluate(embedder: Embedder, effect: Effect, heads: _Heads, held_out: EffectExamples) -> dict[str, float]:
    reference, _ = embedder(torch.from_numpy(held_out.reference_window))
    alternate, _ = embedder(torch.from_numpy(held_out.alternate_window))
    score = torch.sigmoid(effect(reference, alternate)).numpy()
    targets = context_targets(held_out.reference_window)
    residual = heads.context(reference).numpy() - targets
    explained = 1 - (residual**2).mean(axis=0) / targets.var(axis=0)
    bases = heads.centre(reference).reshape(len(reference), -1, 4).argmax(-1).numpy()
    truth = held_out.reference_window[:, CENTRAL]
    return {
        "num_held_out": float(len(held_out)),
        "positive_share": float(held_out.label.mean()),
        "auroc": area_under_curve(score, held_out.label > 0),
        "brier": float(((score - held_out.label) ** 2).mean()),
        "homopolymer_explained": float(explained[0]),
        "gc_explained": float(explained[-1]),
        "central_bases_read": float((bases == truth)[truth < UNKNOWN_TOKEN].mean()),
    }


def area_under_curve(score: npt.NDArray[np.float32], label: npt.NDArray[np.bool_]) -> float:
    """Area under the ROC curve: the chance that a positive scores above a negative, ties counting half."""
    values, rank = np.unique(score, return_inverse=True)
    positives = np.bincount(rank[label], minlength=len(values))
    negatives = np.bincount(rank[~label], minlength=len(values))
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + negatives / 2)).sum() / (positives.sum() * negatives.sum()))
