"""The onnxruntime backend: ONNX files on a CPU, or on a GPU through CUDA or TensorRT."""

from __future__ import annotations

import ctypes
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from serving.backends.base import Backend, Device
from serving.backends.gpus import count_gpus
from serving.backends.precision import allows_tf32, read_precision
from serving.config import ModelConfig, Signature
from serving.errors import ModelLoadError
from serving.tensors import BF16, BYTES, VARIABLE, Tensor, Tensors, TensorSpec, as_bytes

DEFAULT_FILE = "model.onnx"

_ELEMENT_TYPES: dict[str, Any] = {
    "tensor(bool)": "bool",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(string)": BYTES,
    "tensor(bfloat16)": BF16,
}

_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
_NEEDED = {
    "openvino": "the package onnxruntime-openvino in place of onnxruntime",
    "cuda": "the package onnxruntime-gpu in place of onnxruntime",
    "tensorrt": "the packages onnxruntime-gpu (in place of onnxruntime) and tensorrt",
}
# Source: Triton's onnxruntime_backend README, "Model Config Options". Those of no use here are refused.
_REFUSED_PARAMETERS = frozenset(
    {
        "execution_mode",
        "inter_op_thread_count",
        "memory.enable_memory_arena_shrinkage",
        "enable_mem_arena",
        "enable_mem_pattern",
        "cudnn_conv_algo_search",
        "gpu_mem_limit",
        "session.use_device_allocator_for_initializers",
    }
)
_GRAPH_LEVELS = {
    -1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    0: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


class OnnxRuntimeBackend(Backend):
    """An inference session."""

    is_shareable = True

    def __init__(self) -> None:
        self._session: Any = None
        self._outputs: list[str] = []
        self._text: frozenset[str] = frozenset()
        self._has_bf16 = False

    @classmethod
    def version(cls) -> str:
        """The version of onnxruntime."""
        return f"onnxruntime {onnxruntime.__version__}"

    @classmethod
    def has_gpu(cls) -> bool:
        """Whether onnxruntime was built for CUDA and the driver shows a GPU."""
        return _PROVIDERS["cuda"] in onnxruntime.get_available_providers() and count_gpus() > 0

    @classmethod
    def signature(cls, folder: Path, message: Any) -> Signature:
        """Tensors of the ONNX graph.

        Raises:
            ModelLoadError: No such file, not an ONNX graph, or a tensor of a type that numpy has not.
        """
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        session = _open(_file(folder, message), options, [_PROVIDERS["cpu"]], message.name)
        return Signature(
            tuple(_spec(tensor, message.name) for tensor in session.get_inputs()),
            tuple(_spec(tensor, message.name) for tensor in session.get_outputs()),
        )

    @classmethod
    def numerics(cls, config: ModelConfig, device: Device) -> dict[str, str]:
        """Execution providers and their options."""
        return {name: repr(sorted(options.items())) for name, options in _providers(config, device)}

    def load(self, folder: Path, config: ModelConfig, device: Device, threads: int) -> None:
        """Opens the session.

        Raises:
            ModelLoadError: An execution provider is not in this installation or finds no device, or the file is wrong.
        """
        where = f"model {config.name!r}"
        for key in config.parameters:
            if key in _REFUSED_PARAMETERS:
                raise ModelLoadError(
                    f"{where}: parameter {key!r} is not supported by this server", field=f"parameters.{key}"
                )
        level = config.message.optimization.graph.level
        if level not in _GRAPH_LEVELS:
            raise ModelLoadError(
                f"{where}: optimization.graph.level {level} is not one of {sorted(_GRAPH_LEVELS)}",
                field="optimization.graph.level",
            )
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = _GRAPH_LEVELS[level]
        options.intra_op_num_threads = _count(config, "intra_op_thread_count", threads)
        options.inter_op_num_threads = 1
        options.use_deterministic_compute = True
        # The arena keeps the memory of the largest batch, which max_batch_size bounds, and halves the time of a small
        # model; planning ahead (mem_pattern) would keep more for every batch size.
        options.enable_cpu_mem_arena = True
        options.enable_mem_pattern = False
        # Idle threads sleep: the cores belong to other work of the process.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        providers = _providers(config, device)
        available = onnxruntime.get_available_providers()
        names = {provider: name for name, provider in _PROVIDERS.items()}
        for provider, _ in providers:
            if provider not in available:
                raise ModelLoadError(
                    f"{where}: runs on {device} with {provider}, which this onnxruntime lacks; "
                    f"install {_NEEDED[names[provider]]}",
                    field="instance_group",
                )
        session = _open(_file(folder, config.message), options, providers, config.name)
        if session.get_providers()[0] != providers[0][0]:
            raise ModelLoadError(
                f"{where}: {providers[0][0]} was not taken (onnxruntime uses {', '.join(session.get_providers())}): "
                f"no usable {device}, or its driver and libraries do not fit",
                field="instance_group",
            )
        self._session = session
        self._outputs = [spec.name for spec in config.outputs]
        specs = (*config.inputs, *config.outputs)
        self._text = frozenset(spec.name for spec in specs if spec.dtype == BYTES)
        self._has_bf16 = any(spec.dtype == BF16 for spec in specs)

    def execute(self, inputs: Tensors) -> Tensors:
        """Runs the graph on a batch."""
        if self._text:
            inputs = {name: _to_text(array) if name in self._text else array for name, array in inputs.items()}
        if self._has_bf16:
            values = self._session.run_with_ort_values(
                self._outputs, {name: _to_value(array) for name, array in inputs.items()}
            )
            arrays = [_from_value(value) for value in values]
        else:
            arrays = self._session.run(self._outputs, inputs)
        outputs = dict(zip(self._outputs, arrays, strict=True))
        for name in self._text.intersection(outputs):
            text = as_bytes(outputs[name])
            assert text is not None
            outputs[name] = text
        return outputs

    def unload(self) -> None:
        """Drops the session and its weights."""
        self._session = None


def _file(folder: Path, message: Any) -> Path:
    path = folder / (message.default_model_filename or DEFAULT_FILE)
    if not path.is_file():
        raise ModelLoadError(f"model {message.name!r}: {path} is missing", field="default_model_filename")
    return path


def _open(path: Path, options: Any, providers: list[Any], model: str) -> Any:
    try:
        return onnxruntime.InferenceSession(str(path), sess_options=options, providers=providers)
    except Exception as error:
        # onnxruntime raises a dozen classes that share no base of their own.
        raise ModelLoadError(f"model {model!r}: {path}: onnxruntime cannot load it: {error}") from error


def _to_text(array: Tensor) -> Tensor:
    """Onnxruntime's strings are text: bytes must be UTF-8."""
    text = np.empty(array.size, object)
    text[:] = [element.decode() for element in array.reshape(-1).tolist()]
    return text.reshape(array.shape)


def _to_value(array: Tensor) -> Any:
    if array.dtype == BF16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), onnx.TensorProto.BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _from_value(value: Any) -> Tensor:
    if value.data_type() != "tensor(bfloat16)":
        return np.asarray(value.numpy())
    # onnxruntime hands bfloat16 out to nobody but DLPack, which numpy does not take: its memory is copied.
    shape = tuple(value.shape())
    size = math.prod(shape) * BF16.itemsize
    return np.frombuffer(ctypes.string_at(value.data_ptr(), size), BF16).reshape(shape)


