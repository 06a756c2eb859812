"""A Keras model's file, checked before Keras opens it.

Opening one can run code that its author chose: Lambda layers hold Python bytecode, functions and classes are imported
by name from any module, some layers unpickle, load further models or read files. Only layers, operations, initializers
and the like that Keras itself defines are let through, each by its name; HDF5 links that lead out of the file are
refused. How the model was compiled for training is left out of the copy that Keras is given.

Source: Keras 3.15, keras/src/saving/saving_lib.py, serialization_lib.py, keras/src/legacy/saving/legacy_h5_format.py.
"""

from __future__ import annotations

import inspect
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import h5py
import keras

from serving.errors import ModelLoadError

KERAS_SUFFIX = ".keras"
H5_SUFFIXES = (".h5", ".hdf5")
_CONFIG, _METADATA, _WEIGHTS = "config.json", "metadata.json", "model.weights.h5"

# Namespaces whose classes a configuration may name; an old .h5 names classes without one.
_NAMESPACES = ("layers", "initializers", "regularizers", "constraints", "dtype_policies", "models")
_OPERATIONS = re.compile(r"keras\.src\.ops\.(numpy|nn|math|linalg)")
_MODELS = {"keras.src.models.functional": "Functional", "keras.src.models.sequential": "Sequential"}
_PLAIN = frozenset({"__keras_tensor__", "__tensor__", "__numpy__", "__slice__", "__ellipsis__", "slice"})
# They run code, unpickle, load other models, or read files and addresses that their configuration names.
_REFUSED = frozenset(
    {
        "FlaxLayer",
        "IntegerLookup",
        "JaxLayer",
        "Lambda",
        "StringLookup",
        "TFSMLayer",
        "TextVectorization",
        "TorchModuleWrapper",
    }
)


def checked_copy(path: Path, folder: Path) -> Path:
    """Copies a model's file into a folder, after everything in it was checked.

    Raises:
        ModelLoadError: It is no such file, or holds what would run code or is not known to be harmless; the message
            names it.
    """
    try:
        content = path.read_bytes()
        if path.suffix == KERAS_SUFFIX:
            content = _checked_archive(path, content)
        else:
            _check_h5(path, content)
    except ModelLoadError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError, zipfile.BadZipFile) as error:
        raise ModelLoadError(f"{path}: not a Keras model: {type(error).__name__}: {error}") from error
    copy = folder / path.name
    copy.write_bytes(content)
    return copy


def _checked_archive(path: Path, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        for name in names:
            if name not in (_CONFIG, _METADATA, _WEIGHTS) or names.count(name) > 1:
                raise _refusal(path, name, "an entry that is unknown or doubled")
        for name in (_CONFIG, _WEIGHTS):
            if name not in names:
                raise ModelLoadError(f"{path}: the entry {name} is missing", field=name)
        entries = {name: archive.read(name) for name in names}
    config = json.loads(entries[_CONFIG])
    config.pop("compile_config", None)
    _check_config(path, config)
    entries[_CONFIG] = json.dumps(config).encode()
    _check_h5(path, entries[_WEIGHTS])
    rebuilt = io.BytesIO()
    with zipfile.ZipFile(rebuilt, "w", zipfile.ZIP_STORED) as archive:
        for name, entry in entries.items():
            archive.writestr(name, entry)
    return rebuilt.getvalue()


def _check_h5(path: Path, content: bytes) -> None:
    """No link may lead out of an HDF5 file; the configuration in an old one is checked too."""
    with h5py.File(io.BytesIO(content), "r") as file:
        if "model_config" in file.attrs:
            _check_config(path, json.loads(file.attrs["model_config"]))
        waiting: list[Any] = [file]
        while waiting:
            group = waiting.pop()
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise _refusal(path, f"{group.name}/{name}", "a link to elsewhere")
                one = group[name]
                if isinstance(one, h5py.Group):
                    waiting.append(one)
                elif one.external or one.is_virtual:
                    raise _refusal(path, one.name, "numbers that lie in another file")


def _check_config(path: Path, config: Any) -> None:
    """Walks the configuration: every class that it names must be one that Keras has and that is harmless."""
    waiting = [config]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            if "class_name" in one and not _is_harmless(one):
                what = f"{one.get('module') or ''}:{one['class_name']}".removeprefix(":")
                raise _refusal(path, _CONFIG, f"{what!r}, which can carry code or is no part of Keras")
            waiting += one.values()


def _is_harmless(one: dict[str, Any]) -> bool:
    name, module = one["class_name"], one.get("module")
    if name in _PLAIN:
        return True
    if not isinstance(name, str) or name in _REFUSED or one.get("registered_name") not in (None, name):
        return False
    if name == "function":
        return module in (None, "builtins") and inspect.isfunction(getattr(keras.activations, str(one["config"]), None))
    if module is None:
        return name in ("Functional", "Model", "Sequential") or any(
            _has_class(getattr(keras, namespace), name) for namespace in _NAMESPACES
        )
    if module in _MODELS:
        return bool(_MODELS[module] == name)
    if isinstance(module, str) and (found := _OPERATIONS.fullmatch(module)):
        kind = getattr(getattr(keras.src.ops, found[1]), name, None)
        return inspect.isclass(kind) and issubclass(kind, keras.Operation) and kind.__module__ == module
    spaces = {f"keras.{namespace}": getattr(keras, namespace) for namespace in _NAMESPACES} | {"keras": keras}
    return module in spaces and _has_class(spaces[module], name)


def _has_class(space: Any, name: str) -> bool:
    kind = getattr(space, name, None)
    return inspect.isclass(kind) and kind.__module__.startswith("keras.src.")


def _refusal(path: Path, entry: str, what: str) -> ModelLoadError:
    return ModelLoadError(f"{path}: {entry}: refused, because it holds {what}", field=entry)
