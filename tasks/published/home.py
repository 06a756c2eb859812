"""Where added models live: a folder for each, which is a model repository by itself."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.errors import FolderError
from tasks.files import FILE_MODE, file_sha256, make_folder, read_json
from tasks.published.publication import Publication, PublishedModelError

FACTS = "published.json"
"""Beside the models of a repository: the publication that they come from, written last."""


@dataclass(frozen=True, slots=True)
class ModelsHome:
    """The folder of all added models.

    A model is there whole or not at all: it is made aside, under a lock of its name, and renamed. What a killed process
    left aside is removed by the next one that holds the lock.
    """

    root: Path

    @property
    def packages(self) -> Path:
        """Downloaded wheels."""
        return self.root / ".packages"

    def repository(self, name: str) -> Path:
        """The model repository of a publication, whether it is there or not."""
        return self.root / name

    def facts(self, name: str) -> dict[str, Any] | None:
        """What `FACTS` says of an added model; None where it was not added."""
        path = self.repository(name) / FACTS
        return dict(read_json(path)) if path.is_file() else None

    def changed_files(self, name: str) -> list[str]:
        """Files of an added model that are not as they were when it was added: changed, lost, or new; sorted."""
        repository = self.repository(name)
        facts = self.facts(name)
        said: dict[str, str] = facts["files"] if facts else {}
        there = {str(path.relative_to(repository)) for path in repository.rglob("*") if path.is_file()} - {FACTS}
        same = {file for file, digest in said.items() if file in there and file_sha256(repository / file) == digest}
        return sorted((there | said.keys()) - same)

    @contextmanager
    def locked(self, name: str) -> Iterator[Path]:
        """Holds the lock of a model's name; yields an empty folder, which is removed if it is still there at the end.

        The lock is the operating system's: it ends with the process, however that dies.

        Raises:
            FolderError: Another process holds it, or the home cannot be written.
        """
        make_folder(self.root)
        try:
            lock = os.open(self.root / f".{name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise FolderError(f"{self.root}: cannot be written: {error.strerror}") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
                raise FolderError(
                    f"{self.repository(name)}: another command (process {holder or 'unknown'}) adds or removes this "
                    "model; wait for it or stop it",
                    reason="LOCKED",
                ) from error
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
            aside = self.root / f".{name}.part"
            shutil.rmtree(aside, ignore_errors=True)
            try:
                yield make_folder(aside)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        finally:
            os.close(lock)

    def publish(self, made: Path, name: str) -> Path:
        """Puts a folder that was made aside in the model's place; the caller holds its lock. Returns the repository."""
        for path in (*made.rglob("*"), made):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        repository = self.repository(name)
        if repository.exists():
            # A folder cannot be replaced in one step: for a moment the model is not there, but it is never half.
            repository.rename(made.with_name("replaced"))
        made.rename(repository)
        return repository

    def remove(self, publication: Publication) -> None:
        """Removes an added model, and its wheel.

        Raises:
            PublishedModelError: It was not added.
            FolderError: It is being added, or cannot be removed.
        """
        repository = self.repository(publication.name)
        with self.locked(publication.name) as aside:
            if not repository.exists():
                raise PublishedModelError(f"{publication.name}: was not added to {self.root}", field="name")
            try:
                repository.rename(aside / "removed")
                (self.packages / publication.file_name).unlink(missing_ok=True)
            except OSError as error:
                raise FolderError(f"{repository}: cannot be removed: {error.strerror}") from error
