"""Tensors of a torch file, by torch's restricted reader: it builds tensors and plain containers, nothing else."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tasks.published.publication import PublishedModelError


def read_tensors(content: bytes, name: str, key: str | None = None) -> dict[str, npt.NDArray[Any]]:
    """Reads the named tensors of a torch file.

    Args:
        content: The file.
        name: Its name, for messages.
        key: Under which the file's dict holds them; None: it is them.

    Raises:
        PublishedModelError: It is no such file, or it names anything beside tensors and plain containers.
    """
    try:
        loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError) as error:
        raise PublishedModelError(f"{name}: not tensors alone: {error}", reason="BAD_PACKAGE") from error
    tensors = loaded.get(key) if key and isinstance(loaded, dict) else loaded
    if not isinstance(tensors, dict) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        raise PublishedModelError(f"{name}: holds no tensors by name", reason="BAD_PACKAGE")
    return {str(each): np.asarray(value.numpy()) for each, value in tensors.items()}
