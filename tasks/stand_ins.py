"""What lies in the place of a data file when a download, a copy or a compression went wrong, by its first bytes."""

from __future__ import annotations

from tasks.bgzf import GZIP_MAGIC

_STAND_INS = {
    GZIP_MAGIC: "gzip inside gzip: it was compressed twice; unpack it once",
    b"version https://git-lfs.github.com": "a Git LFS pointer, not the file itself; fetch it by git lfs pull",
    b"\0" * 8: "zero bytes, as an unfinished copy or download leaves; copy the file again",
    b"<!doctype html": "an HTML page, as a failed download leaves; download the file again",
    b"<html": "an HTML page, as a failed download leaves; download the file again",
    b"<?xml": "XML, as a failed download leaves; download the file again",
}


def stand_in(start: bytes) -> str | None:
    """Says what a file is that is no data at all, and what to do; None for any other.

    Args:
        start: The first bytes of its content, 64 or more where it has them, unpacked once if it is compressed.
    """
    lower = start[:64].lower()
    return next((what for magic, what in _STAND_INS.items() if lower.startswith(magic)), None)
