"""The keras backend: Keras 3 on torch, for ``model.keras`` and for the old ``model.h5``.

Weights alone (``model.weights.h5``) need the parameter ``module`` ("package.module:function"): a function in an
installed package that builds the model, called with the JSON object in the parameter ``module_arguments``. Inputs and
outputs have the model's own names. Files are checked before Keras opens them (`keras_file`): a Lambda layer, or
anything else that carries code, is refused.
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from serving.backends.base import Backend, Device
from serving.backends.tf32 import release_tf32, take_tf32
from serving.backends.torch_device import computing, torch_device, torch_numerics, torch_precision
from serving.backends.torch_tensors import to_numpy, to_torch
from serving.config import ModelConfig, Signature
from serving.errors import ModelLoadError
from serving.tensors import BF16, VARIABLE, Tensors, TensorSpec

# Keras chooses what it computes with when it is first imported.
os.environ.setdefault("KERAS_BACKEND", "torch")

import keras

from serving.backends.keras_file import H5_SUFFIXES, KERAS_SUFFIX, checked_copy

KERAS_FILES = ("model.keras", "model.h5", "model.weights.h5")
_WEIGHTS_SUFFIX = ".weights.h5"


class KerasBackend(Backend):
    """A Keras model on a CPU or a GPU."""

    def __init__(self) -> None:
        self._model: Any = None
        self._device = torch.device("cpu")
        self._precision: torch.dtype | None = None
        self._tf32: bool | None = None
        self._inputs: Sequence[str] = ()
        self._outputs: Sequence[TensorSpec] = ()
        self._names: Sequence[str] = ()

    @classmethod
    def version(cls) -> str:
        """The versions of Keras and torch."""
        return f"keras {keras.__version__} torch {torch.__version__}"

    @classmethod
    def has_gpu(cls) -> bool:
        """Whether torch sees a GPU."""
        return torch.cuda.is_available()

    @classmethod
    def signature(cls, folder: Path, message: Any) -> Signature:
        """Tensors of the model.

        Raises:
            ModelLoadError: The file is missing, refused, or has inputs that are no plain tensors.
        """
        model = _open(folder, message)
        inputs = [_spec(message.name, tensor.name, tensor) for tensor in model.inputs]
        outputs = [
            _spec(message.name, name, tensor) for name, tensor in zip(_output_names(model), model.outputs, strict=True)
        ]
        return Signature(tuple(inputs), tuple(outputs))

    @classmethod
    def numerics(cls, config: ModelConfig, device: Device) -> dict[str, str]:
        """Device kind and precision."""
        return torch_numerics(config, device)

    def load(self, folder: Path, config: ModelConfig, device: Device, threads: int) -> None:
        """Builds the model and its weights.

        Raises:
            ModelLoadError: The file is refused or wrong, or there is no such GPU.
        """
        self._device = torch_device(config, device)
        self._precision = torch_precision(config)
        torch.set_num_threads(threads)
        # Keras cannot build every model inside of `keras.device`.
        self._model = _open(folder, config.message).to(self._device)
        self._inputs = [tensor.name for tensor in self._model.inputs]
        self._names = _output_names(self._model)
        self._outputs = config.outputs
        # Last: a model that cannot be loaded holds no switch.
        self._tf32 = take_tf32(config, device)

    def execute(self, inputs: Tensors) -> Tensors:
        """Calls the model on a batch."""
        with computing(self._device, self._precision), _on(self._device):
            tensors = [to_torch(inputs[name]).to(self._device) for name in self._inputs]
            structure = getattr(self._model, "input", None)
            given = tensors[0] if structure is None else keras.tree.pack_sequence_as(structure, tensors)
            outputs = keras.tree.flatten(self._model(given, training=False))
        by_name = dict(zip(self._names, outputs, strict=True))
        return {spec.name: to_numpy(by_name[spec.name], spec) for spec in self._outputs}

    def unload(self) -> None:
        """Drops the model and its weights."""
        self._model = None
        release_tf32(self._tf32)
        self._tf32 = None


def _on(device: torch.device) -> AbstractContextManager[Any]:
    scope: AbstractContextManager[Any] = keras.device("cpu:0" if device.type == "cpu" else f"gpu:{device.index}")
    return scope


def _open(folder: Path, message: Any) -> Any:
    where = f"model {message.name!r}"
    if keras.backend.backend() != "torch":
        raise ModelLoadError(
            f"{where}: Keras computes with {keras.backend.backend()} in this process, not with torch: "
            "set KERAS_BACKEND=torch before it is imported",
            field="backend",
        )
    path = _file(folder, message)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            copy = checked_copy(path, Path(scratch))
            if path.name.endswith(_WEIGHTS_SUFFIX):
                model = _build(message)
                model.load_weights(copy)
            else:
                model = keras.saving.load_model(copy, compile=False, safe_mode=True)
        except ModelLoadError as error:
            raise ModelLoadError(f"{where}: {error.message}", field=error.field) from error
        except Exception as error:
            raise ModelLoadError(f"{where}: {path}: Keras cannot load it: {error}") from error
    if not getattr(model, "inputs", None) or not getattr(model, "outputs", None):
        raise ModelLoadError(f"{where}: {path}: a model without inputs and outputs of its own cannot be served")
    return model


def _build(message: Any) -> Any:
    """What the function named by the parameter ``module`` builds."""
    parameters = {key: value.string_value for key, value in message.parameters.items()}
    name = parameters.get("module", "")
    module, _, attribute = name.partition(":")
    try:
        build = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ModelLoadError(
            f"weights alone need a model: parameter 'module' is {name!r}, not \"package.module:function\": {error}",
            field="parameters.module",
        ) from error
    return build(**json.loads(parameters.get("module_arguments", "{}")))


def _file(folder: Path, message: Any) -> Path:
    said = str(message.default_model_filename)
    for name in [said] if said else KERAS_FILES:
        path = folder / name
        if path.suffix not in (KERAS_SUFFIX, *H5_SUFFIXES):
            raise ModelLoadError(
                f"model {message.name!r}: {path}: only {KERAS_SUFFIX} and {', '.join(H5_SUFFIXES)} are opened",
                field="default_model_filename",
            )
        if path.is_file():
            return path
    raise ModelLoadError(
        f"model {message.name!r}: {folder} has no {said or ' or '.join(KERAS_FILES)}", field="default_model_filename"
    )


def _output_names(model: Any) -> list[str]:
    names = getattr(model, "output_names", None) or [model.layers[-1].name]
    return [str(name) for name in names]


def _spec(model: str, name: str, tensor: Any) -> TensorSpec:
    dtype = BF16 if tensor.dtype == "bfloat16" else np.dtype(tensor.dtype)
    if getattr(tensor, "sparse", False) or getattr(tensor, "ragged", False) or dtype.kind in "OSU":
        raise ModelLoadError(f"model {model!r}: tensor {name!r} is sparse, ragged or text: not supported", field=name)
    return TensorSpec(name, dtype, tuple(VARIABLE if dim is None else int(dim) for dim in tensor.shape))
