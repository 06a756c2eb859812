"""How often calls are wrong beside how often their qualities say so: a table and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log10
from pathlib import Path
from typing import Literal

from call_truth import Calls, wilson

EDGES = (0, 5, 10, 15, 20, 25, 30, 35, 40, 50, 60, 80, 1_000)
CHECKED = (10, 40)
_FACTOR = 2.0
_SIZE, _MARGIN, _DECADES = 480, 60, 6


@dataclass(frozen=True, slots=True)
class Bin:
    """Calls of like quality.

    Attributes:
        low: Least quality.
        high: Quality that the calls stay below.
        stated: Mean probability of an error that their qualities state.
        errors: How many are wrong.
        calls: How many there are.
    """

    low: int
    high: int
    stated: float
    errors: int
    calls: int

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the observed error."""
        return wilson(self.errors, self.calls)

    @property
    def verdict(self) -> str:
        """Whether the observed error is within a factor of two of the stated one; "OFF" only where that is certain."""
        low, high = self.interval
        least, most = self.stated / _FACTOR, self.stated * _FACTOR
        if least <= self.errors / self.calls <= most:
            return "within a factor of two"
        return "too few calls to tell" if low <= most and high >= least else "OFF"


def judge(pairs: Iterable[tuple[Calls, Calls]], quality: Literal["GQ", "QUAL"]) -> list[tuple[float, bool]]:
    """For each called allele its quality, and whether the call is wrong.

    GQ is of the genotype: wrong when the truth has another number of copies. QUAL is of the variant: wrong when the
    truth has no copy.

    Args:
        pairs: Called and true alleles of samples.
        quality: Which quality.
    """
    judged = []
    for called, truth in pairs:
        for allele, call in called.items():
            value = call.genotype_quality if quality == "GQ" else call.quality
            if value is not None:
                copies = truth[allele].copies if allele in truth else 0
                judged.append((value, copies != call.copies if quality == "GQ" else copies == 0))
    return judged


def calibrate(judged: Sequence[tuple[float, bool]]) -> list[Bin]:
    """Gathers calls into bins of quality; empty ones are left out."""
    bins = []
    for low, high in pairwise(EDGES):
        inside = [(value, is_wrong) for value, is_wrong in judged if low <= value < high]
        if inside:
            stated = sum(10 ** (-value / 10) for value, _ in inside) / len(inside)
            bins.append(Bin(low, high, stated, sum(is_wrong for _, is_wrong in inside), len(inside)))
    return bins


def print_calibration(name: str, bins: Sequence[Bin], *, is_checked: bool) -> None:
    """Prints the bins, one a line, and where it is checked marks those of 10 to 40 that do not fit."""
    print(f"\n{name}: error stated and observed")
    print(f"{'':10}{'calls':>8}{'wrong':>8}{'stated':>10}{'observed':>10}{'95 % interval':>22}{'ratio':>8}")
    for each in bins:
        observed = each.errors / each.calls
        low, high = each.interval
        verdict = f"  {each.verdict}" if is_checked and CHECKED[0] <= each.low and each.high <= CHECKED[1] else ""
        label = f"{each.low}-{each.high}" if each.high < EDGES[-1] else f">= {each.low}"
        print(
            f"{label:10}{each.calls:8,}{each.errors:8,}{each.stated:10.5f}{observed:10.5f}"
            f"{f'{low:.5f}-{high:.5f}':>22}{observed / each.stated:8.2f}{verdict}"
        )


def write_picture(path: Path, curves: Mapping[str, Sequence[Bin]]) -> None:
    """Draws stated against observed error on logarithmic axes as SVG; the band is a factor of two."""
    colours = ("#0b6e99", "#c2571a", "#3c7a3c", "#7a3c75", "#8a6d00", "#444444")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_SIZE}" height="{_SIZE}" fill="#fff"/>',
    ]
    top, bottom = 1.0, 10.0**-_DECADES
    corners = [(bottom, 2 * bottom), (0.5, top), (top, top), (top, 0.5), (2 * bottom, bottom), (bottom, bottom)]
    band = " ".join(f"{_place(x):.1f},{_SIZE - _place(y):.1f}" for x, y in corners)
    parts.append(f'<polygon points="{band}" fill="#e8eef2"/>')
    for decade in range(_DECADES + 1):
        at = _place(10.0**-decade)
        parts.append(
            f'<path d="M{at:.1f} {_SIZE - _MARGIN}v-{_SIZE - 2 * _MARGIN}M{_MARGIN} {_SIZE - at:.1f}h'
            f'{_SIZE - 2 * _MARGIN}" stroke="#ddd"/>'
            f'<text x="{at:.1f}" y="{_SIZE - _MARGIN + 18}" text-anchor="middle">Q{10 * decade}</text>'
            f'<text x="{_MARGIN - 6}" y="{_SIZE - at + 4:.1f}" text-anchor="end">Q{10 * decade}</text>'
        )
    for number, (name, bins) in enumerate(curves.items()):
        colour = colours[number % len(colours)]
        points = []
        for each in bins:
            low, high = each.interval
            x = _place(each.stated)
            y = _SIZE - _place(each.errors / each.calls) if each.errors else _SIZE - _place(high)
            points.append(f"{x:.1f},{y:.1f}")
            parts.append(
                f'<path d="M{x:.1f} {_SIZE - _place(low):.1f}V{_SIZE - _place(high):.1f}" stroke="{colour}"/>'
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour if each.errors else "#fff"}" '
                f'stroke="{colour}"/>'
            )
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{_MARGIN + 10}" y="{_MARGIN + 18 * (number + 1)}" fill="{colour}">{name}</text>')
    parts.append(f'<text x="{_SIZE / 2}" y="{_SIZE - 14}" text-anchor="middle">stated error</text>')
    parts.append(
        f'<text transform="translate(16 {_SIZE / 2}) rotate(-90)" text-anchor="middle">observed error '
        "(open: none seen, 95 % bound)</text></svg>"
    )
    path.write_text("\n".join(parts) + "\n")


def _place(probability: float) -> float:
    """Where a probability is drawn: pixels from the axis' low end."""
    decades = min(max(-log10(max(probability, 1e-9)), 0.0), float(_DECADES))
    return _SIZE - _MARGIN - decades / _DECADES * (_SIZE - 2 * _MARGIN)
