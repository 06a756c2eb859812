"""The records of a FASTQ file, each checked before any other parser sees it.

A record has four lines: ``@name comment``, the sequence, ``+`` (and the first line again, or nothing), the qualities.
Source: Cock et al. 2010, "The Sanger FASTQ file format", Nucleic Acids Research 38:1767; names: SAM v1, section 1.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numba import njit

from tasks.errors import ReadsError
from tasks.quoting import quoted
from tasks.reads.blocks import read_blocks

NUM_QUALITIES = 94
"""Phred scores 0 to 93, written as ``!`` to ``~``."""
NUM_POSITIONS = 512
"""Base qualities are summed by their place in the read for so many places."""

_MAX_NAME_BYTES = 254  # SAM v1, section 1.4: QNAME
_MAX_RECORD_BYTES = 1 << 27
_CHUNK_RECORDS = 1 << 15
_FIRST_QUALITY = 33

_OK, _INCOMPLETE = 0, 1
_NO_AT, _BAD_NAME, _LONG_NAME, _BLANK_LINE, _BAD_BASE, _NO_PLUS, _OTHER_NAME, _BAD_LENGTH, _BAD_QUALITY = range(2, 11)

_NEWLINE, _RETURN, _NOT_A_BASE = 10, 11, 12


def _token_table() -> npt.NDArray[np.uint8]:
    """Maps bytes to tokens; IUPAC letters and ``.`` are bases that are not known (4)."""
    table = np.full(256, _NOT_A_BASE, dtype=np.uint8)
    for letter in "NRYKMSWBDHVU.":
        table[[ord(letter), ord(letter.lower())]] = 4
    for token, letter in enumerate("ACGT"):
        table[[ord(letter), ord(letter.lower())]] = token
    table[ord("\n")] = _NEWLINE
    table[ord("\r")] = _RETURN
    return table


TOKEN_OF = _token_table()
"""uint8 [256]: the token of each byte (A0 C1 G2 T3, 4 for a base that is not known); above 4: no base."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordChunk:
    """Some consecutive records.

    Attributes:
        lengths_bp: int64 [num_records].
        name_hashes: uint64 [num_records], of the names without comment, ``/1`` and ``/2``.
        tokens: uint8 [num_bases + num_records], the bases of each record, then a 4.
        quality_counts: int64 [94], bases by quality.
        position_sums: int64 [512], qualities summed by place in the read.
        position_counts: int64 [512], bases by place in the read.
    """

    lengths_bp: npt.NDArray[np.int64]
    name_hashes: npt.NDArray[np.uint64]
    tokens: npt.NDArray[np.uint8]
    quality_counts: npt.NDArray[np.int64]
    position_sums: npt.NDArray[np.int64]
    position_counts: npt.NDArray[np.int64]


def read_records(path: Path) -> Iterator[RecordChunk]:
    """Reads and checks a FASTQ file; every record is in one chunk, in the file's order.

    Raises:
        ReadsError: The first record that is wrong: file, record number, line number, what was found.
    """
    blocks = read_blocks(path)
    pending = b""
    num_records = 0
    final = False
    while not final:
        block = _next_block(blocks, num_records)
        # A record longer than a block: double what is read each time, so that it is not scanned over and over.
        while block and len(block) < len(pending):
            if not (more := _next_block(blocks, num_records)):
                break
            block += more
        final = not block
        if len(pending) > _MAX_RECORD_BYTES:
            raise _fault(path, num_records, 1, f"it has more than {_MAX_RECORD_BYTES:,} bytes", "RECORD_TOO_LONG")
        pending += block
        buffer = np.frombuffer(pending, dtype=np.uint8)
        at = 0
        while True:
            chunk, at, status, fault_at = _scan_chunk(buffer, at, final)
            if len(chunk.lengths_bp):
                yield chunk
                num_records += len(chunk.lengths_bp)
            if status == _INCOMPLETE and final and b"\r" in pending and b"\n" not in pending:
                what = "the lines end in carriage returns alone, as of old Macs; convert them by tr '\\r' '\\n'"
                raise _fault(path, num_records, 1, what, "BAD_FASTQ")
            if status == _INCOMPLETE and final:
                raise _fault(
                    path, num_records, 4, "the file ends inside it: it was cut off, copy it again", "TRUNCATED"
                )
            if status > _INCOMPLETE:
                raise _explain(path, num_records, pending, at, status, fault_at)
            if status == _INCOMPLETE or at == len(pending):
                break
        pending = pending[at:]


def _next_block(blocks: Iterator[bytes], num_records: int) -> bytes:
    """The next block, empty at the end; a fault of the file's data says which record it interrupts."""
    try:
        return next(blocks, b"")
    except ReadsError as error:
        if error.reason not in ("TRUNCATED", "DAMAGED_GZIP"):
            raise
        raise ReadsError(f"{error.message} (inside record {num_records + 1:,})", reason=error.reason) from error


