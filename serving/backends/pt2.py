"""The archive of a `torch.export` program, checked before torch opens it.

Opening a ``.pt2`` with torch runs code that its author chose, in six ways that we know of: sample inputs, and entries
marked ``use_pickle``, are unpickled, custom objects too; compiled libraries are loaded; ``guards_code`` is executed;
shapes are evaluated as Python by sympy; and the names of container types are imported. Only plain tensors, ATen
operators and symbolic shapes are let through: everything else is refused by name, and what is not needed to compute
(guards, stack traces) is left out of the copy that torch is given.

Source: torch 2.13, torch/export/pt2_archive/_package.py and torch/_export/serde/serialize.py.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving.errors import ModelLoadError

MODEL_ENTRY = "models/model.json"
_SAMPLE_INPUTS = "data/sample_inputs/model.pt"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_PLAIN = frozenset(
    {"archive_format", "archive_version", "version", ".data/version", ".data/serialization_id", "byteorder"}
)
_TENSOR = re.compile(r"data/(weights/weight_\d+|constants/tensor_\d+)")
_TARGET = re.compile(r"torch\.ops\.aten\.\w+\.\w+|torch\.sym_\w+|math\.\w+|_operator\.(\w+)")
# Arithmetic on symbolic shapes; the module has others (attrgetter, call) that reach further.
_OPERATORS = frozenset(
    {
        "add",
        "sub",
        "mul",
        "floordiv",
        "truediv",
        "mod",
        "neg",
        "pos",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and_",
        "or_",
        "not_",
    }
    | {"getitem", "pow"}
)
_FILE_OPERATORS = ("from_file",)
_CONTAINERS = frozenset({None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"})
_SYMBOL = re.compile(r"[a-z]{1,3}\d+")
_FUNCTIONS = frozenset(
    {
        "Symbol",
        "Integer",
        "Add",
        "Mul",
        "Pow",
        "Max",
        "Min",
        "Mod",
        "PythonMod",
        "FloorDiv",
        "CleanDiv",
        "CeilDiv",
        "IntTrueDiv",
    }
    | {"Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality", "Unequality", "And", "Or", "Not"}
    | {"StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan"}
)
_WORDS = frozenset({"positive", "nonnegative", "integer", "true", "false"})
_MAX_POWER = 8


def read_archive(path: Path) -> tuple[dict[str, Any], bytes]:
    """Reads and checks a ``.pt2``.

    Returns:
        The program's description (``models/model.json``), and an archive rebuilt from the checked entries alone.

    Raises:
        ModelLoadError: Not such an archive, or it holds something that would run code or that is not known to be
            harmless; the message names the entry.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = _read_entries(path, archive)
    except (OSError, zipfile.BadZipFile) as error:
        raise ModelLoadError(f"{path}: not a .pt2 archive: {error}") from error
    for name in (MODEL_ENTRY, *_CONFIGS):
        if name not in entries:
            raise ModelLoadError(f"{path}: not a torch.export archive: the entry {name} is missing", field=name)
    for name in _CONFIGS:
        _check_tensors(path, name, _parse(path, name, entries[name]), entries)
    program = _parse(path, MODEL_ENTRY, entries[MODEL_ENTRY])
    if program.get("graph_module", {}).get("treespec_namedtuple_fields"):
        raise _refusal(path, MODEL_ENTRY, "named tuples")
    program["guards_code"] = []
    _check_program(path, program)
    entries[MODEL_ENTRY] = json.dumps(program).encode()
    entries[_SAMPLE_INPUTS] = b""
    rebuilt = io.BytesIO()
    with zipfile.ZipFile(rebuilt, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(f"model/{name}", content)
    return program, rebuilt.getvalue()


def _read_entries(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    """Contents by name, without the archive's root folder; only entries whose kind is known."""
    entries: dict[str, bytes] = {}
    for info in archive.infolist():
        _, _, name = info.filename.partition("/")
        if name == _SAMPLE_INPUTS and info.file_size:
            raise ModelLoadError(
                f"{path}: holds sample inputs ({info.filename}), which torch would unpickle; save it again with "
                "`program._example_inputs = None` before torch.export.save",
                field=info.filename,
            )
        known = name in (MODEL_ENTRY, _SAMPLE_INPUTS, *_CONFIGS) or name in _PLAIN or _TENSOR.fullmatch(name)
        if not known or name in entries or info.compress_type != zipfile.ZIP_STORED:
            raise _refusal(path, info.filename, "an entry that is unknown, doubled or compressed")
        entries[name] = archive.read(info)
    return entries


def _parse(path: Path, name: str, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: {name} is not JSON: {error}", field=name) from error
    if not isinstance(value, dict):
        raise _refusal(path, name, "no JSON object")
    return value


def _check_tensors(path: Path, name: str, config: Mapping[str, Any], entries: Mapping[str, bytes]) -> None:
    """Every tensor must lie in the archive as plain bytes."""
    tensors = config.get("config")
    if not isinstance(tensors, dict):
        raise _refusal(path, name, "no table of tensors")
    folder = name.rpartition("/")[0]
    for tensor, entry in tensors.items():
        if (
            not isinstance(entry, dict)
            or entry.get("use_pickle") is not False
            or not isinstance(entry.get("tensor_meta"), dict)
        ):
            raise _refusal(path, name, f"{tensor!r}, which torch would unpickle")
        if (
            not _TENSOR.fullmatch(f"{folder}/{entry.get('path_name')}")
            or f"{folder}/{entry['path_name']}" not in entries
        ):
            raise _refusal(path, name, f"{tensor!r} with the path {entry.get('path_name')!r}")


def _check_program(path: Path, value: Any) -> None:
    """Walks the program: operators, shapes and containers must be known; stack traces and the like are emptied."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        if not isinstance(one, dict):
            continue
        if "metadata" in one:
            one["metadata"] = {}
        for key, part in one.items():
            if key == "target" and not _is_harmless(part):
                raise _refusal(path, MODEL_ENTRY, f"the operator {part!r}")
            if key == "expr_str":
                _check_expression(path, part)
            if key in ("in_spec", "out_spec"):
                _check_container(path, part)
            if key in ("as_operator", "as_custom_obj", "__enum__", "custom_obj_values") and part:
                raise _refusal(path, MODEL_ENTRY, f"{key} {part!r}")
            waiting.append(part)


def _is_harmless(target: object) -> bool:
    match = _TARGET.fullmatch(target) if isinstance(target, str) else None
    if match is None or any(f".{name}." in match[0] for name in _FILE_OPERATORS):
        return False
    return match[1] is None or match[1] in _OPERATORS


def _check_expression(path: Path, text: object) -> None:
    """A symbolic shape must be arithmetic of symbols and numbers: sympy evaluates it as Python."""
    try:
        tree = ast.parse(str(text), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _refusal(path, MODEL_ENTRY, f"the shape {text!r}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            fine = (
                isinstance(node.func, ast.Name)
                and node.func.id in _FUNCTIONS
                and (node.func.id != "Pow" or _is_small(node))
            )
        elif isinstance(node, ast.Name):
            fine = node.id in _FUNCTIONS or node.id in _WORDS or _SYMBOL.fullmatch(node.id) is not None
        elif isinstance(node, ast.Constant):
            fine = isinstance(node.value, int) or (
                isinstance(node.value, str) and _SYMBOL.fullmatch(node.value) is not None
            )
        elif isinstance(node, ast.keyword):
            fine = node.arg in _WORDS
        else:
            fine = isinstance(
                node,
                ast.Expression
                | ast.BinOp
                | ast.UnaryOp
                | ast.Compare
                | ast.Add
                | ast.Sub
                | ast.Mult
                | ast.Div
                | ast.FloorDiv
                | ast.Mod
                | ast.USub
                | ast.Load
                | ast.cmpop,
            )
        if not fine:
            raise _refusal(path, MODEL_ENTRY, f"the shape {text!r}")


def _is_small(power: ast.Call) -> bool:
    """Whether a power has an exponent that cannot eat the machine."""
    exponent = power.args[1] if len(power.args) == 2 else None
    if isinstance(exponent, ast.Call) and exponent.args:
        exponent = exponent.args[0]
    if isinstance(exponent, ast.UnaryOp):
        exponent = exponent.operand
    return isinstance(exponent, ast.Constant) and isinstance(exponent.value, int) and abs(exponent.value) <= _MAX_POWER


def _check_container(path: Path, text: object) -> None:
    """Inputs and outputs must be tuples, lists and dicts of tensors: other types are imported by name."""
    try:
        waiting = json.loads(str(text))[1:]
        while waiting:
            spec = waiting.pop()
            context = None if spec["context"] is None else json.loads(spec["context"])
            is_plain = context is None or (isinstance(context, list) and all(isinstance(key, str) for key in context))
            if spec["type"] not in _CONTAINERS or not is_plain:
                raise _refusal(path, MODEL_ENTRY, f"the container {spec['type']!r}")
            waiting += spec["children_spec"]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise _refusal(path, MODEL_ENTRY, f"the container {text!r}") from error


def _refusal(path: Path, entry: str, what: str) -> ModelLoadError:
    return ModelLoadError(f"{path}: {entry}: refused, because it holds {what}", field=entry)
