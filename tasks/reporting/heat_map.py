"""A square of coloured cells: how alike every two of a few samples are."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from tasks.reporting.plots import WIDTH, PlotText
from tasks.reporting.scales import percent, short_label

_LABEL_CHARACTERS = 14
_LABEL_WIDTH = 104
_SHADES = 8
"""Distinct shades in the style sheet (``shade-0`` and on)."""


def heat_map(text: PlotText, labels: Sequence[str], rows: Sequence[Sequence[float | None]]) -> Markup:
    """Draws a symmetric matrix of shares; cells without a value are left empty.

    Args:
        text: Title and description.
        labels: n names.
        rows: n rows of n values from 0 to 1, or None.
    """
    size = (WIDTH - _LABEL_WIDTH - 4) / max(len(labels), 1)
    size = min(size, 28.0)
    cells = []
    for row, values in enumerate(rows):
        y = 4 + row * size
        name = labels[row]
        if size >= 7:
            cells.append(
                f'<text class="tick" x="{_LABEL_WIDTH - 8}" y="{y + size / 2 + 4:.1f}" text-anchor="end">'
                f"<title>{escape(name)}</title>{escape(short_label(name, _LABEL_CHARACTERS))}</text>"
            )
        for column, value in enumerate(values):
            x = _LABEL_WIDTH + column * size
            said = "too little data" if value is None else percent(round(value, 3))
            shade = "shade-none" if value is None else f"shade-{min(int(value * _SHADES), _SHADES - 1)}"
            hint = f"{escape(name)}, {escape(labels[column])}: {said}"
            cells.append(
                f'<rect class="{shade}" x="{x:.2f}" y="{y:.2f}" width="{size - 0.6:.2f}" height="{size - 0.6:.2f}">'
                f"<title>{hint}</title></rect>"
            )
    height = 8 + len(labels) * size
    return Markup(  # noqa: S704 - every text in it has been escaped
        f'<svg role="img" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
        f'aria-labelledby="{escape(text.name)}-title {escape(text.name)}-desc">'
        f'<title id="{escape(text.name)}-title">{escape(text.title)}</title>'
        f'<desc id="{escape(text.name)}-desc">{escape(text.description)}</desc>{"".join(cells)}</svg>'
    )