def _scan_chunk(buffer: npt.NDArray[np.uint8], at: int, final: bool) -> tuple[RecordChunk, int, int, int]:
    lengths_bp = np.empty(_CHUNK_RECORDS, dtype=np.int64)
    name_hashes = np.empty(_CHUNK_RECORDS, dtype=np.uint64)
    tokens = np.empty(len(buffer) - at + 1, dtype=np.uint8)
    quality_counts = np.zeros((4, 256), dtype=np.int64)
    position_sums = np.zeros(NUM_POSITIONS, dtype=np.int64)
    position_counts = np.zeros(NUM_POSITIONS + 1, dtype=np.int64)
    num_records, num_tokens, at, status, fault_at = _scan(
        buffer, at, final, TOKEN_OF, lengths_bp, name_hashes, tokens, quality_counts, position_sums, position_counts
    )
    chunk = RecordChunk(
        lengths_bp=lengths_bp[:num_records],
        name_hashes=name_hashes[:num_records],
        tokens=tokens[:num_tokens],
        quality_counts=quality_counts.sum(axis=0)[_FIRST_QUALITY : _FIRST_QUALITY + NUM_QUALITIES],
        position_sums=position_sums,
        # Reads were counted by their length: a place has the bases of all reads that are longer.
        position_counts=np.cumsum(position_counts[::-1])[::-1][1:].copy(),
    )
    return chunk, at, status, fault_at


@njit(cache=True, nogil=True)
def _line_end(buffer: npt.NDArray[np.uint8], at: int) -> int:
    """Place of the next line feed, or the buffer's end."""
    while at < buffer.shape[0] and buffer[at] != 10:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _scan(
    buffer: npt.NDArray[np.uint8],
    at: int,
    final: bool,
    token_of: npt.NDArray[np.uint8],
    lengths_bp: npt.NDArray[np.int64],
    name_hashes: npt.NDArray[np.uint64],
    tokens: npt.NDArray[np.uint8],
    quality_counts: npt.NDArray[np.int64],
    position_sums: npt.NDArray[np.int64],
    position_counts: npt.NDArray[np.int64],
) -> tuple[int, int, int, int, int]:
    """Scans whole records from `at`; returns records, tokens, the next record's place, status and the fault's place.

    `quality_counts` has four rows, used in turn: runs of one quality would wait for their own last addition.
    """
    size = buffer.shape[0]
    num_records = 0
    num_tokens = 0
    while num_records < lengths_bp.shape[0] and at < size:
        if buffer[at] != 64:  # @
            blank = at
            while blank < size and (buffer[blank] == 10 or buffer[blank] == 13 or buffer[blank] == 32):
                blank += 1
            if blank == size:
                if final:
                    at = size
                    break
                return num_records, num_tokens, at, _INCOMPLETE, at
            return num_records, num_tokens, at, _BLANK_LINE if blank > at else _NO_AT, at

        header_end = _line_end(buffer, at)
        if header_end == size:
            return num_records, num_tokens, at, _INCOMPLETE, at
        name_end = at + 1
        digest = np.uint64(14695981039346656037)  # FNV-1a, 64 bits
        before_mate = digest
        while 33 <= buffer[name_end] <= 126:
            if buffer[name_end] == 47:  # /
                before_mate = digest
            digest = (digest ^ np.uint64(buffer[name_end])) * np.uint64(1099511628211)
            name_end += 1
        end = buffer[name_end]
        is_name = end == 10 or end == 13 or end == 32 or end == 9
        if not is_name or name_end == at + 1 or buffer[at + 1] == 64:  # SAM: a name does not begin with @
            return num_records, num_tokens, at, _BAD_NAME, name_end
        if name_end - at - 1 > _MAX_NAME_BYTES:
            return num_records, num_tokens, at, _LONG_NAME, name_end
        mate = buffer[name_end - 1]
        if name_end - at > 3 and buffer[name_end - 2] == 47 and (mate == 49 or mate == 50):
            digest = before_mate

        base_at = header_end + 1
        token_at = num_tokens
        while base_at < size:
            token = token_of[buffer[base_at]]
            if token > 4:
                break
            tokens[token_at] = token
            token_at += 1
            base_at += 1
        length_bp = token_at - num_tokens
        if base_at < size and buffer[base_at] == 13:
            base_at += 1
        if base_at == size:
            return num_records, num_tokens, at, _INCOMPLETE, at
        if buffer[base_at] != 10:
            return num_records, num_tokens, at, _BAD_BASE, base_at

        plus_at = base_at + 1
        plus_end = _line_end(buffer, plus_at)
        if plus_at < size and buffer[plus_at] != 43:  # +
            return num_records, num_tokens, at, _NO_PLUS, plus_at
        if plus_end == size:
            return num_records, num_tokens, at, _INCOMPLETE, at
        repeated = plus_end - plus_at - 1
        if repeated > 0 and buffer[plus_end - 1] == 13:
            repeated -= 1
        if repeated > 0:
            for place in range(1, repeated + 1):
                if at + place >= header_end or buffer[plus_at + place] != buffer[at + place]:
                    return num_records, num_tokens, at, _OTHER_NAME, plus_at
            rest = at + 1 + repeated
            if rest != name_end and buffer[rest] != 10 and buffer[rest] != 13:
                return num_records, num_tokens, at, _OTHER_NAME, plus_at

        quality_at = plus_end + 1
        quality_end = quality_at + length_bp
        if quality_end > size or (quality_end == size and not final):
            if _line_end(buffer, quality_at) < size:
                return num_records, num_tokens, at, _BAD_LENGTH, quality_at
            return num_records, num_tokens, at, _INCOMPLETE, at
        next_at = quality_end
        if next_at < size and buffer[next_at] == 13:
            next_at += 1
            if next_at == size and not final:
                return num_records, num_tokens, at, _INCOMPLETE, at
        if next_at < size and buffer[next_at] != 10:
            if _line_end(buffer, next_at) == size and not final:
                return num_records, num_tokens, at, _INCOMPLETE, at
            return num_records, num_tokens, at, _BAD_LENGTH, quality_at
        is_bad = False
        for place in range(length_bp):
            quality = buffer[quality_at + place]
            is_bad |= quality < 33 or quality > 126
            quality_counts[place & 3, quality] += 1
        if is_bad:
            for place in range(length_bp):
                quality = buffer[quality_at + place]
                if quality == 10 or (quality == 13 and buffer[quality_at + place + 1] == 10):
                    return num_records, num_tokens, at, _BAD_LENGTH, quality_at
                if quality < 33 or quality > 126:
                    return num_records, num_tokens, at, _BAD_QUALITY, quality_at + place
        for place in range(min(length_bp, position_sums.shape[0])):
            position_sums[place] += np.int64(buffer[quality_at + place]) - _FIRST_QUALITY
        position_counts[min(length_bp, position_sums.shape[0])] += 1
        tokens[token_at] = 4
        num_tokens = token_at + 1
        lengths_bp[num_records] = length_bp
        name_hashes[num_records] = digest
        num_records += 1
        at = min(next_at + 1, size)
    return num_records, num_tokens, at, _OK, at


