"""How many copies of a place a person has: sex chromosomes, their pseudo-autosomal regions, the mitochondrion.

X and Y recombine in two regions at their ends, the pseudo-autosomal regions (PAR): there everybody has two copies.

Source: Genome Reference Consortium, https://www.ncbi.nlm.nih.gov/grc/human (PAR of GRCh37 and GRCh38; for GRCh38 the
same as Ensembl's https://www.ensembl.org/info/genome/genebuild/human_PARS.html, for GRCh37 as UCSC's for hg19). Of
T2T-CHM13v2.0 chrY by the masked regions of the T2T-Ref README (Rhie et al. 2023, Nature 621:344), chrX by dipcall's
chm13v2.0_PAR.bed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from tasks.genome.builds import StatedContig, plain_name
from tasks.sheets.values import Sex

Chromosome = Literal["autosome", "X", "Y", "MT"]

COPIES = np.uint8(0x0F)
"""Mask of a code of `ploidy_of`: the number of copies."""
ASSUMED = np.uint8(0x10)
"""Flag: the number of copies is assumed, because the sex, or where the PAR lie, is not known."""
MITOCHONDRIAL = np.uint8(0x20)
"""The code of the mitochondrion: many copies in each cell, so an allele fraction and no diploid genotype."""

# 0-based, end exclusive.
_PAR: dict[str, dict[str, tuple[tuple[int, int], ...]]] = {
    "GRCh37": {
        "X": ((60_000, 2_699_520), (154_931_043, 155_260_560)),
        "Y": ((10_000, 2_649_520), (59_034_049, 59_363_566)),
    },
    "GRCh38": {
        "X": ((10_000, 2_781_479), (155_701_382, 156_030_895)),
        "Y": ((10_000, 2_781_479), (56_887_902, 57_217_415)),
    },
    "T2T-CHM13v2.0": {
        "X": ((0, 2_394_410), (153_925_834, 154_259_566)),
        "Y": ((0, 2_458_320), (62_122_809, 62_460_029)),
    },
}
_PAR["hg19"] = _PAR["GRCh37"]


class Genome(Protocol):
    """What is asked of a reference."""

    @property
    def contigs(self) -> tuple[StatedContig, ...]:
        """Its contigs."""

    @property
    def build(self) -> str | None:
        """The published build, or None."""


@dataclass(frozen=True, slots=True, eq=False)
class SexChromosomes:
    """Which contigs of a reference are not autosomes.

    Attributes:
        kind: For each contig what it is, by its name in any spelling (``chrX``, ``X``); all others are autosomes.
        par: For each contig its pseudo-autosomal regions, 0-based and end exclusive; empty where there are none or
            none are known.
        is_par_known: Whether the build's PAR are known.
    """

    kind: tuple[Chromosome, ...]
    par: tuple[tuple[tuple[int, int], ...], ...]
    is_par_known: bool

    def indices(self, kind: Chromosome) -> list[int]:
        """The places of the contigs of one kind."""
        return [index for index, each in enumerate(self.kind) if each == kind]

    def is_in_par(self, contig: int, start: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Tells which 0-based positions, int64 [n], of a contig lie in a PAR: bool [n]."""
        at = np.asarray(start, dtype=np.int64)
        inside = np.zeros(at.shape, dtype=np.bool_)
        for low, high in self.par[contig]:
            inside |= (at >= low) & (at < high)
        return inside


def sex_chromosomes(reference: Genome) -> SexChromosomes:
    """Finds a reference's X, Y and mitochondrion and, where the build is known, the PAR."""
    names = [plain_name(contig.name).upper() for contig in reference.contigs]
    kinds: tuple[Chromosome, ...] = tuple(_kind(name) for name in names)
    par = _PAR.get(reference.build or "", {})
    return SexChromosomes(kinds, tuple(par.get(name, ()) for name in names), bool(par))


def _kind(name: str) -> Chromosome:
    match name:
        case "X":
            return "X"
        case "Y":
            return "Y"
        case "MT":
            return "MT"
        case _:
            return "autosome"


def ploidy_of(reference: Genome, contig: int, start: npt.ArrayLike, sex: Sex | None) -> npt.NDArray[np.uint8]:
    """Tells how many copies a person has of places on one contig.

    Args:
        reference: The genome.
        contig: Place in its contigs.
        start: int64 [n], 0-based positions.
        sex: ``XX``, ``XY``, or ``NA`` or None where it is not known.

    Returns:
        uint8 [n], codes. `code & COPIES` is the number of copies: 2 on autosomes and in the PAR, 1 on X and Y of XY, 0
        on Y of XX (its PAR too: they are the X's). With the flag `ASSUMED` where sex is not known (2 on X and Y) or
        where the build's PAR are not known (1 on X and Y of XY). `MITOCHONDRIAL` on the mitochondrion, with 0 copies.
    """
    chromosomes = sex_chromosomes(reference)
    at = np.asarray(start, dtype=np.int64)
    kind = chromosomes.kind[contig]
    if kind == "autosome":
        return np.full(at.shape, 2, dtype=np.uint8)
    if kind == "MT":
        return np.full(at.shape, MITOCHONDRIAL, dtype=np.uint8)
    if sex == "XX":
        return np.full(at.shape, 2 if kind == "X" else 0, dtype=np.uint8)
    if sex != "XY":
        codes = np.full(at.shape, 2 | ASSUMED, dtype=np.uint8)
    elif not chromosomes.is_par_known:
        return np.full(at.shape, 1 | ASSUMED, dtype=np.uint8)
    else:
        codes = np.full(at.shape, 1, dtype=np.uint8)
    codes[chromosomes.is_in_par(contig, at)] = 2
    return codes


def ploidy_note(reference: Genome, sex: Sex | None) -> str | None:
    """Says what `ploidy_of` assumes of a sample, for its VCF's header and the report; None where nothing."""
    chromosomes = sex_chromosomes(reference)
    if not {"X", "Y"} & set(chromosomes.kind):
        return None
    if sex not in ("XX", "XY"):
        return "sex not known: X and Y are called with two copies"
    if sex == "XY" and not chromosomes.is_par_known:
        build = reference.build or "of unknown name"
        return f"pseudo-autosomal regions of build {build} are not known: X and Y are called with one copy throughout"
    return None
