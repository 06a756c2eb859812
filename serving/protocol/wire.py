"""Tensors as KServe v2 writes them: little-endian bytes, JSON values, and the typed lists of gRPC.

Source: KServe v2, "Tensor Data"; Triton, "Binary Tensor Data Extension". A string (``BYTES``) is its length in four
bytes, then itself.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from serving.errors import InvalidArgumentError
from serving.tensors import BYTES, NUMPY_TYPES, Tensor, bytes_array, is_float
from serving.tensors import content as packed_bytes

Buffer = bytes | bytearray | memoryview

MAX_RANK = 32
_MAX_LENGTH = (1 << 63) - 1


def _wire_name(type_name: str) -> str:
    """KServe's name of a type of ``config.pbtxt``: TYPE_FP32 is FP32, TYPE_STRING is BYTES."""
    return "BYTES" if type_name == "TYPE_STRING" else type_name.removeprefix("TYPE_")


WIRE_TYPES: dict[str, np.dtype[Any]] = {_wire_name(name): dtype for name, dtype in NUMPY_TYPES.items()}
"""KServe's names of element types."""
WIRE_NAMES = {dtype: name for name, dtype in WIRE_TYPES.items()}
# Python types of JSON values by numpy kind; whole numbers for all others.
_VALUES: dict[str, tuple[type, ...]] = {"b": (bool,), "f": (int, float)}
_LENGTH = struct.Struct("<I")

# The lists of `InferTensorContents` that may hold a type; half precision travels as raw bytes alone.
TYPED_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def from_bytes(name: str, datatype: str, shape: Sequence[int], content: Buffer) -> Tensor:
    """Reads an input from its bytes; numbers are not copied where they lie aligned.

    Raises:
        InvalidArgumentError: Unknown type, impossible shape, or another number of bytes than these take.
    """
    dtype, count = _expect(name, datatype, shape)
    if dtype == BYTES:
        return _shaped(name, _split_strings(name, shape, count, content), shape)
    if len(content) != count * dtype.itemsize:
        raise InvalidArgumentError(
            f"input {name!r}: {datatype} {list(shape)} takes {count * dtype.itemsize} bytes, {len(content)} came",
            field=name,
        )
    array: Tensor = np.frombuffer(content, dtype)
    if not array.flags.aligned:
        array = array.copy()
    if dtype == np.bool_ and (array.view(np.uint8) > 1).any():
        raise InvalidArgumentError(f"input {name!r}: a byte of a BOOL must be 0 or 1", field=name)
    return _shaped(name, array, shape)


def from_values(name: str, datatype: str, shape: Sequence[int], values: Any) -> Tensor:
    """Reads an input from values: a list, flat or nested, row by row.

    Raises:
        InvalidArgumentError: Unknown type, impossible shape, another number of values, or values of another type.
    """
    dtype, count = _expect(name, datatype, shape)
    flat = _flatten(name, values)
    if len(flat) != count:
        raise InvalidArgumentError(
            f"input {name!r}: {datatype} {list(shape)} takes {count} values, {len(flat)} came", field=name
        )
    if dtype == BYTES:
        strings = [value.encode() if isinstance(value, str) else value for value in flat]
        if not all(isinstance(value, bytes) for value in strings):
            raise InvalidArgumentError(f"input {name!r}: a value of BYTES must be a string", field=name)
        return _shaped(name, bytes_array(strings, (count,)), shape)
    if datatype not in TYPED_CONTENTS:
        raise InvalidArgumentError(f"input {name!r}: {datatype} must be sent as binary data", field=name)
    if wrong := set(map(type, flat)).difference(_VALUES.get(dtype.kind, (int,))):
        raise InvalidArgumentError(
            f"input {name!r}: a value of {datatype} cannot be a {min(kind.__name__ for kind in wrong)}", field=name
        )
    try:
        with np.errstate(over="raise"):
            return _shaped(name, np.array(flat, dtype), shape)
    except (OverflowError, FloatingPointError) as error:
        raise InvalidArgumentError(f"input {name!r}: a value does not fit into {datatype}", field=name) from error


def to_bytes(array: Tensor) -> Buffer:
    """The bytes of an output; numbers are not copied where they lie in row-major order."""
    if array.dtype == BYTES:
        return packed_bytes(array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def to_values(name: str, array: Tensor) -> list[Any]:
    """An output as a flat list for JSON.

    Raises:
        InvalidArgumentError: Its type, a value that is not finite or a string that is not UTF-8 has no JSON form.
    """
    if array.dtype == BYTES:
        try:
            return [value.decode() for value in array.flat]
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(
                f"output {name!r}: holds bytes that are not UTF-8; ask for binary data", field=name
            ) from error
    if WIRE_NAMES[array.dtype] not in TYPED_CONTENTS:
        raise InvalidArgumentError(
            f"output {name!r}: {WIRE_NAMES[array.dtype]} has no JSON form; ask for binary data", field=name
        )
    if is_float(array.dtype) and not np.isfinite(array).all():
        raise InvalidArgumentError(
            f"output {name!r}: holds values that are not finite, which JSON has not; ask for binary data", field=name
        )
    values: list[Any] = array.reshape(-1).tolist()
    return values


def _expect(name: str, datatype: str, shape: Sequence[int]) -> tuple[np.dtype[Any], int]:
    """Type and number of elements."""
    dtype = WIRE_TYPES.get(datatype)
    if dtype is None:
        raise InvalidArgumentError(
            f"input {name!r}: datatype {datatype!r} is none of {', '.join(WIRE_TYPES)}", field=name
        )
    if len(shape) > MAX_RANK or any(not 0 <= dim <= _MAX_LENGTH for dim in shape):
        raise InvalidArgumentError(
            f"input {name!r}: shape {list(shape[:MAX_RANK])} must be at most {MAX_RANK} lengths, none below 0 or above "
            f"{_MAX_LENGTH}",
            field=name,
        )
    return dtype, math.prod(shape)


def _shaped(name: str, array: Tensor, shape: Sequence[int]) -> Tensor:
    try:
        return array.reshape(tuple(shape))
    except (ValueError, OverflowError) as error:
        # Reached by a length of 0 beside absurd ones.
        raise InvalidArgumentError(f"input {name!r}: shape {list(shape)} is too large", field=name) from error


def _split_strings(name: str, shape: Sequence[int], count: int, content: Buffer) -> Tensor:
    """Strings one after the other, [count]."""
    size = len(content)
    # Each takes its length's four bytes: a hostile count allocates nothing.
    strings: list[bytes] = []
    start = 0
    while start < size and len(strings) < count:
        stop = start + _LENGTH.size
        if stop <= size:
            stop += _LENGTH.unpack_from(content, start)[0]
        if stop > size:
            raise InvalidArgumentError(
                f"input {name!r}: string {len(strings)} goes past the end of its {size} bytes", field=name
            )
        strings.append(bytes(content[start + _LENGTH.size : stop]))
        start = stop
    if len(strings) != count or start != size:
        raise InvalidArgumentError(
            f"input {name!r}: BYTES {list(shape)} takes {count} strings, {len(strings)} came in the first {start} of "
            f"{size} bytes",
            field=name,
        )
    return bytes_array(strings, (count,))


def _flatten(name: str, values: Any) -> list[Any]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise InvalidArgumentError(f"input {name!r}: data must be a list", field=name)
    flat = list(values)
    while flat and isinstance(flat[0], list):
        if any(not isinstance(part, list) for part in flat):
            raise InvalidArgumentError(f"input {name!r}: data mixes values and lists", field=name)
        flat = list(chain.from_iterable(flat))
    return flat
