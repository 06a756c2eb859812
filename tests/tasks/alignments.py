"""Small genomes, reads and alignment files that tests make."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pysam

from tasks.genome.reference import Reference, prepare_reference


def genome(lengths_bp: dict[str, int], seed: int = 0) -> dict[str, str]:
    random = np.random.default_rng(seed)
    return {name: "".join(random.choice(list("ACGT"), length_bp)) for name, length_bp in lengths_bp.items()}


def prepared(sequences: dict[str, str], folder: Path, name: str = "genome") -> Reference:
    fasta = folder / f"{name}.fa"
    fasta.write_text("".join(f">{contig}\n{sequence}\n" for contig, sequence in sequences.items()))
    return prepare_reference(fasta, folder / f"{name}.reference")


def sam_line(
    name: str,
    contig: str,
    start: int,
    bases: str,
    *,
    flag: int = 0,
    mapq: int = 60,
    cigar: str = "",
    mate: str = "*\t0\t0",
) -> str:
    """A line of SAM; `start` is 0-based."""
    place = f"{contig}\t{start + 1}\t{mapq}\t{cigar or f'{len(bases)}M'}"
    return f"{name}\t{flag}\t{place}\t{mate}\t{bases}\t{'I' * len(bases)}"


def reads_of(contig: str, sequence: str, count: int = 60, length_bp: int = 100, seed: int = 1) -> list[str]:
    """Lines of single reads without errors, sorted by start."""
    starts = np.sort(np.random.default_rng(seed).integers(0, len(sequence) - length_bp, count))
    return [
        sam_line(f"{contig}-{place}", contig, start, sequence[start : start + length_bp])
        for place, start in enumerate(starts.tolist())
    ]


def sam_text(contigs: dict[str, int], lines: Iterable[str], extra: str = "@RG\tID:g\tSM:sample\n") -> str:
    head = "".join(f"@SQ\tSN:{name}\tLN:{length_bp}\n" for name, length_bp in contigs.items())
    return f"@HD\tVN:1.6\tSO:coordinate\n{head}{extra}" + "".join(f"{line}\n" for line in lines)


def write_bam(path: Path, contigs: dict[str, int], lines: Iterable[str], extra: str = "@RG\tID:g\tSM:sample\n") -> Path:
    sam = path.with_suffix(".sam")
    sam.write_text(sam_text(contigs, lines, extra))
    pysam.view("--no-PG", "-b", "-o", str(path), str(sam), catch_stdout=False)
    sam.unlink()
    return path
