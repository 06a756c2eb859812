"""Every field of Triton's ModelConfig is in the table of docs/serving.md, and does what the table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from serving.config import read_config
from serving.errors import ModelLoadError

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"
# Messages that the table speaks of as a whole.
WHOLE = {
    "version_policy",
    "response_cache",
    "dynamic_batching",
    "parameters",
    "optimization.graph",
    "optimization.execution_accelerators",
}


def read_table():
    """Field -> whether it works, by the table."""
    table = DOCS.read_text().split("### ModelConfig, message by message")[1].split("\n## ")[0]
    says = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3 and cells[2] in ("works", "load error"):
            says |= dict.fromkeys(re.findall(r"`([a-z_.]+)`", cells[1]), cells[2] == "works")
    return says


def all_fields(descriptor=model_config_pb2.ModelConfig.DESCRIPTOR, path=""):
    for field in descriptor.fields:
        name = f"{path}.{field.name}".removeprefix(".")
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.message_type is None or is_map or name in WHOLE:
            yield name
        else:
            yield from all_fields(field.message_type, name)


def set_field(message, names):
    field = message.DESCRIPTOR.fields_by_name[names[0]]
    value = getattr(message, names[0])
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        if field.message_type.fields_by_name["value"].message_type is not None:
            value["1"].SetInParent()
        else:
            value["1"] = "x"
    elif field.message_type is not None:
        inner = value.add() if hasattr(value, "add") else value
        inner.SetInParent()
        if len(names) > 1:
            set_field(inner, names[1:])
    else:
        one = {field.TYPE_STRING: "x", field.TYPE_BOOL: True}.get(field.type, 1)
        if hasattr(value, "append"):
            value.append(one)
        else:
            setattr(message, names[0], one)


@pytest.mark.parametrize("name", sorted(all_fields()))
def test_a_field_does_what_the_table_says(tmp_path, name):
    rows = [row for row in read_table() if name == row or name.startswith(f"{row}.")]
    assert len(rows) == 1, f"{name} must be in one row of the table in {DOCS.name}"
    message = model_config_pb2.ModelConfig()
    set_field(message, name.split("."))
    message.name = "m"
    if message.HasField("sequence_batching"):
        message.sequence_batching.iterative_sequence = True
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_text(text_format.MessageToString(message))
    if read_table()[rows[0]]:
        read_config(tmp_path / "m")
    else:
        with pytest.raises(ModelLoadError, match=rf"{rows[0]}\S* is not supported by this server"):
            read_config(tmp_path / "m")


def test_the_table_has_no_field_that_is_none():
    fields = set(all_fields())
    assert not [row for row in read_table() if not any(f"{field}.".startswith(f"{row}.") for field in fields)]
