"""Published fully convolutional networks as ``network.json`` and ``model.safetensors`` of the convolution backend."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from tasks.published.made import MadeModel

Array = npt.NDArray[Any]

_FORMAT = "cohortflow-convolution-1"
_CONFIG = """\
name: "{name}"
backend: "convolution"
max_batch_size: 512
dynamic_batching {{ }}
response_cache {{ enable: true }}
"""


@dataclass(slots=True)
class NetworkLayers:
    """The layers of one network, gathered in an order in which each comes after its inputs.

    Attributes:
        name: The network's.
        layers: As in ``network.json``.
        tensors: Their numbers, by ``LAYER.WHAT``.
    """

    name: str
    layers: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[str, Array] = field(default_factory=dict)

    def convolve(self, name: str, source: str, kernel: Array, bias: Array, dilation: int) -> None:
        """Adds a convolution; `kernel` is [places, input channels, channels], as in Keras."""
        num_places, _, num_channels = kernel.shape
        shape = {"kernel": num_places, "dilation": dilation, "channels": num_channels}
        self.layers.append({"name": name, "kind": "convolution", "inputs": [source], **shape})
        self.tensors[f"{name}.weight"] = kernel.transpose(2, 1, 0)
        self.tensors[f"{name}.bias"] = bias

    def scale(self, name: str, source: str, scale: Array, shift: Array) -> None:
        """Adds a number for each channel to multiply by, and one to add."""
        self.layers.append({"name": name, "kind": "scaling", "inputs": [source]})
        self.tensors[f"{name}.scale"] = scale
        self.tensors[f"{name}.shift"] = shift

    def activate(self, name: str, source: str, function: str) -> None:
        """Adds ``relu``, ``sigmoid`` or ``softmax``."""
        self.layers.append({"name": name, "kind": "activation", "inputs": [source], "function": function})

    def add(self, name: str, sources: Sequence[str]) -> None:
        """Adds a sum of layers."""
        self.layers.append({"name": name, "kind": "sum", "inputs": list(sources)})


def convolution_model(
    name: str,
    outputs: Sequence[str],
    networks: Sequence[NetworkLayers],
    description: str,
    resources: Mapping[str, bytes],
) -> MadeModel:
    """The model that answers with the mean of networks."""
    plain = [{"name": network.name, "layers": network.layers} for network in networks]
    structure = {"format": _FORMAT, "alphabet": "ACGT", "outputs": list(outputs), "networks": plain}
    tensors = {
        f"{network.name}.{key}": np.ascontiguousarray(array, dtype=np.float32)
        for network in networks
        for key, array in network.tensors.items()
    }
    files = {
        "network.json": (json.dumps(structure, indent=1) + "\n").encode(),
        "model.safetensors": save(tensors),
    }
    return MadeModel(name, _CONFIG.format(name=name), files, description, resources)
