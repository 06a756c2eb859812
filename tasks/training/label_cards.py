"""The cards of a model that was trained on classified alleles."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.training.label_figures import CalibrationBin, HeldOutFigures
from tasks.training.label_fit import FittedToLabels
from tasks.training.label_split import BLOCK_SHIFT, GAP_BP, LabelSplit
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
    reference_digest: str,
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
        reference_digest: Digest of its sequences.
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
        else "group of consequences (frequency is not matched: the files do not state it for both classes alike)"
    )
    has_second = any(source.role == "benign" for source in sources)
    benign = (
        f"of the second file, by a frequency of at least {min_benign_frequency:g}, or classified so where it has none"
        if has_second
        else "classified benign or likely benign with as many stars"
    )
    unmatched = ", ".join(split.unmatched_groups) or "none"
    figures = "\n".join(map(_line, fitted.figures))
    bins = "\n".join(map(_bin_line, fitted.bins))
    origin = (
        f"Build {build}, reference `{reference_digest}`. Pathogenic: classified pathogenic or likely pathogenic with "
        f"at least {min_stars} review stars; benign: {benign}. Conflicting and uncertain classifications are left out, "
        "and so is what both classes hold."
    )
    training = (
        f"It was trained on {fitted.num_training:,} alleles, as many pathogenic as benign ones in each {matched}: "
        f"{groups}. Groups of one class alone, of which nothing was learnt: {unmatched}. "
        f"{fitted.num_choosing:,} of them were kept back to choose the pass over the others that did best on them: "
        f"pass {fitted.best_pass}. Only this model was trained; the embedder before it is the shipped one. "
        f"`cohortflow train-effect --seed {seed}` with the same files and flags makes the same file again."
    )
    return f"""# effect

From the embeddings of a 128-base window without and with an allele to one number from 0 to 1: how much the allele looks
like pathogenic ones, where both classes are equally common.

## What it learnt from

| role | file | SHA-256 |
| --- | --- | --- |
{files}

{_paragraph(origin)}

| alleles of the files | |
| --- | --- |
{counts}
| near a held-out stretch, left out | {split.num_near:,} |
| of a group with too few of the other class, left out | {split.num_unmatched:,} |

{_paragraph(training)}

Held out are whole stretches of {1 << BLOCK_SHIFT:,} bases, and {GAP_BP} bases around them are left out. A gene that
reaches over the edge of a stretch may have alleles on both sides, and a repeat its copies.

## Alleles of stretches of the genome that were held out

| consequence | pathogenic | benign | area under the ROC curve | average precision | Brier | calibration error |
| --- | --- | --- | --- | --- | --- | --- |
{figures}

A model that tells nothing has an area of 0.5, an average precision of the share of pathogenic alleles, and a Brier
score of 0.25 by always saying a half; Brier score and calibration error weigh both classes alike.

| score from | pathogenic | benign | mean score | pathogenic, both classes weighed alike |
| --- | --- | --- | --- | --- |
{bins}

## Limits

It sees 128 bases, no gene, no protein, no conservation and no frequency. An area near 0.5 within a group says that in
this group it tells nothing; over all groups it also tells one consequence from another. Its number is a probability
only where pathogenic and benign alleles are equally common. Where frequency is not matched, part of what it tells
apart is what makes an allele common (CpG sites mutate more often). It is no classification by itself. Alleles longer
than 48 bases have no window.

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


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _line(figures: HeldOutFigures) -> str:
    values = (figures.auroc, figures.average_precision, figures.brier, figures.calibration_error)
    told = ["too few to tell", "", "", ""] if math.isnan(figures.auroc) else [f"{value:.3f}" for value in values]
    return f"| {figures.group} | {figures.num_pathogenic:,} | {figures.num_benign:,} | {' | '.join(told)} |"


def _bin_line(each: CalibrationBin) -> str:
    return f"| {each.low:.1f} | {each.num_pathogenic:,} | {each.num_benign:,} | {each.score:.3f} | {each.share:.3f} |"
