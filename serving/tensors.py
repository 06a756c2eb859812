"""Named tensors: what a model takes and gives, and whether arrays are that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.errors import InvalidArgumentError

Tensor = NDArray[Any]
Tensors = dict[str, Tensor]

VARIABLE = -1
"""A dimension whose length each request chooses (Triton's word for it in ``dims``)."""

# Source: Triton model configuration, "Datatypes". TYPE_STRING and TYPE_BF16 have no plain numpy type and are refused.
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
}
TYPE_NAMES = {dtype: name for name, dtype in NUMPY_TYPES.items()}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, element type and dimensions of a tensor; `dims` without the batch dimension, -1 where a length is free."""

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int, ...]

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a row of this shape is such a tensor."""
        return shape == self.dims or (
            len(shape) == len(self.dims)
            and all(want in (VARIABLE, have) for want, have in zip(self.dims, shape, strict=True))
        )

    @property
    def is_fixed(self) -> bool:
        """Whether every dimension has a given length."""
        return VARIABLE not in self.dims

    @property
    def row_bytes(self) -> int:
        """Bytes of one row; only of a fixed tensor."""
        return self.dtype.itemsize * int(np.prod(self.dims, dtype=np.int64))

    def __str__(self) -> str:
        return f"{self.name} {self.dtype.name}{list(self.dims)}"


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
            raise InvalidArgumentError(f"{model}: input {spec.name!r} is missing", field=spec.name)
        array = np.asarray(inputs[spec.name])
        if array.dtype != spec.dtype:
            raise InvalidArgumentError(
                f"{model}: input {spec.name!r} must be {spec.dtype.name}, not {array.dtype.name}", field=spec.name
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
    return checked, rows or 0


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
