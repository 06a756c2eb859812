"""Regions: any BED, merged, and an overlap test that agrees with looking at every base."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pysam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.errors import RegionsError
from tasks.genome.reference import Reference, prepare_reference
from tasks.genome.regions import Regions, merge_regions, read_bed

LENGTHS_BP = [50, 30, 40]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("regions")
    fasta = folder / "genome.fa"
    fasta.write_text("".join(f">chr{index}\n{'A' * length_bp}\n" for index, length_bp in enumerate(LENGTHS_BP)))
    return prepare_reference(fasta, folder / "run")


def read(reference: Reference, folder: Path, content: str | bytes, padding_bp: int = 0) -> Regions:
    path = folder / "regions.bed"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_bed(path, reference, padding_bp)


def rows(regions: Regions) -> list[tuple[int, int, int]]:
    return list(zip(regions.contig.tolist(), regions.start.tolist(), regions.end.tolist(), strict=True))


@st.composite
def intervals(draw: st.DrawFn, min_size: int, allow_empty: bool = False) -> list[tuple[int, int, int]]:
    def one() -> tuple[int, int, int]:
        contig = draw(st.integers(0, 2))
        start = draw(st.integers(0, LENGTHS_BP[contig] - 1))
        return contig, start, draw(st.integers(start + (not allow_empty), LENGTHS_BP[contig]))

    return [one() for _ in range(draw(st.integers(min_size, 8)))]


def covered(of: list[tuple[int, int, int]]) -> set[tuple[int, int]]:
    return {(contig, base) for contig, start, end in of for base in range(start, end)}


@given(intervals(1))
def test_merging_keeps_every_base_once(given_intervals: list[tuple[int, int, int]]) -> None:
    merged = merge_regions(*(np.array(column) for column in zip(*given_intervals, strict=True)))
    assert covered(rows(merged)) == covered(given_intervals)
    assert merged.length_bp == len(covered(given_intervals))
    for one, following in zip(rows(merged), rows(merged)[1:], strict=False):
        assert one[0] < following[0] or (one[0] == following[0] and one[2] < following[1]), "sorted, never touching"
    assert (merged.contig.dtype, merged.start.dtype, merged.end.dtype) == ("int32", "int64", "int64")


@given(intervals(1), intervals(0, allow_empty=True))
def test_overlap_agrees_with_looking_at_every_base(
    own: list[tuple[int, int, int]], asked: list[tuple[int, int, int]]
) -> None:
    merged = merge_regions(*(np.array(column) for column in zip(*own, strict=True)))
    bases = covered(own)
    contig, start, end = np.array(asked, dtype=np.int64).reshape(-1, 3).T
    expected = [bool(covered([(c, s, max(e, s + 1))]) & bases) for c, s, e in asked]
    assert merged.contains(contig, start, end).tolist() == expected


@given(intervals(1))
def test_intervals_of_a_contig(own: list[tuple[int, int, int]]) -> None:
    merged = merge_regions(*(np.array(column) for column in zip(*own, strict=True)))
    for contig in range(3):
        assert merged.intervals_of(contig).tolist() == [[s, e] for c, s, e in rows(merged) if c == contig]


def test_no_region_contains_nothing() -> None:
    nothing = merge_regions(np.array([], dtype=np.int32), np.array([], dtype=np.int64), np.array([], dtype=np.int64))
    assert nothing.contains(np.array([0]), np.array([0]), np.array([5])).tolist() == [False]
    assert nothing.length_bp == 0


def test_unknown_contigs_overlap_nothing(reference: Reference, tmp_path: Path) -> None:
    regions = read(reference, tmp_path, "chr0\t0\t50\n")
    assert regions.contains(np.array([-1, 0]), np.array([0, 0]), np.array([5, 5])).tolist() == [False, True]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\n\r\n"])
def test_beds_as_people_write_them(reference: Reference, tmp_path: Path, end: str) -> None:
    lines = [
        "\ufefftrack name=exome",
        "browser position chr1:1-5",
        "# a comment",
        "chr1\t5\t9\tname\t0\t+",
        "0\t20\t30",
        "chr0   0  10",
        "chr0\t10\t12",
        "  chr2\t39\t40  ",
    ]
    regions = read(reference, tmp_path, end.join(lines))
    assert rows(regions) == [(0, 0, 12), (0, 20, 30), (1, 5, 9), (2, 39, 40)]
    assert regions.dropped == {}


def test_compressed_beds(reference: Reference, tmp_path: Path) -> None:
    text = b"chr0\t1\t2\nchr1\t3\t4\n"
    assert rows(read(reference, tmp_path, gzip.compress(text))) == [(0, 1, 2), (1, 3, 4)]
    plain = tmp_path / "plain.bed"
    plain.write_bytes(text)
    pysam.tabix_compress(str(plain), str(tmp_path / "regions.bed.gz"))
    assert rows(read_bed(tmp_path / "regions.bed.gz", reference)) == [(0, 1, 2), (1, 3, 4)]


def test_padding_stops_at_the_contigs_ends(reference: Reference, tmp_path: Path) -> None:
    assert rows(read(reference, tmp_path, "chr1\t2\t4\nchr1\t20\t28\n", 5)) == [(1, 0, 9), (1, 15, 30)]
    assert rows(read(reference, tmp_path, "chr1\t2\t4\nchr1\t10\t12\n", 3)) == [(1, 0, 15)]
    with pytest.raises(RegionsError, match="0 or more"):
        read(reference, tmp_path, "chr1\t2\t4\n", -1)


def test_what_is_dropped_is_counted(reference: Reference, tmp_path: Path) -> None:
    regions = read(reference, tmp_path, "chr0\t1\t2\nchrUn\t1\t2\nchr9\t5\t9\nchrUn\t3\t4\nchr1\t7\t7\n")
    assert regions.dropped == {"UNKNOWN_CONTIG": 3, "EMPTY_INTERVAL": 1}
    assert regions.unknown_contigs == ("chrUn", "chr9")
    assert regions.warnings == [
        "3 on chrUn, chr9: intervals of the regions whose contig the reference does not have were left out",
        "1: intervals of the regions that are empty were left out",
    ]
    assert read(reference, tmp_path, "chr0\t1\t2\n").warnings == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no interval in it"),
        (b"# nothing\ntrack x\n", "no interval in it"),
        (b"chr0\t1\n", "line 1: 'chr0\\t1' has 2 columns"),
        (b"chr0 1 2\nchr0\t5\t4\n", "line 2: 'chr0\\t5\\t4': the start is past the end"),
        (b"chr0\t1.5\t4\n", "whole numbers"),
        (b"chr0\t-1\t4\n", "whole numbers"),
        (b"chr0\t1\t99999999999999999999\n", "longer than any contig"),
        (b"chr0\t1\t51\n", "line 1: chr0:1-51 ends past the contig, which has 50 bases"),
        (b"@HD\tVN:1.6\n@SQ\tSN:chr0\tLN:50\nchr0\t1\t5\t+\tx\n", "interval_list"),
        (b"chr7\t1\t2\n", "no interval on a contig of genome.fa: the BED has chr7; the reference has chr0, chr1"),
        (b"chr0\t5\t5\n#\nchr1\t0\t0\n", "no region left: 2 intervals are empty, the first on line 1: their start is"),
        (b"chr7\t1\t2\nchr1\t7\t7\n", "the first on line 2: their start is their end, and 1 are on contigs that"),
        (b"chr0\t1\t2\x00\n", "not a text file"),
        (gzip.compress(b"chr0\t1\t2\n" * 1000)[:-12], "cannot read it"),
        (b"\x1f\x8brubbish", "cannot read it"),
    ],
)
def test_what_is_no_bed_is_refused(reference: Reference, tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(RegionsError) as caught:
        read(reference, tmp_path, content)
    assert message in str(caught.value)
    assert "regions.bed" in str(caught.value)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=60)
    | st.lists(
        st.lists(st.sampled_from(["chr0", "1", "x", "5", "50", "51", "-", "", " "]), max_size=4), max_size=4
    ).map(lambda lines: "\n".join("\t".join(line) for line in lines).encode())
)
def test_any_bytes_are_read_or_refused_in_words(reference: Reference, tmp_path: Path, content: bytes) -> None:
    try:
        regions = read(reference, tmp_path, content)
    except RegionsError:
        return
    assert 0 < regions.length_bp <= sum(LENGTHS_BP)


def test_all_faults_of_a_bed_up_to_ten(reference: Reference, tmp_path: Path) -> None:
    with pytest.raises(RegionsError) as caught:
        read(reference, tmp_path, "chr0\tx\ty\n" * 20)
    assert str(caught.value).count("whole numbers") == 10


def test_a_missing_bed(reference: Reference, tmp_path: Path) -> None:
    with pytest.raises(RegionsError, match="No such file"):
        read_bed(tmp_path / "absent.bed", reference)


def test_the_real_bed(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "na12878"
    reference = prepare_reference(folder / "ucsc.hg19.chr20.unittest.fasta.gz", tmp_path / "run")
    regions = read_bed(folder / "test_nist.b37_chr20_100kbp_at_10mb.bed", reference)
    assert len(regions.start) == 11
    assert regions.length_bp == 8_999
    inside = regions.contains(
        np.zeros(3, int), np.array([10_000_845, 10_000_846, 10_002_407]), np.array([10_000_846, 10_000_847, 10_002_408])
    )
    assert inside.tolist() == [False, True, False]
