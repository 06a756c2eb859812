"""The report's figures: which numbers are drawn, and how, for one sample or thousands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from tasks.folder import RunFolder
from tasks.pipelines import OutputField
from tasks.reporting.plots import PlotText, band, bars, box_rows, dot_rows, histogram, lines
from tasks.reporting.sample_metrics import METRICS, Metric
from tasks.reporting.scales import Format, nice_range, percent, plain_number
from tasks.reporting.score_distributions import Distribution, read_distribution

MAX_ROWS = 40
"""Samples that are drawn one by one; more are drawn as a distribution."""
_MAX_LINES = 6
_NUM_BINS = 40
_NUM_EXTREMES = 3
_FASTQ_ENDING = re.compile(r"\.(fastq|fq)(\.b?gz)?$")
_PERCENTILES = ("5th", "25th", "50th", "75th", "95th")


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its words.

    Attributes:
        title: What it shows.
        caption: How to read it, and what stands out.
        svg: The drawing.
    """

    title: str
    caption: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class _MetricPlot:
    """How a metric of samples is drawn."""

    metric: str
    title: str
    caption: str
    x_label: str
    from_zero: bool
    min_span: float


_METRIC_PLOTS = (
    _MetricPlot(
        "quality",
        "Mean base quality",
        "Phred scale: 30 is one error in 1,000 bases.",
        "mean base quality, Phred",
        False,
        4,
    ),
    _MetricPlot(
        "gc", "GC content", "Human whole genomes lie near 41 %; exomes higher.", "share of G and C", False, 0.1
    ),
    _MetricPlot(
        "depth", "Depth", "Mean number of used reads over the bases that any covers.", "mean depth, reads", True, 10
    ),
    _MetricPlot("mapped", "Mapped reads", "Share of the primary reads that have a place.", "share mapped", False, 0.02),
    _MetricPlot(
        "duplicates", "Duplicates", "Share of reads that copy another's fragment.", "share of duplicates", True, 0.05
    ),
    _MetricPlot(
        "mismatches",
        "Mismatches",
        "Bases of used reads that differ from the reference.",
        "share of mismatches",
        True,
        0.01,
    ),
)
_COVERAGE_PLOTS = (
    _MetricPlot("mean_depth", "Mean depth", "Of the targets; of the genome where there are none.", "depth", True, 10),
    _MetricPlot("share_20", "Bases at 20× and more", "Share of the same bases.", "share at 20× and more", True, 1),
    _MetricPlot("on_target", "On target", "Share of the used reads with a base in a target.", "on target", True, 1),
)
_READ_PLOTS, _ALIGNMENT_PLOTS = _METRIC_PLOTS[:2], _METRIC_PLOTS[2:]


def read_figures(samples: Mapping[str, Any], reads: Mapping[str, Any]) -> list[Figure]:
    """Figures of FASTQ files.

    Args:
        samples: The manifest's samples.
        reads: For each FASTQ sample its quality control (`tasks.reads.fastq.check_reads`).
    """
    files = [
        (file["name"], file["quality"]["mean_by_position"]) for each in reads.values() for file in each.get("files", ())
    ]
    bins = [part for each in reads.values() for part in each["length_bp"]["histogram"]]
    figures = []
    if files:
        figures.append(_quality_by_position([file for file in files if file[1]]))
    if bins:
        figures.append(_read_lengths(bins))
    return [*figures, *_metric_figures(_READ_PLOTS, samples)]


def alignment_figures(samples: Mapping[str, Any]) -> list[Figure]:
    """Figures of alignments."""
    return list(_metric_figures(_ALIGNMENT_PLOTS, samples))


def coverage_figures(samples: Mapping[str, Any]) -> list[Figure]:
    """Figures of the samples' coverage."""
    return list(_metric_figures(_COVERAGE_PLOTS, samples))


