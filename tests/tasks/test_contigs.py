"""An input's contigs find their places by name or alias, and only where lengths and M5 agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.genome.contigs import match_contigs, mixed_names
from tasks.genome.reference import Reference, prepare_reference


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("contigs")
    fasta = folder / "genome.fa"
    fasta.write_text(">chr2\nACGTACGT\n>1\nACG\n>chrM\nACGTA\n>chrMT\nACGTAC\n>HLA:A*01\nAC\n")
    return prepare_reference(fasta, folder / "run")


def match(
    reference: Reference, name: str, length_bp: int | None = None, md5: str | None = None
) -> tuple[int, str | None]:
    found = match_contigs([name], [length_bp], [md5], reference)
    assert found.index.dtype == "int32"
    return int(found.index[0]), found.reason[0]


def test_names_and_aliases(reference: Reference) -> None:
    for name in ("chr2", "2", "CHR2"):
        assert match(reference, name) == (0, None)
        assert match(reference, name, 8) == (0, None)
    assert match(reference, "chr1", 3) == (1, None)
    assert match(reference, "HLA:A*01") == (4, None)
    assert match(reference, "chr3") == (-1, "UNKNOWN_CONTIG")
    assert match(reference, "") == (-1, "UNKNOWN_CONTIG")


def test_lengths_must_agree_where_both_are_known(reference: Reference) -> None:
    assert match(reference, "chr2", 9) == (-1, "CONTIG_LENGTH_DIFFERS")
    assert match(reference, "2", 9) == (-1, "CONTIG_LENGTH_DIFFERS")
    assert match(reference, "2", 0) == (-1, "CONTIG_LENGTH_DIFFERS")


def test_m5_must_agree_where_it_is_stated(reference: Reference) -> None:
    md5 = reference.contigs[0].md5
    assert match(reference, "2", 8, md5.upper()) == (0, None)
    assert match(reference, "2", None, "0" * 32) == (-1, "CONTIG_M5_DIFFERS")


def test_two_mitochondria_are_told_apart_by_length(reference: Reference) -> None:
    assert match(reference, "MT", 5) == (2, None)
    assert match(reference, "MT", 6) == (3, None)
    assert match(reference, "M", 6) == (3, None)
    assert match(reference, "chrM") == (2, None)
    assert match(reference, "chrMT") == (3, None)
    assert match(reference, "MT", 7) == (-1, "CONTIG_LENGTH_DIFFERS")


def test_order_of_the_input_is_kept(reference: Reference) -> None:
    found = match_contigs(["x", "1", "2", "2"], [None, 3, 8, 9], [None] * 4, reference)
    assert found.index.tolist() == [-1, 1, 0, -1]
    assert found.reason == ["UNKNOWN_CONTIG", None, None, "CONTIG_LENGTH_DIFFERS"]
    assert found.namesake.tolist() == [-1, 1, 0, 0]
    assert len(match_contigs([], [], [], reference).index) == 0


def test_names_of_two_ways_are_told(tmp_path: Path) -> None:
    fasta = tmp_path / "genome.fa"
    fasta.write_text("".join(f">{name}\nACGT\n" for name in ("chr1", "chr2", "chrM", "decoy")))
    reference = prepare_reference(fasta, tmp_path / "run")
    for names in (["chr1", "chr2", "chrM", "decoy"], ["1", "2", "MT"], ["1", "nowhere"], ["chr1", "2x"], []):
        assert mixed_names(names, reference) is None
    one_contig = mixed_names(["chr1", "1", "chr2"], reference)
    assert one_contig is not None
    assert "chr1, chr2 beside 1: " in one_contig
    assert one_contig.endswith("Both names of one contig: chr1 and 1")
    other_contigs = mixed_names(["chr1", "2"], reference)
    assert other_contigs is not None
    assert "Both names" not in other_contigs


def test_hg19_chrm_is_not_the_rcrs(tmp_path: Path) -> None:
    fasta = tmp_path / "genome.fa"
    fasta.write_text(">MT\n" + "A" * 16_569 + "\n")
    reference = prepare_reference(fasta, tmp_path / "run")
    assert match(reference, "chrM", 16_569) == (0, None)
    assert match(reference, "chrM", 16_571) == (-1, "CONTIG_LENGTH_DIFFERS")
