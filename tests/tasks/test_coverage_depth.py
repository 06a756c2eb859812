from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tasks.alignments.records import raw_chunks
from tasks.calling.bam_stream import open_alignment
from tasks.coverage.depth import Depth, measure_depth
from tasks.genome.reference import Reference
from tests.tasks.alignment_files import Read, random_bases, write_bam, write_reference
from tests.tasks.coverage_reference import plain_depths

LENGTH_BP = 3_000
GENOME = random_bases(3, LENGTH_BP)
FIRST, SECOND = 0x1 | 0x40, 0x1 | 0x80


def read_at(start: int, length: int = 50, **more: object) -> Read:
    return Read(start, f"{length}M", GENOME[start : start + length], **more)  # type: ignore[arg-type]


def measure(bam: Path, reference: Reference, start: int = 0, end: int = LENGTH_BP, **more: object) -> Depth:
    more = {"windows": np.array([[start, end]]), **more}
    with open_alignment(bam, None, reference.fasta_path) as alignment:
        return measure_depth(alignment, 0, start, end, contig_length_bp=LENGTH_BP, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return write_reference(tmp_path_factory.mktemp("genome"), {"chr1": GENOME})


def random_reads(seed: int, count: int) -> list[Read]:
    """Pairs that overlap, gaps, clips, introns, low qualities, low mapping qualities, and what is never counted."""
    rng = np.random.default_rng(seed)
    reads: list[Read] = []
    for number in range(count):
        start = int(rng.integers(0, LENGTH_BP - 400))
        for mate, flag in enumerate((FIRST, SECOND)):
            start += int(rng.integers(0, 70)) * mate
            cigar, length = [
                ("60M", 60), ("20M5D40M", 60), ("10S30M3I20M", 63), ("20=1X39M4S", 64), ("30M150N30M", 60),
            ][rng.integers(0, 5)]  # fmt: skip
            extra = int(rng.choice([0, 0, 0, 0, 0x100, 0x200, 0x400, 0x800, 0x4]))
            quality = None if rng.random() < 0.05 else rng.choice([2, 9, 10, 35], length).tolist()
            mapping_quality = int(rng.choice([0, 9, 10, 60, 60, 60]))
            bases = random_bases(number, length)
            reads.append(Read(start, cigar, bases, flag | extra, f"pair{number}", mapping_quality, quality))
    return reads


def test_depths_are_those_of_a_plain_count(reference: Reference, tmp_path: Path) -> None:
    bam = write_bam(tmp_path / "reads.bam", {"chr1": LENGTH_BP}, random_reads(1, 400))
    usable, well, poorly = plain_depths(bam, "chr1", LENGTH_BP)
    found = measure(bam, reference)
    np.testing.assert_array_equal(found.usable, usable)
    np.testing.assert_array_equal(found.well_mapped, well)
    np.testing.assert_array_equal(found.poorly_mapped, poorly)
    assert 5 < usable.max() < well.max()
    assert poorly.max() > 5


@pytest.mark.parametrize("borders", [(0, 1_000, 3_000), (0, 7, 1_500, 1_501, 2_999, 3_000)])
def test_parts_are_cut_from_the_whole(reference: Reference, tmp_path: Path, borders: tuple[int, ...]) -> None:
    bam = write_bam(tmp_path / "reads.bam", {"chr1": LENGTH_BP}, random_reads(2, 200))
    whole = measure(bam, reference)
    parts = [measure(bam, reference, *part) for part in itertools.pairwise(borders)]
    for name in ("usable", "well_mapped", "poorly_mapped"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))


def test_windows_are_read_as_the_whole_and_no_read_twice(reference: Reference, tmp_path: Path) -> None:
    length_bp = 20_000
    genome = random_bases(9, length_bp)
    far = write_reference(tmp_path, {"chr1": genome})
    starts = np.sort(np.random.default_rng(4).integers(0, length_bp - 6_000, 500)).tolist()
    # Introns wider than the gap between windows: one read lies over several of them.
    reads = [Read(start, "50M5000N50M", genome[:100], name=f"r{number}") for number, start in enumerate(starts)]
    bam = write_bam(tmp_path / "reads.bam", {"chr1": length_bp}, reads)
    windows = np.array([[100, 200], [250, 900], [4_000, 4_001], [9_000, 9_500], [19_000, 20_000]])
    with open_alignment(bam, None, far.fasta_path) as alignment:
        found = measure_depth(alignment, 0, 0, length_bp, contig_length_bp=length_bp, windows=windows)
    usable, _, _ = plain_depths(bam, "chr1", length_bp)
    for start, end in windows.tolist():
        np.testing.assert_array_equal(found.usable[start:end], usable[start:end])


def test_mates_meet_across_chunks(reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bam = write_bam(tmp_path / "reads.bam", {"chr1": LENGTH_BP}, random_reads(5, 800))
    whole = measure(bam, reference)
    monkeypatch.setattr("tasks.alignments.records._RECORDS_AT_ONCE", 7)
    monkeypatch.setattr("tasks.alignments.records._CHUNK_BYTES", 1)
    with open_alignment(bam, None, reference.fasta_path) as alignment:
        num_chunks = sum(1 for _ in raw_chunks(alignment, alignment.fetch("chr1")))
    assert num_chunks > 2
    np.testing.assert_array_equal(measure(bam, reference).usable, whole.usable)


@pytest.mark.parametrize(
    ("qualities", "floor", "depth"),
    [((35, 35), 10, 1), ((9, 35), 10, 1), ((35, 9), 10, 1), ((9, 9), 10, 0), ((9, 9), 9, 1), ((35, 9), 36, 0)],
)
def test_overlapping_mates_count_once_where_either_is_good(
    reference: Reference, tmp_path: Path, qualities: tuple[int, int], floor: int, depth: int
) -> None:
    reads = [
        read_at(100, flag=FIRST, name="a", quality=qualities[0]),
        read_at(120, flag=SECOND, name="a", quality=qualities[1]),
        # The same name and the same place in its fragment: another read, counted apart.
        read_at(300, flag=FIRST, name="b"),
        read_at(320, flag=FIRST, name="b"),
    ]
    bam = write_bam(tmp_path / "reads.bam", {"chr1": LENGTH_BP}, reads)
    found = measure(bam, reference, min_base_quality=floor)
    assert found.usable[130] == depth
    assert found.usable[330] == (2 if floor <= 35 else 0)
    assert found.well_mapped[130] == 2


def test_a_read_is_on_target_once_where_its_first_target_base_is(reference: Reference, tmp_path: Path) -> None:
    reads = [
        read_at(100),
        Read(150, "20M100N30M", GENOME[:50]),  # around the first target
        Read(190, "50M", GENOME[:50]),
        read_at(205),
        read_at(500, mapping_quality=3),
        read_at(520),  # on both targets
        read_at(700),
    ]
    bam = write_bam(tmp_path / "reads.bam", {"chr1": LENGTH_BP}, reads)
    targets = np.array([[200, 250], [515, 530], [560, 561]])
    padded = np.array([[140, 310], [455, 621]])
    for borders in ((0, LENGTH_BP), (0, 215, LENGTH_BP), (0, 195, 525, 530, LENGTH_BP)):
        parts = [measure(bam, reference, *part, targets=targets, padded=padded) for part in itertools.pairwise(borders)]
        assert sum(part.num_on_target for part in parts) == 3
        assert sum(part.num_near_target for part in parts) == 5
