"""FASTQ files that tests write."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

BGZF_EOF = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")


def record(name: str, bases: str, qualities: str | None = None) -> str:
    return f"@{name}\n{bases}\n+\n{'I' * len(bases) if qualities is None else qualities}\n"


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def bgzip(content: bytes, block_bytes: int = 300, *, end: bool = True) -> bytes:
    """Compresses in BGZF blocks (SAM v1, section 4.1), small ones, so that records lie across them."""
    blocks = []
    for at in range(0, len(content), block_bytes):
        part = content[at : at + block_bytes]
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        body = packer.compress(part) + packer.flush()
        head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0" + struct.pack("<H", len(body) + 25)
        blocks.append(head + body + struct.pack("<II", zlib.crc32(part), len(part)))
    return b"".join(blocks) + (BGZF_EOF if end else b"")
