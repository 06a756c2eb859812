"""Builds are told by lengths or M5, in either naming style, from one chromosome on."""

from __future__ import annotations

import pysam
import pytest

from tasks.genome.builds import HeaderContig, plain_name, recognise_build, side_by_side

CHROMOSOME_20 = {
    "NCBI36": 62_435_964,
    "GRCh37": 63_025_520,
    "GRCh38": 64_444_167,
    "T2T-CHM13v2.0": 66_210_255,
}


@pytest.mark.parametrize("prefix", ["chr", "", "Chr"])
@pytest.mark.parametrize(("build", "length_bp"), CHROMOSOME_20.items())
def test_one_chromosome_is_enough(build: str, length_bp: int, prefix: str) -> None:
    assert recognise_build([HeaderContig(f"{prefix}20", length_bp)]) == build


def test_mouse_and_unknown() -> None:
    assert recognise_build([HeaderContig("chr1", 195_471_971)]) == "GRCm38"
    assert recognise_build([HeaderContig("1", 195_154_279)]) == "GRCm39"
    assert recognise_build([HeaderContig("chr20", 63_025_521)]) is None
    assert recognise_build([HeaderContig("chr21", 63_025_520)]) is None
    assert recognise_build([HeaderContig("chr20", None)]) is None
    assert recognise_build([]) is None


def test_hg19_is_told_by_its_mitochondrion() -> None:
    chr20 = HeaderContig("chr20", 63_025_520)
    assert recognise_build([chr20, HeaderContig("chrM", 16_571)]) == "hg19"
    assert recognise_build([chr20, HeaderContig("chrM", 16_569)]) == "GRCh37"
    assert recognise_build([HeaderContig("MT", 16_569)]) is None, "the rCRS alone is in several builds"
    assert recognise_build([HeaderContig("chrM", 16_571)]) is None, "NCBI36 has it too"


def test_a_mixture_is_no_build() -> None:
    assert recognise_build([HeaderContig("20", 63_025_520), HeaderContig("21", 46_709_983)]) is None
    decoys = [HeaderContig(f"decoy{number}", 1000 + number) for number in range(100)]
    assert recognise_build([HeaderContig("20", 63_025_520), *decoys]) == "GRCh37"


def test_m5_needs_neither_name_nor_length() -> None:
    assert recognise_build([HeaderContig("NC_000020.10", None, "0DEC9660EC1EFAAF33281C0D5EA2560F")]) == "GRCh37"
    assert recognise_build([HeaderContig("x", None, "b18e6c531b0bd70e949a7fc20859cb01")]) == "GRCh38"
    assert recognise_build([HeaderContig("x", None, "e469247288ceb332aee524caec92bb22")]) == "T2T-CHM13v2.0"
    assert recognise_build([HeaderContig("x", None, "c68f52674c9fb33aef52dcf399755519")]) is None, "the rCRS"


def test_the_real_bam_is_hg19(shared_data: object) -> None:
    with pysam.AlignmentFile(f"{shared_data}/na12878/NA12878_S1.chr20.10_10p1mb.bam") as bam:
        header = [HeaderContig(*stated) for stated in zip(bam.references, bam.lengths, strict=True)]
    assert recognise_build(header) == "hg19"


@pytest.mark.parametrize(
    ("name", "plain"),
    [("chr1", "1"), ("1", "1"), ("chrM", "MT"), ("MT", "MT"), ("M", "MT"), ("chrMT", "MT"), ("chr", "chr"),
     ("CHRX", "X"), ("GL000191.1", "GL000191.1"), ("chrUn_KI270302v1", "Un_KI270302v1")],
)  # fmt: skip
def test_plain_names(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_side_by_side_puts_differences_first() -> None:
    left = [HeaderContig("1", 10), HeaderContig("20", 64_444_167), HeaderContig("X", None), HeaderContig("only", 5)]
    right = [
        HeaderContig("chr1", 10),
        HeaderContig("chr20", 63_025_520),
        HeaderContig("chrX", 7),
        HeaderContig("own", 9),
    ]
    lines = side_by_side("input", left, "reference", right).splitlines()
    assert [line.split() for line in lines] == [
        ["input", "reference"],
        ["!", "20", "64,444,167", "bp", "chr20", "63,025,520", "bp"],
        ["1", "10", "bp", "chr1", "10", "bp"],
        ["X", "length", "not", "stated", "chrX", "7", "bp"],
        ["only", "5", "bp", "own", "9", "bp"],
    ]
    assert (
        len({line.index(word) for line, word in zip(lines, ["ref", "chr20", "chr1", "chrX", "own"], strict=True)}) == 1
    )


def test_side_by_side_shows_m5_where_only_that_differs_and_cuts_long_lists() -> None:
    table = side_by_side("a", [HeaderContig("1", 10, "aa")], "b", [HeaderContig("1", 10, "bb")])
    assert "M5 aa" in table
    assert "M5 bb" in table
    many = [HeaderContig(f"c{number}", 10) for number in range(3000)]
    lines = side_by_side("a", many, "b", many[:1]).splitlines()
    assert len(lines) == 12
    assert lines[-1].strip() == "… and 2,990 more"
