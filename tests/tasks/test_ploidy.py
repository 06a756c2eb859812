"""Copies of sex chromosomes, at every border of every build's pseudo-autosomal regions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.genome.builds import HeaderContig
from tasks.genome.ploidy import ASSUMED, COPIES, MITOCHONDRIAL, ploidy_note, ploidy_of, sex_chromosomes

# 1-based, both ends included, as the sources print them.
BORDERS = [
    ("GRCh37", "X", 60_001, 2_699_520),
    ("GRCh37", "X", 154_931_044, 155_260_560),
    ("GRCh37", "Y", 10_001, 2_649_520),
    ("GRCh37", "Y", 59_034_050, 59_363_566),
    ("hg19", "X", 60_001, 2_699_520),
    ("hg19", "Y", 59_034_050, 59_363_566),
    ("GRCh38", "X", 10_001, 2_781_479),
    ("GRCh38", "X", 155_701_383, 156_030_895),
    ("GRCh38", "Y", 10_001, 2_781_479),
    ("GRCh38", "Y", 56_887_903, 57_217_415),
    ("T2T-CHM13v2.0", "X", 1, 2_394_410),
    ("T2T-CHM13v2.0", "X", 153_925_835, 154_259_566),
    ("T2T-CHM13v2.0", "Y", 1, 2_458_320),
    ("T2T-CHM13v2.0", "Y", 62_122_810, 62_460_029),
]
NAMES = ("chr1", "chrX", "chrY", "chrM")


@dataclass(frozen=True)
class NamedGenome:
    """Contigs and a build: all that ploidy depends on."""

    build: str | None
    names: tuple[str, ...] = NAMES

    @property
    def contigs(self) -> tuple[HeaderContig, ...]:
        return tuple(HeaderContig(name, None) for name in self.names)


@pytest.mark.parametrize(("build", "chromosome", "first", "last"), BORDERS)
def test_par_ends_at_the_published_bases(build: str, chromosome: str, first: int, last: int) -> None:
    around = np.array([first - 1, first, last, last + 1]) - 1  # 0-based
    found = ploidy_of(NamedGenome(build), NAMES.index(f"chr{chromosome}"), around, "XY")
    assert found.dtype == np.uint8
    assert found.tolist() == [1, 2, 2, 1]


@pytest.mark.parametrize("sex", ["XX", "XY", "NA", None])
def test_autosomes_are_diploid_and_the_mitochondrion_is_neither(sex: str | None) -> None:
    genome = NamedGenome("GRCh38")
    assert ploidy_of(genome, 0, [0, 5], sex).tolist() == [2, 2]  # type: ignore[arg-type]
    assert ploidy_of(genome, 3, [0, 5], sex).tolist() == [MITOCHONDRIAL] * 2  # type: ignore[arg-type]


def test_xx_has_no_y_and_two_x() -> None:
    genome = NamedGenome("GRCh38")
    assert ploidy_of(genome, 2, [20_000, 10_000_000], "XX").tolist() == [0, 0]
    assert ploidy_of(genome, 1, [20_000, 10_000_000], "XX").tolist() == [2, 2]
    assert ploidy_note(genome, "XX") is None


def test_unknown_sex_is_diploid_with_a_flag_outside_the_par() -> None:
    genome = NamedGenome("GRCh38")
    for contig in (1, 2):
        assert ploidy_of(genome, contig, [20_000, 10_000_000], "NA").tolist() == [2, 2 | ASSUMED]
    assert "sex not known" in (ploidy_note(genome, None) or "")


def test_an_unknown_build_says_that_its_par_are_not_known() -> None:
    genome = NamedGenome(None, ("1", "X", "Y", "MT"))
    chromosomes = sex_chromosomes(genome)
    assert chromosomes.kind == ("autosome", "X", "Y", "MT")
    assert not chromosomes.is_par_known
    assert ploidy_of(genome, 1, [5, 10_000_000], "XY").tolist() == [1 | ASSUMED] * 2
    assert "pseudo-autosomal regions" in (ploidy_note(genome, "XY") or "")
    assert ploidy_note(NamedGenome(None, ("1", "2")), None) is None


@given(
    st.sampled_from(["GRCh37", "hg19", "GRCh38", "T2T-CHM13v2.0", "GRCm39", None]),
    st.sampled_from(["XX", "XY", "NA", None]),
    st.integers(0, 3),
    st.lists(st.integers(0, 160_000_000), max_size=20),
)
def test_codes_do_not_depend_on_neighbours_or_spelling(
    build: str | None, sex: str | None, contig: int, starts: list[int]
) -> None:
    genome = NamedGenome(build)
    together = ploidy_of(genome, contig, starts, sex)  # type: ignore[arg-type]
    plain = NamedGenome(build, ("1", "x", "Y", "MT"))
    apart = [int(ploidy_of(plain, contig, [start], sex)[0]) for start in starts]  # type: ignore[arg-type]
    assert together.tolist() == apart
    assert set((together & COPIES).tolist()) <= {0, 1, 2}
