"""Streams of uncompressed BAM records, from BAM and CRAM alike."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from tasks.alignments.format import open_alignment as open_alignment
from tasks.alignments.records import raw_chunks
from tasks.errors import AlignmentError


def fetch_chunks(alignment: Any, tid: int, start: int, end: int) -> Iterator[np.ndarray]:
    """Yields the records over ``[start, end)`` of contig `tid`, a bounded number at a time.

    Yields:
        uint8 [num_bytes], whole BAM records back to back (SAM v1, section 4.2), each with its block_size.

    Raises:
        AlignmentError: A record cannot be read.
    """
    try:
        for data in raw_chunks(alignment, alignment.fetch(tid=tid, start=start, stop=end)):
            if data.size:
                yield data
    except (OSError, ValueError) as error:
        name = os.fsdecode(alignment.filename)
        raise AlignmentError(f"{name}: cannot be read near record {start + 1} of contig {tid}: {error}") from error
