"""The torch backend: ``model.pt2`` (a `torch.export` program), or ``model.safetensors`` for a named module.

A named module is a class in an installed package, given by the parameter ``module`` ("package.module:Class") and built
with the JSON object in the parameter ``module_arguments``. It, or the exported program, is called with the inputs by
name and gives a dict of outputs, or a tensor or a tuple of them in the order of the configuration.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from serving.backends.base import Backend, Device
from serving.backends.pt2 import read_archive
from serving.backends.tf32 import release_tf32, take_tf32
from serving.backends.torch_device import computing, torch_device, torch_numerics, torch_precision
from serving.backends.torch_tensors import to_numpy, to_torch
from serving.config import ModelConfig, Signature
from serving.errors import ModelLoadError
from serving.tensors import BF16, BYTES, VARIABLE, Tensors, TensorSpec

PT2_FILE = "model.pt2"
SAFETENSORS_FILE = "model.safetensors"

# Source: torch/_export/serde/schema.py, ScalarType.
_SCALAR_TYPES: dict[int, Any] = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    12: "bool",
    13: BF16,
}


class TorchBackend(Backend):
    """A module on a CPU or a GPU."""

    def __init__(self) -> None:
        self._module: Any = None
        self._device = torch.device("cpu")
        self._precision: torch.dtype | None = None
        self._tf32: bool | None = None
        self._outputs: Sequence[TensorSpec] = ()
        self._positional: Sequence[str] = ()

    @classmethod
    def version(cls) -> str:
        """The version of torch."""
        return f"torch {torch.__version__}"

    @classmethod
    def has_gpu(cls) -> bool:
        """Whether torch sees a GPU."""
        return torch.cuda.is_available()

    @classmethod
    def signature(cls, folder: Path, message: Any) -> Signature | None:
        """Tensors of an exported program; a safetensors file says nothing of its module's.

        Raises:
            ModelLoadError: The file is missing, or its archive is refused.
        """
        path = _file(folder, message)
        if path.suffix != ".pt2":
            return None
        program, _ = read_archive(path)
        try:
            return _signature(program, [tensor.name for tensor in message.output])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ModelLoadError(
                f"model {message.name!r}: {path}: its inputs and outputs are not plain tensors: "
                f"{type(error).__name__}: {error}"
            ) from error

    @classmethod
    def numerics(cls, config: ModelConfig, device: Device) -> dict[str, str]:
        """Device kind, precision, and the source of a named module."""
        numerics = torch_numerics(config, device)
        if "module" in config.parameters:
            source = inspect.getsourcefile(_module_class(config))
            numerics["module_sha256"] = hashlib.sha256(Path(source).read_bytes() if source else b"").hexdigest()
        return numerics

    def load(self, folder: Path, config: ModelConfig, device: Device, threads: int) -> None:
        """Builds the module and its weights.

        Raises:
            ModelLoadError: The file is refused, module and weights do not fit, or there is no such GPU.
        """
        where = f"model {config.name!r}"
        text = next((spec for spec in (*config.inputs, *config.outputs) if spec.dtype == BYTES), None)
        if text is not None:
            raise ModelLoadError(f"{where}: {text}: torch has no TYPE_STRING", field=text.name)
        self._device = torch_device(config, device)
        self._precision = torch_precision(config)
        torch.set_num_threads(threads)
        self._outputs = config.outputs
        path = _file(folder, config.message)
        try:
            if path.suffix == ".pt2":
                program, archive = read_archive(path)
                self._positional = _positional_names(program)
                self._module = torch.export.load(io.BytesIO(archive)).module().to(self._device)
            else:
                self._module = _named_module(config, path).eval().to(self._device)
        except ModelLoadError:
            raise
        except Exception as error:
            raise ModelLoadError(f"{where}: {path}: torch cannot load it: {error}") from error
        # Last: a model that cannot be loaded holds no switch.
        self._tf32 = take_tf32(config, device)

    def execute(self, inputs: Tensors) -> Tensors:
        """Calls the module on a batch."""
        with computing(self._device, self._precision):
            tensors = {name: to_torch(array).to(self._device) for name, array in inputs.items()}
            positional = [tensors.pop(name) for name in self._positional]
            outputs = self._module(*positional, **tensors)
        if isinstance(outputs, torch.Tensor):
            outputs = (outputs,)
        if not isinstance(outputs, dict):
            outputs = dict(zip((spec.name for spec in self._outputs), outputs, strict=True))
        return {spec.name: to_numpy(outputs[spec.name], spec) for spec in self._outputs if spec.name in outputs}

    def unload(self) -> None:
        """Drops the module and its weights."""
        self._module = None
        release_tf32(self._tf32)
        self._tf32 = None


def _file(folder: Path, message: Any) -> Path:
    said = str(message.default_model_filename)
    names = [said] if said else [PT2_FILE, SAFETENSORS_FILE]
    for name in names:
        path = folder / name
        if path.suffix not in (".pt2", ".safetensors"):
            raise ModelLoadError(
                f"model {message.name!r}: {path}: only .pt2 and .safetensors are opened, nothing that is unpickled",
                field="default_model_filename",
            )
        if path.is_file():
            return path
    raise ModelLoadError(
        f"model {message.name!r}: {folder} has no {' or '.join(names)}", field="default_model_filename"
    )


def _signature(program: Any, output_names: Sequence[str]) -> Signature:
    graph = program["graph_module"]["graph"]
    signature = program["graph_module"]["signature"]
    call = program["graph_module"]["module_call_graph"][0]["signature"]
    inputs = [
        spec["user_input"]["arg"]["as_tensor"]["name"] for spec in signature["input_specs"] if "user_input" in spec
    ]
    outputs = [spec["user_output"]["arg"]["as_tensor"]["name"] for spec in signature["output_specs"]]
    out_spec = json.loads(call["out_spec"])[1]
    if out_spec["type"] == "builtins.dict":
        names = json.loads(out_spec["context"])
    else:
        names = output_names or [f"output_{i}" for i in range(len(outputs))]
    return Signature(
        tuple(
            _spec(name, graph["tensor_values"][value])
            for name, value in zip(call["forward_arg_names"], inputs, strict=True)
        ),
        tuple(_spec(name, graph["tensor_values"][value]) for name, value in zip(names, outputs, strict=True)),
    )


def _positional_names(program: Any) -> Sequence[str]:
    """The inputs that an exported program takes by position: it insists on the way it was exported with."""
    call = program["graph_module"]["module_call_graph"][0]["signature"]
    arguments, _ = json.loads(call["in_spec"])[1]["children_spec"]
    names: Sequence[str] = call["forward_arg_names"][: len(arguments["children_spec"])]
    return names


def _spec(name: str, value: Any) -> TensorSpec:
    return TensorSpec(
        name, np.dtype(_SCALAR_TYPES[value["dtype"]]), tuple(size.get("as_int", VARIABLE) for size in value["sizes"])
    )


def _module_class(config: ModelConfig) -> type[torch.nn.Module]:
    """The class named by the parameter ``module``.

    Raises:
        ModelLoadError: No such parameter, module or class, or it is no torch.nn.Module.
    """
    name = config.parameters.get("module", "")
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ModelLoadError(
            f"model {config.name!r}: parameter 'module' is {name!r}, not \"package.module:Class\": {error}",
            field="parameters.module",
        ) from error
    if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
        raise ModelLoadError(
            f"model {config.name!r}: parameter 'module': {name} is no torch.nn.Module", field="parameters.module"
        )
    return found


def _named_module(config: ModelConfig, path: Path) -> torch.nn.Module:
    from safetensors.torch import load_file

    module: torch.nn.Module = _module_class(config)(**json.loads(config.parameters.get("module_arguments", "{}")))
    module.load_state_dict(load_file(path))
    return module
