"""Trains the shipped models on simulated data and writes them into a model repository."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from flows.parameters import REPOSITORY
from tasks.files import make_folder, write_bytes

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class TrainingSize:
    """How much is simulated and how often it is gone through; the defaults make the shipped models.

    Attributes:
        num_genomes: Genomes that embedder and effect learn from.
        genome_bp: Length of each.
        num_epochs: Passes over their alleles.
        num_individuals: Sequenced individuals that the caller learns from and is measured on.
        individual_bp: Length of each one's genome.
        num_caller_epochs: Passes over their candidates.
    """

    num_genomes: int = 8
    genome_bp: int = 1_000_000
    num_epochs: int = 5
    num_individuals: int = 240
    individual_bp: int = 300_000
    num_caller_epochs: int = 25


def train_models(
    output: Path,
    seed: int,
    *,
    size: TrainingSize = TrainingSize(),  # noqa: B008 - frozen
    scratch: Path | None = None,
    report: Callable[[str], None] = print,
) -> None:
    """Trains embedder and effect, then the caller; the same seed gives the same files on the same kind of machine.

    Embedder and effect take about two minutes of one core, the caller about an hour, most of it for simulating and
    aligning the reads it learns from. Each model is written as soon as it is trained, with configuration and card.

    Args:
        output: The model repository to write.
        seed: Of simulated data, first weights and batches.
        size: How much to train.
        scratch: Keeps the caller's examples, so that a training that was cut short goes on; thrown away when None.
        report: Is told what was done.
    """
    # torch takes a second to import and is needed by nothing else of the command line.
    from tasks.training.caller_model import fit_caller, write_caller
    from tasks.training.cards import VARIANTS_CARD, effect_card, embedder_card, read_embedder_card
    from tasks.training.effect import effect_onnx
    from tasks.training.effect_fit import fit_effect
    from tasks.training.embedder import EMBEDDING, STATE, embed_windows, embedder_onnx

    fitted = fit_effect(seed, num_genomes=size.num_genomes, num_epochs=size.num_epochs, genome_bp=size.genome_bp)
    embedder = embedder_onnx(fitted.embedder)
    _write(output, "embedder", embedder_card(fitted.metrics, seed), embedder)
    _write(output, "read_embedder", read_embedder_card(fitted.embedder.longest_memory_bp), embedder)
    _write(output, "effect", effect_card(fitted.metrics, seed), effect_onnx(fitted.effect))
    _write(output, "variants", VARIANTS_CARD)
    report(f"embedder, effect: held-out area under the ROC curve {fitted.metrics['auroc']:.3f}")
    with tempfile.TemporaryDirectory() as throwaway:
        caller = fit_caller(
            scratch or Path(throwaway),
            partial(embed_windows, fitted.embedder),
            EMBEDDING,
            seed,
            num_individuals=size.num_individuals,
            genome_bp=size.individual_bp,
            num_epochs=size.num_caller_epochs,
        )
    write_caller(output, caller, EMBEDDING, STATE)
    report("caller: see its card")


def _write(repository: Path, model: str, card: str, file: bytes | None = None) -> None:
    """Writes a model's file (none for an ensemble), card, and the shipped configuration."""
    folder = repository / model
    make_folder(folder / _VERSION)
    if file is not None:
        write_bytes(folder / _VERSION / "model.onnx", file)
    write_bytes(folder / "MODEL_CARD.md", card.encode())
    config = REPOSITORY / model / "config.pbtxt"
    if folder.resolve() != config.parent:
        shutil.copyfile(config, folder / "config.pbtxt")
