"""An inference as a gRPC message, and its answer as one, with the tensors copied as little as can be.

A message is a row of fields, each with its number and length (Source: Protocol Buffers, "Encoding"): the fields that
hold tensors are cut out of a large request, and put behind the others of an answer, without being parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from serving.errors import InvalidArgumentError
from serving.protocol.inference import (
    Inference,
    Inferred,
    WantedOutput,
    read_num_classes,
    read_version,
    refuse_shared_memory,
)
from serving.protocol.parameters import Parameter, read_parameters
from serving.protocol.wire import TYPED_CONTENTS, WIRE_NAMES, Buffer, from_bytes, from_values, to_bytes
from serving.tensors import Tensor

# Below it, cutting costs more than the copies that it saves.
_CUT_BYTES = 64 << 10
_MAX_CUT_FIELDS = 1000
_BYTES_FIELD = 2
_SKIPPED_BYTES = {1: 8, 5: 4}
_RAW_INPUTS = service_pb2.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER << 3 | _BYTES_FIELD
_RAW_OUTPUTS = service_pb2.ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER << 3 | _BYTES_FIELD
_STREAMED = service_pb2.ModelStreamInferResponse.INFER_RESPONSE_FIELD_NUMBER << 3 | _BYTES_FIELD


class InferRequest:
    """A ``ModelInferRequest``: `message` without its tensors where they were cut out, and the tensors' bytes."""

    def __init__(self, serialized: bytes) -> None:
        """Parses what a client sent.

        Raises:
            InvalidArgumentError: It is no such message.
        """
        self.raw: Sequence[Buffer]
        try:
            cut = _cut(memoryview(serialized)) if len(serialized) >= _CUT_BYTES else None
            self.message = service_pb2.ModelInferRequest.FromString(serialized if cut is None else cut[0])
        except (ValueError, DecodeError) as error:
            raise InvalidArgumentError(f"the request is not a ModelInferRequest: {error}") from error
        self.raw = self.message.raw_input_contents if cut is None else cut[1]


def read_inference(request: InferRequest) -> Inference:
    """Reads an inference.

    Raises:
        ServingError: It names the tensor or parameter at fault.
    """
    message, raw = request.message, request.raw
    if raw and len(raw) != len(message.inputs):
        raise InvalidArgumentError(
            f"raw_input_contents has {len(raw)} entries for {len(message.inputs)} inputs", field="raw_input_contents"
        )
    inputs = {}
    num_bytes = 0
    for number, tensor in enumerate(message.inputs):
        name = tensor.name
        if name in inputs:
            raise InvalidArgumentError(f"input {name!r} is given twice", field=name)
        if tensor.parameters:
            refuse_shared_memory("input", name, tensor.parameters)
        if not raw:
            array = _read_contents(name, tensor)
        elif tensor.HasField("contents"):
            raise InvalidArgumentError(
                f"input {name!r}: contents must not be set beside raw_input_contents", field=name
            )
        else:
            array = from_bytes(name, tensor.datatype, tensor.shape, raw[number])
        inputs[name] = array
        num_bytes += array.nbytes
    return Inference(
        model=message.model_name,
        version=read_version(message.model_version),
        id=message.id,
        inputs=inputs,
        num_bytes=num_bytes,
        outputs=tuple(map(_read_wanted, message.outputs)) or None,
        parameters=read_parameters(plain_parameters(message.parameters)),
    )


def write_inferred(inferred: Inferred) -> list[Buffer]:
    """A serialized ``ModelInferResponse`` in parts, of which the tensors are the outputs' own memory."""
    inference = inferred.inference
    response = service_pb2.ModelInferResponse(
        model_name=inference.model, model_version=str(inferred.version), id=inference.id
    )
    if inference.parameters.wants_final_mark:
        response.parameters["triton_final_response"].bool_param = True
    tensors: list[Buffer] = []
    for name, array in inferred.outputs.items():
        response.outputs.add(name=name, datatype=WIRE_NAMES[array.dtype], shape=array.shape)
        content = to_bytes(array)
        tensors += [_varint(_RAW_OUTPUTS), _varint(len(content)), content]
    return [response.SerializeToString(), *tensors]


def write_streamed(parts: list[Buffer]) -> list[Buffer]:
    """A serialized ``ModelStreamInferResponse`` around a serialized ``ModelInferResponse``."""
    return [_varint(_STREAMED), _varint(sum(map(len, parts))), *parts]


def plain_parameters(parameters: Any) -> dict[str, Any]:
    """The values of a map of parameters.

    Raises:
        InvalidArgumentError: One has no value.
    """
    plain = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is None:
            raise InvalidArgumentError(f"parameter {name!r} has no value", field=name)
        plain[name] = getattr(parameter, kind)
    return plain


def _read_wanted(output: Any) -> WantedOutput:
    if not output.parameters:
        return WantedOutput(output.name)
    parameters: dict[str, Parameter] = plain_parameters(output.parameters)
    refuse_shared_memory("output", output.name, parameters)
    return WantedOutput(output.name, read_num_classes(output.name, parameters))


def _read_contents(name: str, tensor: Any) -> Tensor:
    field = TYPED_CONTENTS.get(tensor.datatype)
    filled = [one.name for one, _ in tensor.contents.ListFields()]
    if field is None or any(one != field for one in filled):
        where = filled[0] if filled else "contents"
        raise InvalidArgumentError(f"input {name!r}: {where} cannot hold {tensor.datatype!r}", field=name)
    return from_values(name, tensor.datatype, tensor.shape, list(getattr(tensor.contents, field)))


def _cut(message: memoryview) -> tuple[bytes, list[Buffer]] | None:
    """The message without its tensors, and those, as views; None when it has too many fields to look at each.

    Raises:
        ValueError: A field goes past the end.
    """
    rest: list[Buffer] = []
    tensors: list[Buffer] = []
    start = 0
    while start < len(message):
        if len(rest) + len(tensors) == _MAX_CUT_FIELDS:
            return None
        tag, place = _read_varint(message, start)
        kind = tag & 7
        if kind == _BYTES_FIELD:
            length, place = _read_varint(message, place)
            stop = place + length
        elif kind == 0:
            _, stop = _read_varint(message, place)
        elif kind in _SKIPPED_BYTES:
            stop = place + _SKIPPED_BYTES[kind]
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if stop > len(message):
            raise ValueError("a field goes past the message's end")
        if tag == _RAW_INPUTS:
            tensors.append(message[place:stop])
        else:
            rest.append(message[start:stop])
        start = stop
    return b"".join(rest), tensors


def _read_varint(message: memoryview, start: int) -> tuple[int, int]:
    """A number in groups of seven bits, lowest first, and where it ends."""
    value = 0
    for place in range(start, min(start + 10, len(message))):
        byte = message[place]
        value |= (byte & 0x7F) << 7 * (place - start)
        if byte < 0x80:
            return value, place + 1
    raise ValueError("a number has no end")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
