"""The convolution backend: answers of edits beside the plain padded forward, however rows are sent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.backends.convolution.network import NetworkFile
from serving.backends.convolution.stretches import Window, find_stretches
from serving.errors import InvalidArgumentError, ModelLoadError
from serving.server import ModelServer
from tests.serving.convolutions import document, padded_forward, weights, write_model

GENOME = np.random.default_rng(11).integers(0, 5, 4_000).astype(np.uint8)
CONTEXT = NetworkFile.model_validate(document()).context
SIDE = 20
LENGTH = 2 * (CONTEXT + SIDE) + 1


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of one model with two networks."""
    repository = tmp_path_factory.mktemp("models")
    write_model(repository, config="max_batch_size: 64 dynamic_batching { }")
    with ModelServer(repository) as server:
        yield server


def rows(edits, axis=0):
    """Rows of edits (place, deleted, inserted bases) in the middle of their windows of the genome."""
    widest = max(len(inserted) for _, _, inserted in edits)
    bases = np.full((len(edits), widest), 255, np.uint8)
    for row, (_, _, inserted) in zip(bases, edits, strict=True):
        row[: len(inserted)] = inserted
    first = [place - CONTEXT - SIDE for place, _, _ in edits]
    return {
        "sequence": np.stack([GENOME[at : at + LENGTH] for at in first]),
        "position": np.array([[axis + at] for at in first], np.int64),
        "start": np.full((len(edits), 1), CONTEXT + SIDE, np.int32),
        "deleted": np.array([[deleted] for _, deleted, _ in edits], np.int32),
        "inserted": bases,
    }


def plain(edits):
    """What the padded forward says of the same."""
    content = document()
    tensors = weights(content)
    answers = []
    for place, deleted, inserted in edits:
        window = GENOME[place - CONTEXT - SIDE : place + CONTEXT + SIDE + 1]
        middle = CONTEXT + SIDE
        edited = np.concatenate([window[:middle], np.array(inserted, np.uint8), window[middle + deleted :]])
        answers.append([padded_forward(content, tensors, each, CONTEXT) for each in (window, edited)])
    return answers


EDITS = [
    (300, 1, [2]),
    (302, 1, [0]),
    (310, 0, [1, 1, 3]),
    (311, 7, []),
    (330, 4, [3, 3]),
    (900, 30, []),
    (2_000, 1, [4]),
]


def test_edits_are_what_the_padded_networks_say_of_them(server):
    outputs = server.infer("splice", rows(EDITS))
    widest = max(len(inserted) for _, _, inserted in EDITS)
    assert outputs["alternate"].shape == (len(EDITS), 2 * SIDE + 1 + widest, 3)
    moved = 0.0
    for row, (reference, alternate) in enumerate(plain(EDITS)):
        np.testing.assert_allclose(outputs["reference"][row], reference, atol=2e-6)
        np.testing.assert_allclose(outputs["alternate"][row, : len(alternate)], alternate, atol=2e-6)
        assert not outputs["alternate"][row, len(alternate) :].any()
        shared = min(len(reference), len(alternate))
        moved = max(moved, np.abs(reference[:shared] - alternate[:shared]).max())
    assert moved > 0.1


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(100, 700), st.integers(0, 25), st.lists(st.integers(0, 4), max_size=6)),
        min_size=1,
        max_size=8,
    )
)
def test_answers_do_not_depend_on_their_neighbours(server, edits):
    edits = sorted(edits)
    together = server.infer("splice", rows(edits))
    for row, edit in enumerate(edits):
        alone = server.infer("splice", rows([edit], axis=7_000))
        width = alone["alternate"].shape[1]
        np.testing.assert_array_equal(together["reference"][row], alone["reference"][0])
        np.testing.assert_array_equal(together["alternate"][row, :width], alone["alternate"][0])


