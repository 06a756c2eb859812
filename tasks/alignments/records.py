"""The records of an alignment file as raw BAM, whatever its format."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pysam
from numba import njit

from tasks.bgzf import HEADER_BYTES, block_bytes, inflate_block

_CHUNK_BYTES = 1 << 23
_RECORDS_AT_ONCE = 256


def raw_chunks(alignment: Any, records: Iterator[Any]) -> Iterator[npt.NDArray[np.uint8]]:
    """Yields the records of an open file as whole BAM records back to back, uint8 arrays of some 8 MB.

    They are decoded once, by htslib, whatever the file's format; pysam has no other way to the bytes.

    Raises:
        OSError: A record cannot be read.
    """
    finished = False
    with os.fdopen(os.memfd_create("records"), "w+b") as file:
        while not finished:
            file.seek(0)
            file.truncate()
            with pysam.AlignmentFile(file, "wb0", template=alignment) as chunk:
                while not finished and os.fstat(file.fileno()).st_size < _CHUNK_BYTES:
                    num_records = 0
                    for record in islice(records, _RECORDS_AT_ONCE):
                        chunk.write(record)
                        num_records += 1
                    finished = num_records < _RECORDS_AT_ONCE
            file.seek(0)
            yield _records_of(file.read())


def _records_of(content: bytes) -> npt.NDArray[np.uint8]:
    """Undoes BGZF and cuts off the BAM header; returns uint8 [num_bytes]. Source: SAM v1, sections 4.1 and 4.2."""
    blocks = []
    at = 0
    while at < len(content):
        num_bytes = block_bytes(content[at : at + HEADER_BYTES])
        if num_bytes is None:
            raise OSError("htslib wrote something else than BGZF")
        blocks.append(inflate_block(content[at : at + num_bytes]))
        at += num_bytes
    data = b"".join(blocks)
    at = 8 + int.from_bytes(data[4:8], "little")
    num_contigs = int.from_bytes(data[at : at + 4], "little")
    at += 4
    for _ in range(num_contigs):
        at += 8 + int.from_bytes(data[at : at + 4], "little")
    return np.frombuffer(bytearray(memoryview(data)[at:]), np.uint8)


@njit(cache=True, nogil=True)
def int32_at(data: npt.NDArray[np.uint8], at: Any) -> Any:
    """Reads the little-endian int32 that begins at byte `at`, as int64 (compiled)."""
    return np.int64(
        np.int32(
            np.uint32(data[at])
            | (np.uint32(data[at + 1]) << np.uint32(8))
            | (np.uint32(data[at + 2]) << np.uint32(16))
            | (np.uint32(data[at + 3]) << np.uint32(24))
        )
    )
