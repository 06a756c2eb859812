"""Files that appear whole or not at all, for their owner alone."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.errors import DiskFullError, FolderError

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_READ_BYTES = 1 << 20


def make_folder(path: Path) -> Path:
    """Creates a folder and its missing parents with mode 0700; an existing one is left as it is."""
    missing = []
    current = path
    while not current.exists():
        missing.append(current)
        current = current.parent
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise FolderError(f"{folder}: cannot create the folder: {error.strerror}") from error
    return path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to; on success it is synced and renamed, on failure removed.

    Whatever happens, `path` holds its old content or the new one, never a part. Mode 0600.

    Raises:
        DiskFullError: The disk is full or the folder cannot be written; the message says path and bytes written.
    """
    make_folder(path.parent)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
        yield aside
        with open(aside, "rb") as written:
            os.fsync(written.fileno())
        os.chmod(aside, FILE_MODE)
        os.replace(aside, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            num_bytes = aside.stat().st_size if aside.exists() else 0
            message = f"{path}: the disk is full after {num_bytes:,} bytes of this file; free space and run again"
            raise DiskFullError(message) from error
        raise
    finally:
        aside.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes `content` to `path`, whole or not at all."""
    with whole_file(path) as aside:
        aside.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON with sorted keys, whole or not at all."""
    write_bytes(path, (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Reads a JSON file that this program wrote."""
    return json.loads(path.read_bytes())


def file_sha256(path: Path) -> str:
    """Digests a file's content; returns 64 hex digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        while block := handle.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def json_sha256(value: Any) -> str:
    """Digests a JSON value in its canonical form (sorted keys, no spaces); returns 64 hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
