from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.reporting.heat_map import heat_map
from tasks.reporting.plots import PlotText, bars, dot_rows, histogram
from tasks.reporting.scales import nice_range, nice_ticks, percent, plain_number, short_label, short_number

TEXT = PlotText("plot-x", "A plot", "It shows <something> & more.")
VALUES = st.floats(-1e9, 1e9).filter(lambda value: value == 0 or abs(value) > 1e-6)


@given(VALUES, VALUES)
def test_a_nice_range_holds_its_values_and_ends_on_ticks(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    if low < high and high - low < 1e-6 * max(abs(low), abs(high)):
        return  # closer than an axis can tell apart
    start, end = nice_range(low, high)
    slack = 1e-6 * (end - start)
    assert start - slack <= low
    assert high <= end + slack
    assert start < end
    ticks = nice_ticks(start, end)
    assert 2 <= len(ticks) <= 12
    assert math.isclose(ticks[0], start, abs_tol=slack)
    assert math.isclose(ticks[-1], end, abs_tol=slack)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=40))
def test_bars_are_as_high_as_their_counts(counts: list[int]) -> None:
    svg = histogram(TEXT, list(range(len(counts) + 1)), counts, x_label="x", y_label="y")
    drawn = [float(height) for height in re.findall(r'class="mark"[^>]* height="([\d.]+)"', svg)]
    assert len(drawn) == len(counts)
    tallest = max(counts)
    for height, count in zip(drawn, counts, strict=True):
        assert (height == 0) == (count == 0)
        if count == tallest:
            assert height == max(drawn)


def test_descriptions_and_labels_are_escaped() -> None:
    svg = bars(TEXT, [("<b>&", 3)])
    root = ElementTree.fromstring(svg)
    assert root[1].text == TEXT.description
    assert "<b>" not in svg


def test_equal_values_are_drawn_inside_the_frame() -> None:
    svg = dot_rows(
        TEXT, [("a", 0.5), ("b", 0.5)], x_label="x", x_range=nice_range(0.5, 0.5), number=percent, value_text=percent
    )
    places = {float(x) for x in re.findall(r'cx="([\d.]+)"', svg)}
    assert len(places) == 1
    assert 0 < places.pop() < 560


@pytest.mark.parametrize(
    ("value", "plain", "short"),
    [
        (0, "0", "0"),
        (0.25, "0.25", "0.25"),
        (9_999, "9,999", "9,999"),
        (25_000, "25,000", "25k"),
        (1.5e6, "1,500,000", "1.5M"),
    ],
)
def test_numbers_as_people_write_them(value: float, plain: str, short: str) -> None:
    assert (plain_number(value), short_number(value)) == (plain, short)


def test_long_labels_keep_both_ends() -> None:
    label = short_label("NA12878_library_7_flowcell_HXXXXX_lane_4", 20)
    assert len(label) == 20
    assert label.startswith("NA12878")
    assert label.endswith("lane_4")


def test_a_heat_map_has_a_cell_for_each_pair_and_says_what_is_missing() -> None:
    labels = ["<a>", "b & c"]
    drawing = heat_map(TEXT, labels, [[1.0, None], [None, 0.5]])
    root = ElementTree.fromstring(drawing)
    cells = [element for element in root.iter() if element.tag.endswith("rect")]
    assert [cell.get("class") for cell in cells] == ["shade-7", "shade-none", "shade-none", "shade-4"]
    hints = [cell[0].text for cell in cells]
    assert hints[:2] == ["<a>, <a>: 100\u00a0%", "<a>, b & c: too little data"]
    many = heat_map(TEXT, [str(n) for n in range(60)], [[0.3] * 60] * 60)
    assert float(ElementTree.fromstring(many).get("height") or 0) <= 560
