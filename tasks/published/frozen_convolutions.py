"""Fully convolutional networks out of a frozen TensorFlow graph.

Batch normalisations stand there as sums and products of constants, dilated convolutions between a SpaceToBatchND and a
BatchToSpaceND, softmax as its steps. What computes sizes and paddings is passed over: no layer pads here.
"""

from __future__ import annotations

import numpy as np

from tasks.published.convolutions import Array, NetworkLayers
from tasks.published.publication import PublishedModelError
from tasks.published.tensorflow_graph import Node

# They change a value's form or place, not its numbers. A softmax is made at its last step, of what its first one reads.
_PASSING = frozenset(
    {
        "Identity",
        "ExpandDims",
        "Squeeze",
        "BatchToSpaceND",
        "StridedSlice",
        "Max",
        "Sub",
        "Exp",
        "Sum",
        "SpaceToBatchND",
    }
)
_FOLDED = {
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
}


class FrozenGraph:
    """Reads the networks whose answers a graph's last node is the mean of.

    Args:
        nodes: In the order of computation.
        file_name: For messages.
    """

    def __init__(self, nodes: list[Node], file_name: str) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._order = nodes
        self._file_name = file_name

    def networks(self) -> list[NetworkLayers]:
        """The networks, named ``1``, ``2``, ... in the order in which the mean takes them.

        Raises:
            PublishedModelError: The graph is no mean of convolutional networks.
        """
        mean = self._order[-1]
        while mean.operation == "Identity":
            mean = self._nodes[mean.inputs[0]]
        pack = self._nodes[mean.inputs[0]] if mean.operation == "Mean" else mean
        if pack.operation != "Pack":
            raise self._fault(pack, "the last step is no mean of networks")
        return [self._network(str(place), output) for place, output in enumerate(pack.inputs, 1)]

    def _network(self, name: str, output: str) -> NetworkLayers:
        network = NetworkLayers(name)
        layer_of: dict[str, str] = {}
        dilation_of: dict[str, int] = {}
        for node in self._ancestors(output):
            if self._constant(node.name) is not None:
                continue
            values = [layer_of[each] for each in node.inputs if each in layer_of]
            own = f"layer_{len(network.layers) + 1}"
            if node.operation == "Placeholder":
                layer_of[node.name] = "sequence"
            elif not values:
                continue  # sizes and paddings
            elif node.operation == "Conv2D":
                kernel = self._needed(node, 1)
                zeros = np.zeros(kernel.shape[-1], dtype=np.float32)
                dilation = dilation_of.get(self._nodes[node.inputs[0]].inputs[0], 1)
                network.convolve(own, values[0], kernel.reshape(kernel.shape[-3:]), zeros, dilation)
                layer_of[node.name] = own
            elif node.operation == "BiasAdd":
                network.tensors[f"{values[0]}.bias"] = self._needed(node, 1)
                layer_of[node.name] = values[0]
            elif node.operation == "Mul":
                scale = self._needed(node, 1)
                network.scale(own, values[0], scale, np.zeros_like(scale))
                layer_of[node.name] = own
            elif node.operation == "AddV2" and len(values) == 1:
                network.tensors[f"{values[0]}.shift"] = self._needed(node, 1)
                layer_of[node.name] = values[0]
            elif node.operation == "AddV2":
                network.add(own, values)
                layer_of[node.name] = own
            elif node.operation in ("Relu", "RealDiv"):
                network.activate(own, values[0], "relu" if node.operation == "Relu" else "softmax")
                layer_of[node.name] = own
            elif node.operation in _PASSING:
                layer_of[node.name] = values[0]
                if node.operation == "SpaceToBatchND":
                    dilation_of[node.name] = int(self._needed(node, 1)[0])
            elif node.operation != "Shape":
                raise self._fault(node, f"{node.operation} is no step of a convolutional network")
        return network

    def _ancestors(self, output: str) -> list[Node]:
        """What a node is computed from, and itself, in the order of computation."""
        wanted = {output}
        for node in reversed(self._order):
            if node.name in wanted:
                wanted.update(node.inputs)
        return [node for node in self._order if node.name in wanted]

    def _constant(self, name: str) -> Array | None:
        """What a node comes to where only constants lead to it, floats in float64; None elsewhere."""
        node = self._nodes[name]
        if node.constant is not None:
            is_float = node.constant.dtype == np.float32
            return node.constant.astype(np.float64) if is_float else node.constant
        if node.operation in ("Identity", "ExpandDims"):
            return self._constant(node.inputs[0])
        if node.operation == "Rsqrt":
            value = self._constant(node.inputs[0])
            return None if value is None else 1 / np.sqrt(value)
        if node.operation in _FOLDED:
            left, right = (self._constant(each) for each in node.inputs)
            if left is not None and right is not None:
                return np.asarray(_FOLDED[node.operation](left, right))
        return None

    def _needed(self, node: Node, place: int) -> Array:
        value = self._constant(node.inputs[place])
        if value is None:
            raise self._fault(node, f"{node.inputs[place]} is no constant")
        return value

    def _fault(self, node: Node, what: str) -> PublishedModelError:
        return PublishedModelError(f"{self._file_name}: {node.name}: {what}", reason="BAD_PACKAGE")
