"""What a load request brings along instead of what lies in the repository."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from serving.config import parse_config
from serving.errors import InvalidArgumentError
from serving.repository import ModelFolder, make_folder, read_model

_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,199}")
_FILE = re.compile(r"[1-9][0-9]*(/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*)+")


def read_overridden(
    repository: Path, name: str, config: bytes | None, files: Mapping[str, bytes] | None
) -> ModelFolder:
    """Reads a model with the parameters of a load request in place of its files.

    Args:
        repository: The model repository.
        name: The model's name.
        config: JSON of a ModelConfig, in place of config.pbtxt; None: what lies in the repository.
        files: ``<version>/<path>`` to contents, in place of all version folders; None: those in the repository. They
            live in a temporary folder, for as long as the result does. They need a `config` (Source: Triton, "Model
            repository extension", load).

    Raises:
        InvalidArgumentError: A file's name is not ``<version>/<path>``, or files come without a config.
        NotFoundError: The repository has no such model, and there are no files.
        ModelLoadError: The configuration is wrong, or no version is there that its policy asks for.
    """
    message = None if config is None else parse_config(name, config)
    if not files:
        return read_model(repository, name, message)
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(f"load of model {name[:200]!r}: its name is not of letters, digits, '_+-.'")
    if message is None:
        raise InvalidArgumentError(
            f"load of model {name!r}: files in place of those in the repository need a 'config' too", field="config"
        )
    for file in files:
        if not _FILE.fullmatch(file):
            raise InvalidArgumentError(
                f"load of model {name!r}: {file[:200]!r} is not <version>/<path>, a version from 1 and a path of "
                "letters, digits, '_', '+', '-' and '.'",
                field=f"file:{file[:200]}",
            )
    holder = TemporaryDirectory(prefix="cohortflow-model-")
    folder = Path(holder.name) / "model"
    try:
        for file, content in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
    except OSError as error:
        raise InvalidArgumentError(f"load of model {name!r}: its files cannot be written: {error}") from error
    return make_folder(name, folder, message, holder)
