"""Rows of different lengths in one batch: which models take them, and to what length rows are padded.

A model takes them when the parameter ``lengths_input`` of its config.pbtxt names the input through which it learns how
much of a row is real. Requests do not send that input, the server fills it:

    input [ { name: "tokens" data_type: TYPE_UINT8 dims: [ -1 ] },
            { name: "lengths" data_type: TYPE_INT32 dims: [ 1 ] } ]
    parameters { key: "lengths_input" value { string_value: "lengths" } }

With dims [1] it holds each row's length, with dims [-1] a mask: 1 where the row is, 0 where it is padded. All free
dimensions of a request's inputs have this one length, and those of its outputs are cut back to it. Padding is zeros.
``max_padding_ratio`` (share of a batch's tokens that may be padding, 0-1) and ``max_batch_tokens`` (padding included)
are limits that no batch of several requests exceeds. A model without ``lengths_input`` is never given a padded row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serving.errors import InvalidArgumentError, ModelLoadError
from serving.tensors import VARIABLE, Tensors, TensorSpec

LENGTHS_INPUT = "lengths_input"
MAX_PADDING_RATIO = "max_padding_ratio"
MAX_BATCH_TOKENS = "max_batch_tokens"
_SHORTEST_STEP = 16


@dataclass(frozen=True, slots=True)
class Padding:
    """How a model takes padded rows.

    Attributes:
        input: The input that the server fills with lengths ([1]) or a mask ([-1]).
        free: Axis of the first free dimension of each request input that has one, counted in [rows, *dims].
        max_ratio: Largest share of padding among a batch's tokens.
        max_tokens: Largest number of tokens in a batch; 0: any.
    """

    input: TensorSpec
    free: tuple[tuple[str, int], ...]
    max_ratio: float = 1.0
    max_tokens: int = 0

    def length(self, label: str, specs: Sequence[TensorSpec], inputs: Tensors) -> int:
        """The length of a request's rows.

        Raises:
            InvalidArgumentError: Its free dimensions have different lengths.
        """
        name, axis = self.free[0]
        length: int = inputs[name].shape[axis]
        for spec in specs:
            shape = inputs[spec.name].shape[1:]
            if any(want == VARIABLE and have != length for want, have in zip(spec.dims, shape, strict=True)):
                raise InvalidArgumentError(
                    f"{label}: input {spec.name!r} has the shape {list(shape)}, {name!r} has the length {length}: "
                    "all free dimensions of a request must have one length",
                    field=spec.name,
                )
        return length

    def fill(self, lengths: np.ndarray, padded: int) -> np.ndarray:
        """The input that the server fills, for rows of these lengths ([rows]) padded to `padded`."""
        if self.input.is_fixed:
            return lengths[:, np.newaxis].astype(self.input.dtype)
        return (np.arange(padded) < lengths[:, np.newaxis]).astype(self.input.dtype)


@dataclass(frozen=True, slots=True)
class LengthSteps:
    """The lengths that rows are padded to, where equal rows get equal bytes.

    With a `multiple`, any multiple of it does, and rows of all lengths may meet; without one the padded length is a
    step that only the row's own length decides (16, 24, 32, 48, 64, ...), and rows of one step may meet.
    """

    multiple: int | None = 1

    def up(self, length: int) -> int:
        """The shortest length that a row of this length is padded to."""
        if self.multiple is not None:
            return -(-length // self.multiple) * self.multiple
        step = _SHORTEST_STEP
        while step < length:
            step *= 2
        return 3 * step // 4 if step > _SHORTEST_STEP and 3 * step // 4 >= length else step

    def group(self, length: int) -> int:
        """Rows of equal groups may lie in one batch."""
        return 0 if self.multiple is not None else self.up(length)


def read_padding(
    where: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    parameters: Mapping[str, str],
    *,
    batched: bool,
) -> Padding | None:
    """How a configuration says that the model takes padded rows; None: not at all.

    Raises:
        ModelLoadError: The parameters do not fit the inputs.
    """
    name = parameters.get(LENGTHS_INPUT)
    ratio, tokens = parameters.get(MAX_PADDING_RATIO), parameters.get(MAX_BATCH_TOKENS)
    if name is None:
        for key, value in ((MAX_PADDING_RATIO, ratio), (MAX_BATCH_TOKENS, tokens)):
            if value is not None:
                raise ModelLoadError(
                    f"{where}: parameter {key!r} needs the parameter {LENGTHS_INPUT!r}", field=f"parameters.{key}"
                )
        return None
    field = f"parameters.{LENGTHS_INPUT}"
    spec = next((spec for spec in inputs if spec.name == name), None)
    if spec is None or spec.dims not in ((1,), (VARIABLE,)) or spec.dtype.kind not in "iufb":
        raise ModelLoadError(
            f"{where}: parameter {LENGTHS_INPUT!r} is {name!r}, which is no input of numbers with dims [1] or [-1]",
            field=field,
        )
    free = tuple(
        (other.name, 1 + other.dims.index(VARIABLE)) for other in inputs if other is not spec and not other.is_fixed
    )
    if not free or not batched:
        raise ModelLoadError(
            f"{where}: parameter {LENGTHS_INPUT!r} needs a max_batch_size and another input with a free dimension (-1)",
            field=field,
        )
    return Padding(
        spec,
        free,
        _number(where, MAX_PADDING_RATIO, ratio, 1.0) if ratio is not None else 1.0,
        int(_number(where, MAX_BATCH_TOKENS, tokens, float("inf"))) if tokens is not None else 0,
    )


def pad_rows(parts: Sequence[np.ndarray], dims: Sequence[int], rows: int, length: int) -> np.ndarray:
    """One array [rows, *dims] of rows of several lengths, their free dimensions padded to `length` with zeros.

    Rows past those of the parts are copies of the last one.
    """
    first = parts[0]
    shape = (rows, *(length if dim == VARIABLE else dim for dim in dims))
    whole = np.full(shape, b"", first.dtype) if first.dtype.kind == "O" else np.zeros(shape, first.dtype)
    start = 0
    for part in parts:
        stop = start + len(part)
        whole[(slice(start, stop), *map(slice, part.shape[1:]))] = part
        start = stop
    whole[start:] = whole[start - 1]
    return whole


def cut_rows(array: np.ndarray, dims: Sequence[int], start: int, stop: int, length: int) -> np.ndarray:
    """Rows of a padded batch, their free dimensions cut back to `length`: a view."""
    return array[(slice(start, stop), *(slice(length if dim == VARIABLE else None) for dim in dims))]


def _number(where: str, key: str, text: str, largest: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= largest or number != number:
        raise ModelLoadError(
            f"{where}: parameter {key!r} is {text!r}, not a number from 0 to {largest:g}", field=f"parameters.{key}"
        )
    return number
