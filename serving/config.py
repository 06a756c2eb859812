"""A model's configuration: its ``config.pbtxt``, checked, and what it comes to.

The text is Triton's, parsed with Triton's own message (`tritonclient.grpc.model_config_pb2.ModelConfig`). A field that
this server does not act on is an error that names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from serving.errors import ModelLoadError
from serving.iterative import IterativeSequence
from serving.padding import Padding
from serving.tensors import VARIABLE, TensorSpec

CONFIG_NAME = "config.pbtxt"
ENSEMBLE = "ensemble"

PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime",
    "ensemble": ENSEMBLE,
    "tensorrt_plan": "tensorrt",
    "tensorflow_savedmodel": "tensorflow",
}
BACKEND_ALIASES = {"pytorch": "torch"}
FILE_BACKENDS = {
    "model.onnx": "onnxruntime",
    "model.pt2": "torch",
    "model.safetensors": "torch",
    "model.py": "python",
    "model.plan": "tensorrt",
    "model.keras": "keras",
    "model.h5": "keras",
    "model.savedmodel/saved_model.pb": "tensorflow",
}

_WHOLE = frozenset(
    {"dynamic_batching", "version_policy", "parameters", "response_cache", "cc_model_filenames", "model_warmup"}
)
_PARTS: dict[str, frozenset[str]] = {
    "sequence_batching": frozenset({"iterative_sequence"}),
    "sequence_batching.oldest": frozenset({"max_candidate_sequences"}),
    "sequence_batching.state": frozenset({"input_name", "output_name", "data_type", "dims"}),
    "sequence_batching.state.initial_state": frozenset({"name", "data_type", "dims", "zero_data"}),
    "": frozenset({"name", "platform", "backend", "max_batch_size", "default_model_filename"}),
    "input": frozenset({"name", "data_type", "dims", "format", "reshape", "optional", "allow_ragged_batch"}),
    "output": frozenset({"name", "data_type", "dims", "reshape"}),
    "instance_group": frozenset({"name", "kind", "count", "gpus"}),
    "ensemble_scheduling.step": frozenset({"model_name", "model_version", "input_map", "output_map"}),
    "model_transaction_policy": frozenset(),
    "optimization.graph": frozenset({"level"}),
    "optimization.execution_accelerators": frozenset({"gpu_execution_accelerator", "cpu_execution_accelerator"}),
}
_BRANCHES = frozenset({"ensemble_scheduling", "optimization", *(path for path in _PARTS if path)})


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """When a waiting request is refused or put back (Triton's ``ModelQueuePolicy``); 0 is "no limit"."""

    reject: bool = True
    default_timeout_us: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """How requests are gathered (Triton's ``ModelDynamicBatching``); `priority_levels` 0: no priorities."""

    preferred_batch_sizes: tuple[int, ...]
    max_queue_delay_us: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_policy: QueuePolicy = QueuePolicy()
    priority_policies: tuple[tuple[int, QueuePolicy], ...] = ()

    def policy(self, level: int) -> QueuePolicy:
        """The queue policy of a priority level."""
        return dict(self.priority_policies).get(level, self.default_policy)


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """How many copies of a model run, and where."""

    kind: Literal["auto", "cpu", "gpu"]
    count: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model file says of itself: full shapes, with the batch dimension if there is one; -1 is free."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def can_batch(self) -> bool:
        """Whether the first dimension of every tensor is free."""
        return all(spec.dims[:1] == (VARIABLE,) for spec in (*self.inputs, *self.outputs))


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A complete, checked configuration; `message` is the same as Triton's message.

    `inputs` and `outputs` are those of the model; requests have no part in the ones that the server itself fills and
    reads (`padding`, `sequence`): see `for_requests`.
    """

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dynamic_batching: DynamicBatching | None
    instance_groups: tuple[InstanceGroup, ...]
    has_cache: bool
    parameters: Mapping[str, str]
    message: Any
    padding: Padding | None = None
    sequence: IterativeSequence | None = None

    @property
    def is_batched(self) -> bool:
        """Whether the model's tensors carry a batch dimension."""
        return self.max_batch_size > 0

    @property
    def request_inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs that requests send."""
        own = {self.padding.input.name} if self.padding else set()
        if self.sequence:
            own.update(state.input for state in self.sequence.states)
        return tuple(spec for spec in self.inputs if spec.name not in own)

    @property
    def request_outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs that requests get."""
        own = self.sequence.own_outputs if self.sequence else frozenset()
        return tuple(spec for spec in self.outputs if spec.name not in own)

    @property
    def for_requests(self) -> ModelConfig:
        """The same with the inputs and outputs that requests see."""
        return replace(self, inputs=self.request_inputs, outputs=self.request_outputs)


def read_config(folder: Path) -> Any:
    """Parses ``<folder>/config.pbtxt``; an empty message with the folder's name when there is none.

    Raises:
        ModelLoadError: Not the text form of a ModelConfig, another name than the folder's, or an unsupported field.
    """
    path = folder / CONFIG_NAME
    message = model_config_pb2.ModelConfig()
    text = read_beside(folder.name, path)
    if text is not None:
        try:
            text_format.Parse(text.decode(), message)
        except (text_format.ParseError, UnicodeDecodeError) as error:
            raise ModelLoadError(f"model {folder.name!r}: {path}: {error}") from error
    return _checked(message, folder.name, str(path))


def read_beside(model: str, path: Path) -> bytes | None:
    """A file that lies beside a model's versions; None when there is none.

    Raises:
        ModelLoadError: It cannot be read, leads nowhere, or is no file: a pipe would be waited for without end.
    """
    if not os.path.lexists(path):
        return None
    if not path.is_file():
        raise ModelLoadError(f"model {model!r}: {path}: is not a file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelLoadError(f"model {model!r}: {path}: {error}") from error


def parse_config(name: str, text: bytes) -> Any:
    """Parses the JSON form of a model's ModelConfig, as a load request carries it.

    Raises:
        ModelLoadError: Not that form, another name than the model's, or an unsupported field.
    """
    message = model_config_pb2.ModelConfig()
    try:
        json_format.Parse(text, message)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise ModelLoadError(f"model {name!r}: the config of the load request: {error}", field="config") from error
    return _checked(message, name, "the config of the load request")


def _checked(message: Any, name: str, where: str) -> Any:
    if message.name not in ("", name):
        raise ModelLoadError(
            f"model {name!r}: {where}: name is {message.name!r}, but the model is {name!r}", field="name"
        )
    message.name = name
    for field in _set_fields(message, ""):
        if not _is_supported(field):
            raise ModelLoadError(f"model {name!r}: {where}: {field} is not supported by this server", field=field)
    return message


def backend_name(message: Any, files: Sequence[str]) -> str:
    """The backend a configuration names, or the one that its model file belongs to.

    Raises:
        ModelLoadError: No backend is named and no file says which.
    """
    if message.platform and message.platform not in PLATFORMS:
        raise ModelLoadError(
            f"model {message.name!r}: platform {message.platform!r} is not supported by this server", field="platform"
        )
    if message.backend:
        return BACKEND_ALIASES.get(str(message.backend), str(message.backend))
    if message.platform:
        return PLATFORMS[message.platform]
    if message.HasField("ensemble_scheduling"):
        return ENSEMBLE
    for name in files:
        if name in FILE_BACKENDS:
            return FILE_BACKENDS[name]
    raise ModelLoadError(
        f"model {message.name!r}: no backend in its {CONFIG_NAME}, and none of its files "
        f"({', '.join(files) or 'none'}) is one of {', '.join(FILE_BACKENDS)}",
        field="backend",
    )


def _set_fields(message: Any, path: str) -> Iterator[str]:
    """Yields the dotted path of each field that is set, down to where support is decided."""
    for field, value in message.ListFields():
        name = f"{path}.{field.name}" if path else field.name
        if name == "sequence_batching" and not value.iterative_sequence:
            yield name
        elif name in _BRANCHES:
            for part in value if isinstance(value, Sequence) or hasattr(value, "add") else (value,):
                yield from _set_fields(part, name)
        else:
            yield name


def _is_supported(path: str) -> bool:
    parent, _, name = path.rpartition(".")
    return path in _WHOLE or name in _PARTS.get(parent, frozenset())
