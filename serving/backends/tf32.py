"""Whether torch may use TF32 on GPUs: one switch for the whole process, so that all models must agree."""

from __future__ import annotations

import threading
from collections import Counter

import torch

from serving.backends.base import Device
from serving.backends.precision import allows_tf32
from serving.config import ModelConfig
from serving.errors import ModelLoadError

# How many loaded models have TF32 (True) and how many have not (False).
_users: Counter[bool] = Counter()
_lock = threading.Lock()


def take_tf32(config: ModelConfig, device: Device) -> bool | None:
    """Sets the switch as the configuration of a model on a GPU says, until `release_tf32` of what this returns.

    Raises:
        ModelLoadError: Models that are loaded have it the other way.
    """
    if device.kind != "gpu":
        return None
    allowed = allows_tf32(config)
    with _lock:
        if _users[not allowed]:
            raise ModelLoadError(
                f"model {config.name!r}: parameter 'allow_tf32' is {str(allowed).lower()}, but torch has one switch "
                "for a process, and models that are loaded have it the other way",
                field="parameters.allow_tf32",
            )
        _users[allowed] += 1
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.backends.cudnn.allow_tf32 = allowed
    return allowed


def release_tf32(allowed: bool | None) -> None:
    """The model that took the switch is gone; None: it had not."""
    if allowed is not None:
        with _lock:
            _users[allowed] -= 1
