"""Which contigs of a CRAM can be decoded with a reference, found out without decoding a base."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pysam
from pysam.utils import SamtoolsError

from tasks.alignments.format import AlignmentHeader
from tasks.alignments.samtools_process import samtools_said
from tasks.errors import AlignmentError, ReferenceError
from tasks.files import make_folder, write_bytes
from tasks.genome.contigs import CONTIG_M5_DIFFERS, match_contigs
from tasks.genome.header_check import check_header_contigs
from tasks.genome.reference import Reference

_LETTERS = b"ACGTN" + b"N" * 251
_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True, eq=False)
class CramContents:
    """Where a CRAM's records lie.

    Attributes:
        num_records: int64 [num_contigs], records on each contig of the header.
        skipped: Contigs with records that the reference does not have: they cannot be decoded, unless the CRAM embeds
            its reference, and are left out.
        renamed: Contigs with records that the reference calls otherwise.
    """

    num_records: npt.NDArray[np.int64]
    skipped: tuple[int, ...]
    renamed: tuple[int, ...]


def look_into_cram(path: Path, header: AlignmentHeader, reference: Reference) -> CramContents:
    """Counts a CRAM's records by contig and checks that the reference is the one it was made with.

    Raises:
        ReferenceError: A contig with records has another M5 or length in the reference, or none is there.
        AlignmentError: The file is damaged.
    """
    try:
        table = str(pysam.idxstats(str(path)))  # decodes flags and contigs alone
    except SamtoolsError as error:
        raise AlignmentError(
            f"{path}: damaged: its records cannot be counted: {samtools_said(error)}", reason="TRUNCATED"
        ) from error
    rows = [line.split("\t") for line in table.splitlines()]
    counts = np.array([int(row[2]) + int(row[3]) for row in rows if row[0] != "*"], dtype=np.int64)
    match = match_contigs(header.names, header.lengths_bp, header.md5s, reference)
    (carrying,) = np.nonzero(counts)
    lines = [
        f"{header.names[tid]}: the CRAM was made with M5 {header.md5s[tid]}, the reference has "
        f"{reference.contigs[match.namesake[tid]].md5}"
        for tid in carrying
        if match.reason[tid] == CONTIG_M5_DIFFERS
    ]
    if lines:
        more = [f"and {len(lines) - _NAMES_SHOWN:,} contigs more"] if len(lines) > _NAMES_SHOWN else []
        raise ReferenceError(
            f"{path}: made with another reference than {reference.path.name}; a CRAM needs the very same sequences: "
            + "; ".join(lines[:_NAMES_SHOWN] + more),
            field="reference",
        )
    check_header_contigs(str(path), header.names, header.lengths_bp, header.md5s, counts.tolist(), reference)
    return CramContents(
        num_records=counts,
        skipped=tuple(int(tid) for tid in carrying if match.index[tid] < 0),
        renamed=tuple(
            int(tid)
            for tid in carrying
            if match.index[tid] >= 0 and reference.contigs[match.index[tid]].name != header.names[tid]
        ),
    )


def offer_by_md5(reference: Reference, folder: Path) -> None:
    """Lets htslib find the reference's sequences by M5, for CRAMs that call the contigs otherwise.

    Writes them to `folder`, one file each, and points this process's REF_PATH there. Source: SAM v1, section 1.3.2.
    """
    make_folder(folder)
    for index, contig in enumerate(reference.contigs):
        path = folder / contig.md5
        if not path.exists():
            write_bytes(path, reference.contig_tokens(index).tobytes().translate(_LETTERS))
    os.environ["REF_PATH"] = f"{folder}/%s"


def explain_decoding(path: Path, header: AlignmentHeader, contents: CramContents, error: Exception) -> AlignmentError:
    """Says which sequences a CRAM that cannot be decoded would need, by name and M5."""
    (carrying,) = np.nonzero(contents.num_records)
    needed = [f"{header.names[tid]} (M5 {header.md5s[tid] or 'not stated'})" for tid in carrying[:_NAMES_SHOWN]]
    more = f" and {len(carrying) - _NAMES_SHOWN:,} more" if len(carrying) > _NAMES_SHOWN else ""
    return AlignmentError(
        f"{path}: cannot be decoded: {error}; it is damaged, or needs other sequences than the reference's for "
        f"{', '.join(needed)}{more}",
        reason="CRAM_REFERENCE",
    )
