"""How the mean embeddings of the samples' reads lie to each other, and which sample lies apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.reporting.figures import Figure
from tasks.reporting.plots import PlotText, scatter
from tasks.reporting.scales import percent

_LEAST_SAMPLES = 3
_FAR = 3.0
"""So many times as far as the middle sample, and as chance explains, is apart."""
_LEAST_REACH = 0.5
"""Standard deviations of a read that the axes show at least: chance is not to look like a finding."""
_MAX_NAMED = 12


@dataclass(frozen=True, slots=True)
class Layout:
    """Where samples lie, in standard deviations of one read's embedding.

    Attributes:
        places: float64 [n, 2], along the two directions in which the samples differ most.
        shares: float64 [2], of the variance between samples that each direction holds.
        distances: float64 [n], from the middle of all samples.
        chance: float64 [n], the distance that sampling so many reads explains.
        is_apart: bool [n].
    """

    places: npt.NDArray[np.float64]
    shares: npt.NDArray[np.float64]
    distances: npt.NDArray[np.float64]
    chance: npt.NDArray[np.float64]
    is_apart: npt.NDArray[np.bool_]


def lay_out(means: npt.NDArray[np.float64], sds: npt.NDArray[np.float64], num_reads: npt.NDArray[np.int64]) -> Layout:
    """Compares samples by the mean embedding of their reads.

    The middle is the median of each number: one sample that lies apart hardly moves it.

    Args:
        means: [n, size], three samples or more.
        sds: [n, size], standard deviations over the reads.
        num_reads: int64 [n].
    """
    spread = np.sqrt((sds**2).mean(axis=0))
    scaled = means / np.where(spread > 0, spread, 1.0)
    from_middle = scaled - np.median(scaled, axis=0)
    distances = np.sqrt((from_middle**2).sum(axis=1))
    chance = np.sqrt(means.shape[1] / num_reads)
    axes, strengths, directions = np.linalg.svd(scaled - scaled.mean(axis=0), full_matrices=False)
    # A direction's sign is arbitrary: its largest part points up.
    signs = np.sign(directions[np.arange(2), np.abs(directions[:2]).argmax(axis=1)])
    return Layout(
        places=axes[:, :2] * strengths[:2] * signs,
        shares=strengths[:2] ** 2 / max((strengths**2).sum(), np.finfo(float).tiny),
        distances=distances,
        chance=chance,
        is_apart=distances > _FAR * np.maximum(np.median(distances), chance),
    )


def embedding_figures(samples: Mapping[str, Any]) -> list[Figure]:
    """The picture of the samples' mean embeddings, where there are three of them.

    Args:
        samples: The manifest's samples.
    """
    told = {name: each["embedding"] for name, each in samples.items() if each.get("embedding", {}).get("mean")}
    if len(told) < _LEAST_SAMPLES:
        return []
    names = list(told)
    layout = lay_out(
        np.array([each["mean"] for each in told.values()]),
        np.array([each["sd"] for each in told.values()]),
        np.array([each["num_reads"] for each in told.values()]),
    )
    far_first = np.argsort(-layout.distances, kind="stable")
    apart = [names[place] for place in far_first if layout.is_apart[place]]
    title = "What the reads look like to the embedder"
    caption = (
        f"Mean embedding of up to {max(each['num_reads'] for each in told.values()):,} reads of each FASTQ sample, "
        "drawn at random, along the two directions in which the samples differ most. Unit: standard deviation of one "
        f"read's embedding; chance alone explains about {np.median(layout.chance):.2f}. "
    )
    if apart:
        more = f" and {len(apart) - _MAX_NAMED:,} more" if len(apart) > _MAX_NAMED else ""
        caption += (
            f"Apart from the others: {', '.join(apart[:_MAX_NAMED])}{more} (more than three times as far from the "
            "middle as the median sample). Another library, machine, species or contamination can be the reason; "
            "this does not tell which."
        )
    else:
        caption += "No sample lies apart."
    points = [(name, float(x), float(y)) for name, (x, y) in zip(names, layout.places, strict=True)]
    svg = scatter(
        PlotText("plot-embeddings", title, f"{len(names):,} samples, {len(apart):,} apart from the others."),
        points,
        set(apart[:_MAX_NAMED]),
        x_label=f"first direction, {percent(round(float(layout.shares[0]), 2))} of what differs",
        y_label=f"second, {percent(round(float(layout.shares[1]), 2))}",
        reach=max(_LEAST_REACH, float(np.abs(layout.places).max())),
    )
    return [Figure(title, caption, svg)]
