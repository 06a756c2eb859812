"""The tensorflow backend: a SavedModel (``model.savedmodel/``).

Served is the signature ``serving_default``, or the one that the parameter ``TF_SIGNATURE_DEF`` names. Operations that
call Python, or that read or write files, are refused before TensorFlow opens the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from serving.backends.base import Backend, Device
from serving.backends.precision import allows_tf32, read_precision
from serving.config import ModelConfig, Signature
from serving.errors import ModelLoadError
from serving.tensors import BF16, BYTES, VARIABLE, Tensor, Tensors, TensorSpec

DEFAULT_FOLDER = "model.savedmodel"
SIGNATURE_PARAMETER = "TF_SIGNATURE_DEF"
DEFAULT_SIGNATURE = "serving_default"

_GRAPH_FILE = "saved_model.pb"
_REFUSED = re.compile(
    r"\w*PyFunc\w*|\w*(ReadFile|WriteFile|MatchingFiles|ReaderV2|FromTextFile|LoadLibrary)\w*|Print\w*|Debug\w*"
    r"|\w*(TFRecord|TextLine|FixedLength|Snapshot|SaveDataset|LoadDataset|Sql|Csv)\w*Dataset\w*|Rpc\w*|Remote\w*"
)
_SAVING = re.compile(r"(Save|Restore|MergeV2|Sharded)\w*")
# Every SavedModel has these two, which nothing but its saver calls.
_SAVERS = re.compile(r"__inference__traced_(save|restore)_\d+")


class TensorFlowBackend(Backend):
    """A signature of a SavedModel."""

    is_shareable = True

    def __init__(self) -> None:
        self._model: Any = None
        self._function: Any = None
        self._place = "/CPU:0"
        self._outputs: tuple[TensorSpec, ...] = ()

    @classmethod
    def version(cls) -> str:
        """The version of TensorFlow."""
        return f"tensorflow {tf.__version__}"

    @classmethod
    def has_gpu(cls) -> bool:
        """Whether TensorFlow sees a GPU."""
        return bool(tf.config.list_physical_devices("GPU"))

    @classmethod
    def signature(cls, folder: Path, message: Any) -> Signature:
        """Tensors of the signature.

        Raises:
            ModelLoadError: The model is missing, refused, or has no such signature.
        """
        parameters = {key: value.string_value for key, value in message.parameters.items()}
        _, function = _open(folder, message, parameters)
        inputs = function.structured_input_signature[1]
        return Signature(
            tuple(_spec(message.name, name, spec) for name, spec in inputs.items()),
            tuple(_spec(message.name, name, spec) for name, spec in sorted(function.structured_outputs.items())),
        )

    def load(self, folder: Path, config: ModelConfig, device: Device, threads: int) -> None:
        """Loads the model's graph and its weights.

        Raises:
            ModelLoadError: The model is refused or wrong, there is no such GPU, or the precision is another.
        """
        where = f"model {config.name!r}"
        if read_precision(config) != "fp32" or allows_tf32(config):
            key = "allow_tf32" if allows_tf32(config) else "precision"
            raise ModelLoadError(
                f"{where}: parameter {key!r} is {config.parameters[key]!r}, which the tensorflow backend has not",
                field=f"parameters.{key}",
            )
        gpus = tf.config.list_physical_devices("GPU")
        if device.kind == "gpu" and device.index >= len(gpus):
            raise ModelLoadError(
                f"{where}: runs on {device}, but tensorflow {tf.__version__} sees {len(gpus)} GPUs: it needs the "
                "package tensorflow[and-cuda]",
                field="instance_group",
            )
        tf.config.experimental.enable_tensor_float_32_execution(False)
        self._place = "/CPU:0" if device.kind == "cpu" else f"/GPU:{device.index}"
        with tf.device(self._place):
            self._model, self._function = _open(folder, config.message, config.parameters)
        self._outputs = config.outputs

    def execute(self, inputs: Tensors) -> Tensors:
        """Calls the signature on a batch."""
        with tf.device(self._place):
            outputs = self._function(**{name: tf.constant(_to_list(array)) for name, array in inputs.items()})
        return {spec.name: np.asarray(outputs[spec.name].numpy(), spec.dtype) for spec in self._outputs}

    def unload(self) -> None:
        """Drops the model and its weights."""
        self._model = self._function = None


def _to_list(array: Tensor) -> Any:
    # A constant of text with no element has a type only as numpy's bytes.
    return array.astype("S") if array.dtype == BYTES and not array.size else array


def _open(folder: Path, message: Any, parameters: Any) -> tuple[Any, Any]:
    where = f"model {message.name!r}"
    path = folder / (message.default_model_filename or DEFAULT_FOLDER)
    graph_file = path / _GRAPH_FILE
    if not graph_file.is_file():
        raise ModelLoadError(f"{where}: {graph_file} is missing", field="default_model_filename")
    name = parameters.get(SIGNATURE_PARAMETER, DEFAULT_SIGNATURE)
    try:
        graph = saved_model_pb2.SavedModel.FromString(graph_file.read_bytes())
        refused = _refused(graph)
        if refused is not None:
            raise ModelLoadError(f"{where}: {graph_file}: refused, because it has the operation {refused!r}")
        model = tf.saved_model.load(str(path))
        if name not in model.signatures:
            raise ModelLoadError(
                f"{where}: {path}: no signature {name!r}; it has {', '.join(model.signatures) or 'none'}",
                field=f"parameters.{SIGNATURE_PARAMETER}",
            )
    except ModelLoadError:
        raise
    except Exception as error:
        raise ModelLoadError(f"{where}: {path}: tensorflow cannot load it: {error}") from error
    return model, model.signatures[name]


def _refused(graph: Any) -> str | None:
    """The first operation that is not let through; None: there is none."""
    for meta in graph.meta_graphs:
        for node in meta.graph_def.node:
            if _REFUSED.fullmatch(node.op) or _SAVING.fullmatch(node.op):
                return str(node.op)
        for function in meta.graph_def.library.function:
            is_saver = _SAVERS.fullmatch(function.signature.name) is not None
            for node in function.node_def:
                if _REFUSED.fullmatch(node.op) or (_SAVING.fullmatch(node.op) and not is_saver):
                    return str(node.op)
                called = next((name for name in _called(node) if _SAVERS.fullmatch(name)), None)
                if called is not None:
                    return called
    return None


def _called(node: Any) -> Iterator[str]:
    """Names of the functions that a node calls."""
    for value in node.attr.values():
        yield value.func.name
        yield from (function.name for function in value.list.func)


def _spec(model: str, name: str, spec: Any) -> TensorSpec:
    if spec.shape.rank is None:
        raise ModelLoadError(
            f"model {model!r}: tensor {name!r} has any number of dimensions: not supported", field=name
        )
    dims = tuple(VARIABLE if dim is None else int(dim) for dim in spec.shape)
    if spec.dtype == tf.string:
        return TensorSpec(name, BYTES, dims)
    return TensorSpec(name, BF16 if spec.dtype == tf.bfloat16 else np.dtype(spec.dtype.as_numpy_dtype), dims)
