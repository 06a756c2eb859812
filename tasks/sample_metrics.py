"""What is told of a sample in numbers: one list for the manifest, the report and MultiQC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Summaries = Mapping[str, Mapping[str, Any]]
"""For each finished stage of a sample (`tasks.stages`) its summary."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a sample.

    Attributes:
        name: Its key in the manifest.
        title: Its column's head, short.
        group: The heads it stands under.
        description: One sentence for people.
        kind: How it is written: a count, a share (0 to 1, written in percent) or a plain number.
        source: Where it is in the summaries, stage first, joined by dots.
        per: Where the number is that it is divided by, if it is.
        decimals: Places after the point (of percent, for a share).
    """

    name: str
    title: str
    group: Literal["Records", "Alleles", "Genotypes", "Reads", "Alignment"]
    description: str
    kind: Literal["count", "share", "number"]
    source: str
    per: str | None = None
    decimals: int = 0

    def value(self, summaries: Summaries) -> float | int | None:
        """The number, or None where the sample has no such thing."""
        found = _look_up(summaries, self.source)
        if found is None or self.per is None:
            return found
        whole = _look_up(summaries, self.per)
        return round(found / whole, 6) if whole else None

    def text(self, value: float | int | None) -> str:
        """The number as people read it; a dash where there is none."""
        if value is None:
            return "–"
        if self.kind == "share":
            return f"{value * 100:.{self.decimals}f} %"
        return f"{value:,.{self.decimals}f}"


METRICS = (
    Metric("records_in", "in", "Records", "Records of the VCF that was annotated.", "count", "output.records_in"),
    Metric("records_out", "out", "Records", "Records of the annotated VCF.", "count", "output.records_out"),
    Metric("rejected", "rejected", "Records", "Lines that are no VCF records, kept aside.", "count", "output.rejected"),
    Metric("alleles", "all", "Alleles", "ALT alleles of all records.", "count", "output.alleles"),
    Metric("scored", "scored", "Alleles", "ALT alleles that have a score.", "count", "output.scored"),
    Metric("skipped", "skipped", "Alleles", "ALT alleles without one; each has its reason.", "count", "output.skipped"),
    Metric("calls", "called", "Genotypes", "Variants called from the sample's reads.", "count", "calls.calls"),
    Metric(
        "ts_tv",
        "ts/tv",
        "Genotypes",
        "Transitions per transversion.",
        "number",
        "output.variants.transitions",
        "output.variants.transversions",
        2,
    ),
    Metric(
        "het_hom",
        "het/hom",
        "Genotypes",
        "Het. per hom. genotypes.",
        "number",
        "output.variants.het",
        "output.variants.hom",
        2,
    ),
    Metric("reads", "reads", "Reads", "Reads in the FASTQ files.", "count", "intake.reads.num_reads"),
    Metric("quality", "quality", "Reads", "Mean base quality.", "number", "intake.reads.quality.mean", None, 1),
    Metric(
        "q30", "≥ Q30", "Reads", "Share of bases of Q30 and more.", "share", "intake.reads.quality.q30_share", None, 1
    ),
    Metric("gc", "GC", "Reads", "Share of G and C among known bases.", "share", "intake.reads.gc_share", None, 1),
    Metric("depth", "depth", "Alignment", "Mean depth.", "number", "intake.alignment.mean_depth", None, 1),
    Metric(
        "mapped", "mapped", "Alignment", "Share of reads that map.", "share", "intake.alignment.mapped_share", None, 1
    ),
    Metric("duplicates", "dupl.", "Alignment", "Share of duplicates.", "share", "intake.alignment.dup_share", None, 1),
)


def read_metrics(summaries: Summaries) -> dict[str, float | int]:
    """Every number that the summaries have, by name."""
    values = {metric.name: metric.value(summaries) for metric in METRICS}
    return {name: value for name, value in values.items() if value is not None}


def _look_up(summaries: Summaries, source: str) -> float | int | None:
    found: Any = summaries
    for key in source.split("."):
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    if isinstance(found, Mapping):  # counts by reason
        return sum(found.values())
    return found if isinstance(found, (int, float)) else None
