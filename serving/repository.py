"""A model repository: ``<repository>/<model>/config.pbtxt`` and ``<model>/<version>/<file>``."""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.config import ENSEMBLE, backend_name, read_config
from serving.errors import ModelLoadError, NotFoundError

_VERSION = re.compile(r"[1-9][0-9]*")
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model as it lies in the repository: its parsed configuration and the versions its policy serves.

    Attributes:
        holder: What removes `path` when nobody needs it any more, if it is not in the repository.
    """

    name: str
    path: Path
    message: Any
    backend: str
    versions: tuple[int, ...]
    holder: object = None

    def version_path(self, version: int) -> Path:
        """The folder of a version."""
        return self.path / str(version)


def list_models(repository: Path) -> list[str]:
    """Names of the models in a repository, sorted; hidden folders and loose files are no models.

    Raises:
        ModelLoadError: The repository is not a folder, or cannot be read.
    """
    if not repository.is_dir():
        raise ModelLoadError(
            f"{repository}: not a folder; a model repository holds <model>/config.pbtxt and <model>/<version>/"
        )
    try:
        return sorted(entry.name for entry in repository.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise ModelLoadError(f"{repository} cannot be read: {error}") from error


def read_model(repository: Path, name: str, message: Any = None) -> ModelFolder:
    """Reads a model's configuration and finds the versions to serve.

    Args:
        repository: The model repository.
        name: The model's name.
        message: A ModelConfig in place of its config.pbtxt.

    Raises:
        NotFoundError: The repository has no such model.
        ModelLoadError: Its configuration is wrong, or no version is there that its policy asks for.
    """
    names = list_models(repository)
    if name not in names:
        raise NotFoundError(f"no model {name!r} in {repository}; it has {', '.join(names) or 'none'}")
    try:
        return make_folder(name, repository / name, message)
    except OSError as error:
        raise ModelLoadError(f"model {name!r} cannot be read: {error}") from error


def make_folder(name: str, path: Path, message: Any = None, holder: object = None) -> ModelFolder:
    """As `read_model`, for a folder that may lie anywhere.

    Raises:
        ModelLoadError: Its configuration is wrong, or no version is there that its policy asks for.
    """
    if message is None:
        message = read_config(path)
    found = sorted(int(entry.name) for entry in path.iterdir() if entry.is_dir() and _VERSION.fullmatch(entry.name))
    files = version_files(path / str(found[-1])) if found else []
    backend = backend_name(message, files)
    if backend == ENSEMBLE and not found:
        # An ensemble's version folder is empty, and version control keeps no empty folders.
        found = [1]
    return ModelFolder(name, path, message, backend, _apply_policy(message, found), holder)


def version_files(folder: Path) -> list[str]:
    """Paths of a version's files relative to its folder, with ``/``, sorted; hidden files are none of the model's."""
    if not folder.is_dir():
        return []
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts))


def files_sha256(folder: Path) -> dict[str, str]:
    """Digests every file of a version: relative path to 64 hex digits."""
    digests = {}
    for name in version_files(folder):
        digest = hashlib.sha256()
        with open(folder / name, "rb") as handle:
            while block := handle.read(_READ_BYTES):
                digest.update(block)
        digests[name] = digest.hexdigest()
    return digests


def folder_state(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Path, time of change (ns) and size of every file below a model's folder: other files, another state."""
    state = []
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except OSError:
            # Removed at this very moment: the next look sees what is left.
            continue
        # The time of a folder changes with every cache file in it.
        is_folder = stat.S_ISDIR(status.st_mode)
        relative = path.relative_to(folder)
        if not any(part.startswith(".") or part == "__pycache__" for part in relative.parts):
            state.append(
                (relative.as_posix(), 0 if is_folder else status.st_mtime_ns, 0 if is_folder else status.st_size)
            )
    return tuple(sorted(state))


def _apply_policy(message: Any, found: Sequence[int]) -> tuple[int, ...]:
    """The versions that version_policy serves, rising; the default is the latest (Source: Triton, "Version Policy")."""
    if not found:
        raise ModelLoadError(f"model {message.name!r}: has no version folder (a positive whole number, such as 1)")
    kind = message.version_policy.WhichOneof("policy_choice")
    if kind == "all":
        return tuple(found)
    if kind == "specific":
        wanted = sorted(set(message.version_policy.specific.versions))
        absent = [version for version in wanted if version not in found]
        if absent or not wanted:
            raise ModelLoadError(
                f"model {message.name!r}: version_policy.specific asks for {', '.join(map(str, wanted)) or 'none'}, "
                f"the folder has {', '.join(map(str, found))}",
                field="version_policy",
            )
        return tuple(wanted)
    count = message.version_policy.latest.num_versions or 1
    return tuple(found[-count:])
