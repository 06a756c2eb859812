"""The cards of a model that was trained on classified alleles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.training.label_fit import FittedToLabels, HeldOutFigures
from tasks.training.label_split import LabelSplit
from tasks.training.labels import LabelledAlleles


@dataclass(frozen=True, slots=True)
class LabelSource:
    """A file that labels came from.

    Attributes:
        role: ``classified`` or ``benign``.
        name: Its name.
        sha256: Digest of its bytes, 64 hex digits.
    """

    role: str
    name: str
    sha256: str


def pathogenicity_card(
    fitted: FittedToLabels,
    labels: LabelledAlleles,
    split: LabelSplit,
    sources: Sequence[LabelSource],
    *,
    build: str,
    min_stars: int,
    min_benign_frequency: float,
    seed: int,
) -> str:
    """The card of the effect model, as Markdown.

    Args:
        fitted: The model and its figures.
        labels: All labelled alleles.
        split: What was learnt from and what was held out.
        sources: The files.
        build: The reference's build.
        min_stars: Review stars that were asked for.
        min_benign_frequency: Allele frequency from which an allele counted as benign.
        seed: Of the training.
    """
    files = "\n".join(f"| {source.role} | {source.name} | `{source.sha256}` |" for source in sources)
    counts = "\n".join(f"| {word} | {count:,} |" for word, count in labels.counts.items())
    groups = ", ".join(f"{name} {size:,}" for name, size in fitted.groups.items())
    matched = (
        "group of consequences and by decade of frequency"
        if split.is_frequency_matched
        else ("group of consequences; not by frequency, which the two classes do not share")
    )
    unmatched = ", ".join(split.unmatched_groups) or "none"
    figures = "\n".join(map(_line, fitted.figures))
    return f"""# effect

From the embeddings of a 128-base window without and with an allele to one number from 0 to 1: how much the allele looks
like pathogenic ones, where both classes are equally common.

## What it learnt from

| role | file | SHA-256 |
| --- | --- | --- |
{files}

Build {build}. Pathogenic: classified pathogenic or likely pathogenic with at least {min_stars} review stars; benign:
classified so, or of a frequency of at least {min_benign_frequency:g}. Conflicting and uncertain classifications are
left out, and so is what both classes hold.

| alleles of the files | |
| --- | --- |
{counts}
| without a window (too long, or no reference sequence) | {fitted.num_unscored:,} |
| near a held-out stretch, left out | {split.num_near:,} |
| of a group with too few of the other class, left out | {split.num_unmatched:,} |

It learnt from {fitted.num_training:,} alleles, as many pathogenic as benign ones in each {matched}: {groups}. Groups of
one class alone, of which nothing was learnt: {unmatched}. Only this model was trained; the embedder before it is the
shipped one. `cohortflow train-effect --seed {seed}` with the same files makes the same file again.

## Alleles of stretches of the genome that were held out

| consequence | pathogenic | benign | area under the ROC curve |
| --- | --- | --- | --- |
{figures}

Brier score with both classes weighed alike: {fitted.brier:.3f} (0.25 for always saying a half).

## Limits

It sees 128 bases, no gene, no protein, no conservation and no frequency. An area near 0.5 within a group says that in
this group it tells nothing; over all groups it also tells one consequence from another. Its number is a probability
only where pathogenic and benign alleles are equally common. It is no classification by itself. Alleles longer than 48
bases have no window.

## Licence

That of the files it learnt from holds for what may be done with it.
"""


def variants_card() -> str:
    """The card of the ensemble, as Markdown."""
    return """# variants

The ensemble that scores alleles: `embedder` reads the window of the reference and the window with the allele put in,
`effect` compares what it made of them. Both windows are 128 bases long, the allele's normalised start at index 64.

`effect` learnt from classified alleles: see its card.
"""


def _line(figures: HeldOutFigures) -> str:
    area = "too few to tell" if math.isnan(figures.auroc) else f"{figures.auroc:.3f}"
    return f"| {figures.group} | {figures.num_pathogenic:,} | {figures.num_benign:,} | {area} |"
