"""The text of a FASTA file, plain or bgzip, in blocks of bounded size."""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tasks.bgzf import EOF_BLOCK, GZIP_MAGIC, HEADER_BYTES, block_bytes, inflate_block
from tasks.errors import ReferenceError
from tasks.stand_ins import stand_in

_BLOCK_BYTES = 4 << 20
# What people hand over by mistake, by the first bytes.
_OTHER_FORMATS = {
    b"BZh": "bzip2; unpack it, or recompress with bgzip",
    b"\xfd7zXZ": "xz; unpack it, or recompress with bgzip",
    b"\x28\xb5\x2f\xfd": "zstd; unpack it, or recompress with bgzip",
    b"PK\x03\x04": "a zip archive; unpack it, or recompress with bgzip",
    b"\x43\x27\x41\x1a": "UCSC 2bit; convert it with twoBitToFa",
    b"\x1a\x45\xdf\xa3": "not FASTA",
    b"\xff\xfe": "UTF-16 text; save it as plain ASCII",
    b"\xfe\xff": "UTF-16 text; save it as plain ASCII",
    b"##fileformat": "a VCF; --reference wants the genome's FASTA",
    b"@": "FASTQ or SAM; --reference wants the genome's FASTA",
    b"LOCUS": "GenBank; convert it to FASTA",
    b"CRAM": "a CRAM; --reference wants the genome's FASTA",
}


def is_bgzip(path: Path) -> bool:
    """Tells whether a FASTA is bgzip (True) or plain text (False).

    Raises:
        ReferenceError: The file is missing, unreadable, empty, gzip but not bgzip, or plainly of another format.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ReferenceError(f"{path}: not a regular file; give the FASTA itself", field="reference")
        with open(path, "rb") as handle:
            head = handle.read(64)
    except FileNotFoundError as error:
        raise ReferenceError(f"{path}: no such file", field="reference", reason="NO_SUCH_FILE") from error
    except OSError as error:
        raise ReferenceError(f"{path}: cannot read it: {error.strerror}", field="reference") from error
    if not head:
        raise ReferenceError(f"{path}: the file is empty", field="reference", reason="EMPTY_FILE")
    if head.startswith(GZIP_MAGIC):
        if block_bytes(head) is None:
            raise ReferenceError(
                f"{path}: compressed with gzip, which has no random access; bgzip it: "
                f"gunzip -c {path.name} | bgzip > {path.stem}.bgz",
                field="reference",
                reason="NOT_BGZIP",
            )
        return True
    if stood := stand_in(head):
        raise ReferenceError(f"{path}: this is {stood}", field="reference", reason="NOT_FASTA")
    for magic, what in _OTHER_FORMATS.items():
        if head.startswith(magic):
            raise ReferenceError(f"{path}: this is {what}", field="reference", reason="NOT_FASTA")
    return False


def read_plain(path: Path) -> Iterator[bytes]:
    """Yields a plain file's bytes in blocks of about 4 MB."""
    with open(path, "rb") as handle:
        while block := handle.read(_BLOCK_BYTES):
            yield block


def read_bgzip(path: Path, block_starts: list[tuple[int, int]]) -> Iterator[bytes]:
    """Yields a bgzip file's text in pieces of about 4 MB, every block's checksum verified.

    Args:
        path: The bgzip file.
        block_starts: Receives each block's start in the file and in the text, in bytes.

    Raises:
        ReferenceError: A block is damaged, or the file ends before its end-of-file block.
    """
    text_at, pieces, pieces_bytes = 0, list[bytes](), 0
    with open(path, "rb") as handle:
        last_block = b""
        while True:
            file_at = handle.tell()
            block = _read_block(handle, path, file_at)
            if not block:
                break
            try:
                text = inflate_block(block)
            except ValueError as error:
                raise ReferenceError(
                    f"{path}: damaged bgzip block at byte {file_at:,} ({error}); copy the file again",
                    field="reference",
                    reason="DAMAGED",
                ) from error
            block_starts.append((file_at, text_at))
            last_block = block
            text_at += len(text)
            pieces.append(text)
            pieces_bytes += len(text)
            if pieces_bytes >= _BLOCK_BYTES:
                yield b"".join(pieces)
                pieces, pieces_bytes = [], 0
    if last_block != EOF_BLOCK:
        raise ReferenceError(
            f"{path}: ends without the end-of-file block of bgzip: the copy is truncated; copy the file again",
            field="reference",
            reason="TRUNCATED",
        )
    if pieces_bytes:
        yield b"".join(pieces)


def gzi_bytes(block_starts: list[tuple[int, int]]) -> bytes:
    """The content of a ``.gzi``: the blocks' starts but the first one's, which is always 0, 0.

    Source: htslib, bgzf_index_dump: a count, then pairs (file offset, text offset), little-endian uint64.
    """
    starts = [start for start in block_starts if start != (0, 0)]
    return struct.pack("<Q", len(starts)) + b"".join(struct.pack("<QQ", *start) for start in starts)


def _read_block(handle: BinaryIO, path: Path, file_at: int) -> bytes:
    """Reads one BGZF block; empty at the end of the file."""
    block = handle.read(HEADER_BYTES)
    if not block:
        return b""
    if not block.startswith(GZIP_MAGIC):
        raise ReferenceError(
            f"{path}: bytes that are not bgzip at byte {file_at:,}; copy the file again",
            field="reference",
            reason="DAMAGED",
        )
    num_bytes = block_bytes(block)
    if num_bytes is None and len(block) == HEADER_BYTES:
        raise ReferenceError(
            f"{path}: not bgzip from byte {file_at:,} on (plain gzip appended?); bgzip the whole file anew",
            field="reference",
            reason="NOT_BGZIP",
        )
    if num_bytes is not None:
        block += handle.read(max(0, num_bytes - HEADER_BYTES))
    if len(block) != num_bytes:
        raise ReferenceError(
            f"{path}: ends inside the bgzip block at byte {file_at:,}: the copy is truncated; copy the file again",
            field="reference",
            reason="TRUNCATED",
        )
    return block
