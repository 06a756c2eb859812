"""Completing a configuration from the model file, and checking the one against the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from tritonclient.grpc import model_config_pb2

from serving.config import (
    CONFIG_NAME,
    ENSEMBLE,
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    Signature,
)
from serving.errors import ModelLoadError
from serving.iterative import read_sequence
from serving.padding import read_padding
from serving.tensors import NUMPY_TYPES, TYPE_NAMES, VARIABLE, TensorSpec

# Source: Triton, "Auto-generated model configuration": the batch size given to a model that can batch and does not say.
DEFAULT_MAX_BATCH_SIZE = 4

MOST_INSTANCES = 1024
_KINDS: dict[int, Literal["auto", "cpu", "gpu"]] = {
    model_config_pb2.ModelInstanceGroup.KIND_AUTO: "auto",
    model_config_pb2.ModelInstanceGroup.KIND_CPU: "cpu",
    model_config_pb2.ModelInstanceGroup.KIND_GPU: "gpu",
}


def complete(message: Any, backend: str, signature: Signature | None) -> ModelConfig:
    """Fills what the configuration leaves out from the model file, and checks what it says against it.

    Args:
        message: As `read_config` gave it.
        backend: The backend's name.
        signature: What the model file says of itself; None when such files say nothing (or for an ensemble).

    Raises:
        ModelLoadError: The two do not agree, or what neither says is needed.
    """
    full = model_config_pb2.ModelConfig()
    full.CopyFrom(message)
    full.backend = "" if backend == ENSEMBLE else backend
    full.platform = ENSEMBLE if backend == ENSEMBLE else ""
    where = f"model {full.name!r}"
    if full.max_batch_size < 0:
        raise ModelLoadError(f"{where}: max_batch_size is {full.max_batch_size}", field="max_batch_size")
    if full.cc_model_filenames and backend != "tensorrt":
        raise ModelLoadError(
            f"{where}: cc_model_filenames is not supported by this server for the backend {backend!r}",
            field="cc_model_filenames",
        )
    if signature is not None:
        _complete_batching(full, signature, where)
        _complete_tensors(full.input, signature.inputs, full.max_batch_size > 0, f"{where}: input", all_needed=True)
        _complete_tensors(full.output, signature.outputs, full.max_batch_size > 0, f"{where}: output", all_needed=False)
    inputs = tuple(_tensor_spec(tensor, f"{where}: input[{i}]") for i, tensor in enumerate(full.input))
    outputs = tuple(_tensor_spec(tensor, f"{where}: output[{i}]") for i, tensor in enumerate(full.output))
    for kind, specs in (("input", inputs), ("output", outputs)):
        names = [spec.name for spec in specs]
        if not names:
            raise ModelLoadError(f"{where}: its {CONFIG_NAME} must list every {kind}", field=kind)
        if len(set(names)) != len(names):
            raise ModelLoadError(f"{where}: two {kind}s have the same name: {', '.join(names)}", field=kind)
    parameters = {key: value.string_value for key, value in full.parameters.items()}
    if backend == ENSEMBLE:
        for spec in (*inputs, *outputs):
            if spec.model_dims is not None or spec.is_optional or spec.is_ragged:
                raise ModelLoadError(
                    f"{where}: {spec.name!r}: an ensemble has no reshape, optional or allow_ragged_batch: its steps do",
                    field=spec.name,
                )
    if not full.instance_group and backend != ENSEMBLE:
        full.instance_group.add(kind=model_config_pb2.ModelInstanceGroup.KIND_AUTO, count=1)
    return ModelConfig(
        name=full.name,
        backend=backend,
        max_batch_size=full.max_batch_size,
        inputs=inputs,
        outputs=outputs,
        dynamic_batching=_dynamic_batching(full, where),
        instance_groups=tuple(_instance_group(group, where) for group in full.instance_group),
        has_cache=full.response_cache.enable,
        parameters=parameters,
        message=full,
        padding=read_padding(where, inputs, outputs, parameters, batched=full.max_batch_size > 0),
        sequence=read_sequence(where, full, inputs, outputs, parameters),
    )


def _complete_batching(full: Any, signature: Signature, where: str) -> None:
    """Decides max_batch_size when the configuration does not, and refuses one that the model file cannot serve."""
    if full.max_batch_size > 0:
        for spec in (*signature.inputs, *signature.outputs):
            if spec.dims[:1] != (VARIABLE,):
                raise ModelLoadError(
                    f"{where}: max_batch_size is {full.max_batch_size}, but the model file fixes the first dimension "
                    f"of {spec}; leave max_batch_size out or export it with a free batch dimension",
                    field="max_batch_size",
                )
        return
    shapes = {spec.name: spec.dims for spec in signature.inputs}
    says_unbatched = any(len(_said_dims(tensor)) == len(shapes.get(tensor.name, ())) for tensor in full.input)
    if signature.can_batch and not says_unbatched:
        full.max_batch_size = DEFAULT_MAX_BATCH_SIZE
        full.dynamic_batching.SetInParent()


def _complete_tensors(
    tensors: Any, specs: Sequence[TensorSpec], batched: bool, where: str, *, all_needed: bool
) -> None:
    """Adds the model file's tensors when none is listed; else checks each listed one, completes its type and dims."""
    by_name: dict[str, TensorSpec] = {spec.name: spec for spec in specs}
    if not tensors:
        for spec in specs:
            tensors.add(name=spec.name)
    for tensor in tensors:
        found = by_name.pop(tensor.name, None)
        if found is None:
            raise ModelLoadError(
                f"{where} {tensor.name!r} is not in the model file, which has {', '.join(s.name for s in specs)}",
                field=tensor.name,
            )
        dims = found.dims[1:] if batched else found.dims
        type_name = TYPE_NAMES[found.dtype]
        if not tensor.data_type:
            tensor.data_type = model_config_pb2.DataType.Value(type_name)
        if not tensor.dims:
            tensor.dims.extend(dims)
        said = model_config_pb2.DataType.Name(tensor.data_type)
        said_dims = _said_dims(tensor)
        agrees = len(said_dims) == len(dims) and all(
            VARIABLE in pair or pair[0] == pair[1] for pair in zip(said_dims, dims, strict=True)
        )
        if said != type_name or not agrees:
            raise ModelLoadError(
                f"{where} {tensor.name!r} is {said} {said_dims}, but the model file has {type_name} {list(dims)}",
                field=tensor.name,
            )
    if by_name and all_needed:
        raise ModelLoadError(
            f"{where} {next(iter(by_name))!r} of the model file is not listed", field=next(iter(by_name))
        )


