"""The index of a BAM or CRAM: the user's where it fits, else one made in the run's folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pysam
from pysam.utils import SamtoolsError

from tasks.alignments.format import AlignmentHeader, open_alignment, recognise_kind
from tasks.alignments.samtools_process import samtools_said
from tasks.alignments.statistics import AlignmentStatistics
from tasks.errors import AlignmentError
from tasks.files import whole_file
from tasks.genome.reference import Reference

_MAX_BAI_BP = 1 << 29  # SAM v1, section 5.1.1: what BAI's bins can address


def find_index(
    path: Path, given: Path | None, header: AlignmentHeader, statistics: AlignmentStatistics, reference: Reference
) -> Path | None:
    """Looks for a BAM's index that fits: not older than the file, and with the counts of the records that were read.

    A CRAM's index has no counts that would show it fits, and is quickly made: none is trusted.

    Args:
        path: The BAM or CRAM.
        given: The index that the sheet names; None to look beside the file.
        header: The file's header.
        statistics: What was read of the whole file.
        reference: To open the file with.

    Returns:
        The index, or None when one has to be made.
    """
    if recognise_kind(path) == "cram":
        return None
    beside = [path.with_name(path.name + ".bai"), path.with_name(path.name + ".csi"), path.with_suffix(".bai")]
    for index in [given] if given else beside:
        is_newer = index.is_file() and index.stat().st_mtime_ns >= path.stat().st_mtime_ns
        if is_newer and _fits(path, index, header, statistics, reference):
            return index
    return None


def _fits(
    path: Path, index: Path, header: AlignmentHeader, statistics: AlignmentStatistics, reference: Reference
) -> bool:
    try:
        with open_alignment(path, index, reference.fasta_path) as alignment:
            rows = alignment.get_index_statistics()
    except (AlignmentError, OSError, ValueError, AttributeError):
        return False
    counts = np.array([[row.mapped, row.unmapped] for row in rows], dtype=np.int64).reshape(-1, 2)
    return bool(len(counts) == len(header.names) and np.array_equal(counts, statistics.contigs[:-1]))


def make_index(path: Path, header: AlignmentHeader, folder: Path) -> Path:
    """Makes the index of a sorted BAM or CRAM in `folder`, whole; returns it.

    Raises:
        AlignmentError: samtools cannot index the file.
    """
    if recognise_kind(path) == "cram":
        suffix, options = ".crai", []
    elif max(header.lengths_bp) > _MAX_BAI_BP:
        suffix, options = ".csi", ["-c"]
    else:
        suffix, options = ".bai", ["-b"]
    index = folder / f"{path.name}{suffix}"
    try:
        with whole_file(index) as aside:
            pysam.index(*options, "-o", str(aside), str(path))
    except SamtoolsError as error:
        raise AlignmentError(
            f"{path}: cannot be indexed: {samtools_said(error)}; sort it by coordinate", reason="UNSORTED"
        ) from error
    return index
