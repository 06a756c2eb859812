"""Whether torch may use TF32 on GPUs: one switch for the whole process, so that all models must agree."""

from __future__ import annotations

import threading
from collections import Counter

import torch

from serving.backends.precision import allows_tf32
from serving.config import ModelConfig
from serving.errors import ModelLoadError

# How many loaded models have TF32 (True) and how many have not (False).
_users: Counter[bool] = Counter()
_lock = threading.Lock()


def take_tf32(config: ModelConfig) -> bool:
    """Sets the switch as a model's configuration says, until `release_tf32`.

    Raises:
        ModelLoadError: Models that are loaded have it the other way.
    """
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


def release_tf32(allowed: bool) -> None:
    """The model that took the switch is gone."""
    with _lock:
        _users[allowed] -= 1