def _said_dims(tensor: Any) -> list[int]:
    """The dims of the model file's tensor, as the configuration says them."""
    return list(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)


def _tensor_spec(tensor: Any, where: str) -> TensorSpec:
    type_name = model_config_pb2.DataType.Name(tensor.data_type)
    if not tensor.name:
        raise ModelLoadError(f"{where}: name is missing", field="name")
    if type_name not in NUMPY_TYPES:
        raise ModelLoadError(
            f"{where} {tensor.name!r}: data_type {type_name} is not supported by this server", field=tensor.name
        )
    dims = tuple(tensor.dims)
    if any(dim < 1 and dim != VARIABLE for dim in dims):
        raise ModelLoadError(f"{where} {tensor.name!r}: dims {list(dims)} must be positive or -1", field=tensor.name)
    image = model_config_pb2.ModelInput.FORMAT_NONE
    if getattr(tensor, "format", image) != image and len(dims) != 3:
        raise ModelLoadError(
            f"{where} {tensor.name!r}: a format is that of 3 dims, but its dims are {list(dims)}", field=tensor.name
        )
    return TensorSpec(
        tensor.name,
        NUMPY_TYPES[type_name],
        dims,
        _model_dims(tensor, dims, where),
        bool(getattr(tensor, "optional", False)),
        bool(getattr(tensor, "allow_ragged_batch", False)),
    )


def _model_dims(tensor: Any, dims: tuple[int, ...], where: str) -> tuple[int, ...] | None:
    """What ``reshape`` says (Source: Triton, "Reshape": as many elements, and as many free dimensions)."""
    if not tensor.HasField("reshape"):
        return None
    shape = tuple(tensor.reshape.shape)
    sizes = {(math.prod(dim for dim in one if dim != VARIABLE), one.count(VARIABLE)) for one in (dims, shape)}
    if len(sizes) > 1 or any(dim < 1 and dim != VARIABLE for dim in shape):
        raise ModelLoadError(
            f"{where} {tensor.name!r}: reshape {list(shape)} does not hold as many elements as dims {list(dims)}",
            field=tensor.name,
        )
    return shape


def _instance_group(group: Any, where: str) -> InstanceGroup:
    if group.kind not in _KINDS:
        raise ModelLoadError(
            f"{where}: instance_group.kind {model_config_pb2.ModelInstanceGroup.Kind.Name(group.kind)} "
            "is not supported by this server",
            field="instance_group.kind",
        )
    if not 0 <= group.count <= MOST_INSTANCES:
        raise ModelLoadError(
            f"{where}: instance_group.count is {group.count}, not within 0-{MOST_INSTANCES}: each is a thread",
            field="instance_group.count",
        )
    return InstanceGroup(_KINDS[group.kind], group.count or 1, tuple(group.gpus))


def _dynamic_batching(full: Any, where: str) -> DynamicBatching | None:
    if not full.HasField("dynamic_batching"):
        return None
    message = full.dynamic_batching
    if full.max_batch_size == 0:
        raise ModelLoadError(f"{where}: dynamic_batching needs a max_batch_size", field="dynamic_batching")
    for size in message.preferred_batch_size:
        if not 0 < size <= full.max_batch_size:
            raise ModelLoadError(
                f"{where}: dynamic_batching.preferred_batch_size {size} is not within 1-{full.max_batch_size}",
                field="dynamic_batching.preferred_batch_size",
            )
    levels = message.priority_levels
    if levels and not 1 <= message.default_priority_level <= levels:
        raise ModelLoadError(
            f"{where}: dynamic_batching.default_priority_level {message.default_priority_level} "
            f"is not within 1-{levels}",
            field="dynamic_batching.default_priority_level",
        )
    for level in message.priority_queue_policy:
        if not 1 <= level <= levels:
            raise ModelLoadError(
                f"{where}: dynamic_batching.priority_queue_policy has level {level}, but priority_levels is {levels}",
                field="dynamic_batching.priority_queue_policy",
            )
    return DynamicBatching(
        preferred_batch_sizes=tuple(sorted(set(message.preferred_batch_size))),
        max_queue_delay_us=message.max_queue_delay_microseconds,
        preserve_ordering=message.preserve_ordering,
        priority_levels=levels,
        default_priority_level=message.default_priority_level,
        default_policy=_queue_policy(message.default_queue_policy),
        priority_policies=tuple(
            (level, _queue_policy(policy)) for level, policy in sorted(message.priority_queue_policy.items())
        ),
    )


def _queue_policy(message: Any) -> QueuePolicy:
    return QueuePolicy(
        reject=message.timeout_action == model_config_pb2.ModelQueuePolicy.REJECT,
        default_timeout_us=message.default_timeout_microseconds,
        allow_timeout_override=message.allow_timeout_override,
        max_queue_size=message.max_queue_size,
    )
