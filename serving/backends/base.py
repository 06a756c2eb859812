"""The contract of a backend: what runs one kind of model file.

A backend of your own is a class like this one, named by an entry point of the group ``cohortflow.backends``:

    [project.entry-points."cohortflow.backends"]
    mine = "my_package.my_module:MyBackend"

and used by ``backend: "mine"`` in a config.pbtxt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from serving.config import ModelConfig, Signature
from serving.tensors import Tensors


@dataclass(frozen=True, slots=True)
class Device:
    """Where an instance runs: ``cpu``, or ``gpu`` with its index."""

    kind: Literal["cpu", "gpu"]
    index: int = 0

    def __str__(self) -> str:
        return "cpu" if self.kind == "cpu" else f"gpu {self.index}"


class Backend(ABC):
    """One loaded model on one device.

    Attributes:
        is_shareable: Whether several threads may call `execute` of one object at once; if so the instances of a device
            share one object and its weights.
    """

    is_shareable: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """Name and version of the library that computes: part of every execution digest."""

    @classmethod
    def signature(cls, folder: Path, message: object) -> Signature | None:
        """What the model file says of its tensors, with full shapes, to complete the configuration; None: nothing.

        Args:
            folder: The version's folder.
            message: The model's ModelConfig message, not yet completed.

        Raises:
            ModelLoadError: The file is missing or cannot be read.
        """
        return None

    @classmethod
    def has_gpu(cls) -> bool:
        """Whether KIND_AUTO means a GPU here."""
        return False

    @classmethod
    def numerics(cls, config: ModelConfig, device: Device) -> dict[str, str]:
        """Whatever of provider and precision changes the numbers: part of the execution digest."""
        return {"provider": device.kind}

    @abstractmethod
    def load(self, folder: Path, config: ModelConfig, device: Device, threads: int) -> None:
        """Loads the version in `folder` onto `device`, to compute with `threads` CPU threads.

        Raises:
            ModelLoadError: The model or what it needs is missing or wrong; the message names it.
        """

    @abstractmethod
    def execute(self, inputs: Tensors) -> Tensors:
        """Computes a batch.

        Args:
            inputs: Arrays by name, [batch, *dims] ([*dims] for a model without batch dimension), C-contiguous.

        Returns:
            Every output of the configuration, [batch, *dims], row i from row i of the inputs.

        Raises:
            Exception: Anything; it becomes an ExecutionError of the requests in the batch.
        """

    def unload(self) -> None:  # noqa: B027 - most backends have nothing to let go of
        """Lets go of device memory and files."""
