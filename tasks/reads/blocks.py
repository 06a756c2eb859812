"""The decompressed blocks of a FASTQ file: plain, gzip of one or many members, or bgzip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from isal import igzip_lib, isal_zlib

from tasks.bgzf import EOF_BLOCK, GZIP_MAGIC, HEADER_BYTES, block_bytes
from tasks.errors import ReadsError
from tasks.stand_ins import stand_in

BLOCK_BYTES = 1 << 22
_INPUT_BYTES = 1 << 16  # what follows a member is copied at its end: with bgzip's small members, large reads cost more
_GZIP_WBITS = isal_zlib.MAX_WBITS | 16
_OTHER_FORMATS = (
    (b"BZh", "is compressed by bzip2; compress it by gzip"),
    (b"\xfd7zXZ", "is compressed by xz; compress it by gzip"),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd; compress it by gzip"),
    (b"PK\x03\x04", "is a zip archive; unpack it, and compress it by gzip"),
    (b"CRAM", "is CRAM; give it in the sheet's column cram"),
    (b"BAM\x01", "is BAM; give it in the sheet's column bam"),
    (b"@HD\t", "is SAM; give it in the sheet's column bam"),
    (b"@SQ\t", "is SAM; give it in the sheet's column bam"),
    (b"##fileformat=VCF", "is VCF; give it in the sheet's column vcf"),
    (b">", "is FASTA, which has no base qualities"),
)


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yields the text of a FASTQ file in blocks of at most `BLOCK_BYTES`; memory stays bounded whatever is compressed.

    All that could be decompressed is yielded before an error.

    Raises:
        ReadsError: The file cannot be opened, is another format, or its gzip data is damaged or cut off.
    """
    try:
        with open(path, "rb") as handle:
            magic = handle.read(2)
            handle.seek(0)
            blocks = _gzip_blocks(path, handle) if magic == GZIP_MAGIC else _plain_blocks(handle)
            first = next(blocks, b"")
            if first and (what := stand_in(first)):
                raise ReadsError(f"{path}: not FASTQ: it is {what}", reason="NOT_FASTQ")
            for start, advice in _OTHER_FORMATS:
                if first.startswith(start):
                    raise ReadsError(f"{path}: not FASTQ: it {advice}", reason="NOT_FASTQ")
            if first:
                yield first
            yield from blocks
    except OSError as error:
        raise ReadsError(f"{path}: cannot be read: {error.strerror or error}", reason="UNREADABLE") from error


def lacks_bgzip_end(path: Path) -> bool:
    """Whether a file is bgzip without its last, empty block: it may have been cut off between two blocks."""
    with open(path, "rb") as handle:
        if block_bytes(handle.read(HEADER_BYTES)) is None:
            return False
        handle.seek(-min(len(EOF_BLOCK), path.stat().st_size), 2)
        return handle.read() != EOF_BLOCK


def _plain_blocks(handle: BinaryIO) -> Iterator[bytes]:
    while block := handle.read(BLOCK_BYTES):
        yield block


def _gzip_blocks(path: Path, handle: BinaryIO) -> Iterator[bytes]:
    """Decompresses every member; joins the small ones (bgzip's are 64 kB) into blocks."""
    parts: list[bytes] = []
    num_bytes = 0
    member = isal_zlib.decompressobj(wbits=_GZIP_WBITS)
    pending = handle.read(_INPUT_BYTES)
    while True:
        try:
            part = member.decompress(pending, BLOCK_BYTES - num_bytes)
        except igzip_lib.IsalError as error:  # type: ignore[misc]  # its stub says Any
            if num_bytes:
                yield b"".join(parts)
            at = handle.tell() - len(pending)
            raise ReadsError(
                f"{path}: damaged gzip data near byte {at:,} of the file: {error}; check it by gzip -t, copy it again",
                reason="DAMAGED_GZIP",
            ) from error
        parts.append(part)
        num_bytes += len(part)
        if num_bytes >= BLOCK_BYTES:
            yield b"".join(parts)
            parts, num_bytes = [], 0
        if member.eof:
            pending = member.unused_data or handle.read(_INPUT_BYTES)
            if not pending.strip(b"\0"):  # tapes and some file systems pad with zeros, and gzip lets them
                break
            member = isal_zlib.decompressobj(wbits=_GZIP_WBITS)
        else:
            pending = member.unconsumed_tail or handle.read(_INPUT_BYTES)
            if not pending and not part:
                if num_bytes:
                    yield b"".join(parts)
                raise ReadsError(
                    f"{path}: cut off: the gzip data ends inside a member after {handle.tell():,} bytes; copy it again",
                    reason="TRUNCATED",
                )
    if num_bytes:
        yield b"".join(parts)
