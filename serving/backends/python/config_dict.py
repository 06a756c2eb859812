"""A model's configuration as its Python code gets it: Triton's JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict

# The JSON form of protobuf writes these as text; Triton writes numbers.
_WIDE = frozenset(
    {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64},
)


def config_dict(message: Any) -> dict[str, Any]:
    """A ModelConfig message as the dict that the JSON in ``args["model_config"]`` holds."""
    value: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    _make_numbers(value, message.DESCRIPTOR)
    return value


def _make_numbers(value: dict[str, Any], descriptor: Any) -> None:
    for field in descriptor.fields:
        if field.name not in value:
            continue
        part = value[field.name]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _make_map_numbers(part, field.message_type.fields_by_name["value"])
        elif field.message_type is not None:
            for one in part if isinstance(part, list) else [part]:
                _make_numbers(one, field.message_type)
        elif field.cpp_type in _WIDE:
            value[field.name] = [int(one) for one in part] if isinstance(part, list) else int(part)


def _make_map_numbers(value: dict[str, Any], field: Any) -> None:
    for key, part in value.items():
        if field.message_type is not None:
            _make_numbers(part, field.message_type)
        elif field.cpp_type in _WIDE:
            value[key] = int(part)


def get_input_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """What a configuration says of an input; None: nothing."""
    return next((one for one in model_config.get("input", []) if one["name"] == name), None)


def get_output_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """What a configuration says of an output; None: nothing."""
    return next((one for one in model_config.get("output", []) if one["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: dict[str, Any]) -> bool:
    """Whether the model answers a request with any number of responses."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))
