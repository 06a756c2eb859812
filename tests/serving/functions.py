"""A backend that is a Python function of the test, offered as an installed package would offer it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.backends.base import Backend

TIMEOUT_S = 10


class Functions:
    """Functions by the model's name, the inputs each was given, and a gate that is open until a test closes it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_open = True
        self.by_model: dict[str, Callable] = {}
        self.batches: list[dict] = []

    def call(self, model: str, inputs: dict) -> dict:
        with self._changed:
            self.batches.append(inputs)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._is_open, TIMEOUT_S)
        return self.by_model[model](inputs)

    def close(self) -> None:
        """Holds every batch that comes from now on."""
        with self._changed:
            self._is_open = False

    def open(self) -> None:
        """Lets everything through."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def forget(self) -> None:
        """Forgets the batches so far: those of loading."""
        self.batches = []

    def wait(self, num: int) -> None:
        """Waits until that many batches have arrived."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.batches) >= num, TIMEOUT_S)


class FunctionBackend(Backend):
    """What the test's function for the model's name gives."""

    functions = Functions()

    @classmethod
    def version(cls):
        return "function 1"

    def load(self, folder, config, device, threads):
        self._name = config.name

    def execute(self, inputs):
        return self.functions.call(self._name, inputs)


@pytest.fixture
def functions(tmp_path_factory, monkeypatch) -> Functions:
    """No functions yet, and ``backend: "function"`` that calls them."""
    site = tmp_path_factory.mktemp("site")
    info: Path = site / "function_backend-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: function-backend\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[cohortflow.backends]\nfunction = tests.serving.functions:FunctionBackend\n"
    )
    monkeypatch.syspath_prepend(str(site))
    fresh = Functions()
    monkeypatch.setattr(FunctionBackend, "functions", fresh)
    yield fresh
    fresh.open()


def write_function(repository: Path, name: str, config: str) -> None:
    """A model of the function backend."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text('backend: "function" ' + config)
