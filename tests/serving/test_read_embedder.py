"""The shipped model that embeds whole reads: continuous batching, and the same numbers as in one piece."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from serving.server import ModelServer
from tests.conftest import REPOSITORY

MODELS = REPOSITORY / "data" / "models"
FILES = [MODELS / name / "1" / "model.onnx" for name in ("embedder", "read_embedder")]
TIMEOUT_S = 60
LENGTHS_BP = (50, 51, 57, 64, 100, 101, 150, 151, 250, 511, 512, 513, 700, 1024, 1500, 4999, 20_000, 100_000)


def read(length_bp, seed=0, rows=1):
    return {"tokens": np.random.default_rng(seed + length_bp).integers(0, 5, (rows, length_bp), np.uint8)}


@pytest.fixture(scope="module")
def server():
    with ModelServer(MODELS, models=["embedder", "read_embedder"]) as server:
        yield server


def test_it_is_the_embedder_itself(server):
    assert FILES[0].read_bytes() == FILES[1].read_bytes()
    assert [spec.name for spec in server.metadata("read_embedder").inputs] == ["tokens"]
    assert [spec.name for spec in server.metadata("read_embedder").outputs] == ["embedding"]


@pytest.mark.parametrize("length_bp", LENGTHS_BP)
def test_steps_give_what_the_network_gives_for_the_whole_read(server, length_bp):
    one = read(length_bp, rows=3)
    whole = server.infer("embedder", {**one, "state": np.zeros((3, 128), np.float32)})["embedding"]
    np.testing.assert_allclose(server.infer("read_embedder", one)["embedding"], whole, rtol=0, atol=1e-5)
    assert np.abs(whole).max() > 0.1


def test_a_read_has_the_same_bytes_alone_and_among_others(server):
    reads = [read(length_bp, seed) for length_bp in LENGTHS_BP for seed in range(4)]
    alone = [server.infer("read_embedder", one)["embedding"].tobytes() for one in reads]
    crowd = [read(int(length_bp), 9) for length_bp in np.random.default_rng(1).integers(50, 3000, 300)]
    answers = [server.submit("read_embedder", one) for pair in zip(reads, crowd, strict=False) for one in pair]
    rest = [server.submit("read_embedder", one) for one in crowd[len(reads) :]]
    assert [answer.result(TIMEOUT_S)["embedding"].tobytes() for answer in answers[::2]] == alone
    assert all(answer.result(TIMEOUT_S) for answer in rest)
    many = read(151, rows=256)
    together = server.infer("read_embedder", many)["embedding"]
    for row in (0, 1, 100, 255):
        single = server.infer("read_embedder", {"tokens": many["tokens"][row : row + 1]})["embedding"]
        assert np.array_equal(single[0], together[row])


def test_short_reads_do_not_wait_for_a_long_one(tmp_path, functions):
    """The shipped model behind a gate, with four slots: 100 kb hold one, the short reads go through the others."""
    session = onnxruntime.InferenceSession(FILES[1].read_bytes(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    functions.by_model["gated"] = lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))
    text = (MODELS / "read_embedder" / "config.pbtxt").read_text()
    for old, new in (
        ('backend: "onnxruntime"', 'backend: "function"'),
        ('name: "read_embedder"', 'name: "gated"'),
        ("max_candidate_sequences: 256", "max_candidate_sequences: 4"),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "gated" / "1").mkdir(parents=True)
    (tmp_path / "gated" / "config.pbtxt").write_text(text)
    finished: list[int] = []
    with ModelServer(tmp_path) as server:
        functions.forget()
        functions.close()
        reads = [read(100_000), *(read(150, seed) for seed in range(60))]
        answers = [server.submit("gated", reads[0])]
        functions.wait(1)
        answers += [server.submit("gated", one) for one in reads[1:]]
        for number, answer in enumerate(answers):
            answer.add_done_callback(lambda _, number=number: finished.append(number))
        functions.open()
        answers[0].result(TIMEOUT_S)
        statistics = server.statistics()["gated"]
    assert finished[-1] == 0
    assert len(finished) == 61
    num_steps = -(-100_000 // 512)
    num_rounds_of_short_ones = 60 // 3
    assert statistics["executions"] == num_steps + num_rounds_of_short_ones
    assert statistics["slot_steps_used"] >= 0.9 * statistics["slot_steps"] > 0
