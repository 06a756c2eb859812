"""The shipped models and their training: laws of the embedder, the graph and torch agree, same seed same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.training.context import CENTRAL, context_targets
from tasks.training.effect import Effect, effect_onnx
from tasks.training.effect_examples import draw_effect_examples
from tasks.training.effect_fit import area_under_curve, fit_effect
from tasks.training.embedder import EMBEDDING, STATE, Embedder, embedder_onnx
from tasks.windows import CENTRE
from tests.conftest import REPOSITORY

Run = Callable[..., tuple[np.ndarray, ...]]


def session(model: bytes | Path) -> Run:
    """A function from the model's inputs, in order, to its outputs; one thread, as in a worker."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = model if isinstance(model, bytes) else model.read_bytes()
    opened = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in opened.get_inputs()]
    return lambda *arrays: tuple(opened.run(None, dict(zip(names, arrays, strict=True))))


@pytest.fixture(scope="module")
def embed() -> Run:
    return session(REPOSITORY / "data/models/embedder/1/model.onnx")


@pytest.fixture(scope="module")
def effect() -> Run:
    return session(REPOSITORY / "data/models/effect/1/model.onnx")


def tokens(rows: int, length_bp: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 5, (rows, length_bp), np.uint8)


def no_state(rows: int) -> np.ndarray:
    return np.zeros((rows, STATE), np.float32)


@settings(max_examples=40, deadline=None)
@given(length_bp=st.integers(1, 700), cuts=st.lists(st.integers(1, 20), max_size=8), seed=st.integers(0, 99))
def test_chunks_give_what_the_whole_gives(embed: Run, length_bp: int, cuts: list[int], seed: int) -> None:
    sequence = tokens(3, length_bp, seed)
    whole_embedding, whole_state = embed(sequence, no_state(3))
    state, at = no_state(3), 0
    embedding = whole_embedding
    for chunk_bp in (*(8 * cut for cut in cuts), length_bp):
        if at < length_bp:
            embedding, state = embed(sequence[:, at : at + chunk_bp], state)
            at += chunk_bp
    np.testing.assert_allclose(state, whole_state, rtol=0, atol=1e-5)
    np.testing.assert_allclose(embedding, whole_embedding, rtol=0, atol=1e-5)


@pytest.mark.parametrize("length_bp", [1, 7, 121, 127])
def test_a_short_last_patch_is_filled_with_unknown_bases(embed: Run, length_bp: int) -> None:
    sequence = tokens(4, length_bp)
    filled = np.pad(sequence, ((0, 0), (0, -length_bp % 8)), constant_values=4)
    for short, long in zip(embed(sequence, no_state(4)), embed(filled, no_state(4)), strict=True):
        assert np.array_equal(short, long)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7, 8, 9, 31, 64, 255])
def test_a_row_has_the_same_bytes_in_any_batch(embed: Run, effect: Run, rows: int) -> None:
    windows, other = tokens(256, 128), tokens(256, 128, seed=1)
    whole = embed(windows, no_state(256))
    for first in (0, 1):
        part = slice(first, first + rows)
        for all_rows, some in zip(whole, embed(windows[part], no_state(256)[part]), strict=True):
            assert np.array_equal(all_rows[part], some)
        (all_effects,) = effect(whole[0], embed(other, no_state(256))[0])
        (effects,) = effect(whole[0][part], embed(other[part], no_state(256)[part])[0])
        assert np.array_equal(all_effects[part], effects)


def test_the_state_reaches_far_back(embed: Run) -> None:
    sequence = tokens(1, 512)
    changed = sequence.copy()
    changed[0, 100] = (changed[0, 100] + 1) % 4
    before, after = embed(sequence, no_state(1))[1], embed(changed, no_state(1))[1]
    assert not np.array_equal(before, after)


def test_an_allele_at_the_centre_changes_the_embedding(embed: Run) -> None:
    windows = tokens(64, 128) % 4
    changed = windows.copy()
    changed[:, CENTRE] = (changed[:, CENTRE] + 1) % 4
    difference = np.abs(embed(windows, no_state(64))[0] - embed(changed, no_state(64))[0])
    assert (difference.max(axis=1) > 1e-3).all()


