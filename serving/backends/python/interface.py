"""``triton_python_backend_utils`` as the code of one instance of a model imports it."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from serving.backends.base import Models
from serving.backends.python.auto_config import AutoConfig
from serving.backends.python.config_dict import (
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
)
from serving.backends.python.error import TritonError, TritonModelException
from serving.backends.python.logger import Logger
from serving.backends.python.model_metrics import Metric, MetricFamily
from serving.backends.python.request import InferenceRequest, get_input_tensor_by_name, get_output_tensor_by_name
from serving.backends.python.response import RESPONSE_COMPLETE_FINAL, InferenceResponse, ResponseSender
from serving.backends.python.tensor import Tensor
from serving.errors import ModelLoadError
from serving.tensors import NUMPY_TYPES, TYPE_NAMES, as_bytes, content
from serving.tensors import Tensor as Array

UTILS_NAME = "triton_python_backend_utils"

# Source: Triton, model_config.proto, DataType: their numbers are their places.
_TYPE_NUMBERS = {
    name: number
    for number, name in enumerate(
        (
            "TYPE_BOOL",
            "TYPE_UINT8",
            "TYPE_UINT16",
            "TYPE_UINT32",
            "TYPE_UINT64",
            "TYPE_INT8",
            "TYPE_INT16",
            "TYPE_INT32",
            "TYPE_INT64",
            "TYPE_FP16",
            "TYPE_FP32",
            "TYPE_FP64",
            "TYPE_STRING",
            "TYPE_BF16",
        ),
        start=1,
    )
}
TRITON_STRING_TO_NUMPY = {name: dtype.type for name, dtype in NUMPY_TYPES.items()}


def triton_string_to_numpy(name: str) -> type[Any]:
    """Numpy's type for one of Triton's (``"TYPE_FP32"``)."""
    return TRITON_STRING_TO_NUMPY[name]


def triton_to_numpy_type(number: int) -> type[Any]:
    """Numpy's type for the number of one of Triton's."""
    names = {number: name for name, number in _TYPE_NUMBERS.items()}
    return TRITON_STRING_TO_NUMPY[names[number]]


def numpy_to_triton_type(dtype: Any) -> int:
    """The number of Triton's type for one of numpy's."""
    found = np.dtype(dtype)
    return _TYPE_NUMBERS["TYPE_STRING" if found.kind in "SU" else TYPE_NAMES[found]]


def serialize_byte_tensor(array: Array) -> Array | None:
    """A tensor of TYPE_STRING in one row of bytes, each element with its length before it; None: it is empty."""
    text = as_bytes(array)
    if text is None:
        raise TritonModelException("serialize_byte_tensor: the array's elements must be bytes or str")
    return np.frombuffer(content(text), np.uint8) if array.size else None


def deserialize_bytes_tensor(packed: bytes | Array) -> Array:
    """The elements, [n], that `serialize_byte_tensor` packed."""
    text = bytes(packed)
    elements = []
    at = 0
    while at < len(text):
        end = at + 4 + int.from_bytes(text[at : at + 4], "little")
        if end > len(text) or at + 4 > len(text):
            raise TritonModelException("deserialize_bytes_tensor: an element goes past the end")
        elements.append(text[at + 4 : end])
        at = end
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def make_utils(model: str, folder: Path, models: Models | None) -> ModuleType:
    """The module for one instance of a model, whose files lie in `folder`."""

    def get_model_dir() -> str:
        """The folder of the model's version."""
        return str(folder)

    def is_model_ready(model_name: str, model_version: str = "") -> bool:
        """Whether another model of the server answers requests."""
        return models is not None and models.ready(model_name, int(model_version) if model_version else None)

    utils = ModuleType(UTILS_NAME, "What Triton's Python models import.")
    utils.__dict__.update(
        InferenceRequest=type("InferenceRequest", (InferenceRequest,), {"models": models, "model": model}),
        InferenceResponse=InferenceResponse,
        Logger=Logger(model),
        Metric=Metric,
        MetricFamily=MetricFamily,
        ModelConfig=AutoConfig,
        ResponseSender=ResponseSender,
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=RESPONSE_COMPLETE_FINAL,
        TRITON_STRING_TO_NUMPY=dict(TRITON_STRING_TO_NUMPY),
        Tensor=Tensor,
        TritonError=TritonError,
        TritonModelException=TritonModelException,
        deserialize_bytes_tensor=deserialize_bytes_tensor,
        get_input_config_by_name=get_input_config_by_name,
        get_input_tensor_by_name=get_input_tensor_by_name,
        get_model_dir=get_model_dir,
        get_output_config_by_name=get_output_config_by_name,
        get_output_tensor_by_name=get_output_tensor_by_name,
        is_model_ready=is_model_ready,
        numpy_to_triton_type=numpy_to_triton_type,
        serialize_byte_tensor=serialize_byte_tensor,
        triton_string_to_numpy=triton_string_to_numpy,
        triton_to_numpy_type=triton_to_numpy_type,
        using_decoupled_model_transaction_policy=using_decoupled_model_transaction_policy,
    )
    return utils


NAMES = frozenset(name for name in vars(make_utils("", Path(), None)) if not name.startswith("__"))
"""What a model finds in the module."""


def check_names(source: str, path: Path) -> None:
    """Raises ModelLoadError when code uses a name of the module that this server has not; it is not executed."""
    tree = ast.parse(source, str(path))
    aliases: set[str] = set()
    used: list[tuple[str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases.update(alias.asname or alias.name for alias in node.names if alias.name == UTILS_NAME)
        elif isinstance(node, ast.ImportFrom) and node.module == UTILS_NAME and not node.level:
            used += [(alias.name, node.lineno) for alias in node.names if alias.name != "*"]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            used.append((node.attr, node.lineno))
    for name, line in used:
        if name not in NAMES and not name.startswith("__"):
            raise ModelLoadError(
                f"{path}: line {line}: {UTILS_NAME}.{name} is not supported by this server", field=name
            )
