"""An inference as it lies in the body of an HTTP request, and its answer as a body.

Source: KServe v2, "Inference Request JSON Object"; Triton, "Binary Tensor Data Extension".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from serving.errors import InvalidArgumentError
from serving.protocol.inference import (
    Inference,
    Inferred,
    WantedOutput,
    read_num_classes,
    refuse_shared_memory,
)
from serving.protocol.parameters import Parameter, read_parameters
from serving.protocol.wire import WIRE_NAMES, Buffer, from_bytes, from_values, to_bytes, to_values
from serving.tensors import Tensors, is_float

HEADER_LENGTH = "Inference-Header-Content-Length"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A body in parts; `header_bytes` of it are JSON, None when all of it is."""

    parts: list[Buffer]
    header_bytes: int | None


def read_inference(model: str, version: int | None, body: memoryview, header_bytes: int | None) -> Inference:
    """Reads the body of an inference.

    Args:
        model: The model that the path names.
        version: The version that the path names, if it does.
        body: JSON, and behind it the tensors that are sent as bytes.
        header_bytes: Length of the JSON; None: all of the body.

    Raises:
        ServingError: It names the field, tensor or parameter at fault.
    """
    if header_bytes == 0:
        raise InvalidArgumentError(
            f"a raw request ({HEADER_LENGTH}: 0) is not supported: name the inputs in JSON", field=HEADER_LENGTH
        )
    if header_bytes is not None and header_bytes > len(body):
        raise InvalidArgumentError(
            f"{HEADER_LENGTH} is {header_bytes}, the body has {len(body)} bytes", field=HEADER_LENGTH
        )
    request = parse_object(body[:header_bytes])
    parameters = _parameters(request, "the request")
    all_binary = parameters.pop("binary_data_output", False) is True
    inputs, num_bytes = _read_inputs(request, body[header_bytes:] if header_bytes else body[:0])
    outputs = tuple(_read_wanted(output, all_binary) for output in _objects(request, "outputs"))
    return Inference(
        model=model,
        version=version,
        id=_text(request.get("id", ""), "id"),
        inputs=inputs,
        num_bytes=num_bytes,
        outputs=outputs or None,
        parameters=read_parameters(parameters),
        all_binary=all_binary,
    )


def write_inferred(inferred: Inferred) -> HttpAnswer:
    """The body of an answer; the binary tensors in it are the outputs' own memory.

    Raises:
        InvalidArgumentError: An output has no JSON form, and was not asked for as binary data.
    """
    inference, wanted = inferred.inference, inferred.wanted
    outputs: list[dict[str, Any]] = []
    tensors: list[Buffer] = []
    for name, array in inferred.outputs.items():
        output: dict[str, Any] = {"name": name, "datatype": WIRE_NAMES[array.dtype], "shape": array.shape}
        if wanted[name].is_binary if wanted else inference.all_binary:
            content = to_bytes(array)
            output["parameters"] = {"binary_data_size": len(content)}
            tensors.append(content)
        else:
            output["data"] = to_values(name, array)
        outputs.append(output)
    answer: dict[str, Any] = {"model_name": inference.model, "model_version": str(inferred.version)}
    if inference.id:
        answer["id"] = inference.id
    header = json.dumps({**answer, "outputs": outputs}, separators=(",", ":")).encode()
    return HttpAnswer([header, *tensors], len(header) if tensors else None)


def parse_object(text: Buffer) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InvalidArgumentError: It is not one.
    """
    try:
        value = json.loads(bytes(text), parse_constant=_refuse_constant)
        if _SURROGATE.search(text):
            # Halves of characters, written as escapes: no text, and nothing could be told of them.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the request is not JSON: {error or type(error).__name__}") from error
    if not isinstance(value, dict):
        raise InvalidArgumentError("the request must be a JSON object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it has no {name}; send such values as binary data")


def _read_inputs(request: Mapping[str, Any], binary: memoryview) -> tuple[Tensors, int]:
    """The inputs by name, and their bytes."""
    inputs: Tensors = {}
    num_bytes = start = 0
    for tensor in _objects(request, "inputs"):
        name = _text(tensor.get("name"), "an input's name")
        if name in inputs:
            raise InvalidArgumentError(f"input {name!r} is given twice", field=name)
        datatype = _text(tensor.get("datatype"), f"input {name!r}: datatype")
        shape = tensor.get("shape")
        if not isinstance(shape, list) or any(type(dim) is not int for dim in shape):
            raise InvalidArgumentError(f"input {name!r}: shape must be a list of whole numbers", field=name)
        parameters = _parameters(tensor, f"input {name!r}")
        refuse_shared_memory("input", name, parameters)
        size = parameters.get("binary_data_size")
        if size is None:
            array = from_values(name, datatype, shape, tensor.get("data"))
            if is_float(array.dtype) and not np.isfinite(array).all():
                raise InvalidArgumentError(f"input {name!r}: a value does not fit into {datatype}", field=name)
        elif type(size) is not int or not 0 <= size <= len(binary) - start:
            raise InvalidArgumentError(
                f"input {name!r}: binary_data_size is {size!r}, {len(binary) - start} bytes are left behind the JSON",
                field=name,
            )
        elif "data" in tensor:
            raise InvalidArgumentError(f"input {name!r}: has both data and binary_data_size", field=name)
        else:
            array = from_bytes(name, datatype, shape, binary[start : start + size])
            start += size
        inputs[name] = array
        num_bytes += array.nbytes
    if start != len(binary):
        raise InvalidArgumentError(
            f"{len(binary)} bytes lie behind the JSON, the inputs take {start}: binary_data_size or {HEADER_LENGTH} is "
            "wrong"
        )
    return inputs, num_bytes


def _read_wanted(output: Mapping[str, Any], all_binary: bool) -> WantedOutput:
    name = _text(output.get("name"), "an output's name")
    parameters = _parameters(output, f"output {name!r}")
    refuse_shared_memory("output", name, parameters)
    return WantedOutput(
        name, read_num_classes(name, parameters), is_binary=parameters.get("binary_data", all_binary) is True
    )


def _objects(request: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    values = request.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise InvalidArgumentError(f"{key} must be a list of JSON objects", field=key)
    return values


def _parameters(owner: Mapping[str, Any], where: str) -> dict[str, Parameter]:
    values = owner.get("parameters", {})
    if not isinstance(values, dict):
        raise InvalidArgumentError(f"{where}: parameters must be a JSON object", field="parameters")
    for name, value in values.items():
        if not isinstance(value, str | int | float | bool):
            raise InvalidArgumentError(
                f"{where}: parameter {name!r} must be a string, a number, true or false", field=name
            )
    return dict(values)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{what} must be a string, not {type(value).__name__}")
    return value
