"""The text of a VCF file, plain, gzip or bgzip: its header's lines, then blocks of whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from tasks.bgzf import EOF_BLOCK, GZIP_MAGIC, HEADER_BYTES, block_bytes, inflate_block
from tasks.errors import VariantFileError
from tasks.quoting import quoted
from tasks.stand_ins import stand_in

BLOCK_BYTES = 4 << 20
"""Text is handed on in blocks of about this size."""
MAX_LINE_BYTES = 256 << 20
MAX_HEADER_BYTES = 256 << 20
_READ_BYTES = 1 << 20
_NEWLINE = ord("\n")
_BOM = b"\xef\xbb\xbf"
_COLUMNS = b"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"
# What people hand over by mistake, by the first bytes of the text.
_OTHER_FORMATS = {
    b"BCF": "a BCF inside a stream that is not BCF's own; write it anew with bcftools view -Ob",
    b"BAM\x01": "a BAM; give it in the sheet's column bam",
    b"CRAM": "a CRAM; give it in the sheet's column cram",
    b"@": "SAM or FASTQ",
    b">": "FASTA",
    b"BZh": "bzip2; unpack it, or recompress with bgzip",
    b"\xfd7zXZ": "xz; unpack it, or recompress with bgzip",
    b"\x28\xb5\x2f\xfd": "zstd; unpack it, or recompress with bgzip",
    b"PK\x03\x04": "a zip archive; unpack it, or recompress with bgzip",
    b"\xff\xfe": "UTF-16 text; save it as plain UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as plain UTF-8",
}


@dataclass(frozen=True, slots=True, eq=False)
class TextBlock:
    """Whole lines.

    Attributes:
        text: uint8 [size], writable, ends with a newline; valid until the next block is asked for.
        num_lines: Newlines in it.
        first_line: Number of its first line in the file, from 1.
    """

    text: NDArray[np.uint8]
    num_lines: int
    first_line: int


class VariantText:
    """A VCF's text, read once from front to back.

    Attributes:
        path: The file.
        header: Header lines without line ends, ``#CHROM`` last.
        repairs: What was mended so far, by kind: ``byte_order_mark``, ``carriage_returns`` (header lines),
            ``final_newline``.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file and reads its header.

        Raises:
            VariantFileError: The file is missing, empty, damaged, truncated, of another format, or has no ``#CHROM``
                line.
        """
        self.path = path
        self.repairs: dict[str, int] = {}
        self._pieces = _pieces(path)
        self.header, self._rest = self._read_header()

    def _read_header(self) -> tuple[tuple[bytes, ...], bytes]:
        lines: list[bytes] = []
        at, text = 0, bytearray()
        for piece in chain(self._pieces, [None]):
            is_first = not text
            text += piece if piece is not None else b"\n" * (len(text) > 0 and not text.endswith(b"\n"))
            if is_first:
                at = len(_BOM) * text.startswith(_BOM)
                self.repairs.update({"byte_order_mark": 1} if at else {})
                self._check_format(bytes(text[at : at + 64]))
            while (end := text.find(b"\n", at)) >= 0:
                line = bytes(text[at:end])
                if not line.startswith(b"#"):
                    raise self._no_columns(line, len(lines) + 1)
                if b"\r#" in line:
                    raise VariantFileError(
                        f"{self.path}: line {len(lines) + 1}: the lines end in carriage returns alone, as of old Macs; "
                        "convert them by tr '\\r' '\\n'",
                        reason="BAD_HEADER",
                    )
                lines.append(line.rstrip(b"\r"))
                self._count("carriage_returns", line.endswith(b"\r"))
                at = end + 1
                if not line.startswith(b"##"):
                    return self._checked(lines), bytes(text[at:])
            if len(text) > MAX_HEADER_BYTES:
                raise VariantFileError(
                    f"{self.path}: no end of the header within {MAX_HEADER_BYTES:,} bytes", reason="NO_HEADER"
                )
        raise self._no_columns(b"", len(lines) + 1)

    def _check_format(self, start: bytes) -> None:
        if not start:
            raise VariantFileError(f"{self.path}: the file is empty", reason="EMPTY_FILE")
        named = (what for magic, what in _OTHER_FORMATS.items() if start.startswith(magic))
        what = stand_in(start) or next(named, None)
        if what:
            raise VariantFileError(f"{self.path}: not a VCF: this is {what}", reason="NOT_VCF")

    def _no_columns(self, line: bytes, number: int) -> VariantFileError:
        if number == 1 and line.count(b"\t") < _COLUMNS.count(b"\t"):
            return VariantFileError(f"{self.path}: not a VCF: it starts with {quoted(line, 40)}", reason="NOT_VCF")
        return VariantFileError(
            f"{self.path}: line {number}: records without a #CHROM line before them; "
            "put the header back (bcftools reheader, or cat header.vcf body.vcf)",
            reason="NO_HEADER",
        )

    def _checked(self, lines: list[bytes]) -> tuple[bytes, ...]:
        columns = lines[-1]
        if columns == _COLUMNS or columns.startswith(_COLUMNS + b"\tFORMAT"):
            names = columns.split(b"\t")[9:]
            at = f"{self.path}: line {len(lines)}: "
            if b"" in names:
                raise VariantFileError(at + "a sample without a name: a tab too many", reason="BAD_HEADER")
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise VariantFileError(at + f"two samples are named {quoted(twice)}", reason="DUPLICATE_SAMPLE")
            if b"\0" in columns:
                raise VariantFileError(at + "a NUL byte in a sample's name", reason="BAD_HEADER")
            return tuple(lines)
        hint = " (spaces where tabs belong?)" if b" " in columns and b"\t" not in columns else ""
        raise VariantFileError(
            f"{self.path}: line {len(lines)}: {quoted(columns, 80)} is not the column line{hint}; "
            "it must be #CHROM POS ID REF ALT QUAL FILTER INFO, then FORMAT and samples, with tabs between",
            reason="BAD_HEADER",
        )

    def _count(self, repair: str, number: int) -> None:
        if number:
            self.repairs[repair] = self.repairs.get(repair, 0) + number

    def blocks(self) -> Iterator[TextBlock]:
        """Yields the lines after the header.

        Raises:
            VariantFileError: The file is damaged or truncated, or a line is longer than `MAX_LINE_BYTES`.
        """
        buffer = np.empty(BLOCK_BYTES + 2 * _READ_BYTES, dtype=np.uint8)
        filled, searched, target, line = 0, 0, BLOCK_BYTES, len(self.header) + 1
        for piece in chain([self._rest], self._pieces):
            end = filled + len(piece)
            if end > len(buffer):
                buffer = np.concatenate([buffer[:filled], np.empty(max(end, len(buffer)), dtype=np.uint8)])
            buffer[filled:end] = np.frombuffer(piece, dtype=np.uint8)
            filled = end
            if filled < target:
                continue
            cut = searched + _after_last_newline(buffer[searched:filled])
            if cut == searched:
                if filled > MAX_LINE_BYTES:
                    raise VariantFileError(
                        f"{self.path}: line {line}: longer than {MAX_LINE_BYTES:,} bytes", reason="LINE_TOO_LONG"
                    )
                searched, target = filled, filled + BLOCK_BYTES
                continue
            num_lines = int(np.count_nonzero(buffer[:cut] == _NEWLINE))
            yield TextBlock(buffer[:cut], num_lines, line)
            line += num_lines
            rest = buffer[cut:filled].copy()
            filled = searched = len(rest)
            buffer[:filled] = rest
            target = filled + BLOCK_BYTES
        if filled:
            if buffer[filled - 1] != _NEWLINE:
                buffer = np.append(buffer[:filled], np.uint8(_NEWLINE))
                filled += 1
                self._count("final_newline", 1)
            yield TextBlock(buffer[:filled], int(np.count_nonzero(buffer[:filled] == _NEWLINE)), line)


def _after_last_newline(text: NDArray[np.uint8]) -> int:
    """One past the last newline, 0 if there is none."""
    step = 1 << 16
    for end in range(len(text), 0, -step):
        begin = max(0, end - step)
        found = text[begin:end].tobytes().rfind(b"\n")
        if found >= 0:
            return begin + found + 1
    return 0


def _pieces(path: Path) -> Iterator[bytes]:
    """The file's text in pieces of at most `_READ_BYTES`, unpacked."""
    try:
        handle = open(path, "rb", buffering=_READ_BYTES)  # noqa: SIM115 - closed by whichever generator gets it
    except FileNotFoundError as error:
        raise VariantFileError(f"{path}: no such file", reason="NO_SUCH_FILE") from error
    except OSError as error:
        raise VariantFileError(f"{path}: cannot read it: {error.strerror}", reason="UNREADABLE") from error
    with handle:
        head = handle.read(HEADER_BYTES)
        handle.seek(0)
        if block_bytes(head) is not None:
            yield from _bgzip_pieces(handle, path)
        elif head.startswith(GZIP_MAGIC):
            yield from _gzip_pieces(handle, path)
        else:
            while piece := handle.read(_READ_BYTES):
                yield piece


