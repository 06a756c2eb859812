"""What the server says of itself and its models, as KServe's messages, and those as plain JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version as package_version
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from tritonclient.grpc import service_pb2

from serving.protocol.wire import WIRE_NAMES
from serving.server import ModelServer
from serving.tensors import VARIABLE

SERVER_NAME = "cohortflow"
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "schedule_policy",
    "statistics",
)


def server_metadata() -> Any:
    """``ServerMetadataResponse``."""
    return service_pb2.ServerMetadataResponse(
        name=SERVER_NAME, version=package_version("cohortflow"), extensions=EXTENSIONS
    )


def model_metadata(server: ModelServer, name: str, version: int | None) -> Any:
    """``ModelMetadataResponse``; shapes are with the batch dimension.

    Raises:
        NotFoundError: No such model or version.
    """
    config, metadata = server.config(name, version), server.metadata(name, version)
    message = service_pb2.ModelMetadataResponse(
        name=name,
        versions=[str(number) for number in metadata.versions],
        platform=config.platform or config.backend,
    )
    batch = [VARIABLE] if metadata.max_batch_size > 0 else []
    # Not the configuration's list: inputs that the server itself fills are none that a client sends.
    for specs, described in ((metadata.inputs, message.inputs), (metadata.outputs, message.outputs)):
        for spec in specs:
            described.add(name=spec.name, datatype=WIRE_NAMES[spec.dtype], shape=[*batch, *spec.dims])
    return message


def model_config(server: ModelServer, name: str, version: int | None) -> Any:
    """``ModelConfigResponse``: the completed configuration.

    Raises:
        NotFoundError: No such model or version.
    """
    return service_pb2.ModelConfigResponse(config=server.config(name, version))


def model_statistics(server: ModelServer, name: str | None, version: int | None) -> Any:
    """``ModelStatisticsResponse`` of one model, or of all.

    Raises:
        NotFoundError: No such model or version.
    """
    message = service_pb2.ModelStatisticsResponse()
    for one in server.model_statistics(name, version):
        statistics = message.model_stats.add(
            name=one.name,
            version=str(one.version),
            last_inference=one.last_inference_ms,
            inference_count=one.inference_count,
            execution_count=one.execution_count,
        )
        for kind in statistics.inference_stats.DESCRIPTOR.fields_by_name:
            _set_duration(getattr(statistics.inference_stats, kind), getattr(one, kind))
        for batch in one.batch_stats:
            line = statistics.batch_stats.add(batch_size=batch.batch_size)
            for kind in ("compute_input", "compute_infer", "compute_output"):
                _set_duration(getattr(line, kind), getattr(batch, kind))
    return message


def repository_index(server: ModelServer, *, only_ready: bool) -> Any:
    """``RepositoryIndexResponse``."""
    message = service_pb2.RepositoryIndexResponse()
    for entry in server.index(only_ready=only_ready):
        message.models.add(name=entry.name, version=entry.version, state=entry.state, reason=entry.reason)
    return message


def to_plain(message: Any) -> dict[str, Any]:
    """A message as a JSON object, as Triton prints it: all plain fields, numbers as numbers, enums by name."""
    plain: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            kind = field.message_type.fields_by_name["value"]
            plain[field.name] = {str(key): _plain_value(kind, value[key]) for key in sorted(value)}
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            plain[field.name] = [_plain_value(field, one) for one in value]
        elif not field.has_presence or message.HasField(field.name):
            plain[field.name] = _plain_value(field, value)
    return plain


def _plain_value(field: Any, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return to_plain(value)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return field.enum_type.values_by_number[value].name
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _set_duration(message: Any, duration: Any) -> None:
    message.count, message.ns = duration.count, duration.ns
