"""Called alleles beside a truth: read, told apart by kind, counted with intervals."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

from tasks.intervals import parse_region

Allele = tuple[str, int, str, str]
"""Contig, position from 1, REF, ALT: split, normalised, upper case."""

_Z = 1.96


@dataclass(frozen=True, slots=True)
class Call:
    """What was said of an allele.

    Attributes:
        copies: How many of the genotype's alleles it is.
        genotype_quality: GQ; None where there is none.
        quality: QUAL; None where there is none.
    """

    copies: int
    genotype_quality: float | None = None
    quality: float | None = None


Calls = dict[Allele, Call]


@dataclass(frozen=True, slots=True)
class Score:
    """Alleles called right, wrong and not at all, and how many of the right ones have the truth's genotype."""

    right: int
    wrong: int
    missed: int
    same_genotype: int

    @property
    def precision(self) -> float:
        """Share of the called alleles that are true."""
        return self.right / max(self.right + self.wrong, 1)

    @property
    def recall(self) -> float:
        """Share of the true alleles that are called."""
        return self.right / max(self.right + self.missed, 1)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.right / max(2 * self.right + self.wrong + self.missed, 1)

    @property
    def concordance(self) -> float:
        """Share of the right alleles whose genotype is the truth's."""
        return self.same_genotype / max(self.right, 1)

    @property
    def f1_interval(self) -> tuple[float, float]:
        """95 % interval of F1, from that of right / (right + wrong + missed), of which F1 is a function."""
        low, high = wilson(self.right, self.right + self.wrong + self.missed)
        return 2 * low / (1 + low), 2 * high / (1 + high)

    def __add__(self, other: Score) -> Score:
        return Score(
            self.right + other.right,
            self.wrong + other.wrong,
            self.missed + other.missed,
            self.same_genotype + other.same_genotype,
        )


NO_SCORE = Score(0, 0, 0, 0)


def wilson(part: int, whole: int) -> tuple[float, float]:
    """95 % interval of a share. Source: Wilson 1927, J. Am. Stat. Assoc. 22:209."""
    if not whole:
        return 0.0, 1.0
    share, square = part / whole, _Z**2 / whole
    middle = (share + square / 2) / (1 + square)
    half = _Z / (1 + square) * sqrt(share * (1 - share) / whole + square / (4 * whole))
    return max(0.0, middle - half), min(1.0, middle + half)


def read_calls(vcf: Path, fasta: Path, region: str) -> Calls:
    """The alleles that the first sample carries inside a region, split, normalised and upper-cased by bcftools."""
    text = run_shell(
        f"bcftools norm -m -any -a -f '{fasta}' '{vcf}' 2>/dev/null | "
        f"bcftools norm -m -any -f '{fasta}' 2>/dev/null | "
        "bcftools query -u -i 'GT[0]=\"alt\"' -f '%CHROM\\t%POS\\t%REF\\t%ALT\\t%QUAL[\\t%GT\\t%GQ]\\n'"
    )
    where = parse_region(region, {region.split(":")[0]: 1 << 40})
    found: Calls = {}
    for line in text.splitlines():
        contig, position, ref, alt, quality, genotype, genotype_quality, *_ = line.split("\t")
        if contig == where.contig and where.start < int(position) <= where.end and alt != "*":
            copies = genotype.replace("|", "/").split("/").count("1")
            call = Call(copies, _number(genotype_quality), _number(quality))
            found[contig, int(position), ref.upper(), alt.upper()] = call
    return found


def is_snv(allele: Allele) -> bool:
    """Whether an allele changes single bases."""
    return len(allele[2]) == len(allele[3])


def inside_bed(alleles: Calls, bed: Path) -> Calls:
    """The alleles whose first base lies in a BED."""
    lines = [line.split("\t") for line in bed.read_text().splitlines() if line]
    intervals = [(contig, int(start), int(end)) for contig, start, end, *_ in lines]
    return {
        allele: call
        for allele, call in alleles.items()
        if any(contig == allele[0] and start < allele[1] <= end for contig, start, end in intervals)
    }


def compare(called: Calls, truth: Calls, *, snv: bool) -> Score:
    """Scores alleles of one kind."""
    kind = {allele for allele in (*called, *truth) if is_snv(allele) == snv}
    return compare_among(called, truth, kind)


def compare_among(called: Calls, truth: Calls, among: Iterable[Allele]) -> Score:
    """Scores the alleles of a set."""
    score = [0, 0, 0, 0]
    for allele in among:
        if allele in called and allele in truth:
            score[0] += 1
            score[3] += called[allele].copies == truth[allele].copies
        elif allele in called:
            score[1] += 1
        elif allele in truth:
            score[2] += 1
    return Score(*score)


def run_shell(command: str) -> str:
    """Runs a bash pipeline that must succeed; returns what it printed."""
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def _number(text: str) -> float | None:
    return None if text == "." else float(text)
