"""Figures of held-out alleles: beside their definitions written out plainly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.training.label_figures import (
    MIN_HELD_OUT,
    average_precision,
    calibration_bins,
    held_out_figures,
)


def drawn(seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.random(size) < 0.4
    truth[:2] = (True, False)
    return np.round(rng.random(size), 1).astype(np.float32), truth


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 9_999), size=st.integers(2, 80))
def test_average_precision_is_its_definition(seed: int, size: int) -> None:
    score, truth = drawn(seed, size)
    expected, recall = 0.0, 0.0
    for threshold in sorted(set(score.tolist()), reverse=True):
        chosen = score >= np.float32(threshold)
        now = (chosen & truth).sum() / truth.sum()
        expected += (now - recall) * (chosen & truth).sum() / chosen.sum()
        recall = now
    assert average_precision(score, truth) == pytest.approx(expected)


def test_a_perfect_and_an_empty_model() -> None:
    truth = np.repeat([True, False], (20, 60))
    best = held_out_figures("all", truth.astype(np.float32), truth)
    assert (best.auroc, best.average_precision, best.brier, best.calibration_error) == (1.0, 1.0, 0.0, 0.0)
    empty = held_out_figures("all", np.full(80, 0.5, np.float32), truth)
    assert (empty.auroc, empty.average_precision, empty.brier) == (0.5, 0.25, 0.25)
    assert empty.calibration_error == pytest.approx(0.0)
    sure = held_out_figures("all", np.full(80, 0.9, np.float32), truth)
    assert sure.calibration_error == pytest.approx(0.4)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 9_999), size=st.integers(2, 300))
def test_every_allele_is_in_one_bin(seed: int, size: int) -> None:
    score, truth = drawn(seed, size)
    bins = calibration_bins(score, truth)
    assert sum(each.num_pathogenic for each in bins) == truth.sum()
    assert sum(each.num_benign for each in bins) == (~truth).sum()
    for each in bins:
        pathogenic, benign = each.num_pathogenic / truth.sum(), each.num_benign / (~truth).sum()
        assert each.share == pytest.approx(pathogenic / (pathogenic + benign))
        assert each.low <= each.score + 1e-6
        assert each.score <= each.low + 0.1 + 1e-6


def test_too_few_of_a_class_give_no_figure() -> None:
    truth = np.repeat([True, False], (MIN_HELD_OUT - 1, 100))
    figures = held_out_figures("intron", np.linspace(0, 1, len(truth), dtype=np.float32), truth)
    assert (figures.num_pathogenic, figures.num_benign) == (MIN_HELD_OUT - 1, 100)
    assert all(map(math.isnan, (figures.auroc, figures.average_precision, figures.brier, figures.calibration_error)))
