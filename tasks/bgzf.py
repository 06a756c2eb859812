"""BGZF: gzip in blocks of at most 64 KiB, as bgzip, tabix, BAM and BCF use it.

Source: SAM v1, section 4.1. Compression is ISA-L's, which reads and writes several times faster than zlib.
"""

from __future__ import annotations

import struct
from typing import IO, Self

from isal import isal_zlib

EOF_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
"""The empty block that ends every BGZF file."""
GZIP_MAGIC = b"\x1f\x8b"
HEADER_BYTES = 18
_HEADER = struct.Struct("<4BI2BH2BHH")
_TRAILER = struct.Struct("<II")
_TEXT_BYTES = 0xFF00
_MAX_BLOCK_BYTES = 1 << 16
_LEVEL = 1


def block_bytes(header: bytes) -> int | None:
    """Size of the block that starts with these 18 bytes; None if they are not BGZF.

    The size is looked for where every writer of BGZF puts it: in the first extra field.
    """
    if len(header) < HEADER_BYTES:
        return None
    magic_1, magic_2, method, flags, _, _, _, _, letter_1, letter_2, length, size = _HEADER.unpack_from(header)
    if (magic_1, magic_2, method, flags & 4, letter_1, letter_2, length) != (0x1F, 0x8B, 8, 4, 66, 67, 2):
        return None
    return int(size) + 1


def inflate_block(block: bytes) -> bytes:
    """The text of a whole block.

    Raises:
        ValueError: The block does not unpack to the length and checksum that it states.
    """
    begin = 12 + struct.unpack_from("<H", block, 10)[0]
    if len(block) < begin + _TRAILER.size:
        raise ValueError("too short for a block")
    checksum, length = _TRAILER.unpack_from(block, len(block) - _TRAILER.size)
    if length > _MAX_BLOCK_BYTES:
        raise ValueError(f"a block of {length:,} bytes")
    try:
        text = isal_zlib.decompress(memoryview(block)[begin : -_TRAILER.size], wbits=-15, bufsize=max(length, 1))
    except isal_zlib.error as error:  # type: ignore[misc]  # its stub calls the class an instance
        raise ValueError(str(error)) from error
    if len(text) != length or isal_zlib.crc32(text) != checksum:
        raise ValueError("length or checksum differ")
    return text


class BgzfWriter:
    """Writes BGZF; the bytes depend on the text alone, not on how it is cut into writes.

    Used as a context manager; without an error it ends the file with the end-of-file block.
    """

    def __init__(self, handle: IO[bytes], *, end_of_file: bool = True) -> None:
        self._handle = handle
        self._end_of_file = end_of_file
        self._pending = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self._finish()

    def write(self, text: bytes | memoryview) -> None:
        """Takes text; whole blocks of it are written."""
        view = memoryview(text)
        if self._pending:
            missing = _TEXT_BYTES - len(self._pending)
            self._pending += bytes(view[:missing])
            view = view[missing:]
            if len(self._pending) < _TEXT_BYTES:
                return
            self._handle.write(_deflate_block(memoryview(self._pending)))
        whole = len(view) // _TEXT_BYTES * _TEXT_BYTES
        for at in range(0, whole, _TEXT_BYTES):
            self._handle.write(_deflate_block(view[at : at + _TEXT_BYTES]))
        self._pending = bytes(view[whole:])

    def _finish(self) -> None:
        if self._pending:
            self._handle.write(_deflate_block(memoryview(self._pending)))
            self._pending = b""
        if self._end_of_file:
            self._handle.write(EOF_BLOCK)


def _deflate_block(text: memoryview) -> bytes:
    data = isal_zlib.compress(text, _LEVEL, wbits=-15)
    size = HEADER_BYTES + len(data) + _TRAILER.size
    if size > _MAX_BLOCK_BYTES:
        # Text that does not shrink is stored. Source: RFC 1951, section 3.2.4.
        data = struct.pack("<BHH", 1, len(text), len(text) ^ 0xFFFF) + bytes(text)
        size = HEADER_BYTES + len(data) + _TRAILER.size
    header = _HEADER.pack(0x1F, 0x8B, 8, 4, 0, 0, 0xFF, 6, 66, 67, 2, size - 1)
    return header + data + _TRAILER.pack(isal_zlib.crc32(text), len(text))
