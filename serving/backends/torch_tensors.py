"""Arrays as torch has them, and back."""

from __future__ import annotations

import numpy as np
import torch

from serving.tensors import BF16, Tensor, TensorSpec, is_float


def to_torch(array: Tensor) -> torch.Tensor:
    """An array as a tensor in the CPU's memory; it may share it."""
    # torch warns of, and may write through, memory that numpy holds read-only.
    array = array if array.flags.writeable else array.copy()
    if array.dtype == BF16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(tensor: torch.Tensor, spec: TensorSpec) -> Tensor:
    """A tensor as an array; floats become the spec's type, for a model may compute in another precision."""
    tensor = tensor.detach()
    if is_float(spec.dtype) and tensor.is_floating_point():
        tensor = tensor.to(getattr(torch, spec.dtype.name))
    tensor = tensor.cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(BF16)
    return tensor.numpy()
