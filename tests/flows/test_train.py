"""`cohortflow train` at toy size: a repository that the model server serves."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flows.parameters import REPOSITORY
from flows.train import TrainingSize, train_models
from serving.server import ModelServer

TOY = TrainingSize(
    num_genomes=1, genome_bp=100_000, num_epochs=1, num_individuals=8, individual_bp=12_000, num_caller_epochs=1
)


def test_a_trained_repository_can_be_served(tmp_path: Path) -> None:
    said: list[str] = []
    train_models(tmp_path, 5, size=TOY, report=said.append)
    assert len(said) == 2
    for model in ("embedder", "read_embedder", "effect", "variants"):
        assert (tmp_path / model / "config.pbtxt").read_bytes() == (REPOSITORY / model / "config.pbtxt").read_bytes()
        assert "## Licence" in (tmp_path / model / "MODEL_CARD.md").read_text()
    windows = np.random.default_rng(0).integers(0, 5, (9, 128), np.uint8)
    state = np.zeros((9, 128), np.float32)
    with ModelServer(tmp_path) as server:
        inputs = {"reference_window": windows, "alternate_window": windows[::-1].copy(), "state": state}
        effect = server.infer("variants", inputs)["effect"]
        assert {"caller", "reads"} <= set(server.statistics())
        reads = server.infer("read_embedder", {"tokens": windows})["embedding"]
        assert np.array_equal(reads, server.infer("embedder", {"tokens": windows, "state": state})["embedding"])
    assert effect.shape == (9, 1)
    assert ((effect > 0) & (effect < 1)).all()
