"""How a row's outputs lie in one string of bytes when some of them are text, whose elements have their own lengths."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from serving.tensors import BYTES, Tensor, Tensors, TensorSpec, bytes_array, content, from_content

_LENGTH = struct.Struct("<q")


class TextLayout:
    """Packs rows of some outputs: each one's row shape (int32 a dimension), its length (int64), its content."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._specs = specs
        self._shapes = [struct.Struct(f"<{len(spec.dims)}i") for spec in specs]

    def pack(self, outputs: Tensors, rows: int) -> list[bytes]:
        """Packs arrays [rows, *dims] into one string per row."""
        return [self._pack_row([outputs[spec.name][row] for spec in self._specs]) for row in range(rows)]

    def accepts(self, packed: bytes) -> bool:
        """Whether a string is such a row."""
        return self._unpack_row(packed) is not None

    def unpack(self, packed: Sequence[bytes]) -> Tensors | None:
        """Arrays [rows, *dims] of at least one packed row; None when their shapes differ."""
        rows = [self._unpack_row(row) for row in packed]
        outputs: Tensors = {}
        for place, spec in enumerate(self._specs):
            arrays = [row[place] for row in rows if row is not None]
            if len(arrays) != len(rows) or any(array.shape != arrays[0].shape for array in arrays):
                return None
            if spec.dtype == BYTES:
                elements = [element for array in arrays for element in array.reshape(-1).tolist()]
                outputs[spec.name] = bytes_array(elements, (len(rows), *arrays[0].shape))
            else:
                outputs[spec.name] = np.stack(arrays)
        return outputs

    def _pack_row(self, arrays: Sequence[Tensor]) -> bytes:
        parts = []
        for array, shape in zip(arrays, self._shapes, strict=True):
            text = content(np.asarray(array))
            parts += [shape.pack(*array.shape), _LENGTH.pack(len(text)), text]
        return b"".join(parts)

    def _unpack_row(self, packed: bytes) -> list[Tensor] | None:
        """The row's arrays; None when the string is no such row."""
        arrays = []
        at = 0
        for spec, layout in zip(self._specs, self._shapes, strict=True):
            start = at + layout.size + _LENGTH.size
            if start > len(packed):
                return None
            shape = layout.unpack_from(packed, at)
            (length,) = _LENGTH.unpack_from(packed, start - _LENGTH.size)
            at = start + length
            if length < 0 or at > len(packed) or any(n < 0 for n in shape) or not spec.fits(shape):
                return None
            array = from_content(packed[start:at], spec.dtype, shape)
            if array is None:
                return None
            arrays.append(array)
        return arrays if at == len(packed) else None
