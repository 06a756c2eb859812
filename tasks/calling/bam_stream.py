"""Streams of uncompressed BAM records, from BAM and CRAM alike."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pysam

from tasks.alignments.records import raw_chunks
from tasks.errors import AlignmentError


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
