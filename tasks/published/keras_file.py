"""Layers and weights of a Keras 2 HDF5 file, read by h5py: its configuration is JSON, and nothing of it is built."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from tasks.published.convolutions import Array, NetworkLayers
from tasks.published.publication import PublishedModelError


@dataclass(frozen=True, slots=True)
class KerasLayer:
    """One layer of a file.

    Attributes:
        kind: Its class.
        name: Its name.
        config: Its configuration.
        sources: The layers that it reads, by name.
        weights: Its arrays by their short names: ``kernel``, ``bias``, ``gamma``, ...
    """

    kind: str
    name: str
    config: dict[str, Any]
    sources: list[str]
    weights: dict[str, Array]


def read_layers(content: bytes, file_name: str) -> list[KerasLayer]:
    """Reads the layers of a functional model, each after those it reads.

    Raises:
        PublishedModelError: The file is no such model.
    """
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            config = json.loads(file.attrs["model_config"])["config"]
            groups = file["model_weights"]
            return [
                KerasLayer(
                    layer["class_name"],
                    layer["name"],
                    layer["config"],
                    [source[0] for node in layer["inbound_nodes"] for source in node],
                    _weights(groups[layer["name"]]),
                )
                for layer in config["layers"]
            ]
    except (OSError, KeyError, TypeError, ValueError, IndexError) as error:
        raise PublishedModelError(f"{file_name}: not a Keras 2 model: {error!r}", reason="BAD_PACKAGE") from error


def _weights(group: Any) -> dict[str, Array]:
    names = [name.decode() if isinstance(name, bytes) else str(name) for name in group.attrs.get("weight_names", ())]
    return {name.rpartition("/")[2].partition(":")[0]: np.asarray(group[name][()]) for name in names}


def scale_and_shift(layer: KerasLayer) -> tuple[Array, Array]:
    """What a batch normalisation comes to, in float64: each channel times the first, plus the second."""
    weights = {name: array.astype(np.float64) for name, array in layer.weights.items()}
    scale = weights["gamma"] / np.sqrt(weights["moving_variance"] + float(layer.config["epsilon"]))
    return scale, weights["beta"] - weights["moving_mean"] * scale


def read_convolutions(content: bytes, file_name: str, name: str, cropping: int) -> NetworkLayers:
    """Reads a fully convolutional network.

    Args:
        content: The file.
        file_name: Its name, for messages.
        name: What to call the network.
        cropping: Positions that it crops off at either end, at most what its convolutions pad.

    Raises:
        PublishedModelError: The file is no such model, or has a layer of another kind.
    """
    network = NetworkLayers(name)
    alias: dict[str, str] = {}
    for layer in read_layers(content, file_name):
        sources = [alias[source] for source in layer.sources]
        alias[layer.name] = layer.name
        try:
            if layer.kind == "InputLayer":
                alias[layer.name] = "sequence"
            elif layer.kind == "Conv1D":
                function = layer.config["activation"]
                inner = layer.name if function == "linear" else f"{layer.name}.linear".replace(".", "_")
                kernel, bias = layer.weights["kernel"], layer.weights["bias"]
                network.convolve(inner, sources[0], kernel, bias, int(layer.config["dilation_rate"][0]))
                if function != "linear":
                    network.activate(layer.name, inner, function)
            elif layer.kind == "BatchNormalization":
                network.scale(layer.name, sources[0], *scale_and_shift(layer))
            elif layer.kind == "Activation":
                network.activate(layer.name, sources[0], layer.config["activation"])
            elif layer.kind == "Add":
                network.add(layer.name, sources)
            elif layer.kind == "Cropping1D" and layer.config["cropping"] == [cropping, cropping]:
                alias[layer.name] = sources[0]
            else:
                raise PublishedModelError(
                    f"{file_name}: layer {layer.name!r} of kind {layer.kind} is none of a convolutional network's",
                    reason="BAD_PACKAGE",
                )
        except (KeyError, IndexError, ValueError) as error:
            raise PublishedModelError(f"{file_name}: layer {layer.name!r}: {error!r}", reason="BAD_PACKAGE") from error
    return network
