"""Plots as inline SVG: text in, text out, the same bytes for the same numbers.

Colours and fonts come from the page's style sheet by class, so a plot is legible only inside the report. Every text is
escaped here; labels may be anything.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from tasks.reporting.scales import (
    LABEL_CHARACTERS,
    Format,
    nice_range,
    nice_ticks,
    plain_number,
    short_label,
    short_number,
)

WIDTH = 560
_PLOT_HEIGHT = 190
_ROW_HEIGHT = 20
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 22, 10, 42
_CHARACTER_WIDTH = 7.2
_VALUE_WIDTH = 70
_MAX_HINTS = 40
_LINE_CLASSES = 6
"""Distinct line colours in the style sheet (``line-0`` and on)."""


@dataclass(frozen=True, slots=True)
class PlotText:
    """What a plot says in words.

    Attributes:
        name: Unique on the page, letters and hyphens only: the ids of title and description are made of it.
        title: Short, read by screen readers as the plot's name.
        description: What the plot shows, for those who do not see it.
    """

    name: str
    title: str
    description: str


@dataclass(frozen=True, slots=True)
class _Frame:
    """A rectangle of the drawing and the values its edges stand for."""

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + self.width * (min(max(value, low), high) - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.top + self.height * (1 - (min(max(value, low), high) - low) / (high - low))

    def x_axis(self, label: str, number: Format, *, grid: bool = False) -> str:
        bottom = self.top + self.height
        parts = [f'<path class="axis" d="M{self.left:.1f} {bottom:.1f}h{self.width:.1f}"/>']
        for tick in nice_ticks(*self.x_range):
            x = self.x(tick)
            if grid:
                parts.append(f'<path class="grid" d="M{x:.1f} {self.top:.1f}v{self.height:.1f}"/>')
            parts.append(_text(x, bottom + 16, number(tick), "tick", "middle"))
        parts.append(_text(self.left + self.width / 2, bottom + 34, label, "axis-label", "middle"))
        return "".join(parts)

    def y_axis(self, label: str, number: Format) -> str:
        parts = []
        for tick in nice_ticks(*self.y_range, count=4):
            y = self.y(tick)
            parts.append(f'<path class="grid" d="M{self.left:.1f} {y:.1f}h{self.width:.1f}"/>')
            parts.append(_text(self.left - 8, y + 4, number(tick), "tick", "end"))
        middle = self.top + self.height / 2
        turned = f'transform="rotate(-90 12 {middle:.1f})"'
        parts.append(
            f'<text class="axis-label" x="12" y="{middle:.1f}" text-anchor="middle" {turned}>{escape(label)}</text>'
        )
        return "".join(parts)


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(text: PlotText, height: float, body: str) -> Markup:
    return Markup(  # noqa: S704 - every text in it has been escaped
        f'<svg role="img" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
        f'aria-labelledby="{escape(text.name)}-title {escape(text.name)}-desc">'
        f'<title id="{escape(text.name)}-title">{escape(text.title)}</title>'
        f'<desc id="{escape(text.name)}-desc">{escape(text.description)}</desc>{body}</svg>'
    )


def _plot_frame(x_range: tuple[float, float], y_range: tuple[float, float]) -> _Frame:
    return _Frame(_LEFT, _TOP, WIDTH - _LEFT - _RIGHT, _PLOT_HEIGHT, x_range, y_range)


def histogram(
    text: PlotText,
    edges: Sequence[float],
    counts: Sequence[float],
    *,
    x_label: str,
    y_label: str,
    x_number: Format = plain_number,
) -> Markup:
    """Draws how many values fall between neighbouring edges.

    Args:
        text: Title and description.
        edges: n + 1 rising values.
        counts: n amounts, none negative.
        x_label: What the values are.
        y_label: What is counted.
        x_number: How values are written.
    """
    frame = _plot_frame((edges[0], edges[-1]), (0.0, nice_range(0.0, max(*counts, 1))[1]))
    base = frame.y(0)
    bars = []
    for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
        x, width = frame.x(left), frame.x(right) - frame.x(left)
        # A bar too low to be seen still says that something is there.
        height = max(base - frame.y(count), 1.0) if count else 0.0
        hint = f"{x_number(left)} to {x_number(right)}: {plain_number(round(count, 1))}"
        bars.append(
            f'<rect class="mark" x="{x + 0.5:.2f}" y="{base - height:.2f}" width="{max(width - 1, 0.5):.2f}" '
            f'height="{height:.2f}"><title>{escape(hint)}</title></rect>'
        )
    body = frame.y_axis(y_label, short_number) + "".join(bars) + frame.x_axis(x_label, x_number)
    return _svg(text, _PLOT_HEIGHT + _TOP + _BOTTOM, body)


def lines(
    text: PlotText,
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
    y_range: tuple[float, float],
) -> Markup:
    """Draws one labelled line each of a few series over the places 1, 2, 3, ….

    Args:
        text: Title and description.
        series: Label and values; at most six are told apart by colour.
        x_label: What the places are.
        y_label: What the values are.
        y_range: Lowest and highest value shown.
    """
    frame = _plot_frame((1.0, max(2.0, *(len(values) for _, values in series))), y_range)
    parts = [frame.y_axis(y_label, plain_number), frame.x_axis(x_label, plain_number)]
    for place, (label, values) in enumerate(series):
        kind = f"line line-{place % _LINE_CLASSES}"
        path = _path([(frame.x(x), frame.y(y)) for x, y in enumerate(values, 1)])
        parts.append(f'<path class="{kind}" d="{path}"><title>{escape(label)}</title></path>')
    height = _PLOT_HEIGHT + _TOP + _BOTTOM
    for place, (label, _) in enumerate(series):
        x, y = _LEFT + (place % 2) * 240, height + 8 + (place // 2) * 18
        parts.append(f'<path class="line line-{place % _LINE_CLASSES}" d="M{x} {y}h18"/>')
        parts.append(_text(x + 24, y + 4, short_label(label, 30), "tick"))
    return _svg(text, height + 18 * -(-len(series) // 2), "".join(parts))


def band(
    text: PlotText,
    quantiles: Sequence[Sequence[float]],
    *,
    x_label: str,
    y_label: str,
    y_range: tuple[float, float],
) -> Markup:
    """Draws many series as their spread: lowest to highest, the middle half, and the median.

    Args:
        text: Title and description.
        quantiles: Five rows of n values each, at the places 1 to n: minimum, quartiles, maximum.
        x_label: What the places are.
        y_label: What the values are.
        y_range: Lowest and highest value shown.
    """
    frame = _plot_frame((1.0, max(2.0, len(quantiles[0]))), y_range)

    def points(row: Sequence[float]) -> list[tuple[float, float]]:
        return [(frame.x(x), frame.y(y)) for x, y in enumerate(row, 1)]

    lowest, lower, median, upper, highest = (points(row) for row in quantiles)
    body = (
        frame.y_axis(y_label, plain_number)
        + f'<path class="band-outer" d="{_path([*lowest, *reversed(highest)])}Z"/>'
        + f'<path class="band-inner" d="{_path([*lower, *reversed(upper)])}Z"/>'
        + f'<path class="line line-0" d="{_path(median)}"/>'
        + frame.x_axis(x_label, plain_number)
    )
    return _svg(text, _PLOT_HEIGHT + _TOP + _BOTTOM, body)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _rows_frame(labels: Sequence[str], x_range: tuple[float, float]) -> _Frame:
    longest = max((min(len(label), LABEL_CHARACTERS) for label in labels), default=0)
    left = 24 + _CHARACTER_WIDTH * longest
    return _Frame(left, 6, WIDTH - left - _VALUE_WIDTH, len(labels) * _ROW_HEIGHT, x_range, (0.0, 1.0))


def _row_label(frame: _Frame, y: float, label: str) -> str:
    return (
        f'<text x="{frame.left - 12:.1f}" y="{y + 4:.1f}" text-anchor="end"><title>{escape(label)}</title>'
        f"{escape(short_label(label))}</text>"
    )


def dot_rows(
    text: PlotText,
    rows: Sequence[tuple[str, float]],
    *,
    x_label: str,
    x_range: tuple[float, float],
    number: Format,
    value_text: Format,
) -> Markup:
    """Draws one labelled row with a dot for each value.

    Args:
        text: Title and description.
        rows: Label and value, drawn from the top.
        x_label: What the values are.
        x_range: Ends of the axis.
        number: How values are written along the axis.
        value_text: How each row's own value is written.
    """
    frame = _rows_frame([label for label, _ in rows], x_range)
    parts = []
    for place, (label, value) in enumerate(rows):
        y = frame.top + (place + 0.5) * _ROW_HEIGHT
        parts.append(_row_label(frame, y, label))
        parts.append(f'<path class="grid" d="M{frame.left:.1f} {y:.1f}h{frame.width:.1f}"/>')
        parts.append(f'<circle class="mark" cx="{frame.x(value):.1f}" cy="{y:.1f}" r="4.5"/>')
        parts.append(_text(WIDTH - _VALUE_WIDTH + 12, y + 4, value_text(value), "tick"))
    body = frame.x_axis(x_label, number, grid=False) + "".join(parts)
    return _svg(text, frame.top + frame.height + _BOTTOM, body)


def scatter(
    text: PlotText,
    points: Sequence[tuple[str, float, float]],
    named: Container[str],
    *,
    x_label: str,
    y_label: str,
    reach: float,
) -> Markup:
    """Draws a dot for each label; both axes go as far in either direction.

    Args:
        text: Title and description.
        points: Label and place each.
        named: Labels that are written beside their dots, which stand out. The others show theirs when pointed at while
            there are few.
        x_label: What lies along.
        y_label: What lies upwards.
        reach: How far from 0 the axes go.
    """
    frame = _plot_frame(nice_range(-reach, reach), nice_range(-reach, reach))
    dots: dict[str, None] = {}
    names = []
    for label, across, up in points:
        x, y, is_named = frame.x(across), frame.y(up), label in named
        kind, hint = ("odd", label) if is_named else ("mark", label if len(points) <= _MAX_HINTS else "")
        # Without their labels, dots of one place are one.
        dots[f'<circle class="{kind}" cx="{x:.0f}" cy="{y:.0f}" r="4.5"><title>{escape(hint)}</title></circle>'] = None
        if is_named:
            # Written towards the middle, so that it stays inside.
            side, anchor = (-9, "end") if x > frame.left + frame.width / 2 else (9, "start")
            names.append(_text(x + side, y + 4, short_label(label), "tick", anchor))
    axes = frame.y_axis(y_label, plain_number) + frame.x_axis(x_label, plain_number)
    return _svg(text, _PLOT_HEIGHT + _TOP + _BOTTOM, axes + "".join([*dots, *names]))


def bars(text: PlotText, rows: Sequence[tuple[str, int]]) -> Markup:
    """Draws one labelled horizontal bar for each count."""
    frame = _rows_frame([label for label, _ in rows], (0.0, float(max(1, *(count for _, count in rows)))))
    parts = []
    for place, (label, count) in enumerate(rows):
        y = frame.top + (place + 0.5) * _ROW_HEIGHT
        width = max(frame.x(count) - frame.left, 1.0 if count else 0.0)
        parts.append(_row_label(frame, y, label))
        parts.append(
            f'<rect class="mark" x="{frame.left:.1f}" y="{y - 6:.1f}" width="{width:.1f}" height="12" rx="1.5"/>'
        )
        parts.append(_text(frame.left + width + 8, y + 4, f"{count:,}", "tick"))
    return _svg(text, frame.top + frame.height + 6, "".join(parts))


def box_rows(
    text: PlotText, rows: Sequence[tuple[str, Sequence[float]]], *, x_label: str, x_range: tuple[float, float]
) -> Markup:
    """Draws one labelled box each: the 5th to 95th percentile as a line, the middle half as a box, the median.

    Args:
        text: Title and description.
        rows: Label and five values: 5th, 25th, 50th, 75th and 95th percentile.
        x_label: What the values are.
        x_range: Ends of the axis.
    """
    frame = _rows_frame([label for label, _ in rows], x_range)
    parts = [frame.x_axis(x_label, plain_number, grid=True)]
    for place, (label, quantiles) in enumerate(rows):
        y = frame.top + (place + 0.5) * _ROW_HEIGHT
        low, lower, median, upper, high = (frame.x(value) for value in quantiles)
        parts.append(_row_label(frame, y, label))
        parts.append(f'<path class="whisker" d="M{low:.1f} {y:.1f}H{high:.1f}"/>')
        width = max(upper - lower, 1)
        parts.append(f'<rect class="box" x="{lower:.1f}" y="{y - 5:.1f}" width="{width:.1f}" height="10" rx="1.5"/>')
        parts.append(f'<path class="median" d="M{median:.1f} {y - 6:.1f}v12"/>')
        parts.append(_text(WIDTH - _VALUE_WIDTH + 12, y + 4, plain_number(round(quantiles[2], 4)), "tick"))
    return _svg(text, frame.top + frame.height + _BOTTOM, "".join(parts))