def test_the_graphs_compute_what_torch_computes() -> None:
    torch.manual_seed(3)
    embedder, effect = Embedder(), Effect()
    sequence, state = tokens(5, 83), np.random.default_rng(0).normal(size=(5, STATE)).astype(np.float32)
    expected = embedder(torch.from_numpy(sequence), torch.from_numpy(state))
    for got, wanted in zip(session(embedder_onnx(embedder))(sequence, state), expected, strict=True):
        np.testing.assert_allclose(got, wanted.detach().numpy(), rtol=0, atol=1e-5)
    reference, alternate = np.random.default_rng(1).normal(size=(2, 5, EMBEDDING)).astype(np.float32)
    (got,) = session(effect_onnx(effect))(reference, alternate)
    wanted = torch.sigmoid(effect(torch.from_numpy(reference), torch.from_numpy(alternate)))
    np.testing.assert_allclose(got[:, 0], wanted.detach().numpy(), rtol=0, atol=1e-6)


def test_the_shipped_effect_model_knows_an_unseen_genome(embed: Run, effect: Run) -> None:
    examples = draw_effect_examples(np.random.default_rng(987_654), 150_000)
    rows = len(examples)
    reference, _ = embed(examples.reference_window, no_state(rows))
    alternate, _ = embed(examples.alternate_window, no_state(rows))
    (score,) = effect(reference, alternate)
    assert score.min() >= 0
    assert score.max() <= 1
    assert 0.2 < examples.label.mean() <= 0.26
    assert area_under_curve(score[:, 0], examples.label > 0) > 0.9


def test_a_window_without_a_change_has_a_low_effect(embed: Run, effect: Run) -> None:
    reference, _ = embed(tokens(500, 128) % 4, no_state(500))
    assert np.median(effect(reference, reference)[0]) < 0.25


def test_same_seed_same_models() -> None:
    first, second, other = (fit_effect(seed, num_genomes=1, num_epochs=1, genome_bp=100_000) for seed in (1, 1, 2))
    assert embedder_onnx(first.embedder) == embedder_onnx(second.embedder)
    assert effect_onnx(first.effect) == effect_onnx(second.effect)
    assert first.metrics == second.metrics
    assert effect_onnx(first.effect) != effect_onnx(other.effect)


@pytest.mark.parametrize(
    ("right", "left", "expected"),
    [("AAAAAC", "G", (4, 3, 2, 1)), ("ACACACG", "T", (0, 4, 0, 2)), ("ACGACGT", "T", (0, 0, 3, 0))],
)
def test_context_targets_measure_repeats(right: str, left: str, expected: tuple[int, ...]) -> None:
    window = np.full((1, 128), 4, np.uint8)
    spelled = left + right
    window[0, CENTRE : CENTRE + len(spelled)] = ["ACGT".index(base) for base in spelled]
    found = context_targets(window)[0]
    np.testing.assert_allclose(found[:4], np.log2(1 + np.array(expected)) / 6, atol=1e-6)
    assert found[-1] == pytest.approx(sum(base in "CG" for base in spelled) / len(spelled))
    assert CENTRAL.start < CENTRE < CENTRAL.stop


def test_area_under_curve() -> None:
    label = np.array([True, True, False, False])
    assert area_under_curve(np.array([0.9, 0.8, 0.2, 0.1], np.float32), label) == 1.0
    assert area_under_curve(np.array([0.1, 0.2, 0.8, 0.9], np.float32), label) == 0.0
    assert area_under_curve(np.full(4, 0.5, np.float32), label) == 0.5


@pytest.mark.parametrize("model", ["embedder", "effect"])
def test_each_model_has_a_card(model: str) -> None:
    card = (REPOSITORY / "data/models" / model / "MODEL_CARD.md").read_text()
    for heading in ("## Training", "## Held-out", "## Limits", "## Licence"):
        assert heading in card
    if model == "effect":
        assert "Trained on simulated labels, no clinical meaning" in card
