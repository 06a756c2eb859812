"""The configuration that a Python model's ``auto_complete_config`` fills in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tritonclient.grpc import model_config_pb2

from serving.backends.python.config_dict import config_dict

_PROPERTIES = frozenset({"name", "data_type", "dims", "optional"})


class AutoConfig:
    """Triton's ``pb_utils.ModelConfig``: what the repository says, to which a model adds what it does not.

    Source: Triton's python_backend README, "auto_complete_config".
    """

    def __init__(self, message: Any) -> None:
        self.message = type(message)()
        self.message.CopyFrom(message)

    def as_dict(self) -> dict[str, Any]:
        """The configuration as it is by now."""
        return config_dict(self.message)

    def set_max_batch_size(self, size: int) -> None:
        """Sets the largest batch, unless the configuration has a smaller one.

        Raises:
            ValueError: The configuration has a larger one.
        """
        if self.message.max_batch_size > size:
            raise ValueError(f"max_batch_size is {self.message.max_batch_size} in the configuration, more than {size}")
        if self.message.max_batch_size == 0:
            self.message.max_batch_size = size

    def set_dynamic_batching(self) -> None:
        """Gathers requests into batches, unless the configuration says how.

        Raises:
            ValueError: The configuration has another scheduling.
        """
        if self.message.WhichOneof("scheduling_choice") not in (None, "dynamic_batching"):
            raise ValueError("the configuration has another scheduling than dynamic_batching")
        self.message.dynamic_batching.SetInParent()

    def add_input(self, tensor: Mapping[str, Any]) -> None:
        """Adds an input, or completes what the configuration says of it.

        Raises:
            ValueError: A property is missing, unknown, or other than the configuration's.
        """
        _add(self.message.input, tensor, "input")

    def add_output(self, tensor: Mapping[str, Any]) -> None:
        """Adds an output, or completes what the configuration says of it.

        Raises:
            ValueError: A property is missing, unknown, or other than the configuration's.
        """
        _add(self.message.output, tensor, "output")

    def set_model_transaction_policy(self, policy: Mapping[str, Any]) -> None:
        """Says that the model is not decoupled.

        Raises:
            ValueError: It says that it is: this server has no decoupled models.
        """
        if set(policy) - {"decoupled"} or policy.get("decoupled"):
            raise ValueError(f"model_transaction_policy {dict(policy)} is not supported by this server")


def _add(tensors: Any, properties: Mapping[str, Any], kind: str) -> None:
    unknown = set(properties) - _PROPERTIES
    missing = {"name", "data_type", "dims"} - set(properties)
    if unknown or missing or (kind == "output" and "optional" in properties):
        raise ValueError(f"{kind} {dict(properties)}: needs name, data_type and dims, and takes no others")
    name, dims = properties["name"], list(properties["dims"])
    data_type = model_config_pb2.DataType.Value(properties["data_type"])
    found = next((tensor for tensor in tensors if tensor.name == name), None)
    if found is None:
        found = tensors.add(name=name)
    if not found.data_type:
        found.data_type = data_type
    if not found.dims:
        found.dims.extend(dims)
    if properties.get("optional"):
        found.optional = True
    if (found.data_type, list(found.dims)) != (data_type, dims):
        said = model_config_pb2.DataType.Name(found.data_type)
        raise ValueError(
            f"{kind} {name!r} is {properties['data_type']} {dims}, the configuration says {said} {list(found.dims)}"
        )
