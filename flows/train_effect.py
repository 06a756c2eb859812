"""Trains the model of the pipeline `pathogenicity` on classified alleles and writes a whole model repository."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from flows.parameters import REPOSITORY
from serving.server import ModelServer
from tasks.errors import InputError
from tasks.files import file_sha256, make_folder
from tasks.genome.reference import prepare_reference
from tasks.training.effect import effect_onnx
from tasks.training.embedder import STATE
from tasks.training.label_cards import LabelSource, pathogenicity_card, variants_card
from tasks.training.label_figures import HeldOutFigures
from tasks.training.label_fit import fit_to_labels, with_windows
from tasks.training.label_split import split_labels
from tasks.training.labels import read_labels

_SIMULATED, _CLINICAL = 'string_value: "simulated"', 'string_value: "clinical"'


def train_effect(
    clinvar: Path,
    benign: Path | None,
    reference: Path,
    output: Path,
    *,
    min_stars: int,
    min_benign_frequency: float,
    seed: int,
    report: Callable[[str], None] = print,
) -> tuple[HeldOutFigures, ...]:
    """Trains and writes; `output` appears whole.

    Args:
        clinvar: ClinVar-format VCF.
        benign: gnomAD-format VCF of alleles taken as benign by frequency, or None.
        reference: FASTA of both.
        output: The model repository to write; must not be there yet.
        min_stars: Review stars that a classification must have.
        min_benign_frequency: Allele frequency from which an allele is benign.
        seed: Of held-out stretches, first weights and batches.
        report: Is told what was done.

    Returns:
        What was measured on held-out alleles.

    Raises:
        InputError: There is something at `output`.
        LabelError: The files have no labels, or too few.
        VariantFileError: A file is damaged.
        ReferenceError: The reference cannot be read, or a file was made with another one.
    """
    if output.exists():
        raise InputError(f"{output}: is there already; name a new folder", field="output", reason="BAD_PARAMETER")
    make_folder(output.absolute().parent)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.absolute().parent) as scratch_name:
        scratch = Path(scratch_name)
        genome = prepare_reference(reference.resolve(), scratch / "reference")
        report(f"reference: build {genome.build or 'unknown'}")
        report(f"reading {' and '.join(path.name for path in (clinvar, benign) if path)}")
        labels = read_labels(
            clinvar, benign, genome, scratch, min_stars=min_stars, min_benign_frequency=min_benign_frequency
        )
        labels = with_windows(labels, genome)
        report(f"labels: {', '.join(f'{count:,} {word}' for word, count in labels.counts.items())}")
        split = split_labels(labels, seed)
        with ModelServer(REPOSITORY, models=["embedder"]) as server:

            def embed(windows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
                state = np.zeros((len(windows), STATE), np.float32)
                inputs = {"tokens": windows, "state": state}
                return server.infer("embedder", inputs, outputs=["embedding"])["embedding"]

            fitted = fit_to_labels(labels, split, genome, embed, seed, report)
        report(f"trained on {fitted.num_training:,} alleles, {fitted.best_pass} passes")
        for each in fitted.figures:
            report(
                f"held out, {each.group}: {each.num_pathogenic:,} pathogenic, {each.num_benign:,} benign, "
                + (
                    "too few to tell"
                    if math.isnan(each.auroc)
                    else f"area under the ROC curve {each.auroc:.3f}, average precision {each.average_precision:.3f}"
                )
            )
        sources = [
            LabelSource(role, path.name, file_sha256(path))
            for role, path in (("classified", clinvar), ("benign", benign))
            if path
        ]
        card = pathogenicity_card(
            fitted,
            labels,
            split,
            sources,
            build=genome.build or "unknown",
            reference_digest=genome.digest,
            min_stars=min_stars,
            min_benign_frequency=min_benign_frequency,
            seed=seed,
        )
        made = scratch / "models"
        shutil.copytree(REPOSITORY, made)
        (made / "effect" / "1" / "model.onnx").write_bytes(effect_onnx(fitted.effect))
        (made / "effect" / "MODEL_CARD.md").write_text(card)
        (made / "variants" / "MODEL_CARD.md").write_text(variants_card())
        config = made / "variants" / "config.pbtxt"
        text = config.read_text()
        assert _SIMULATED in text, "the shipped ensemble says what it learnt from"
        config.write_text(text.replace(_SIMULATED, _CLINICAL))
        made.rename(output)
    report(
        f"{output}: see effect/MODEL_CARD.md; use it by `cohortflow score --models {output} --pipeline pathogenicity`"
    )
    return fitted.figures
