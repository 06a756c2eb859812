"""What the simulator writes: FASTA, VCF and FASTQ, always the same bytes for the same values."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pysam

from tasks.files import whole_file, write_bytes
from tasks.intervals import to_position
from tasks.simulation.genome import BASES, Genome, decode
from tasks.simulation.reads import Pairs
from tasks.simulation.variants import Alleles

_LINE_BP = 70
_PHRED_ZERO = 33


def write_fasta(path: Path, genome: Genome) -> None:
    """Writes the reference, repeats in lower case; bgzip when the name ends in ``.gz``."""
    lines = []
    for name, tokens, soft_masked in zip(genome.names, genome.tokens, genome.soft_masked, strict=True):
        letters = BASES[tokens]
        letters[soft_masked & (tokens < len(BASES) - 1)] |= 0x20
        text = letters.tobytes()
        lines.append(b">" + name.encode() + b"\n")
        lines += [text[at : at + _LINE_BP] + b"\n" for at in range(0, len(text), _LINE_BP)]
    write_text(path, b"".join(lines))


def write_vcf(
    path: Path,
    genome: Genome,
    alleles: Alleles,
    samples: Sequence[str],
    carried: npt.NDArray[np.bool_],
    *,
    joined: bool = False,
) -> None:
    """Writes phased genotypes, sorted; alleles that no sample carries are left out.

    Args:
        path: The VCF; bgzip when the name ends in ``.gz``.
        genome: Gives the ##contig lines.
        alleles: n alleles in reference order.
        samples: m sample names.
        carried: bool [n, m, 2], the haplotypes that carry each allele.
        joined: Whether neighbouring alleles of one place and REF share a record; else each has its own.
    """
    lines = ["##fileformat=VCFv4.3", '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">']
    contigs = zip(genome.names, genome.tokens, strict=True)
    lines += [f"##contig=<ID={name},length={len(tokens)}>" for name, tokens in contigs]
    lines.append("\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *samples]))
    rows = map(int, np.flatnonzero(carried.any(axis=(1, 2))))
    for _, group in groupby(
        rows, key=lambda row: (alleles.contig[row], alleles.start[row], alleles.ref[row], None if joined else row)
    ):
        together = list(group)
        first = together[0]
        alts = ",".join(alleles.alt[row] for row in together)
        place = (genome.names[alleles.contig[first]], str(to_position(int(alleles.start[first]))))
        # Alleles of a site exclude each other, so the sum of their numbers is the number of the one carried.
        numbers = np.einsum("a,amh->mh", np.arange(1, len(together) + 1), carried[together])
        genotypes = [f"{left}|{right}" for left, right in numbers]
        lines.append("\t".join([*place, ".", alleles.ref[first], alts, ".", "PASS", ".", "GT", *genotypes]))
    write_text(path, ("\n".join(lines) + "\n").encode())


class FastqWriter:
    """Two gzip files of mates, named by a running number. Both files appear whole on `close`."""

    def __init__(self, first: Path, second: Path, prefix: str) -> None:
        self._paths = (first, second)
        self._prefix = prefix
        self._num_pairs = 0
        self._texts: tuple[list[bytes], list[bytes]] = ([], [])

    def write(self, pairs: Pairs) -> None:
        """Adds read pairs."""
        for mate, texts in enumerate(self._texts):
            for row in range(len(pairs.bases)):
                bases = decode(pairs.bases[row, mate])
                qualities = (pairs.qualities[row, mate] + _PHRED_ZERO).tobytes().decode("ascii")
                name = f"@{self._prefix}:{self._num_pairs + row}/{mate + 1}"
                texts.append(f"{name}\n{bases}\n+\n{qualities}\n".encode())
        self._num_pairs += len(pairs.bases)

    def close(self) -> None:
        """Writes both files."""
        for path, texts in zip(self._paths, self._texts, strict=True):
            write_bytes(path, gzip.compress(b"".join(texts), compresslevel=1, mtime=0))


def write_text(path: Path, text: bytes) -> None:
    """Writes text, through bgzip when the name ends in ``.gz``."""
    if path.suffix != ".gz":
        write_bytes(path, text)
        return
    with whole_file(path) as aside:
        with pysam.BGZFile(str(aside), "w", None) as handle:
            handle.write(text)
