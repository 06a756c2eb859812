"""How a row's outputs lie in one string of bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from serving.cache.text_layout import TextLayout
from serving.tensors import BYTES, Tensors, TensorSpec


def row_layout(specs: Sequence[TensorSpec]) -> RowLayout | TextLayout:
    """The layout of rows of some outputs."""
    return TextLayout(specs) if any(spec.dtype == BYTES for spec in specs) else RowLayout(specs)


class RowLayout:
    """Packs rows of some outputs: the lengths of their free dimensions (int32 each), then the outputs' bytes."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._specs = specs
        self._num_free = sum(dim < 0 for spec in specs for dim in spec.dims)
        self._header = struct.Struct(f"<{self._num_free}i")

    def pack(self, outputs: Tensors, rows: int) -> list[bytes]:
        """Packs arrays [rows, *dims] into one string per row."""
        if rows == 1 and not self._num_free:
            arrays = [outputs[spec.name] for spec in self._specs]
            return [arrays[0].tobytes() if len(arrays) == 1 else b"".join([array.tobytes() for array in arrays])]
        free = [
            n for spec in self._specs for n, dim in zip(outputs[spec.name].shape[1:], spec.dims, strict=True) if dim < 0
        ]
        header = self._header.pack(*free)
        columns = [np.frombuffer(header, np.uint8)[np.newaxis].repeat(rows, axis=0)] if header else []
        for spec in self._specs:
            array = np.ascontiguousarray(outputs[spec.name])
            columns.append(array.reshape(rows, array.size // rows).view(np.uint8))
        content = (columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)).tobytes()
        width = len(content) // rows
        return [content[start : start + width] for start in range(0, rows * width, width)]

    def accepts(self, packed: bytes) -> bool:
        """Whether a string has the length that its header asks for."""
        if len(packed) < self._header.size:
            return False
        shapes = self._shapes(packed)
        return shapes is not None and len(packed) == self._header.size + sum(
            spec.dtype.itemsize * int(np.prod(shape)) for spec, shape in zip(self._specs, shapes, strict=True)
        )

    def unpack(self, packed: Sequence[bytes]) -> Tensors | None:
        """Arrays [rows, *dims] of at least one packed row; None when their shapes differ."""
        header = packed[0][: self._header.size]
        if header and any(row[: len(header)] != header for row in packed):
            return None
        shapes = self._shapes(header) or []
        matrix = np.frombuffer(b"".join(packed), np.uint8).reshape(len(packed), -1)
        outputs: Tensors = {}
        start = self._header.size
        for spec, shape in zip(self._specs, shapes, strict=True):
            stop = start + spec.dtype.itemsize * int(np.prod(shape))
            column = np.ascontiguousarray(matrix[:, start:stop])
            outputs[spec.name] = column.view(spec.dtype).reshape(len(packed), *shape)
            start = stop
        return outputs

    def _shapes(self, packed: bytes) -> list[tuple[int, ...]] | None:
        """Row shapes of the outputs by a packed row's header; None when a length is negative."""
        free = iter(self._header.unpack_from(packed))
        shapes = [tuple(next(free) if dim < 0 else dim for dim in spec.dims) for spec in self._specs]
        return None if any(n < 0 for shape in shapes for n in shape) else shapes
