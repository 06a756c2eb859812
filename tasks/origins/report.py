"""The page that shows what the sequences of each sample are from."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from tasks.files import write_bytes
from tasks.origins.classifying import CLASSES, CUTOFF, MIN_BP
from tasks.reporting.plots import PlotText, bars

_STYLE = Path(__file__).parent.parent / "reporting" / "report.css"
_WORDS = {
    "archaea": "archaea",
    "bacteria": "bacteria",
    "prokarya": "archaea or bacteria",
    "eukarya": "eukaryotes",
    "mitochondrion": "mitochondria",
    "plastid": "plastids",
    "organelle": "organelle, not known which",
    "unknown": "not sure",
    "too_short": "too short to tell",
}
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src {{ style_hash }}; base-uri 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Origins of sequences</title>
<style>{{ style }}</style>
</head>
<body>
<main>
<h1>Origins of sequences</h1>
<p>By Tiara {{ version }}, on contigs and long reads of {{ min_bp }} bases or more; a class is told where its mean
probability is above {{ cutoff }}. Shares are of the bases of sequences that are long enough to tell.</p>
{% for sample in samples %}
<section>
<h2>{{ sample.name }}</h2>
<p>{{ sample.told }} of {{ sample.all }} sequences are long enough to tell.</p>
<div class="box">{{ sample.plot }}</div>
<div class="scroll"><table>
<thead><tr><th scope="col">Class</th><th scope="col" class="number">Sequences</th>
<th scope="col" class="number">Bases</th>
<th scope="col" class="number">Share</th></tr></thead>
<tbody>{% for row in sample.rows %}
<tr><th scope="row">{{ row[0] }}</th><td class="number">{{ row[1] }}</td><td class="number">{{ row[2] }}</td>
<td class="number">{{ row[3] }}</td></tr>{% endfor %}
</tbody></table></div>
</section>
{% endfor %}
</main>
</body>
</html>
"""


def write_report(path: Path, samples: dict[str, dict[str, Any]], version: str) -> None:
    """Writes the page.

    Args:
        path: Where to; it appears whole.
        samples: For each sample the counts of `tasks.origins.telling.tell_origins`.
        version: Of the models.
    """
    style = _STYLE.read_text()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = Environment(autoescape=True).from_string(_PAGE)
    html = page.render(
        style=Markup(style),  # noqa: S704 - our own file
        style_hash=f"'sha256-{digest}'",
        version=version,
        min_bp=f"{MIN_BP:,}",
        cutoff=CUTOFF,
        samples=[_sample(number, name, counts) for number, (name, counts) in enumerate(samples.items())],
    )
    write_bytes(path, html.encode())


def _sample(number: int, name: str, counts: dict[str, Any]) -> dict[str, Any]:
    sequences, bases = counts["sequences"], counts["bases"]
    total_bp = sum(bases.values()) - bases["too_short"]
    found = [kind for kind in CLASSES if sequences[kind]]
    text = PlotText(
        f"origins-{chr(97 + number % 26) * (1 + number // 26)}", f"Bases by origin, {name}", "A bar a class."
    )
    return {
        "name": name,
        "all": f"{sum(sequences.values()):,}",
        "told": f"{sum(sequences.values()) - sequences['too_short']:,}",
        "plot": bars(text, [(_WORDS[kind], bases[kind]) for kind in found]),
        "rows": [
            (
                _WORDS[kind],
                f"{sequences[kind]:,}",
                f"{bases[kind]:,}",
                f"{bases[kind] / total_bp:.1%}" if kind != "too_short" and total_bp else "–",
            )
            for kind in found
        ],
    }
