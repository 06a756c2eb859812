"""The contract of a backend: what runs one kind of model file.

A backend of your own is a class like this one, named by an entry point of the group ``cohortflow.backends``:

    [project.entry-points."cohortflow.backends"]
    mine = "my_package.my_module:MyBackend"

and used by ``backend: "mine"`` in a config.pbtxt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from serving.answer import Answer
from serving.config import ModelConfig, Signature
from serving.errors import ServingError
from serving.request import Call, Parameters
from serving.tensors import Tensors


@dataclass(frozen=True, slots=True)
class Device:
    """Where an instance runs: ``cpu``, or ``gpu`` with its index."""

    kind: Literal["cpu", "gpu"]
    index: int = 0

    def __str__(self) -> str:
        return "cpu" if self.kind == "cpu" else f"gpu {self.index}"


class Models(Protocol):
    """The models of the server, for a backend whose model asks others."""

    def submit(
        self,
        model: str,
        inputs: Mapping[str, Any],
        version: int | None = None,
        *,
        outputs: Sequence[str] | None = None,
        deadline_s: float | None = None,
        parameters: Parameters = ...,
    ) -> Answer:
        """As `ModelServer.submit`."""

    def metadata(self, model: str, version: int | None = None) -> Any:
        """As `ModelServer.metadata`."""

    def ready(self, model: str | None = None, version: int | None = None) -> bool:
        """As `ModelServer.ready`."""


@dataclass(frozen=True, slots=True)
class BackendRequest:
    """A request as a backend gets it that takes them one by one.

    Attributes:
        inputs: Arrays by name, [rows, *dims] ([*dims] for a model without batch dimension), C-contiguous.
        outputs: The outputs wanted.
        call: What was asked.
        is_given_up: Whether nobody waits for the answer any more.
    """

    inputs: Tensors
    outputs: tuple[str, ...]
    call: Call
    is_given_up: Callable[[], bool]


class Backend(ABC):
    """One loaded model on one device.

    Attributes:
        is_shareable: Whether several threads may call `execute` of one object at once; if so the instances of a device
            share one object and its weights.
        takes_requests: Whether it gets the requests of a batch one by one (`execute_requests`) and not their rows in
            one array (`execute`). How rows of a batch bear on each other is then its own business: it is not measured.
    """

    is_shareable: ClassVar[bool] = False
    takes_requests: ClassVar[bool] = False

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
    def fill_in(cls, folder: Path, message: Any) -> Any:
        """The ModelConfig message with what the model's own code adds to it, before it is completed.

        Raises:
            ModelLoadError: The code fails, or contradicts the configuration.
        """
        return message

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

    def execute_requests(self, requests: Sequence[BackendRequest]) -> Sequence[Tensors | ServingError]:
        """Computes a batch of requests, where `takes_requests`.

        Returns:
            For each request, in their order, its wanted outputs or its error.

        Raises:
            Exception: Anything; each request is then executed by itself.
        """
        raise NotImplementedError

    def connect(self, models: Models) -> None:  # noqa: B027 - most models ask no others
        """Called before `load` with the models of the server."""

    def unload(self) -> None:  # noqa: B027 - most backends have nothing to let go of
        """Lets go of device memory and files."""