def _fault(path: Path, num_records: int, line: int, what: str, reason: str) -> ReadsError:
    """A fault of the record after the first `num_records`; `line` of the record counts from 1."""
    return ReadsError(f"{path}: record {num_records + 1:,} (line {4 * num_records + line:,}): {what}", reason=reason)


def _explain(path: Path, num_records: int, text: bytes, at: int, status: int, fault_at: int) -> ReadsError:
    """Says what is wrong with the record that begins at `at` of `text`."""
    lines = [line.rstrip(b"\r") for line in text[at:].split(b"\n", 4)]
    line_start = text.rfind(b"\n", 0, fault_at) + 1
    column = fault_at - line_start + 1
    found = quoted(text[fault_at : fault_at + 1])
    if status == _NO_AT:
        return _fault(path, num_records, 1, f"begins with {quoted(lines[0])}, not with @", "BAD_FASTQ")
    if status == _BLANK_LINE:
        return _fault(path, num_records, 1, "a blank line where a record should begin", "BAD_FASTQ")
    if status == _BAD_NAME:
        return _fault(path, num_records, 1, f"no usable read name: {quoted(lines[0])}", "BAD_FASTQ")
    if status == _LONG_NAME:
        what = f"the read name has {fault_at - at - 1} bytes; BAM holds {_MAX_NAME_BYTES}"
        return _fault(path, num_records, 1, what, "BAD_FASTQ")
    if status == _BAD_BASE:
        return _fault(path, num_records, 2, f"column {column} of the sequence is {found}, not a base", "BAD_FASTQ")
    if status == _NO_PLUS:
        what = f"the third line is {quoted(lines[2])}, not +; a record has four lines"
        if lines[2] and max(TOKEN_OF[byte] for byte in lines[2]) <= 4:
            what += " (if sequences go over several lines, unwrap them: seqtk seq)"
        return _fault(path, num_records, 3, what, "BAD_FASTQ")
    if status == _OTHER_NAME:
        what = f"the third line {quoted(lines[2])} names another read than the first, {quoted(lines[0])}"
        return _fault(path, num_records, 3, what, "BAD_FASTQ")
    if status == _BAD_LENGTH:
        what = f"{len(lines[1]):,} bases but {len(lines[3]):,} qualities"
        return _fault(path, num_records, 4, what, "BAD_FASTQ")
    what = f"column {column} of the qualities is {found}, not one of ! to ~"
    return _fault(path, num_records, 4, what, "BAD_FASTQ")