def _spec(tensor: Any, model: str) -> TensorSpec:
    if tensor.type not in _ELEMENT_TYPES:
        raise ModelLoadError(
            f"model {model!r}: tensor {tensor.name!r} is a {tensor.type}, which is not supported by this server",
            field=tensor.name,
        )
    dims = tuple(dim if isinstance(dim, int) else VARIABLE for dim in tensor.shape)
    return TensorSpec(tensor.name, np.dtype(_ELEMENT_TYPES[tensor.type]), dims)


def _count(config: ModelConfig, key: str, default: int) -> int:
    text = config.parameters.get(key, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise ModelLoadError(
            f"model {config.name!r}: parameter {key!r} is {text!r}, not a positive number", field=f"parameters.{key}"
        )
    return int(text)


def _providers(config: ModelConfig, device: Device) -> list[tuple[str, dict[str, Any]]]:
    """Execution providers in order of preference, with their options.

    Source: Triton's onnxruntime_backend README, "execution_accelerators"; onnxruntime, "Execution Providers".

    Raises:
        ModelLoadError: An accelerator that is not one of ours, or a parameter of it that we do not pass on.
    """
    accelerators = config.message.optimization.execution_accelerators
    precision = read_precision(config)
    chosen: list[tuple[str, dict[str, Any]]] = []
    if device.kind == "gpu":
        for accelerator in accelerators.gpu_execution_accelerator:
            if accelerator.name not in ("tensorrt", "cuda"):
                raise _unknown(config, "gpu", accelerator.name)
            if accelerator.name == "tensorrt":
                chosen.append((_PROVIDERS["tensorrt"], _tensorrt_options(config, accelerator.parameters, device)))
        chosen.append((_PROVIDERS["cuda"], {"device_id": device.index, "use_tf32": int(allows_tf32(config))}))
    else:
        for accelerator in accelerators.cpu_execution_accelerator:
            if accelerator.name != "openvino":
                raise _unknown(config, "cpu", accelerator.name)
            chosen.append((_PROVIDERS["openvino"], _openvino_options(config, accelerator.parameters)))
    if precision != "fp32" and (not chosen or chosen[0][0] in (_PROVIDERS["cuda"], _PROVIDERS["cpu"])):
        raise ModelLoadError(
            f"model {config.name!r}: parameter 'precision' is {precision!r}, which onnxruntime has with the execution "
            "accelerators tensorrt and openvino only; or export the graph in that precision",
            field="parameters.precision",
        )
    chosen.append((_PROVIDERS["cpu"], {}))
    return chosen


def _tensorrt_options(config: ModelConfig, parameters: Any, device: Device) -> dict[str, Any]:
    precision = read_precision(config)
    options: dict[str, Any] = {"device_id": device.index}
    if precision != "fp32":
        options[f"trt_{precision}_enable"] = True
    for key, value in sorted(parameters.items()):
        if key == "precision_mode" and value in ("FP32", "FP16"):
            options["trt_fp16_enable"] = value == "FP16" or precision == "fp16"
        elif key == "max_workspace_size_bytes" and value.isdecimal():
            options["trt_max_workspace_size"] = int(value)
        else:
            raise _refused(config, "gpu", key, value)
    return options


def _openvino_options(config: ModelConfig, parameters: Any) -> dict[str, Any]:
    """Source: onnxruntime, "OpenVINO Execution Provider", options; OpenVINO, "Precision Control": bf16 unless told."""
    hint = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}[read_precision(config)]
    for key, value in sorted(parameters.items()):
        raise _refused(config, "cpu", key, value)
    return {"device_type": "CPU", "load_config": json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": hint}})}


def _refused(config: ModelConfig, kind: str, key: str, value: str) -> ModelLoadError:
    field = f"optimization.execution_accelerators.{kind}_execution_accelerator.parameters.{key}"
    return ModelLoadError(f"model {config.name!r}: {field} {value!r} is not supported by this server", field=field)


def _unknown(config: ModelConfig, kind: str, name: str) -> ModelLoadError:
    field = f"optimization.execution_accelerators.{kind}_execution_accelerator"
    return ModelLoadError(f"model {config.name!r}: {field} {name!r} is not supported by this server", field=field)
