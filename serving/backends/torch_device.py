"""Where torch computes and how exactly: for all backends that stand on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from serving.backends.base import Device
from serving.backends.precision import allows_tf32, read_precision
from serving.config import ModelConfig
from serving.errors import ModelLoadError

_TYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def torch_numerics(config: ModelConfig, device: Device) -> dict[str, str]:
    """What decides the numbers beside weights and versions: device kind, precision, TF32."""
    return {
        "provider": device.kind,
        "precision": read_precision(config),
        "tf32": str(device.kind == "gpu" and allows_tf32(config)),
    }


def torch_device(config: ModelConfig, device: Device) -> torch.device:
    """The device by torch's name.

    Raises:
        ModelLoadError: There is no such GPU.
    """
    if device.kind == "cpu":
        return torch.device("cpu")
    if device.index >= torch.cuda.device_count():
        raise ModelLoadError(
            f"model {config.name!r}: runs on {device}, but torch {torch.__version__} sees "
            f"{torch.cuda.device_count()} GPUs",
            field="instance_group",
        )
    return torch.device(f"cuda:{device.index}")


def torch_precision(config: ModelConfig) -> torch.dtype | None:
    """The type that a model computes in by autocast; None: its own.

    Raises:
        ModelLoadError: The configuration names no precision.
    """
    return _TYPES[read_precision(config)]


@contextmanager
def computing(device: torch.device, precision: torch.dtype | None) -> Iterator[None]:
    """Computes without gradients, in a precision of `torch_precision`."""
    with (
        torch.inference_mode(),
        torch.autocast(device.type, dtype=precision or torch.bfloat16, enabled=precision is not None),
    ):
        yield
