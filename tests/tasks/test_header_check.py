"""Inputs made with another reference are refused, with both contig lists; what merely lies elsewhere is counted."""

from __future__ import annotations

from pathlib import Path

import pysam
import pytest

from tasks.errors import ReferenceError
from tasks.genome.header_check import HeaderCheck, check_header_contigs
from tasks.genome.reference import Reference, prepare_reference


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("header")
    fasta = folder / "genome.fa"
    fasta.write_text(">chr1\nACGTACGT\n>chr2\nACG\n>chrM\nACGTA\n")
    return prepare_reference(fasta, folder / "run")


def check(reference: Reference, *contigs: tuple[str, int | None, str | None, int | None]) -> HeaderCheck:
    names, lengths_bp, md5s, num_records = zip(*contigs, strict=True) if contigs else ((), (), (), ())
    return check_header_contigs("s.bam", names, lengths_bp, md5s, num_records, reference)


def test_a_header_may_list_more_than_the_reference(reference: Reference) -> None:
    found = check(reference, ("1", 8, None, 5), ("chr2", 999, None, 0), ("decoy", 7, None, 3), ("chrUn", 4, None, 0))
    assert found.match.index.tolist() == [0, -1, -1, -1]
    assert found.skipped == {"UNKNOWN_CONTIG": {"decoy": 3}}


def test_a_contig_with_data_must_fit(reference: Reference) -> None:
    with pytest.raises(ReferenceError) as caught:
        check(reference, ("chr1", 8, None, 5), ("chr2", 999, None, 1))
    text = str(caught.value)
    assert (
        "s.bam: made with another reference than genome.fa: contigs with data have another length there: chr2" in text
    )
    assert ["!", "chr2", "999", "bp", "chr2", "3", "bp"] in [line.split() for line in text.splitlines()]
    assert "chr1  8 bp" in text
    assert caught.value.reason == "WRONG_REFERENCE"


def test_other_bases_of_the_same_length_are_another_reference(reference: Reference) -> None:
    with pytest.raises(ReferenceError, match=r"same length but other bases \(M5\)"):
        check(reference, ("chr1", 8, "0" * 32, 5))
    check(reference, ("chr1", 8, reference.contigs[0].md5, 5), ("chr2", 3, "0" * 32, 0))


def test_a_mitochondrion_alone_is_not_another_build(reference: Reference) -> None:
    found = check(reference, ("chr1", 8, None, 5), ("MT", 7, None, 2))
    assert found.skipped == {"CONTIG_LENGTH_DIFFERS": {"MT": 2}}
    with pytest.raises(ReferenceError, match="another length"):
        check(reference, ("MT", 7, None, 2))
    with pytest.raises(ReferenceError, match="another length there: chr1"):
        check(reference, ("chr1", 9, None, 1), ("MT", 5, None, 2))


def test_all_data_elsewhere_is_an_error(reference: Reference) -> None:
    with pytest.raises(ReferenceError, match="none of its contigs with data is in the reference: chr9"):
        check(reference, ("chr1", 8, None, 0), ("chr9", 8, None, 5))


def test_without_counts_only_a_header_that_fits_nowhere_is_refused(reference: Reference) -> None:
    assert check(reference, ("chr1", 8, None, None), ("chr2", 999, None, None)).skipped == {}
    with pytest.raises(ReferenceError, match=r"another length there: chr1 \(9 bp, there 8\), chr2"):
        check(reference, ("chr1", 9, None, None), ("chr2", 999, None, None), ("MT", 5, None, None))
    with pytest.raises(ReferenceError, match="none of its contigs"):
        check(reference, ("ecoli", None, None, None))


def test_the_first_line_names_builds_and_first_differences(tmp_path: Path) -> None:
    fasta = tmp_path / "genome.fa"
    fasta.write_text(">chrM\nACGTA\n>chr21\n" + "A" * 8 + "\n")
    other = prepare_reference(fasta, tmp_path / "run")
    contigs = [("21", 48_129_895, None, 5), *((str(number), 100 + number, None, 0) for number in range(1000, 3000))]
    with pytest.raises(ReferenceError) as caught:
        check(other, *contigs)
    headline, *table = str(caught.value).splitlines()
    assert "than genome.fa: its header is GRCh37's; contigs with data have another length there: 21 (48" in headline
    assert "give the GRCh37 FASTA" in headline
    assert len(table) == 12
    assert table[-1].strip() == "… and 1,991 more"


def test_the_sequences_that_the_input_needs_are_named_by_their_m5(reference: Reference) -> None:
    for misfit in (("chr9", 8, "ab" * 16, 5), ("chr1", 9, "ab" * 16, 5)):
        with pytest.raises(ReferenceError) as caught:
            check(reference, ("chr8", 8, "cd" * 16, 0), misfit)
        assert (
            str(caught.value).splitlines()[-1] == f"    M5 of the sequences it was made with: {misfit[0]} {'ab' * 16}"
        )


def test_nothing_to_check(reference: Reference) -> None:
    assert check(reference).skipped == {}
    assert check(reference, ("chr9", 8, None, 0)).skipped == {}


def test_the_real_bam_fits_and_another_build_does_not(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "na12878"
    reference = prepare_reference(folder / "ucsc.hg19.chr20.unittest.fasta.gz", tmp_path / "run")
    with pysam.AlignmentFile(str(folder / "NA12878_S1.chr20.10_10p1mb.bam")) as bam:
        contigs = [
            (entry.contig, length_bp, None, entry.total)
            for entry, length_bp in zip(bam.get_index_statistics(), bam.lengths, strict=True)
        ]
    found = check(reference, *contigs)
    assert found.build == "hg19"
    assert found.skipped == {}
    with pytest.raises(ReferenceError) as caught:
        check(reference, ("20", 64_444_167, None, 5), ("21", 46_709_983, None, 5))
    text = str(caught.value)
    assert "give the GRCh38 FASTA as --reference" in text
    assert "input (GRCh38)" in text
    assert "reference (GRCh37)" in text
    assert "! 20  64,444,167 bp   chr20  63,025,520 bp" in text
