"""Depth over covered bases: against a count base by base, inside regions, and as one number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.alignments.depth import MAX_DEPTH, DepthCounter
from tasks.alignments.records import raw_chunks
from tasks.genome.regions import Regions, merge_regions
from tests.tasks.alignment_files import Read, random_bases, write_bam

LENGTHS = {"chr1": 3_000, "chr2": 2_000}
BASES = {name: random_bases(seed, length_bp) for seed, (name, length_bp) in enumerate(LENGTHS.items())}


def count(path: Path, regions: Regions | None = None, index: tuple[int, ...] = (0, 1)) -> DepthCounter:
    counter = DepthCounter(np.array(index, np.int32), 10, regions)
    with pysam.AlignmentFile(str(path)) as alignment:
        for data in raw_chunks(alignment, iter(alignment.fetch(until_eof=True))):
            counter.add_records(data)
    counter.finish()
    return counter


def read_at(contig: int, start: int, cigar: str, **options: int) -> Read:
    length_bp = sum(int(n) for n, op in pysam_cigar(cigar) if op in "MIS")
    return Read(start, cigar, "A" * length_bp, contig=contig, **options)  # type: ignore[arg-type]


def pysam_cigar(cigar: str) -> list[tuple[str, str]]:
    import re

    return re.findall(r"(\d+)([MIDNS])", cigar)


def slow_histogram(reads: list[Read], inside: list[np.ndarray]) -> np.ndarray:
    depth = [np.zeros(length_bp, int) for length_bp in LENGTHS.values()]
    for read in reads:
        if read.flag & 0xF04 or read.mapping_quality < 10:
            continue
        at = read.start
        for length, op in pysam_cigar(read.cigar):
            if op == "M":
                depth[read.contig][at : at + int(length)] += 1
            at += int(length) if op in "MDN" else 0
    counted = np.concatenate([each[where] for each, where in zip(depth, inside, strict=True)])
    return np.bincount(counted[counted > 0], minlength=MAX_DEPTH + 1)


READS = st.lists(
    st.builds(
        read_at,
        st.integers(0, 1),
        st.integers(0, 1_500),
        st.sampled_from(["100M", "5S40M3D60M", "30M2I70M", "50M250N50M", "1M"]),
        flag=st.sampled_from([0, 0, 0, 0x10, 0x400, 0x100, 0x800, 0x200]),
        mapping_quality=st.sampled_from([60, 60, 60, 9]),
    ),
    max_size=40,
)
INTERVALS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1_900), st.integers(1, 300)), max_size=6)


@settings(max_examples=40, deadline=None)
@given(reads=READS, intervals=st.none() | INTERVALS)
def test_every_covered_base_is_counted_at_its_depth(
    tmp_path_factory: pytest.TempPathFactory, reads: list[Read], intervals: list[tuple[int, int, int]] | None
) -> None:
    path = write_bam(tmp_path_factory.mktemp("depth") / "a.bam", LENGTHS, reads)
    regions = None
    inside = [np.full(length_bp, intervals is None) for length_bp in LENGTHS.values()]
    if intervals is not None:
        contig, start, length = (
            (np.array(column, np.int64) for column in zip(*intervals, strict=True))
            if (intervals)
            else (np.zeros(0, np.int64),) * 3
        )
        regions = merge_regions(contig.astype(np.int32), start, np.minimum(start + length, 2_000))
        for place in range(2):
            for first, last in regions.intervals_of(place):
                inside[place][first:last] = True
    counter = count(path, regions)
    np.testing.assert_array_equal(counter.histogram, slow_histogram(reads, inside))


def test_contigs_in_another_order_than_the_references(tmp_path: Path) -> None:
    reads = [read_at(0, 100, "50M"), read_at(1, 100, "50M"), read_at(1, 120, "50M")]
    path = write_bam(tmp_path / "a.bam", LENGTHS, reads)
    only_second = merge_regions(np.array([0], np.int32), np.array([0]), np.array([2_000]))
    counter = count(path, only_second, index=(1, 0))  # the file's second contig is the reference's first
    assert counter.histogram[1] == 40
    assert counter.histogram[2] == 30
    assert count(path, index=(-1, 0)).histogram[1:3].tolist() == [40, 30]


@pytest.mark.parametrize("depth", [3, 5, 8, 30])
def test_the_usual_depth_of_reads_at_random_is_their_mean_depth(tmp_path: Path, depth: int) -> None:
    random = np.random.default_rng(depth)
    starts = random.integers(0, 1_900, depth * 20)
    path = write_bam(tmp_path / "a.bam", LENGTHS, [read_at(1, int(start), "100M") for start in np.sort(starts)])
    assert count(path).usual_depth == pytest.approx(depth, abs=max(1, 0.1 * depth))


def test_a_panels_depth_is_that_of_its_targets(tmp_path: Path) -> None:
    """Reads beside the targets cover more of the genome, and a few places are absurdly deep."""
    stray = [read_at(0, start, "100M") for start in range(0, 2_900, 90)]
    target = [read_at(1, 500 + offset, "100M") for offset in range(0, 100, 2)]
    heap = [read_at(1, 1_500, "10M")] * 200
    path = write_bam(tmp_path / "a.bam", LENGTHS, [*stray, *target])
    assert count(path).usual_depth >= 20
    deep = count(write_bam(tmp_path / "b.bam", LENGTHS, [*stray, *heap]))
    assert deep.usual_depth < 2
    regions = merge_regions(np.array([0], np.int32), np.array([0]), np.array([3_000]))
    assert count(path, regions).usual_depth < 2


def test_introns_are_counted_in_reads(tmp_path: Path) -> None:
    reads = [read_at(0, 10 * number, "50M" if number % 4 else "25M300N25M") for number in range(40)]
    counter = count(write_bam(tmp_path / "a.bam", LENGTHS, reads))
    assert counter.to_json() == {"usual_depth": counter.usual_depth, "spliced_share": 0.25}


def test_nothing_covered(tmp_path: Path) -> None:
    assert count(write_bam(tmp_path / "a.bam", LENGTHS, [])).to_json() == {"usual_depth": 0, "spliced_share": 0.0}
