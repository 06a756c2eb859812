"""Samples that a model executes before it is ready: its configuration's ``model_warmup``.

Source: Triton, model configuration, ``ModelWarmup``. Here a sample that fails fails the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.grpc import model_config_pb2

from serving.config import ModelConfig
from serving.errors import InvalidArgumentError, ModelLoadError, ServingError
from serving.instance import Instance
from serving.request import Call, Request
from serving.tensors import NUMPY_TYPES, Tensor, Tensors, TensorSpec, check_inputs

FOLDER = "warmup"
"""Files of samples lie in it, beside the version folders."""


def warm_up(label: str, folder: Path, config: ModelConfig, instances: Sequence[Instance]) -> None:
    """Executes every sample on every instance, as often as it says; no statistics know of it.

    Args:
        label: The model, for messages.
        folder: The model's folder.
        config: Its configuration.
        instances: What executes.

    Raises:
        ModelLoadError: A sample does not fit the model, or the model fails on it; the message names the sample.
    """
    for number, sample in enumerate(config.message.model_warmup):
        where = f"{label}: model_warmup {sample.name or number!r}"
        if config.sequence is not None:
            raise ModelLoadError(f"{where}: is not supported for a model with sequence_batching", field="model_warmup")
        inputs, rows = _read_sample(where, folder, config, sample)
        length = 0
        try:
            if config.padding is not None:
                length = config.padding.length(where, config.request_inputs, inputs)
            for instance in instances:
                for _ in range(sample.count or 1):
                    request = Request(label, Call(inputs, rows, ()), rows, 0, length)
                    # An output that is not a number is no failure: the contents may be made up.
                    instance.measure([request.take_piece()])
        except ServingError as error:
            raise ModelLoadError(f"{where}: {error.message}", field="model_warmup") from error


def _read_sample(where: str, folder: Path, config: ModelConfig, sample: Any) -> tuple[Tensors, int]:
    rows = sample.batch_size or 1
    if rows > max(config.max_batch_size, 1):
        raise ModelLoadError(
            f"{where}: batch_size is {rows}, the model's max_batch_size {config.max_batch_size}", field="model_warmup"
        )
    specs = {spec.name: spec for spec in config.request_inputs}
    inputs = {}
    for name, given in sample.inputs.items():
        place = f"{where}: input {name!r}"
        if name not in specs:
            raise ModelLoadError(f"{place}: the model has {', '.join(specs)}", field=name)
        said = model_config_pb2.DataType.Name(given.data_type)
        if (
            NUMPY_TYPES.get(said) != specs[name].dtype
            or not specs[name].fits(given.dims)
            or min(given.dims, default=0) < 0
        ):
            raise ModelLoadError(
                f"{place}: is {said} {list(given.dims)}, the model's input is {specs[name]}", field=name
            )
        array = _contents(place, folder, given, specs[name], rows)
        inputs[name] = array if config.is_batched else array[0]
    try:
        return check_inputs(where, config.request_inputs, inputs, batched=config.is_batched)
    except InvalidArgumentError as error:
        raise ModelLoadError(error.message, field=error.field) from error


def _contents(where: str, folder: Path, given: Any, spec: TensorSpec, rows: int) -> Tensor:
    """The sample's array, [rows, *dims]."""
    shape = (rows, *given.dims)
    kind = given.WhichOneof("input_data_type")
    if kind == "input_data_file":
        return _read_file(where, folder, given, spec, shape)
    if kind == "random_data":
        rng = np.random.default_rng(0)
        if spec.dtype.kind == "f":
            return rng.standard_normal(shape, dtype=np.float32).astype(spec.dtype)
        if spec.dtype.kind in "iub":
            return rng.integers(0, 2, shape).astype(spec.dtype)
    elif kind != "zero_data":
        raise ModelLoadError(f"{where}: has none of zero_data, random_data, input_data_file", field="model_warmup")
    # A text is empty, whatever is asked.
    return np.full(shape, b"", object) if spec.dtype.kind == "O" else np.zeros(shape, spec.dtype)


def _read_file(where: str, folder: Path, given: Any, spec: TensorSpec, shape: tuple[int, ...]) -> Tensor:
    """Raw contents, as a request's ``raw_input_contents``: of one row, which is repeated, or of the whole batch."""
    path = folder / FOLDER / given.input_data_file
    if spec.dtype.kind == "O":
        raise ModelLoadError(f"{where}: input_data_file is not supported for TYPE_STRING", field="model_warmup")
    try:
        if (folder / FOLDER).resolve() not in path.resolve().parents:
            raise OSError("it is not in the folder 'warmup'")
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise ModelLoadError(f"{where}: {path}: {error.strerror or error}", field="model_warmup") from error
    row_bytes = spec.dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
    if len(content) not in (row_bytes, row_bytes * shape[0]):
        raise ModelLoadError(
            f"{where}: {path} has {len(content)} bytes; a row needs {row_bytes}, the batch {row_bytes * shape[0]}",
            field="model_warmup",
        )
    array = content.view(spec.dtype)
    return np.ascontiguousarray(np.broadcast_to(array.reshape(-1, *shape[1:]), shape))
