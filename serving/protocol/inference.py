"""An inference as a client asked for it, and what it is answered, whatever the protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.errors import InvalidArgumentError
from serving.protocol.parameters import NO_PARAMETERS, Parameter, RequestParameters
from serving.protocol.status import UnsupportedError
from serving.tensors import Tensors

_VERSION = re.compile(r"[1-9][0-9]{0,17}")
_SHARED_MEMORY = "shared_memory_"


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """An output that a client asked for.

    Attributes:
        num_classes: How many of its highest values are wanted; 0: the output itself.
        is_binary: Whether it is wanted as bytes (HTTP).
    """

    name: str
    num_classes: int = 0
    is_binary: bool = True


@dataclass(frozen=True, slots=True)
class Inference:
    """What a client asked for.

    Attributes:
        version: A version; None leaves the choice to the server.
        id: The client's own name for it, echoed.
        inputs: Arrays by name.
        num_bytes: Size of the inputs.
        outputs: The outputs wanted; None: all.
        all_binary: Whether outputs that are not named are wanted as bytes (HTTP).
    """

    model: str
    version: int | None
    id: str
    inputs: Tensors
    num_bytes: int
    outputs: tuple[WantedOutput, ...] | None = None
    parameters: RequestParameters = NO_PARAMETERS
    all_binary: bool = True


@dataclass(frozen=True, slots=True)
class Inferred:
    """What an inference is answered: arrays by name, in the model's order, and who computed them."""

    inference: Inference
    version: int
    outputs: Tensors = field(default_factory=dict)

    @property
    def wanted(self) -> dict[str, WantedOutput]:
        """The outputs that the client named."""
        return {output.name: output for output in self.inference.outputs or ()}


def read_version(text: str) -> int | None:
    """The version a request names; None when it leaves the choice to the server (empty or -1).

    Raises:
        InvalidArgumentError: Not a positive whole number.
    """
    if text in ("", "-1"):
        return None
    if not _VERSION.fullmatch(text):
        raise InvalidArgumentError(f"model version {text[:100]!r} is not a positive whole number", field="version")
    return int(text)


def read_num_classes(name: str, parameters: Mapping[str, Parameter]) -> int:
    """The classification that an output's parameters ask for, 0 without one.

    Raises:
        InvalidArgumentError: Not a whole number above 0.
    """
    value = parameters.get("classification", 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgumentError(f"output {name!r}: classification must be a whole number above 0", field=name)
    return value


def refuse_shared_memory(kind: str, name: str, parameters: Mapping[str, Parameter]) -> None:
    """Refuses a tensor that lies elsewhere.

    Raises:
        UnsupportedError: It does.
    """
    for key in parameters:
        if key.startswith(_SHARED_MEMORY):
            raise UnsupportedError(
                f"{kind} {name!r}: shared memory is not supported; send the tensor itself", field=name
            )
