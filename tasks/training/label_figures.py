"""How well a model tells classified alleles apart, and how far its numbers can be believed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.training.effect_fit import area_under_curve

MIN_HELD_OUT = 10
"""Alleles of either class below which there is no figure."""
NUM_BINS = 10


@dataclass(frozen=True, slots=True)
class HeldOutFigures:
    """How well alleles of one group that were held out are told apart; NaN where a class has fewer than `MIN_HELD_OUT`.

    Attributes:
        group: Group of consequences, or what else they have in common.
        num_pathogenic: Pathogenic alleles.
        num_benign: Benign ones.
        auroc: Area under the ROC curve.
        average_precision: Mean precision over the pathogenic alleles; a model that tells nothing reaches their share.
        brier: Mean squared error, both classes weighed alike; 0.25 for always saying a half.
        calibration_error: Mean distance of what is said from what holds, over bins, both classes weighed alike.
    """

    group: str
    num_pathogenic: int
    num_benign: int
    auroc: float
    average_precision: float
    brier: float
    calibration_error: float


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Alleles whose scores lie in one tenth of the range.

    Attributes:
        low: The tenth's lower end.
        num_pathogenic: Pathogenic alleles in it.
        num_benign: Benign ones.
        score: Their mean score, both classes weighed alike.
        share: The share of pathogenic ones, both classes weighed alike.
    """

    low: float
    num_pathogenic: int
    num_benign: int
    score: float
    share: float


def held_out_figures(group: str, score: npt.NDArray[np.float32], truth: npt.NDArray[np.bool_]) -> HeldOutFigures:
    """Measures a group.

    Args:
        group: Its name.
        score: float32 [n], from 0 to 1.
        truth: bool [n], True for pathogenic.
    """
    num_pathogenic = int(truth.sum())
    num_benign = len(truth) - num_pathogenic
    if min(num_pathogenic, num_benign) < MIN_HELD_OUT:
        return HeldOutFigures(group, num_pathogenic, num_benign, *[float("nan")] * 4)
    error = (score.astype(np.float64) - truth) ** 2
    bins = calibration_bins(score, truth)
    weights = [each.num_pathogenic / num_pathogenic + each.num_benign / num_benign for each in bins]
    distance = sum(weight / 2 * abs(each.score - each.share) for weight, each in zip(weights, bins, strict=True))
    return HeldOutFigures(
        group,
        num_pathogenic,
        num_benign,
        area_under_curve(score, truth),
        average_precision(score, truth),
        float((error[truth].mean() + error[~truth].mean()) / 2),
        distance,
    )


def average_precision(score: npt.NDArray[np.float32], truth: npt.NDArray[np.bool_]) -> float:
    """Precision at every threshold, weighed by the recall it adds; equal scores share one threshold."""
    values, rank = np.unique(score, return_inverse=True)
    positives = np.bincount(rank[truth], minlength=len(values))[::-1]
    all_above = np.cumsum(np.bincount(rank, minlength=len(values))[::-1])
    return float((np.cumsum(positives) / all_above * positives).sum() / positives.sum())


def calibration_bins(score: npt.NDArray[np.float32], truth: npt.NDArray[np.bool_]) -> tuple[CalibrationBin, ...]:
    """The tenths of the range that hold an allele, from low to high.

    Args:
        score: float32 [n], from 0 to 1.
        truth: bool [n], both classes are there.
    """
    place = np.minimum((score * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    weight = np.where(truth, 0.5 / truth.sum(), 0.5 / (~truth).sum())
    found = []
    for each in np.unique(place).tolist():
        inside = place == each
        part, here = weight[inside], truth[inside]
        found.append(
            CalibrationBin(
                each / NUM_BINS,
                int(here.sum()),
                int((~here).sum()),
                float((part * score[inside]).sum() / part.sum()),
                float(part[here].sum() / part.sum()),
            )
        )
    return tuple(found)
