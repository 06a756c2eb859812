"""Places: 1-based text goes in and out without a base lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import RegionsError
from tasks.intervals import Interval, format_region, from_position, parse_region, to_position

LENGTHS_BP = {"chr1": 1000, "HLA:A*01": 50, "chr1:5-9": 20, "a-b": 7}


@given(st.sampled_from(sorted(LENGTHS_BP)), st.data())
def test_print_then_parse_is_the_same_interval(contig: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, LENGTHS_BP[contig] - 1))
    end = data.draw(st.integers(start + 1, LENGTHS_BP[contig]))
    interval = Interval(contig, start, end)
    assert parse_region(format_region(interval), LENGTHS_BP) == interval
    assert interval.length_bp == end - start


@given(st.integers(0, 2**40))
def test_positions_are_one_based(start: int) -> None:
    assert to_position(start) == start + 1
    assert from_position(to_position(start)) == start


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("chr1", Interval("chr1", 0, 1000)),
        ("chr1:10", Interval("chr1", 9, 1000)),
        ("chr1:10-10", Interval("chr1", 9, 10)),
        ("chr1:1,0-2,0", Interval("chr1", 9, 20)),
        ("chr1:990-2000", Interval("chr1", 989, 1000)),
        ("HLA:A*01", Interval("HLA:A*01", 0, 50)),
        ("HLA:A*01:2-3", Interval("HLA:A*01", 1, 3)),
        ("chr1:5-9", Interval("chr1:5-9", 0, 20)),
        ("a-b:7-7", Interval("a-b", 6, 7)),
    ],
)
def test_samtools_regions(text: str, interval: Interval) -> None:
    assert parse_region(text, LENGTHS_BP) == interval


@pytest.mark.parametrize("text", ["chr9", "chr1:0-5", "chr1:9-8", "chr1:1001", "", "chr1:x-5", "chr1:-5", "chr1:,-,"])
def test_what_is_no_region_is_refused(text: str) -> None:
    with pytest.raises(RegionsError):
        parse_region(text, LENGTHS_BP)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (6, 5)])
def test_an_interval_has_its_start_first(start: int, end: int) -> None:
    with pytest.raises(RegionsError):
        Interval("chr1", start, end)
