"""Streams of uncompressed BAM records, from BAM and CRAM alike."""

from __future__ import annotations

import itertools
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pysam

from tasks.errors import AlignmentError

_CHUNK_RECORDS = 16384
_BGZF_HEADER_BYTES = 18
_BGZF_FOOTER_BYTES = 8


def open_alignment(path: Path, index_path: Path | None, fasta_path: Path) -> Any:
    """Opens a BAM or CRAM; a CRAM is decoded with `fasta_path` and never with a reference from the network.

    Raises:
        AlignmentError: The file or its index cannot be opened.
    """
    # htslib asks a public server for a CRAM's reference where REF_PATH is not set; a path without files stops it.
    os.environ.setdefault("REF_PATH", os.devnull)
    try:
        return pysam.AlignmentFile(
            str(path),
            index_filename=str(index_path) if index_path else None,
            reference_filename=str(fasta_path),
            require_index=True,
        )
    except (OSError, ValueError) as error:
        raise AlignmentError(f"{path}: cannot be opened: {error}") from error


def raw_chunks(alignment: Any, tid: int, start: int, end: int) -> Iterator[np.ndarray]:
    """Yields the records over ``[start, end)`` of contig `tid`, a bounded number at a time.

    Yields:
        uint8 [num_bytes], whole BAM records back to back (SAM v1, section 4.2), each with its block_size.

    Raises:
        AlignmentError: A record cannot be read.
    """
    with tempfile.TemporaryFile() as file:
        try:
            records = alignment.fetch(tid=tid, start=start, stop=end)
            while True:
                num_records = _write_chunk(file, alignment, itertools.islice(records, _CHUNK_RECORDS))
                if num_records:
                    yield _read_chunk(file)
                if num_records < _CHUNK_RECORDS:
                    return
        except (OSError, ValueError) as error:
            name = os.fsdecode(alignment.filename)
            raise AlignmentError(f"{name}: cannot be read near record {start + 1} of contig {tid}: {error}") from error


def _write_chunk(file: IO[bytes], alignment: Any, records: Iterator[Any]) -> int:
    file.seek(0)
    file.truncate()
    num_records = 0
    with pysam.AlignmentFile(file, "wb0", template=alignment) as chunk:
        for record in records:
            chunk.write(record)
            num_records += 1
    return num_records


def _read_chunk(file: IO[bytes]) -> np.ndarray:
    """Undoes BGZF (SAM v1, section 4.1) and cuts the header off; returns uint8 [num_bytes]."""
    file.seek(0)
    content = memoryview(file.read())
    blocks = []
    at = 0
    while at < len(content):
        num_bytes = int.from_bytes(content[at + 16 : at + 18], "little") + 1
        body = content[at + _BGZF_HEADER_BYTES : at + num_bytes - _BGZF_FOOTER_BYTES]
        blocks.append(zlib.decompress(body, wbits=-zlib.MAX_WBITS))
        at += num_bytes
    data = b"".join(blocks)
    at = 8 + int.from_bytes(data[4:8], "little")
    num_contigs = int.from_bytes(data[at : at + 4], "little")
    at += 4
    for _ in range(num_contigs):
        at += 8 + int.from_bytes(data[at : at + 4], "little")
    return np.frombuffer(bytearray(data[at:]), np.uint8)
