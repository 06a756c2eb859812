"""One network with its weights: a pass over a stretch of sequence, and passes that compute what an edit can reach.

Without padding a layer's value depends on a known number of positions to either side (`Network.reaches`), and the
output at a position on a known number of a layer's (`Network.needs`). An edit therefore changes a layer only near
itself, and only what the wanted outputs need of that is computed: a cone that widens from the edit and narrows towards
the output. Everything else stands in the reference's pass already; what lies right of an edit that inserts or deletes
stands there some places further left or right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from serving.backends.convolution.network import SEQUENCE, Convolution, Layer, Network, Scaling, Sum
from serving.errors import ModelLoadError

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Edits:
    """Edits of one stretch that differ in their place and bases alone.

    Attributes:
        starts: Places of the first base that is replaced.
        deleted: How many bases each replaces.
        inserted: float32 [edits, bases, letters], what each puts there, one-hot.
        before: Wanted outputs begin so many positions before the edit (negative: after).
        after: And end so many after the edit's start, counted along the edited sequence.
    """

    starts: Sequence[int]
    deleted: int
    inserted: Tensor
    before: int
    after: int


class Member:
    """A network on a device. Arrays are [rows, positions, channels].

    Args:
        network: Its layers.
        weights: Its tensors by ``LAYER.WHAT``.
        context: Positions at either end of a stretch that get no output, at least what the network needs.
        letters: Channels of the sequence.
        device: Where it computes.

    Raises:
        ModelLoadError: A tensor is missing, or has another shape than the layers say.

    Attributes:
        kept_bytes: Bytes that `reference` keeps for each position.
    """

    def __init__(
        self, network: Network, weights: Mapping[str, Tensor], context: int, letters: int, device: torch.device
    ) -> None:
        _check(network, weights, letters)
        self._layers, self._weights = _folded(network, weights)
        self._weights = {
            name: _as_kernel(tensor) if tensor.ndim == 3 else tensor for name, tensor in self._weights.items()
        }
        self._weights = {name: tensor.to(device) for name, tensor in self._weights.items()}
        folded = Network(name=network.name, layers=tuple(self._layers))
        self._reaches, self._needs = folded.reaches(), folded.needs()
        self._first = {name: context - need for name, need in self._needs.items()}
        self._output = self._layers[-1].name
        self._kept = self._kept_layers()
        has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        self._uses_onednn = device.type == "cpu" and has_onednn
        self._uses = Counter(name for layer in self._layers for name in layer.inputs)
        channels = folded.channels("." * letters)
        self.kept_bytes = FLOAT_BYTES * sum(channels[name] for name in self._kept)
        self._macs = {
            layer.name: layer.kernel * channels[layer.inputs[0]] * layer.channels
            for layer in self._layers
            if isinstance(layer, Convolution)
        }

    def macs(self, num_outputs: int) -> int:
        """Multiplications of a pass over a stretch with so many outputs."""
        return sum(macs * (num_outputs + 2 * self._needs[name]) for name, macs in self._macs.items())

    def reference(self, sequence: Tensor) -> dict[str, Tensor]:
        """A pass over a stretch.

        Args:
            sequence: float32 [1, positions, letters], one-hot.

        Returns:
            What `alternates` takes from it, by layer; `output` finds the output in it.
        """
        values = {SEQUENCE: sequence}
        kept = {SEQUENCE: sequence} if SEQUENCE in self._kept else {}
        left = Counter(self._uses)
        for layer in self._layers:
            margins = [self._first[layer.name] - self._first[name] for name in layer.inputs]
            if isinstance(layer, Convolution):
                margins = [margins[0] - layer.reach]
            inputs = [
                values[name][:, margin : values[name].shape[1] - margin]
                for name, margin in zip(layer.inputs, margins, strict=True)
            ]
            is_last_use = left[layer.inputs[0]] == 1 and layer.inputs[0] not in self._kept
            value = self._apply(layer, inputs, may_overwrite=is_last_use)
            values[layer.name] = value
            if layer.name in self._kept:
                kept[layer.name] = value
            for name in layer.inputs:
                left[name] -= 1
                if not left[name]:
                    del values[name]
        return kept

    def output(self, kept: Mapping[str, Tensor]) -> Tensor:
        """The output of a pass over a stretch: float32 [1, positions - 2 * context, outputs]."""
        return kept[self._output]

    def alternates(self, kept: Mapping[str, Tensor], edits: Edits) -> Tensor:
        """What the network says of a stretch with each edit in turn.

        Args:
            kept: Of `reference`, over the stretch.
            edits: The edits.

        Returns:
            float32 [edits, before + after, outputs].
        """
        inserted = edits.inserted.shape[1]
        computed: dict[str, tuple[int, Tensor]] = {SEQUENCE: (0, edits.inserted)}
        left = Counter(self._uses)
        for layer in self._layers:
            # Places are counted along the edited sequence from the edit's start.
            need, reach = self._needs[layer.name], self._reaches[layer.name]
            low, high = max(-reach, -edits.before - need), min(inserted + reach, edits.after + need)
            if low < high:
                wide = layer.reach if isinstance(layer, Convolution) else 0
                inputs = [self._gather(name, low - wide, high + wide, kept, computed, edits) for name in layer.inputs]
                is_last_use = left[layer.inputs[0]] == 1
                computed[layer.name] = (low, self._apply(layer, inputs, may_overwrite=is_last_use))
            for name in layer.inputs:
                left[name] -= 1
                if not left[name]:
                    computed.pop(name, None)
        return self._gather(self._output, -edits.before, edits.after, kept, computed, edits)

    def _gather(
        self,
        name: str,
        low: int,
        high: int,
        kept: Mapping[str, Tensor],
        computed: Mapping[str, tuple[int, Tensor]],
        edits: Edits,
    ) -> Tensor:
        """A layer's values of all edits over [low, high): what was computed, and the reference's around it."""
        begin, changed = computed.get(name, (0, None))
        if changed is not None and begin <= low and high <= begin + changed.shape[1]:
            return changed if changed.shape[1] == high - low else changed[:, low - begin : high - begin]
        reach, inserted = self._reaches[name], edits.inserted.shape[1]
        # What the edit changes of the layer; none of it is missing from what was computed.
        first, last = min(max(-reach, low), high), max(min(inserted + reach, high), low)
        reference = kept[name][0]
        whole = reference.new_empty((len(edits.starts), high - low, reference.shape[1]))
        if changed is not None and first < last:
            whole[:, first - low : last - low] = changed[:, first - begin : last - begin]
        else:
            first = last = min(max(low, 0), high)
        for row, start in zip(whole, edits.starts, strict=True):
            at = start - self._first[name]
            row[: first - low] = reference[at + low : at + first]
            at += edits.deleted - inserted
            row[last - low :] = reference[at + last : at + high]
        return whole

    def _apply(self, layer: Layer, inputs: Sequence[Tensor], *, may_overwrite: bool) -> Tensor:
        """A layer's values from its inputs', the first of which may be overwritten if so said."""
        weights = self._weights
        if isinstance(layer, Convolution):
            # torch has kernels for two dimensions with the channels last that reach a machine's peak; those for one
            # dimension do not.
            planes = inputs[0].transpose(1, 2).unsqueeze(2)
            weight, bias, dilation = (
                weights[f"{layer.name}.weight"],
                weights[f"{layer.name}.bias"],
                (1, layer.dilation),
            )
            if self._uses_onednn:
                # conv2d takes another library for few positions, whose sums are not the same to the last bit.
                planes = torch.mkldnn_convolution(planes, weight, bias, (0, 0), (1, 1), dilation, 1)
            else:
                planes = functional.conv2d(planes, weight, bias, dilation=dilation)
            return planes.squeeze(2).transpose(1, 2)
        if isinstance(layer, Scaling):
            return torch.addcmul(weights[f"{layer.name}.shift"], inputs[0], weights[f"{layer.name}.scale"])
        if isinstance(layer, Sum):
            total = inputs[0] + inputs[1]
            for other in inputs[2:]:
                total += other
            return total
        if layer.function == "relu":
            return torch.relu_(inputs[0]) if may_overwrite else torch.relu(inputs[0])
        if layer.function == "sigmoid":
            return torch.sigmoid(inputs[0])
        return torch.softmax(inputs[0].float(), dim=-1)

    def _kept_layers(self) -> frozenset[str]:
        """The layers of whose values `alternates` may want more than an edit changes."""
        kept = {self._output}
        for layer in self._layers:
            if isinstance(layer, Convolution) and layer.reach:
                kept.add(layer.inputs[0])
            kept.update(name for name in layer.inputs if self._reaches[name] < self._reaches[layer.name])
        return frozenset(kept)


def _as_kernel(weight: Tensor) -> Tensor:
    return weight.unsqueeze(2).contiguous(memory_format=torch.channels_last)


def _check(network: Network, weights: Mapping[str, Tensor], letters: int) -> None:
    channels = network.channels("." * letters)
    for layer in network.layers:
        own = channels[layer.name]
        shapes: dict[str, tuple[int, ...]] = {}
        if isinstance(layer, Convolution):
            shapes = {"weight": (own, channels[layer.inputs[0]], layer.kernel), "bias": (own,)}
        elif isinstance(layer, Scaling):
            shapes = {"scale": (own,), "shift": (own,)}
        for what, shape in shapes.items():
            tensor = weights.get(f"{layer.name}.{what}")
            if tensor is None or tuple(tensor.shape) != shape or tensor.dtype != torch.float32:
                found = "none" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
                raise ModelLoadError(
                    f"network {network.name!r}: tensor {network.name}.{layer.name}.{what} must be float32 "
                    f"{list(shape)}; there is {found}"
                )


def _folded(network: Network, weights: Mapping[str, Tensor]) -> tuple[list[Layer], dict[str, Tensor]]:
    """The same function with every scaling that alone reads a convolution made part of its weights."""
    uses = Counter(name for layer in network.layers for name in layer.inputs)
    convolutions: dict[str, int] = {}
    layers: list[Layer] = []
    folded = {name: tensor.double() for name, tensor in weights.items()}
    for layer in network.layers:
        source = layer.inputs[0]
        if isinstance(layer, Scaling) and source in convolutions and uses[source] == 1:
            place = convolutions.pop(source)
            scale, shift = folded.pop(f"{layer.name}.scale"), folded.pop(f"{layer.name}.shift")
            weight, bias = folded.pop(f"{source}.weight"), folded.pop(f"{source}.bias")
            folded[f"{layer.name}.weight"] = weight * scale[:, None, None]
            folded[f"{layer.name}.bias"] = bias * scale + shift
            layers[place] = layers[place].model_copy(update={"name": layer.name})
            convolutions[layer.name] = place
            continue
        if isinstance(layer, Convolution):
            convolutions[layer.name] = len(layers)
        layers.append(layer)
    return layers, {name: tensor.float() for name, tensor in folded.items()}
