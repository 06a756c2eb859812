"""A backend that computes when the test says so, offered as an installed package would offer it."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from serving.backends.base import Backend

CONFIG = """
backend: "gated"
input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
parameters { key: "row_multiple" value { string_value: "1" } }
"""
TIMEOUT_S = 10


class Gate:
    """What the backend was given, and whether it may go on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._permits = 0
        self.is_open = False
        self.num_inside = 0
        self.batches: list[list[float]] = []
        self.answer = lambda x: {"y": 2 * x}

    def enter(self, x: np.ndarray) -> None:
        with self._changed:
            self.batches.append(x[:, 0].tolist())
            self.num_inside += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.is_open or self._permits > 0, TIMEOUT_S)
            self._permits -= 1
            self.num_inside -= 1

    def let(self, num_batches: int = 1) -> None:
        """Lets that many batches through."""
        with self._changed:
            self._permits += num_batches
            self._changed.notify_all()

    def open(self) -> None:
        """Lets everything through from now on."""
        with self._changed:
            self.is_open = True
            self._changed.notify_all()

    def wait_inside(self, num: int) -> None:
        """Waits until that many batches have arrived in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.batches) >= num, TIMEOUT_S)


class GatedBackend(Backend):
    """y = what the gate answers for x, when the gate lets it."""

    gate = Gate()

    @classmethod
    def version(cls):
        return "gated 1"

    def load(self, folder, config, device, threads):
        pass

    def execute(self, inputs):
        self.gate.enter(inputs["x"])
        return self.gate.answer(inputs["x"])


@pytest.fixture
def gate(tmp_path_factory, monkeypatch) -> Gate:
    """A fresh gate, and ``backend: "gated"`` that passes through it."""
    site = tmp_path_factory.mktemp("site")
    info: Path = site / "gated_backend-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gated-backend\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[cohortflow.backends]\ngated = tests.serving.gated:GatedBackend\n")
    monkeypatch.syspath_prepend(str(site))
    fresh = Gate()
    monkeypatch.setattr(GatedBackend, "gate", fresh)
    yield fresh
    fresh.open()


def write_gated(repository: Path, config: str, name: str = "gated") -> None:
    """A model of the gated backend."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(CONFIG + config)


def rows(*values: float) -> dict[str, np.ndarray]:
    """Inputs with one row [1] per value."""
    return {"x": np.array(values, np.float32)[:, np.newaxis]}
