"""The tensors that a Python model takes and gives."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from serving.backends.python.error import TritonModelException
from serving.tensors import BF16, TYPE_NAMES, as_bytes
from serving.tensors import Tensor as Array

_CPU = 1
"""Source: DLPack, kDLCPU."""


class Tensor:
    """A named tensor (Triton's ``pb_utils.Tensor``).

    It lies in numpy's memory, or in that of another library (`from_dlpack`), on a GPU perhaps. An input must not be
    written to: other requests may look at the same memory.
    """

    def __init__(self, name: str, numpy_array: Array) -> None:
        if not isinstance(numpy_array, np.ndarray):
            raise TritonModelException(f"Tensor {name!r}: needs a numpy array, not {type(numpy_array).__name__}")
        if numpy_array.dtype.kind in "OSU":
            text = as_bytes(numpy_array)
            if text is None:
                raise TritonModelException(f"Tensor {name!r}: its objects must be bytes or str")
            numpy_array = text
        if numpy_array.dtype not in TYPE_NAMES:
            raise TritonModelException(f"Tensor {name!r}: Triton has no type for numpy's {numpy_array.dtype}")
        self._name = name
        self._array = numpy_array
        self._foreign: Any = None

    @classmethod
    def from_dlpack(cls, name: str, tensor: Any) -> Tensor:
        """A tensor in the memory of another library: anything with ``__dlpack__``; a capsule takes torch."""
        if not hasattr(tensor, "__dlpack__"):
            import torch.utils.dlpack

            tensor = torch.utils.dlpack.from_dlpack(tensor)
        made = cls.__new__(cls)
        made._name = name
        made._foreign = None
        try:
            made._array = np.from_dlpack(tensor)
        except (BufferError, RuntimeError, TypeError, ValueError):
            # Of another device, or of a type that numpy does not take: bfloat16, or a tensor that has gradients.
            made._foreign = _detached(tensor)
            if made.is_cpu():
                made._array = _from_torch(made._foreign)
                made._foreign = None
        return made

    def name(self) -> str:
        """Its name."""
        return self._name

    def as_numpy(self) -> Array:
        """The array; TYPE_STRING is objects that are `bytes`, TYPE_BF16 is ``ml_dtypes.bfloat16``.

        Raises:
            TritonModelException: It is on a GPU.
        """
        if self._foreign is not None:
            raise TritonModelException(f"Tensor {self._name!r} is stored in GPU and cannot be converted to NumPy.")
        return self._array

    def on_host(self) -> Array:
        """The array, copied from the GPU if it is there."""
        return self._array if self._foreign is None else _from_torch(self._foreign.cpu())

    def is_cpu(self) -> bool:
        """Whether it is in the CPU's memory."""
        return self._foreign is None or int(self._foreign.__dlpack_device__()[0]) == _CPU

    def triton_dtype(self) -> str:
        """Triton's name of its type."""
        if self._foreign is not None:
            return TYPE_NAMES[np.dtype(_numpy_type(self._foreign))]
        return TYPE_NAMES[self._array.dtype]

    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple((self._array if self._foreign is None else self._foreign).shape)

    def to_dlpack(self) -> Any:
        """A DLPack capsule."""
        return self.__dlpack__()

    def __dlpack__(self, **options: Any) -> Any:
        if self._foreign is not None:
            return self._foreign.__dlpack__(**options)
        if self._array.dtype == BF16:
            import torch

            return torch.from_numpy(self._writeable().view(np.int16)).view(torch.bfloat16).__dlpack__()
        if self._array.dtype.kind == "O":
            raise TritonModelException(f"Tensor {self._name!r}: DLPack has no TYPE_STRING")
        return self._writeable().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self._foreign is not None:
            kind, index = self._foreign.__dlpack_device__()
            return int(kind), int(index)
        return _CPU, 0

    def _writeable(self) -> Array:
        # Few libraries take memory that is read-only.
        return self._array if self._array.flags.writeable else self._array.copy()


def _detached(tensor: Any) -> Any:
    import torch.utils.dlpack

    return tensor.detach() if isinstance(tensor, torch.Tensor) else torch.utils.dlpack.from_dlpack(tensor)


def _numpy_type(tensor: Any) -> Any:
    name = str(tensor.dtype).removeprefix("torch.")
    return ml_dtypes.bfloat16 if name == "bfloat16" else name


def _from_torch(tensor: Any) -> Array:
    import torch

    if tensor.dtype == torch.bfloat16:
        array: Array = tensor.contiguous().view(torch.int16).numpy()
        return array.view(BF16)
    result: Array = tensor.numpy()
    return result