def _bgzip_pieces(handle: IO[bytes], path: Path) -> Iterator[bytes]:
    last = b""
    at = 0
    while header := handle.read(HEADER_BYTES):
        size = block_bytes(header)
        if size is None and len(header) == HEADER_BYTES:
            raise _damaged(path, at, "no block starts here")
        body = handle.read(size - HEADER_BYTES) if size else b""
        if size is None or len(header) + len(body) < size:
            raise _truncated(path, f"inside the bgzip block at byte {at:,}")
        last = header + body
        try:
            text = inflate_block(last)
        except ValueError as error:
            raise _damaged(path, at, str(error)) from error
        at += size
        if text:
            yield text
    if last != EOF_BLOCK:
        raise _truncated(path, "without the end-of-file block of bgzip")


def _gzip_pieces(handle: IO[bytes], path: Path) -> Iterator[bytes]:
    """Unpacks gzip of any number of members; zeros after the last one are padding."""
    member = isal_zlib.decompressobj(wbits=31)
    packed = handle.read(_READ_BYTES)
    while packed:
        if member.eof:
            packed = packed.lstrip(b"\0")
            if packed:
                member = isal_zlib.decompressobj(wbits=31)
        if packed:
            try:
                text = member.decompress(packed, _READ_BYTES)
            except isal_zlib.error as error:  # type: ignore[misc]  # its stub calls the class an instance
                raise _damaged(path, handle.tell(), f"near here: {error}") from error
            if text:
                yield text
            packed = member.unused_data if member.eof else member.unconsumed_tail
        packed = packed or handle.read(_READ_BYTES)
    if not member.eof:
        raise _truncated(path, "inside gzip data")


def _damaged(path: Path, at: int, what: str) -> VariantFileError:
    return VariantFileError(
        f"{path}: damaged compressed data at byte {at:,} ({what}); copy the file again", reason="DAMAGED"
    )


def _truncated(path: Path, where: str) -> VariantFileError:
    return VariantFileError(f"{path}: truncated: the file ends {where}; copy the file again", reason="TRUNCATED")