def test_threads_and_a_small_budget_change_no_bit(server, tmp_path):
    write_model(
        tmp_path,
        config='max_batch_size: 3 parameters { key: "stretch_bytes" value { string_value: "50000" } }',
    )
    expected = server.infer("splice", rows(EDITS))
    with ModelServer(tmp_path, threads=1) as small:
        found = small.infer("splice", rows(EDITS))
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_an_output_wider_than_an_edit_reaches(tmp_path):
    content = {
        "format": "cohortflow-convolution-1",
        "alphabet": "ACGT",
        "outputs": ["a"],
        "networks": [
            {
                "name": "1",
                "layers": [
                    {"name": "conv", "kind": "convolution", "inputs": ["sequence"], "kernel": 3, "channels": 1},
                    {"name": "odds", "kind": "activation", "inputs": ["conv"], "function": "sigmoid"},
                ],
            }
        ],
    }
    write_model(tmp_path, content=content)
    one = rows([(500, 1, [1]), (500, 12, [])])
    with ModelServer(tmp_path) as wide:
        found = wide.infer("splice", one)
    for row in range(2):
        sequence = one["sequence"][row]
        start, deleted = one["start"][row, 0], one["deleted"][row, 0]
        inserted = one["inserted"][row][one["inserted"][row] != 255]
        edited = np.concatenate([sequence[:start], inserted, sequence[start + deleted :]])
        kernel = weights(content)["1.conv.weight"][0].numpy()
        bias = float(weights(content)["1.conv.bias"][0])
        hot = (edited[:, None] == np.arange(4)).astype(np.float64)
        dot = sum(hot[tap : len(hot) - 2 + tap] @ kernel[:, tap] for tap in range(3))
        expected = 1 / (1 + np.exp(-(dot + bias)))
        np.testing.assert_allclose(found["alternate"][row, : len(expected), 0], expected, atol=1e-6)


def test_windows_of_one_axis_and_another_sequence_are_kept_apart():
    tokens = np.arange(40, dtype=np.uint8)
    none = np.zeros(0, np.uint8)
    windows = [Window(tokens[at : at + 10].copy(), at, 5, 1, none) for at in (0, 4, 4, 20, 29, 25, 30)]
    windows[2].tokens[3] += 1
    windows[6].tokens[0] += 1
    joined = find_stretches(windows, lambda length, more, window: True)
    assert [(stretch.rows, stretch.offsets, len(stretch.tokens)) for stretch in joined] == [
        ([0, 1], [0, 4], 14),
        ([2], [0], 10),
        ([3, 4, 5], [0, 9, 5], 19),
        ([6], [0], 10),
    ]
    np.testing.assert_array_equal(joined[2].tokens, tokens[20:39])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": -1}, "is not inside its window"),
        ({"start": LENGTH - 3, "deleted": 5}, "is not inside its window"),
        ({"deleted": 2 * SIDE + 2}, "leaves none of its answer"),
    ],
)
def test_a_row_that_cannot_be_answered_is_named(server, change, said):
    inputs = rows([(500, 1, [1]), (600, 1, [])])
    for name, value in change.items():
        inputs[name][1] = value
    with pytest.raises(InvalidArgumentError, match=f"row 1.*{said}"):
        server.infer("splice", inputs)


def test_a_window_shorter_than_the_context_is_refused(server):
    inputs = rows([(500, 1, [1])])
    inputs["sequence"] = inputs["sequence"][:, : 2 * CONTEXT]
    with pytest.raises(InvalidArgumentError, match=f"look {CONTEXT} positions to either side"):
        server.infer("splice", inputs)


def _bad(kind):
    content = document(1)
    tensors = weights(content)
    layers = content["networks"][0]["layers"]
    if kind == "even":
        layers[4]["kernel"] = 4
    elif kind == "unknown input":
        layers[2]["inputs"] = ["nothing"]
    elif kind == "outputs":
        content["outputs"] = ["a"]
    elif kind == "strange key":
        layers[0]["padding"] = "same"
    elif kind == "tensor":
        del tensors["1.stem.bias"]
    else:
        tensors["1.norm1a.scale"] = torch.ones(7)
    return content, tensors


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("even", "has no centre"),
        ("unknown input", "no layer 'nothing' comes before it"),
        ("outputs", "3 channels for 1 outputs"),
        ("strange key", "padding"),
        ("tensor", "1.stem.bias must be float32 .6.; there is none"),
        ("shape", r"1.norm1a.scale must be float32 .6.; there is torch.float32 .7."),
    ],
)
def test_a_model_that_does_not_fit_is_named(tmp_path, kind, said):
    content, tensors = _bad(kind)
    write_model(tmp_path, content=content, tensors=tensors)
    with pytest.raises(ModelLoadError, match=said), ModelServer(tmp_path) as server:
        server.infer("splice", {})
