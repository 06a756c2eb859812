"""Simulated reads placed on the reference by minimap2, mistakes included, as a sorted and indexed BAM."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

import mappy
import numpy as np
import pysam

from tasks.intervals import to_position
from tasks.simulation.genome import Genome, decode, reverse_complement
from tasks.simulation.reads import Pairs

_PAIRED, _PROPER, _UNMAPPED, _MATE_UNMAPPED, _REVERSE, _MATE_REVERSE, _DUPLICATE = 1, 2, 4, 8, 16, 32, 1024
_MATE_FLAGS = (64, 128)
_PHRED_ZERO = 33
_FARTHEST_MATE_BP = 2000


class Placer:
    """Aligns read pairs with minimap2's short-read preset; the primary alignments only."""

    def __init__(self, fasta: Path, genome: Genome, *, num_threads: int = 1) -> None:
        self._aligner = mappy.Aligner(str(fasta), preset="sr", n_threads=num_threads)
        self._num_threads = num_threads
        self._genome = genome

    def header(self, sample: str) -> str:
        """The SAM header of a sample."""
        contigs = zip(self._genome.names, self._genome.tokens, strict=True)
        lines = ["@HD\tVN:1.6\tSO:unsorted", *(f"@SQ\tSN:{name}\tLN:{len(tokens)}" for name, tokens in contigs)]
        return "\n".join([*lines, f"@RG\tID:{sample}\tSM:{sample}\tPL:ILLUMINA"]) + "\n"

    def place(self, pairs: Pairs, sample: str, first_number: int, sam: TextIO) -> None:
        """Writes the SAM lines of read pairs, named by a running number."""
        step = -(-len(pairs.bases) // self._num_threads)
        cuts = [range(at, min(at + step, len(pairs.bases))) for at in range(0, len(pairs.bases), max(step, 1))]
        with ThreadPoolExecutor(self._num_threads) as pool:
            for lines in pool.map(lambda rows: self._place(pairs, rows, sample, first_number), cuts):
                sam.writelines(lines)

    def _place(self, pairs: Pairs, rows: range, sample: str, first_number: int) -> list[str]:
        buffer = mappy.ThreadBuffer()
        lines = []
        for row in rows:
            bases = pairs.bases[row]
            hits: list[mappy.Alignment | None] = [None, None]
            for hit in self._aligner.map(decode(bases[0]), decode(bases[1]), buf=buffer):
                if hit.is_primary and hits[hit.read_num - 1] is None:
                    hits[hit.read_num - 1] = hit
            name = f"{sample}:{first_number + row}"
            lines += [self._line(pairs, row, mate, hits, name, sample) for mate in range(2)]
        return lines

    def _line(
        self, pairs: Pairs, row: int, mate: int, hits: list[mappy.Alignment | None], name: str, sample: str
    ) -> str:
        hit, other = hits[mate], hits[1 - mate]
        flag = _PAIRED | _MATE_FLAGS[mate] | (_DUPLICATE if pairs.duplicate[row] else 0)
        bases, qualities = pairs.bases[row, mate], pairs.qualities[row, mate]
        flag |= (_UNMAPPED if hit is None else 0) | (_MATE_UNMAPPED if other is None else 0)
        flag |= (_REVERSE if hit and hit.strand < 0 else 0) | (_MATE_REVERSE if other and other.strand < 0 else 0)
        distance = _template_bp(hit, other)
        flag |= _PROPER if distance and (flag & _REVERSE == 0) != (flag & _MATE_REVERSE == 0) else 0
        if hit and hit.strand < 0:
            bases, qualities = reverse_complement(bases), qualities[::-1]
        here, there = _place_of(hit or other), _place_of(other or hit)
        columns = [
            name,
            str(flag),
            *here,
            str(hit.mapq if hit else 0),
            _cigar(hit, len(bases)) if hit else "*",
            *there,
            str(distance),
            decode(bases),
            (qualities + np.uint8(_PHRED_ZERO)).tobytes().decode("ascii"),
            f"RG:Z:{sample}",
        ]
        return "\t".join(columns) + "\n"


def sort_alignments(sam: Path, bam: Path) -> None:
    """Sorts a SAM file into a BAM without programme lines (they would name temporary paths) and indexes it."""
    pysam.sort("--no-PG", "-o", str(bam), str(sam))
    pysam.index(str(bam))


def _place_of(hit: mappy.Alignment | None) -> tuple[str, str]:
    """RNAME and POS; an unmapped mate is written at its mate's place."""
    return ("*", "0") if hit is None else (hit.ctg, str(to_position(hit.r_st)))


def _template_bp(hit: mappy.Alignment | None, other: mappy.Alignment | None) -> int:
    """Signed template length; 0 where the mates do not lie near each other on one contig."""
    if hit is None or other is None or hit.ctg != other.ctg:
        return 0
    left, right = min(hit.r_st, other.r_st), max(hit.r_en, other.r_en)
    if right - left > _FARTHEST_MATE_BP:
        return 0
    is_left = (hit.r_st, hit.read_num) < (other.r_st, other.read_num)
    return int(right - left) if is_left else int(left - right)


def _cigar(hit: mappy.Alignment, read_length_bp: int) -> str:
    clips = [hit.q_st, read_length_bp - hit.q_en]
    # mappy turns the second mate before it maps and counts its query places on the turned sequence.
    if (hit.strand < 0) == (hit.read_num == 1):
        clips.reverse()
    left, right = (f"{clip}S" if clip else "" for clip in clips)
    return f"{left}{hit.cigar_str}{right}"
