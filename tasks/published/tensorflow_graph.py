"""The nodes of a frozen TensorFlow graph, read by protobuf alone.

Only the fields of the messages that are needed are described; protobuf skips the others. Source: TensorFlow,
core/framework/{graph,node_def,attr_value,tensor,tensor_shape}.proto.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from tasks.published.convolutions import Array
from tasks.published.publication import PublishedModelError

# Message: {field: (number, type, is repeated)}; a type in capitals is a message.
_MESSAGES: dict[str, dict[str, tuple[int, str, bool]]] = {
    "Dim": {"size": (1, "int64", False)},
    "Shape": {"dim": (2, "Dim", True)},
    "Tensor": {
        "dtype": (1, "int32", False),
        "shape": (2, "Shape", False),
        "content": (4, "bytes", False),
        "floats": (5, "float", True),
        "ints": (7, "int32", True),
    },
    "AttributeList": {"ints": (3, "int64", True)},
    "Attribute": {"list": (1, "AttributeList", False), "text": (2, "bytes", False), "tensor": (8, "Tensor", False)},
    "AttributeEntry": {"key": (1, "string", False), "value": (2, "Attribute", False)},
    "Node": {
        "name": (1, "string", False),
        "operation": (2, "string", False),
        "inputs": (3, "string", True),
        "attributes": (5, "AttributeEntry", True),
    },
    "Graph": {"nodes": (1, "Node", True)},
}
_DTYPES = {1: np.dtype(np.float32), 3: np.dtype(np.int32)}
_PACKAGE = "cohortflow.tensorflow"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a graph.

    Attributes:
        name: Its name.
        operation: What it does.
        inputs: The nodes that it reads, by name; control inputs left out.
        constant: The value of a constant.
    """

    name: str
    operation: str
    inputs: tuple[str, ...]
    constant: Array | None


def read_graph(content: bytes, file_name: str) -> list[Node]:
    """Reads the nodes of a GraphDef in the file's order, which is that of computation.

    Raises:
        PublishedModelError: It is no GraphDef, or a constant is of a type or size that no network's is.
    """
    graph = _graph_type()()
    try:
        graph.ParseFromString(content)
    except message.DecodeError as error:
        raise PublishedModelError(f"{file_name}: not a TensorFlow graph: {error}", reason="BAD_PACKAGE") from error
    return [_node(each, file_name) for each in graph.nodes]


def _node(found: Any, file_name: str) -> Node:
    constant = None
    if found.operation == "Const":
        tensor = next(entry.value.tensor for entry in found.attributes if entry.key == "value")
        constant = _array(tensor, f"{file_name}: {found.name}")
    inputs = tuple(name.partition(":")[0] for name in found.inputs if not name.startswith("^"))
    return Node(found.name, found.operation, inputs, constant)


def _array(tensor: Any, where: str) -> Array:
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise PublishedModelError(f"{where}: a constant of type {tensor.dtype}", reason="BAD_PACKAGE")
    shape = [dim.size for dim in tensor.shape.dim]
    if tensor.content:
        values = np.frombuffer(tensor.content, dtype.newbyteorder("<"))
    else:
        values = np.array(tensor.floats if dtype == np.float32 else tensor.ints, dtype=dtype)
        if values.size == 1:
            values = np.repeat(values, int(np.prod(shape)))
    try:
        return values.reshape(shape)
    except ValueError as error:
        raise PublishedModelError(f"{where}: {error}", reason="BAD_PACKAGE") from error


@cache
def _graph_type() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="cohortflow/graph.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for field, (number, kind, is_repeated) in fields.items():
            one = described.field.add(name=field, number=number)
            one.label = one.LABEL_REPEATED if is_repeated else one.LABEL_OPTIONAL
            if kind in _MESSAGES:
                one.type, one.type_name = one.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                one.type = getattr(one, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Graph"))
