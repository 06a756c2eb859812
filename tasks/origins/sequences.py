"""Contigs and long reads as tokens, from FASTA or FASTQ, plain or gzip, in blocks of bounded size."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from tasks.bgzf import GZIP_MAGIC
from tasks.errors import ReadsError
from tasks.quoting import quoted
from tasks.reads.records import read_records
from tasks.reads.sequences import read_sequences

BLOCK_BP = 16 << 20
"""Bases after which a block is closed."""
_READ_BYTES = 4 << 20
_MAX_RECORD_BYTES = 1 << 30
_NOT_A_BASE = 5


def _token_table() -> npt.NDArray[np.uint8]:
    """Maps bytes to tokens: A0 C1 G2 T3 in either case, other IUPAC letters and gaps 4, anything else 5."""
    table = np.full(256, _NOT_A_BASE, dtype=np.uint8)
    for letter in "NRYKMSWBDHVUnrykmswbdhvu.-":
        table[ord(letter)] = 4
    for token, letter in enumerate("ACGT"):
        table[[ord(letter), ord(letter.lower())]] = token
    return table


_TOKEN_OF = _token_table()


@dataclass(frozen=True, slots=True, eq=False)
class SequenceBlock:
    """Some consecutive sequences of a file.

    Attributes:
        names: Their names, up to the first blank.
        lengths_bp: int64 [num_sequences].
        tokens: uint8 [sum of lengths_bp]: A0 C1 G2 T3 in either case, 4 for anything else.
    """

    names: list[str]
    lengths_bp: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.uint8]


def read_blocks(path: Path) -> Iterator[SequenceBlock]:
    """Reads a FASTA or FASTQ file; every sequence is in one block, in the file's order.

    Raises:
        ReadsError: The file cannot be opened, is neither, is damaged or cut off, or holds what is no sequence; the
            message names file and record.
    """
    try:
        with open(path, "rb") as handle:
            is_gzip = handle.read(2) == GZIP_MAGIC
        with gzip.open(path, "rb") if is_gzip else open(path, "rb") as opened:
            text = cast(BinaryIO, opened)
            first = text.read(1)
            if first == b">":
                yield from _fasta_blocks(path, text)
                return
    except (OSError, EOFError) as error:
        raise ReadsError(f"{path}: cannot be read: {error}; copy it again", reason="UNREADABLE") from error
    if first != b"@":
        what = "is empty" if not first else "begins neither as FASTA (>) nor as FASTQ (@)"
        raise ReadsError(f"{path}: {what}; give contigs or long reads", reason="NOT_SEQUENCES")
    yield from _fastq_blocks(path)


def _fastq_blocks(path: Path) -> Iterator[SequenceBlock]:
    # The checked reader knows no names: a second one beside it, which never runs ahead of the check, tells them.
    reads = read_sequences(path)
    for chunk in read_records(path):
        names = [name for name, _, _ in islice(reads, len(chunk.lengths_bp))]
        is_base = np.ones(len(chunk.tokens), dtype=bool)
        is_base[np.cumsum(chunk.lengths_bp + 1) - 1] = False
        yield SequenceBlock(names, chunk.lengths_bp, chunk.tokens[is_base])


def _fasta_blocks(path: Path, text: BinaryIO) -> Iterator[SequenceBlock]:
    names: list[str] = []
    parts: list[npt.NDArray[np.uint8]] = []
    num_bp = 0
    for number, record in enumerate(_fasta_records(path, text), 1):
        header, _, lines = record.partition(b"\n")
        name = header.decode("latin-1").split(None, 1)
        where = f"{path}: sequence {number:,} ({quoted(name[0]) if name else 'without a name'})"
        if not name:
            raise ReadsError(f"{where}: name it after the >", reason="BAD_FASTA")
        tokens = _TOKEN_OF[np.frombuffer(lines.translate(None, b"\r\n \t"), dtype=np.uint8)]
        if len(tokens) and tokens.max() == _NOT_A_BASE:
            raise ReadsError(
                f"{where}: holds letters that are no bases, as of protein; give nucleotides", reason="BAD_FASTA"
            )
        names.append(name[0])
        parts.append(tokens)
        num_bp += len(tokens)
        if num_bp >= BLOCK_BP:
            yield _block(names, parts)
            names, parts, num_bp = [], [], 0
    if names:
        yield _block(names, parts)


def _block(names: list[str], parts: list[npt.NDArray[np.uint8]]) -> SequenceBlock:
    return SequenceBlock(names, np.array([len(part) for part in parts], dtype=np.int64), np.concatenate(parts))


def _fasta_records(path: Path, text: BinaryIO) -> Iterator[bytes]:
    """The records of a FASTA file whose first ``>`` has been read, each without it."""
    pending = b""
    while more := text.read(_READ_BYTES):
        *whole, pending = (pending + more).split(b"\n>")
        yield from whole
        if len(pending) > _MAX_RECORD_BYTES:
            raise ReadsError(
                f"{path}: a sequence of more than {_MAX_RECORD_BYTES:,} bytes; give contigs or long reads",
                reason="RECORD_TOO_LONG",
            )
    yield pending
