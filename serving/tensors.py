"""Named tensors: what a model takes and gives, and whether arrays are that."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from serving.errors import InvalidArgumentError

Tensor = NDArray[Any]
Tensors = dict[str, Tensor]

VARIABLE = -1
"""A dimension whose length each request chooses (Triton's word for it in ``dims``)."""

_LENGTH = struct.Struct("<I")

BYTES = np.dtype(object)
"""Elements of TYPE_STRING: arrays of objects, each of them `bytes`."""

BF16 = np.dtype(ml_dtypes.bfloat16)

# Source: Triton model configuration, "Datatypes".
NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    "TYPE_BOOL": np.dtype(np.bool_),
    "TYPE_UINT8": np.dtype(np.uint8),
    "TYPE_UINT16": np.dtype(np.uint16),
    "TYPE_UINT32": np.dtype(np.uint32),
    "TYPE_UINT64": np.dtype(np.uint64),
    "TYPE_INT8": np.dtype(np.int8),
    "TYPE_INT16": np.dtype(np.int16),
    "TYPE_INT32": np.dtype(np.int32),
    "TYPE_INT64": np.dtype(np.int64),
    "TYPE_FP16": np.dtype(np.float16),
    "TYPE_FP32": np.dtype(np.float32),
    "TYPE_FP64": np.dtype(np.float64),
    "TYPE_STRING": BYTES,
    "TYPE_BF16": BF16,
}
TYPE_NAMES = {dtype: name for name, dtype in NUMPY_TYPES.items()}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, element type and dimensions of a tensor; `dims` without the batch dimension, -1 where a length is free.

    Attributes:
        model_dims: What the model file has in place of `dims` (Triton's ``reshape``); None: the same.
        is_optional: Whether requests may leave it out.
        is_ragged: Whether requests that differ in its dims may lie in one batch (Triton's ``allow_ragged_batch``).
    """

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int, ...]
    model_dims: tuple[int, ...] | None = None
    is_optional: bool = False
    is_ragged: bool = False

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a row of this shape is such a tensor."""
        return fits(self.dims, shape)

    @property
    def is_fixed(self) -> bool:
        """Whether every dimension has a given length."""
        return VARIABLE not in self.dims

    @property
    def row_bytes(self) -> int:
        """Bytes of one row; only of a fixed tensor whose elements have one size."""
        return self.dtype.itemsize * int(np.prod(self.dims, dtype=np.int64))

    def __str__(self) -> str:
        return f"{self.name} {type_word(self.dtype)}{list(self.dims)}"


def fits(dims: tuple[int, ...], shape: Sequence[int]) -> bool:
    """Whether a shape is one of those that dims allow."""
    return shape == dims or (
        len(shape) == len(dims) and all(want in (VARIABLE, have) for want, have in zip(dims, shape, strict=True))
    )


def to_model_shape(array: Tensor, spec: TensorSpec) -> Tensor:
    """Rows [rows, *dims] as the model has them, [rows, *model_dims]; the n-th free dimension stays the n-th."""
    return _reshape(array, spec.dims, spec.model_dims)


def from_model_shape(array: Tensor, spec: TensorSpec) -> Tensor:
    """Rows [rows, *model_dims] as requests have them, [rows, *dims]."""
    return array if spec.model_dims is None else _reshape(array, spec.model_dims, spec.dims)


def _reshape(array: Tensor, dims: tuple[int, ...], target: tuple[int, ...] | None) -> Tensor:
    if target is None:
        return array
    free = iter([have for want, have in zip(dims, array.shape[1:], strict=True) if want == VARIABLE])
    return array.reshape(array.shape[0], *(next(free) if dim == VARIABLE else dim for dim in target))


def type_word(dtype: np.dtype[Any]) -> str:
    """An element type, for messages."""
    return "bytes" if dtype == BYTES else dtype.name


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether elements can be NaN."""
    return dtype.kind == "f" or dtype == BF16


def content(array: Tensor) -> bytes:
    """What an array holds: equal for arrays of one type and shape exactly when all their elements have equal bytes.

    Source: Triton, "Binary tensor data": each element of TYPE_STRING is its length (uint32, little-endian), itself.
    """
    if array.dtype != BYTES:
        return array.tobytes()
    return b"".join([part for element in array.flat for part in (_LENGTH.pack(len(element)), element)])


def from_content(packed: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Tensor | None:
    """The array of this type and shape that `content` made these bytes of; None when there is none."""
    count = math.prod(shape)
    if dtype != BYTES:
        if len(packed) != count * dtype.itemsize:
            return None
        return np.frombuffer(packed, dtype).reshape(shape)
    elements: list[bytes] = []
    at = 0
    while at < len(packed) and len(elements) <= count:
        start = at + _LENGTH.size
        if start > len(packed):
            return None
        at = start + _LENGTH.unpack_from(packed, at)[0]
        elements.append(packed[start:at])
    if at != len(packed) or len(elements) != count:
        return None
    return bytes_array(elements, shape)


def bytes_array(elements: Sequence[bytes], shape: tuple[int, ...]) -> Tensor:
    """An array of TYPE_STRING of its elements in C order."""
    array = np.empty(len(elements), BYTES)
    array[:] = elements
    return array.reshape(shape)


def as_bytes(array: Tensor) -> Tensor | None:
    """Text of any kind (numpy's strings, objects that are `str` or `bytes`) as an array of `bytes`; None: it is not.

    Text becomes UTF-8.
    """
    if array.dtype.kind not in "OSU":
        return None
    elements = array.reshape(-1).tolist()
    if array.dtype == BYTES and all(type(element) is bytes for element in elements):
        return array
    if not all(isinstance(element, str | bytes) for element in elements):
        return None
    return bytes_array(
        [element.encode() if isinstance(element, str) else bytes(element) for element in elements], array.shape
    )


def check_inputs(
    model: str, specs: Sequence[TensorSpec], inputs: Mapping[str, Any], *, batched: bool
) -> tuple[Tensors, int]:
    """Checks a request's tensors against a model's inputs.

    Args:
        model: The model's name and version, for messages.
        specs: The model's inputs.
        inputs: Arrays by name, [rows, *dims] when `batched`, else [*dims].
        batched: Whether the arrays carry a batch dimension.

    Returns:
        The arrays, C-contiguous, all [rows, *dims] in the order of `specs` (one row when not `batched`), and rows.

    Raises:
        InvalidArgumentError: A tensor is missing or unknown, has another type or shape, or another number of rows.
    """
    known = [spec.name for spec in specs]
    for name in inputs:
        if name not in known:
            raise InvalidArgumentError(f"{model}: no input {name!r}; its inputs are {', '.join(known)}", field=name)
    checked: Tensors = {}
    rows: int | None = None
    for spec in specs:
        if spec.name not in inputs:
            if spec.is_optional:
                continue
            raise InvalidArgumentError(f"{model}: input {spec.name!r} is missing", field=spec.name)
        array = np.asarray(inputs[spec.name])
        if spec.dtype == BYTES:
            array = _check_bytes(model, spec, array)
        elif array.dtype != spec.dtype:
            raise InvalidArgumentError(
                f"{model}: input {spec.name!r} must be {type_word(spec.dtype)}, not {type_word(array.dtype)}",
                field=spec.name,
            )
        if not batched:
            array = array[np.newaxis]
        if array.ndim == 0 or not spec.fits(array.shape[1:]):
            want = (["rows"] if batched else []) + [str(dim) for dim in spec.dims]
            have = array.shape if batched else array.shape[1:]
            raise InvalidArgumentError(
                f"{model}: input {spec.name!r} must have the shape [{', '.join(want)}], not {list(have)}",
                field=spec.name,
            )
        if rows is not None and array.shape[0] != rows:
            raise InvalidArgumentError(
                f"{model}: input {spec.name!r} has {array.shape[0]} rows, {next(iter(checked))!r} has {rows}",
                field=spec.name,
            )
        rows = array.shape[0]
        checked[spec.name] = np.ascontiguousarray(array)
    if not checked:
        raise InvalidArgumentError(f"{model}: the request has no input; its inputs are {', '.join(known)}")
    return checked, rows or 0


def _check_bytes(model: str, spec: TensorSpec, array: Tensor) -> Tensor:
    text = as_bytes(array)
    if text is None:
        raise InvalidArgumentError(
            f"{model}: input {spec.name!r} must hold bytes or text, not {array.dtype.name}", field=spec.name
        )
    return text


def select_outputs(model: str, specs: Sequence[TensorSpec], names: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the outputs a request wants, in the model's order; all of them when it names none.

    Raises:
        InvalidArgumentError: The model has no such output.
    """
    known = [spec.name for spec in specs]
    if names is None:
        return tuple(known)
    for name in names:
        if name not in known:
            raise InvalidArgumentError(f"{model}: no output {name!r}; its outputs are {', '.join(known)}", field=name)
    return tuple(name for name in known if name in names)