def score_figures(folder: RunFolder, fields: Sequence[OutputField], quantiles: Mapping[str, Any]) -> list[Figure]:
    """Figures of every Float field: over the cohort's distinct alleles, and by sample.

    Args:
        folder: The run's folder, with its table of alleles.
        fields: The pipeline's fields.
        quantiles: For each sample, for each field five percentiles.
    """
    figures = []
    for field in fields:
        if field.kind != "Float" or not folder.alleles.exists():
            continue
        distribution = read_distribution(folder.alleles, field.name)
        if distribution is None:
            continue
        figures.append(_scores_of_cohort(field, distribution))
        rows = [(name, each[field.name]) for name, each in quantiles.items() if each.get(field.name)]
        if rows:
            figures.append(_scores_by_sample(field.name, rows))
    return figures


def skip_figure(name: str, title: str, caption: str, counts: Mapping[str, int]) -> Figure:
    """Bars of what was left out by reason, most first."""
    rows = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    description = ", ".join(f"{reason} {count:,}" for reason, count in rows)
    return Figure(title, caption, bars(PlotText(name, title, description), rows))


def _metric_figures(plots: Sequence[_MetricPlot], samples: Mapping[str, Any]) -> Iterator[Figure]:
    metrics = {metric.name: metric for metric in METRICS}
    for plot in plots:
        found = ((name, sample["metrics"].get(plot.metric)) for name, sample in samples.items())
        rows = [(name, float(value)) for name, value in found if value is not None]
        if rows:
            yield _samples_figure(plot, metrics[plot.metric], rows)


def _samples_figure(plot: _MetricPlot, metric: Metric, rows: list[tuple[str, float]]) -> Figure:
    """One number of each sample: a row each while there are few, else their distribution."""
    values = [value for _, value in rows]
    x_range = _value_range(values, plot)
    number: Format = percent if metric.kind == "share" else plain_number
    text = PlotText(f"plot-{plot.metric}", plot.title, f"{len(rows):,} samples: {_spread(rows, metric)}.")
    if len(rows) <= MAX_ROWS:
        svg = dot_rows(text, rows, x_label=plot.x_label, x_range=x_range, number=number, value_text=metric.text)
        return Figure(plot.title, plot.caption, svg)
    edges = np.linspace(*x_range, _NUM_BINS + 1)
    counts = np.histogram(values, edges)[0]
    svg = histogram(text, edges.tolist(), counts.tolist(), x_label=plot.x_label, y_label="samples", x_number=number)
    return Figure(plot.title, f"{plot.caption} {_spread(rows, metric, names=True)}.", svg)


def _value_range(values: Sequence[float], plot: _MetricPlot) -> tuple[float, float]:
    """The axis: around the values, and no narrower than the least span: noise is not to look like a finding."""
    low, high = min(values), max(values)
    lack = max(plot.min_span - (high - low), 0.0) / 2
    low, high = (0.0, max(high, plot.min_span)) if plot.from_zero else (max(low - lack, 0.0), high + lack)
    return nice_range(low, min(high, 1.0) if plot.min_span < 1 else high)


def _spread(rows: Sequence[tuple[str, float]], metric: Metric, *, names: bool = False) -> str:
    """Median and ends in words, with the samples at the ends where asked."""
    ordered = sorted(rows, key=lambda row: (row[1], row[0]))
    median = metric.text(float(np.median([value for _, value in rows])))
    if not names:
        return f"median {median}, from {metric.text(ordered[0][1])} to {metric.text(ordered[-1][1])}"

    def named(ends: Sequence[tuple[str, float]]) -> str:
        return ", ".join(f"{name} ({metric.text(value)})" for name, value in ends)

    return (
        f"Median {median}; lowest {named(ordered[:_NUM_EXTREMES])}; highest {named(ordered[: -_NUM_EXTREMES - 1 : -1])}"
    )


