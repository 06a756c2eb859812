"""The tensorrt backend: an engine file (``model.plan``) on a GPU.

An engine runs on the kind of GPU and with the version of TensorRT that built it; `cc_model_filenames` names other files
for other compute capabilities. Its precision was settled when it was built. torch holds the tensors on the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from serving.backends.base import Backend, Device
from serving.backends.torch_tensors import to_numpy, to_torch
from serving.config import ModelConfig, Signature
from serving.errors import ModelLoadError
from serving.tensors import BF16, VARIABLE, Tensors, TensorSpec

try:
    import tensorrt
except ImportError as error:
    raise ImportError(f"it needs the package tensorrt (cohortflow[gpu]): {error}") from error

DEFAULT_FILE = "model.plan"


class TensorRtBackend(Backend):
    """An engine with an execution context of its own."""

    def __init__(self) -> None:
        self._runtime: Any = None
        self._engine: Any = None
        self._context: Any = None
        self._stream: Any = None
        self._device = torch.device("cpu")
        self._inputs: Sequence[TensorSpec] = ()
        self._outputs: Sequence[TensorSpec] = ()

    @classmethod
    def version(cls) -> str:
        """The version of TensorRT."""
        return f"tensorrt {tensorrt.__version__}"

    @classmethod
    def has_gpu(cls) -> bool:
        """Always: an engine runs on nothing else."""
        return True

    @classmethod
    def signature(cls, folder: Path, message: Any) -> Signature:
        """Tensors of the engine.

        Raises:
            ModelLoadError: The file is missing or no engine for this GPU and version, or there is no GPU.
        """
        index = next((gpu for group in message.instance_group for gpu in group.gpus), 0)
        _check_gpu(message.name, Device("gpu", index))
        with torch.cuda.device(index):
            _, engine = _open(folder, message, index)
            return engine_signature(message.name, engine)

    @classmethod
    def numerics(cls, config: ModelConfig, device: Device) -> dict[str, str]:
        """The kind of GPU: kernels are chosen for it."""
        is_there = device.index < torch.cuda.device_count()
        return {"provider": "tensorrt", "gpu": torch.cuda.get_device_name(device.index) if is_there else "none"}

    def load(self, folder: Path, config: ModelConfig, device: Device, threads: int) -> None:
        """Reads the engine and makes its context.

        Raises:
            ModelLoadError: It is asked to run on a CPU or in another precision, or as for `signature`.
        """
        if device.kind != "gpu":
            raise ModelLoadError(
                f"model {config.name!r}: instance_group.kind is KIND_CPU, but a TensorRT engine runs on a GPU only",
                field="instance_group",
            )
        for key in ("precision", "allow_tf32"):
            if key in config.parameters:
                raise ModelLoadError(
                    f"model {config.name!r}: parameter {key!r} is not supported by the tensorrt backend: an engine's "
                    "precision was settled when it was built",
                    field=f"parameters.{key}",
                )
        _check_gpu(config.name, device)
        self._device = torch.device(f"cuda:{device.index}")
        self._inputs, self._outputs = config.inputs, config.outputs
        with torch.cuda.device(self._device):
            self._runtime, self._engine = _open(folder, config.message, device.index)
            self._context = self._engine.create_execution_context()
            if self._context is None:
                raise ModelLoadError(f"model {config.name!r}: no memory on {device} for its execution context")
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def execute(self, inputs: Tensors) -> Tensors:
        """Runs the engine on a batch."""
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            # Kept until the stream is done: the engine only has their addresses.
            tensors = {}
            for spec in self._inputs:
                tensors[spec.name] = to_torch(inputs[spec.name]).to(self._device).contiguous()
                if not self._context.set_input_shape(spec.name, tuple(tensors[spec.name].shape)):
                    raise ValueError(f"input {spec.name!r}: no profile has the shape {list(tensors[spec.name].shape)}")
            for spec in self._outputs:
                shape = tuple(self._context.get_tensor_shape(spec.name))
                if any(n < 0 for n in shape):
                    raise ValueError(f"output {spec.name!r}: its shape depends on the data, which is not supported")
                tensors[spec.name] = torch.empty(shape, dtype=_torch_type(spec.dtype), device=self._device)
            for name, tensor in tensors.items():
                self._context.set_tensor_address(name, tensor.data_ptr())
            if not self._context.execute_async_v3(self._stream.cuda_stream):
                raise RuntimeError("TensorRT could not execute the batch")
            self._stream.synchronize()
            return {spec.name: to_numpy(tensors[spec.name], spec) for spec in self._outputs}

    def unload(self) -> None:
        """Drops context and engine."""
        self._context = self._engine = self._runtime = None


def engine_signature(model: str, engine: Any) -> Signature:
    """Tensors of an engine, with full shapes.

    Raises:
        ModelLoadError: It has several profiles, or a tensor that is no array on the GPU.
    """
    if engine.num_optimization_profiles > 1:
        raise ModelLoadError(
            f"model {model!r}: the engine has {engine.num_optimization_profiles} optimization profiles: build it with "
            "one, this server chooses none",
            field="instance_group.profile",
        )
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        if engine.is_shape_inference_io(name):
            raise ModelLoadError(
                f"model {model!r}: {name!r} is a shape tensor (is_shape_tensor), not supported by this server",
                field="is_shape_tensor",
            )
        kind = engine.get_tensor_dtype(name)
        dtype = BF16 if kind == tensorrt.DataType.BF16 else np.dtype(tensorrt.nptype(kind))
        spec = TensorSpec(name, dtype, tuple(VARIABLE if n < 0 else int(n) for n in engine.get_tensor_shape(name)))
        (inputs if engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT else outputs).append(spec)
    return Signature(tuple(inputs), tuple(outputs))


def _check_gpu(model: str, device: Device) -> None:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.index >= count:
        raise ModelLoadError(
            f"model {model!r}: a TensorRT engine needs a GPU and a torch that was built for CUDA; torch "
            f"{torch.__version__} sees {count} GPUs, the model runs on {device}",
            field="instance_group",
        )


def _open(folder: Path, message: Any, index: int) -> tuple[Any, Any]:
    where = f"model {message.name!r}"
    major, minor = torch.cuda.get_device_capability(index)
    names = dict(message.cc_model_filenames)
    path = folder / (names.get(f"{major}.{minor}") or message.default_model_filename or DEFAULT_FILE)
    if not path.is_file():
        raise ModelLoadError(f"{where}: {path} is missing", field="default_model_filename")
    # Engines that bring code for the host are not opened: it stays off unless it is asked for.
    runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.ERROR))
    engine = runtime.deserialize_cuda_engine(path.read_bytes())
    if engine is None:
        raise ModelLoadError(
            f"{where}: {path}: no engine that TensorRT {tensorrt.__version__} can run on "
            f"{torch.cuda.get_device_name(index)}; build it again with this version on this kind of GPU"
        )
    return runtime, engine


def _torch_type(dtype: Any) -> torch.dtype:
    kind: torch.dtype = getattr(torch, dtype.name)
    return kind
