from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from serving.server import ModelServer
from tasks.calling.evidence import NAMES
from tasks.calling.pileup import CHANNELS, WIDTH_BP
from tasks.simulation.genome import simulate_genome
from tasks.simulation.variants import simulate_alleles
from tasks.training.ancestry import POOL_FACTOR, draw_by_ancestry
from tasks.training.caller_examples import (
    is_hard_individual,
    load_examples,
    select_individuals,
    simulate_examples,
)
from tasks.training.caller_model import fit_caller_to, write_caller
from tasks.training.caller_network import Caller, caller_onnx
from tasks.windows import WINDOW_BP
from tests.conftest import REPOSITORY

EMBEDDING, STATE = 64, 128
SEED = 3


def no_embedding(windows: np.ndarray) -> np.ndarray:
    return np.zeros((len(windows), EMBEDDING), np.float32)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("examples")
    return [simulate_examples(folder, SEED, individual, 40_000) for individual in range(4)]


def test_the_onnx_file_computes_what_the_network_does_row_by_row() -> None:
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    model = Caller(EMBEDDING, rng.normal(size=len(NAMES)).astype(np.float32), np.full(len(NAMES), 0.5, np.float32))
    model.calibration.copy_(
        torch.tensor([[1.3, 0.4, -0.1, 0.2, -0.5, -2.0, -1.5], [0.8, -0.7, 0, 0.3, -1.0, -0.9, -2.0]])
    )
    model.eval()
    embedding = rng.normal(size=(70, EMBEDDING)).astype(np.float32)
    pileup = rng.integers(0, 256, (70, WIDTH_BP, len(CHANNELS)), np.uint8)
    evidence = rng.normal(size=(70, len(NAMES))).astype(np.float32)
    evidence[:, NAMES.index("is_snv")] = rng.integers(0, 2, 70)
    session = onnxruntime.InferenceSession(caller_onnx(model))

    def run(first: int, last: int) -> np.ndarray:
        rows = slice(first, last)
        feed = {"embedding": embedding[rows], "pileup": pileup[rows], "evidence": evidence[rows]}
        return np.concatenate(session.run(["genotype", "log_likelihood"], feed), axis=1)

    together = run(0, 70)
    with torch.inference_mode():
        expected = torch.cat(model(*(torch.from_numpy(each) for each in (embedding, pileup, evidence))), dim=1).numpy()
    np.testing.assert_allclose(together, expected, rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(together[:, :3].sum(axis=1), 1, atol=1e-5)
    posterior = np.exp(
        together[:, 3:] + model.calibration.numpy()[1 - evidence[:, NAMES.index("is_snv")].astype(int), 4:]
    )
    np.testing.assert_allclose(posterior / posterior.sum(axis=1, keepdims=True), together[:, :3], atol=1e-5)
    for size in (1, 2, 3, 8, 13):
        assert (
            np.concatenate([run(at, min(at + size, 70)) for at in range(0, 70, size)]).tobytes() == together.tobytes()
        )


def test_an_individuals_examples_are_decided_by_seed_and_number(files: list[Path], tmp_path: Path) -> None:
    again = simulate_examples(tmp_path, SEED, 0, 40_000)
    one, other = load_examples([files[0]]), load_examples([again])
    assert one.evidence.tobytes() == other.evidence.tobytes()
    assert one.copies.tolist() == other.copies.tolist()
    assert sorted(path.name for path in tmp_path.iterdir()) == [again.name]
    assert load_examples([files[1]]).evidence.tobytes() != one.evidence.tobytes()


def test_variants_lie_in_crowds_that_haplotypes_carry_whole() -> None:
    rng = np.random.default_rng(4)
    genome = simulate_genome(rng, [1_000_000])
    alleles = simulate_alleles(rng, genome, heterozygosity=POOL_FACTOR * 2e-3)
    carried = draw_by_ancestry(rng, alleles, 2e-3, genome.num_bases)
    copies = carried.sum(axis=1)
    assert (copies == 1).sum() / genome.num_bases == pytest.approx(2e-3, rel=0.25)
    assert 1.4 < (copies == 1).sum() / (copies == 2).sum() < 3
    counts = np.bincount(alleles.start[copies > 0] // 1500)
    assert counts.var() > 2 * counts.mean()
    het = np.flatnonzero(copies == 1)
    is_near = np.diff(alleles.start[het]) < 200
    assert (carried[het[1:], 0] == carried[het[:-1], 0])[is_near].mean() > 0.75
    for haplotype in range(2):
        assert np.bincount(alleles.site[carried[:, haplotype]]).max() == 1


def test_examples_carry_their_labels(files: list[Path]) -> None:
    examples = load_examples(files)
    assert set(examples.copies.tolist()) == {0, 1, 2}
    assert examples.window.shape == (len(examples.copies), WINDOW_BP)
    fraction = examples.evidence[:, NAMES.index("alternate_fraction")]
    assert fraction[examples.copies == 2].mean() > fraction[examples.copies == 1].mean()
    part = select_individuals(examples, np.array([False, True, False, True]))
    assert part.individual.tolist() == np.repeat([0, 1], np.bincount(examples.individual)[[1, 3]]).tolist()
    assert [is_hard_individual(number) for number in range(4)] == [False, True, False, True]


def test_the_same_seed_trains_the_same_model_and_the_server_runs_it(files: list[Path], tmp_path: Path) -> None:
    one, other = (fit_caller_to(files, no_embedding, EMBEDDING, SEED, num_epochs=2) for _ in range(2))
    assert one == other
    assert "simulated reads alone" in one.card
    write_caller(tmp_path, one, EMBEDDING, STATE)
    shutil.copytree(REPOSITORY / "data" / "models" / "embedder", tmp_path / "embedder")
    examples = load_examples(files)
    with ModelServer(tmp_path, models=["reads"]) as server:
        inputs = {
            "reference_window": examples.window,
            "state": np.zeros((len(examples.window), STATE), np.float32),
            "pileup": examples.pileup,
            "evidence": examples.evidence,
        }
        genotype = server.infer("reads", inputs)["genotype"]
    assert genotype.shape == (len(examples.copies), 3)
    assert np.isfinite(genotype).all()


def test_the_shipped_configuration_is_the_one_that_training_writes(files: list[Path], tmp_path: Path) -> None:
    write_caller(tmp_path, fit_caller_to(files, no_embedding, EMBEDDING, SEED, num_epochs=1), EMBEDDING, STATE)
    for model in ("caller", "reads"):
        shipped = REPOSITORY / "data" / "models" / model / "config.pbtxt"
        assert (tmp_path / model / "config.pbtxt").read_text() == shipped.read_text()