def _quality_by_position(files: Sequence[tuple[str, Sequence[float]]]) -> Figure:
    """Mean quality at each place of the reads: a line per file while there are few, else their spread."""
    title = "Base quality along the reads"
    highest = max(max(values) for _, values in files)
    lowest = min(min(values) for _, values in files)
    y_range = (min(20.0, lowest), max(42.0, highest))
    text = PlotText(
        "plot-quality-by-position",
        title,
        f"Mean base quality by place in the read, {len(files):,} files; lowest {lowest:.1f}, highest {highest:.1f}.",
    )
    x_label, y_label = "place in the read, bases", "mean quality, Phred"
    if len(files) <= _MAX_LINES:
        series = [(_FASTQ_ENDING.sub("", name), values) for name, values in files]
        svg = lines(text, series, x_label=x_label, y_label=y_label, y_range=y_range)
        return Figure(title, "Mean quality at each place, a line per file.", svg)
    longest = max(len(values) for _, values in files)
    table = np.full((len(files), longest), np.nan)
    for row, (_, values) in zip(table, files, strict=True):
        row[: len(values)] = values
    quantiles = np.nanquantile(table, [0, 0.25, 0.5, 0.75, 1], axis=0)
    svg = band(text, quantiles.tolist(), x_label=x_label, y_label=y_label, y_range=y_range)
    return Figure(title, f"{len(files):,} files: median (line), middle half (dark), all (light).", svg)


def _read_lengths(bins: Sequence[Sequence[int]]) -> Figure:
    """Lengths of all reads; wide bins of different files are spread evenly over the figure's."""
    title = "Read lengths"
    first, last = min(part[0] for part in bins), max(part[1] for part in bins)
    # Lengths are whole numbers: bins of a broken width would hold now more, now fewer of them.
    width_bp = -(-(last - first + 1) // _NUM_BINS)
    num_bins = -(-(last - first + 1) // width_bp)
    # Reads of one length are one bar in the middle, not a block.
    spare = max(_NUM_BINS // 4 - num_bins, 0) // 2
    num_bins += 2 * spare
    edges = first + width_bp * (np.arange(num_bins + 1) - spare)
    counts = np.zeros(num_bins)
    for start, end, num_reads in bins:
        overlap = np.minimum(edges[1:], end + 1) - np.maximum(edges[:-1], start)
        counts += num_reads * np.clip(overlap, 0, None) / (end + 1 - start)
    num_reads = sum(part[2] for part in bins)
    span = f"{first:,} to {last:,}" if first < last else f"{first:,}"
    text = PlotText("plot-read-lengths", title, f"{num_reads:,} reads of {span} bases.")
    svg = histogram(text, edges.tolist(), counts.tolist(), x_label="length, bases", y_label="reads")
    return Figure(title, f"All {num_reads:,} reads of all FASTQ files, {span} bases long.", svg)


def _scores_of_cohort(field: OutputField, distribution: Distribution) -> Figure:
    """The scores of all distinct alleles."""
    num_scores, edges = distribution.num_scores, distribution.edges.tolist()
    text = PlotText(
        f"plot-{_slug(field.name)}",
        f"Distribution of {field.name}",
        f"Histogram of {num_scores:,} scores from {plain_number(edges[0])} to {plain_number(edges[-1])}.",
    )
    svg = histogram(text, edges, distribution.counts.tolist(), x_label=field.name, y_label="distinct alleles")
    median = plain_number(round(distribution.median, 3))
    caption = f"{num_scores:,} scored alleles, each counted once; median about {median}. {field.description}."
    return Figure(f"{field.name}, distinct alleles", caption, svg)


def _scores_by_sample(field: str, rows: Sequence[tuple[str, Sequence[float]]]) -> Figure:
    """A sample's scores as a box while there are few samples, else the distribution of their medians."""
    title = f"{field}, by sample"
    low, high = min(each[0] for _, each in rows), max(each[-1] for _, each in rows)
    name = f"plot-{_slug(field)}-samples"
    if len(rows) <= MAX_ROWS:
        text = PlotText(name, title, f"Percentiles {', '.join(_PERCENTILES)} of the scores of {len(rows)} samples.")
        svg = box_rows(text, rows, x_label=field, x_range=nice_range(low, high))
        return Figure(title, "Box: middle half; line: 5th to 95th percentile; the number is the median.", svg)
    medians = [each[2] for _, each in rows]
    edges = np.linspace(*nice_range(min(medians), max(medians)), _NUM_BINS + 1)
    text = PlotText(name, title, f"Histogram of the median score of {len(rows):,} samples.")
    counts = np.histogram(medians, edges)[0].tolist()
    svg = histogram(text, edges.tolist(), counts, x_label=f"median {field}", y_label="samples")
    return Figure(title, f"The median score of each of {len(rows):,} samples.", svg)


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower())
