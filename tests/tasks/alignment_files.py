"""Small BAM files and references written out read by read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pysam

from tasks.genome.reference import Reference, prepare_reference

BASES = "ACGT"


@dataclass(frozen=True)
class Read:
    """One line of a SAM file; bases and qualities default to the reference's and to Q35."""

    start: int
    cigar: str
    bases: str
    flag: int = 0
    name: str = ""
    mapping_quality: int = 60
    quality: int | Sequence[int] | None = 35
    contig: int = 0


def random_bases(seed: int, length_bp: int) -> str:
    """A sequence without long repeats."""
    return "".join(BASES[token] for token in np.random.default_rng(seed).integers(0, 4, length_bp))


def write_reference(folder: Path, contigs: dict[str, str]) -> Reference:
    """Writes a FASTA and prepares it."""
    fasta = folder / "reference.fa"
    fasta.write_text("".join(f">{name}\n{bases}\n" for name, bases in contigs.items()))
    return prepare_reference(fasta, folder / "prepared")


def write_bam(path: Path, contigs: dict[str, int], reads: Sequence[Read]) -> Path:
    """Writes reads sorted by place, and the index."""
    header = {
        "HD": {"VN": "1.6", "SO": "coordinate"},
        "SQ": [{"SN": name, "LN": length_bp} for name, length_bp in contigs.items()],
    }
    with pysam.AlignmentFile(str(path), "wb", header=header) as bam:
        for number, read in sorted(enumerate(reads), key=lambda item: (item[1].contig, item[1].start, item[0])):
            record = pysam.AlignedSegment(bam.header)
            record.query_name = read.name or f"read{number}"
            record.flag = read.flag
            record.reference_id = read.contig
            record.reference_start = read.start
            record.mapping_quality = read.mapping_quality
            record.cigarstring = None if read.flag & 4 else read.cigar
            record.query_sequence = read.bases
            if read.quality is not None and read.bases:
                qualities = [read.quality] * len(read.bases) if isinstance(read.quality, int) else list(read.quality)
                record.query_qualities = pysam.qualitystring_to_array("".join(chr(33 + q) for q in qualities))
            bam.write(record)
    pysam.index(str(path))
    return path


def tokens_of(bases: str) -> np.ndarray:
    """Tokens of upper-case bases: uint8."""
    return np.array(["ACGTN".index(base) for base in bases], np.uint8)
