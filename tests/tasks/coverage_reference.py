"""Coverage in the plainest way, base by base, for tests to compare with."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pysam

MIN_MAPPING_QUALITY = MIN_BASE_QUALITY = 10


def counted_reads(bam: Path, contig: str, length_bp: int) -> list[pysam.AlignedSegment]:
    """The records that any depth counts."""
    with pysam.AlignmentFile(str(bam)) as alignment:
        return [
            read
            for read in alignment.fetch(contig)
            if not read.flag & 0xF04 and read.query_sequence and read.reference_end <= length_bp
        ]


def plain_depths(bam: Path, contig: str, length_bp: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Usable, well mapped and poorly mapped depth of a whole contig: int [length_bp] each."""
    names: dict[int, set[str]] = defaultdict(set)
    well, poorly = np.zeros(length_bp, int), np.zeros(length_bp, int)
    for read in counted_reads(bam, contig, length_bp):
        for query, position in read.get_aligned_pairs(matches_only=True):
            if read.mapping_quality < MIN_MAPPING_QUALITY:
                poorly[position] += 1
                continue
            well[position] += 1
            if read.query_qualities is None or read.query_qualities[query] >= MIN_BASE_QUALITY:
                names[position].add(read.query_name)
    return np.array([len(names[position]) for position in range(length_bp)]), well, poorly


def plain_states(usable: np.ndarray, well: np.ndarray, poorly: np.ndarray, sequence: str) -> list[str]:
    """The state of every base of a contig."""
    states = []
    for position, base in enumerate(sequence):
        if base not in "ACGT":
            states.append("REFERENCE_N")
        elif well[position] + poorly[position] == 0:
            states.append("NO_DEPTH")
        elif poorly[position] > well[position]:
            states.append("POOR_MAPPING")
        else:
            states.append("CALLABLE" if usable[position] >= 10 else "LOW_DEPTH")
    return states


def stretches(values: list[str], contig: str) -> list[tuple[str, int, int, str]]:
    """Equal neighbours as one."""
    found: list[tuple[str, int, int, str]] = []
    for position, value in enumerate(values):
        if found and found[-1][3] == value:
            found[-1] = (contig, found[-1][1], position + 1, value)
        else:
            found.append((contig, position, position + 1, value))
    return found
