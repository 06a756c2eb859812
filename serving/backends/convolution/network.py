"""``network.json``: what a fully convolutional network over a sequence looks like, as plain data.

A version's folder holds ``network.json`` and ``model.safetensors``. The answer at a position is the mean of what
`networks` say there, added up in their order.

    {
      "format": "cohortflow-convolution-1",
      "alphabet": "ACGT",
      "outputs": ["neither", "acceptor", "donor"],
      "networks": [
        {
          "name": "1",
          "layers": [
            {"name": "stem", "kind": "convolution", "inputs": ["sequence"], "kernel": 1, "dilation": 1, "channels": 32},
            {"name": "norm", "kind": "scaling", "inputs": ["stem"]},
            {"name": "relu", "kind": "activation", "inputs": ["norm"], "function": "relu"},
            {"name": "conv", "kind": "convolution", "inputs": ["relu"], "kernel": 11, "dilation": 4, "channels": 32},
            {"name": "join", "kind": "sum", "inputs": ["conv", "stem"]},
            {"name": "head", "kind": "convolution", "inputs": ["join"], "kernel": 1, "dilation": 1, "channels": 3},
            {"name": "odds", "kind": "activation", "inputs": ["head"], "function": "softmax"}
          ]
        }
      ]
    }

Layers stand in an order in which each comes after its inputs; the last one is the network's output, with a channel for
each of `outputs`. ``sequence`` is the one-hot input: a channel for each letter of the alphabet; any other letter, and
the place outside of a sequence, is zero in all of them. Skip connections are inputs of a ``sum``. No layer pads: what a
published network pads and crops off again is simply not there (Keras: ``padding="same"`` with a ``Cropping1D`` of at
least `Network.context` is this). A kernel is odd and centred.

Tensors (float32), named NETWORK.LAYER.WHAT: ``weight`` [channels, input channels, kernel], in the order in which a
kernel meets a sequence (cross-correlation, as Keras and torch do), and ``bias`` [channels] of a convolution; ``scale``
and ``shift`` [channels] of a scaling, which is what batch normalisation comes to: scale = gamma / sqrt(variance +
epsilon), shift = beta - mean * scale, computed in float64.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serving.errors import ModelLoadError

NETWORK_FILE = "network.json"
WEIGHTS_FILE = "model.safetensors"
SEQUENCE = "sequence"
"""What a layer calls the one-hot input."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Convolution(_Part):
    """Cross-correlation with an odd, centred kernel."""

    name: str = Field(min_length=1)
    kind: Literal["convolution"] = "convolution"
    inputs: tuple[str]
    kernel: int = Field(ge=1)
    dilation: int = Field(default=1, ge=1)
    channels: int = Field(ge=1)

    @property
    def reach(self) -> int:
        """How many positions to either side of its own it looks at."""
        return self.kernel // 2 * self.dilation

    @model_validator(mode="after")
    def _is_centred(self) -> Convolution:
        if self.kernel % 2 == 0:
            raise ValueError(f"layer {self.name!r}: kernel {self.kernel} has no centre; it must be odd")
        return self


class Scaling(_Part):
    """Each channel times a number, plus a number."""

    name: str = Field(min_length=1)
    kind: Literal["scaling"] = "scaling"
    inputs: tuple[str]


class Activation(_Part):
    """A function of each number, or of the channels of a position (``softmax``)."""

    name: str = Field(min_length=1)
    kind: Literal["activation"] = "activation"
    inputs: tuple[str]
    function: Literal["relu", "sigmoid", "softmax"]


class Sum(_Part):
    """Two or more layers of as many channels, added up in their order."""

    name: str = Field(min_length=1)
    kind: Literal["sum"] = "sum"
    inputs: tuple[str, ...] = Field(min_length=2)


Layer = Annotated[Convolution | Scaling | Activation | Sum, Field(discriminator="kind")]


class Network(_Part):
    """Layers in order; the last one is the output."""

    name: str = Field(min_length=1)
    layers: tuple[Layer, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _is_ordered(self) -> Network:
        known = {SEQUENCE}
        for layer in self.layers:
            strange = [name for name in layer.inputs if name not in known]
            if strange:
                raise ValueError(f"layer {layer.name!r}: no layer {strange[0]!r} comes before it")
            if layer.name in known:
                raise ValueError(f"two layers are called {layer.name!r}")
            known.add(layer.name)
        return self

    def reaches(self) -> dict[str, int]:
        """For each layer, and the sequence, how many positions of the sequence to either side of its own it sees."""
        reaches = {SEQUENCE: 0}
        for layer in self.layers:
            own = layer.reach if isinstance(layer, Convolution) else 0
            reaches[layer.name] = own + max(reaches[name] for name in layer.inputs)
        return reaches

    def needs(self) -> dict[str, int]:
        """For each layer, and the sequence, how many of its positions to either side the output at one depends on."""
        needs = dict.fromkeys((SEQUENCE, *(layer.name for layer in self.layers)), 0)
        for layer in reversed(self.layers):
            own = layer.reach if isinstance(layer, Convolution) else 0
            for name in layer.inputs:
                needs[name] = max(needs[name], needs[layer.name] + own)
        return needs

    def channels(self, alphabet: str) -> dict[str, int]:
        """The channels of each layer and of the sequence.

        Raises:
            ValueError: A sum of layers of different channels.
        """
        channels = {SEQUENCE: len(alphabet)}
        for layer in self.layers:
            counts = [channels[name] for name in layer.inputs]
            if len(set(counts)) > 1:
                raise ValueError(f"network {self.name!r}: layer {layer.name!r} adds layers of {counts} channels")
            channels[layer.name] = layer.channels if isinstance(layer, Convolution) else counts[0]
        return channels


class NetworkFile(_Part):
    """The content of ``network.json``."""

    format: Literal["cohortflow-convolution-1"]
    alphabet: str = Field(min_length=1)
    outputs: tuple[str, ...] = Field(min_length=1)
    networks: tuple[Network, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits(self) -> NetworkFile:
        if len(set(self.alphabet)) < len(self.alphabet):
            raise ValueError(f"alphabet {self.alphabet!r} has a letter twice")
        names = [network.name for network in self.networks]
        if len(set(names)) < len(names):
            raise ValueError(f"networks of one name: {', '.join(names)}")
        for network in self.networks:
            found = network.channels(self.alphabet)[network.layers[-1].name]
            if found != len(self.outputs):
                raise ValueError(f"network {network.name!r}: {found} channels for {len(self.outputs)} outputs")
        return self

    @property
    def context(self) -> int:
        """How many positions to either side the answer at one depends on."""
        return max(network.needs()[SEQUENCE] for network in self.networks)


def read_network(folder: Path) -> NetworkFile:
    """Reads ``network.json`` of a version's folder.

    Raises:
        ModelLoadError: It is missing or not what this module says.
    """
    path = folder / NETWORK_FILE
    try:
        return NetworkFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ModelLoadError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        raise ModelLoadError(f"{path}: {faults}") from error
