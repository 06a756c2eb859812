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
        sources: Where it is in the summaries, stage first, joined by dots; the first that is there counts.
        per: Where the number is that it is divided by, if it is.
        decimals: Places after the point (of percent, for a share).
    """

    name: str
    title: str
    group: Literal["Records", "Alleles", "Variants", "Reads", "Alignment", "Coverage"]
    description: str
    kind: Literal["count", "share", "number"]
    sources: tuple[str, ...]
    per: str | None = None
    decimals: int = 0

    def value(self, summaries: Summaries) -> float | int | None:
        """The number, or None where the sample has no such thing."""
        every = (_look_up(summaries, source) for source in self.sources)
        found = next((value for value in every if value is not None), None)
        if found is None or self.per is None:
            return found
        whole = _look_up(summaries, self.per)
        return round(found / whole, 6) if whole else None

    def text(self, value: float | int | None) -> str:
        """The number as people read it; a dash where there is none."""
        if value is None:
            return "–"
        if self.kind == "share":
            return f"{value * 100:.{self.decimals}f}\u00a0%"
        return f"{value:,.{self.decimals}f}"


_READS, _ALIGNMENT, _VARIANTS = "intake.reads", "intake.alignment", "output.variants"

METRICS = (
    Metric("records_in", "in", "Records", "Records of the VCF that was annotated.", "count", ("output.records_in",)),
    Metric("records_out", "out", "Records", "Records of the annotated VCF.", "count", ("output.records_out",)),
    Metric("rejected", "rejected", "Records", "Lines that are not VCF records.", "count", ("output.rejected",)),
    Metric("alleles", "all", "Alleles", "ALT alleles of all records.", "count", ("output.alleles",)),
    Metric("scored", "scored", "Alleles", "ALT alleles that have a score.", "count", ("output.scored",)),
    Metric("skipped", "skipped", "Alleles", "ALT alleles that have a reason instead.", "count", ("output.skipped",)),
    Metric(
        "annotated",
        "annotated",
        "Alleles",
        "ALT alleles that the joined annotation files have, each file counted.",
        "count",
        ("output.annotated",),
    ),
    Metric("calls", "called", "Variants", "Records called from the sample's reads.", "count", ("calls.calls",)),
    Metric(
        "ts_tv",
        "ts/tv",
        "Variants",
        "Transitions per transversion; about 2.0-2.1 in human whole genomes, about 3 in exomes.",
        "number",
        (f"{_VARIANTS}.transitions",),
        per=f"{_VARIANTS}.transversions",
        decimals=2,
    ),
    Metric(
        "het_hom",
        "het/hom",
        "Variants",
        "Heterozygous genotypes per homozygous one that is not REF.",
        "number",
        (f"{_VARIANTS}.het",),
        per=f"{_VARIANTS}.hom",
        decimals=2,
    ),
    Metric(
        "reads",
        "reads",
        "Reads",
        "Reads of the FASTQ files; records of a BAM or CRAM.",
        "count",
        (f"{_READS}.num_reads", f"{_ALIGNMENT}.counts.total"),
    ),
    Metric(
        "quality",
        "quality, Phred",
        "Reads",
        "Mean base quality (Phred) of the FASTQ files, or of the reads used of a BAM or CRAM.",
        "number",
        (f"{_READS}.quality.mean", f"{_ALIGNMENT}.base_quality_mean"),
        decimals=1,
    ),
    Metric(
        "q30",
        "≥ Q30",
        "Reads",
        "Share of bases of quality 30 and more, FASTQ.",
        "share",
        (f"{_READS}.quality.q30_share",),
        decimals=1,
    ),
    Metric("gc", "GC", "Reads", "Share of G and C, FASTQ.", "share", (f"{_READS}.gc_share",), decimals=1),
    Metric("n", "N", "Reads", "Share of bases that are not known, FASTQ.", "share", (f"{_READS}.n_share",), decimals=2),
    Metric(
        "read_length",
        "length, bp",
        "Reads",
        "Median length of the reads of the FASTQ files, or of the reads used of a BAM or CRAM, in bases.",
        "count",
        (f"{_READS}.length_bp.median", f"{_ALIGNMENT}.read_length_median"),
    ),
    Metric(
        "kmer_entropy",
        "k-mers, bits",
        "Reads",
        "Entropy of the reads' 6-mers, FASTQ; at most 11.0. Adapters and other repeated sequence lower it.",
        "number",
        (f"{_READS}.kmer_entropy_bits",),
        decimals=2,
    ),
    Metric(
        "depth",
        "depth, reads",
        "Alignment",
        "Mean number of used reads over the bases that any of them covers.",
        "number",
        (f"{_ALIGNMENT}.mean_depth",),
        decimals=1,
    ),
    Metric(
        "mapped",
        "mapped",
        "Alignment",
        "Share of the primary records that are mapped.",
        "share",
        (f"{_ALIGNMENT}.mapping_rate",),
        decimals=1,
    ),
    Metric(
        "duplicates",
        "dupl.",
        "Alignment",
        "Share of the primary records that are marked as duplicates.",
        "share",
        (f"{_ALIGNMENT}.duplicate_rate",),
        decimals=1,
    ),
    Metric(
        "mismatches",
        "mism.",
        "Alignment",
        "Share of the used reads' bases that differ from the reference.",
        "share",
        (f"{_ALIGNMENT}.mismatch_rate",),
        decimals=2,
    ),
    Metric(
        "insert_size",
        "insert, bp",
        "Alignment",
        "Median length of the proper pairs' templates, in bases.",
        "count",
        (f"{_ALIGNMENT}.insert_size_median",),
    ),
    Metric(
        "mean_depth",
        "mean",
        "Coverage",
        "Mean usable depth of the targets, or of the known bases where there are none; overlapping mates count once.",
        "number",
        ("coverage.mean_depth",),
        decimals=1,
    ),
    Metric(
        "share_10",
        "≥ 10×",
        "Coverage",
        "Share of these bases at 10 and more.",
        "share",
        ("coverage.share_10",),
        decimals=1,
    ),
    Metric(
        "share_20",
        "≥ 20×",
        "Coverage",
        "Share of these bases at 20 and more.",
        "share",
        ("coverage.share_20",),
        decimals=1,
    ),
    Metric(
        "share_30",
        "≥ 30×",
        "Coverage",
        "Share of these bases at 30 and more.",
        "share",
        ("coverage.share_30",),
        decimals=1,
    ),
    Metric(
        "callable",
        "callable",
        "Coverage",
        "Share of the known bases, of the regions where there are any, at which a missing record means the reference.",
        "share",
        ("coverage.callable_share",),
        decimals=1,
    ),
    Metric(
        "on_target",
        "on target",
        "Coverage",
        "Share of the used reads that have an aligned base in a target, without padding.",
        "share",
        ("coverage.on_target.reads_share",),
        decimals=1,
    ),
    Metric(
        "near_target",
        "padded",
        "Coverage",
        "Share of the used reads that have an aligned base in a target or its padding.",
        "share",
        ("coverage.near_target.reads_share",),
        decimals=1,
    ),
    Metric(
        "on_target_bases",
        "bases on t.",
        "Coverage",
        "Share of the used reads' aligned bases that lie in a target, without padding.",
        "share",
        ("coverage.on_target.bases_share",),
        decimals=1,
    ),
    Metric(
        "fold_80",
        "fold 80",
        "Coverage",
        "Mean depth of the targets divided by the depth that 80 % of their bases reach; 1 is even.",
        "number",
        ("coverage.fold_80",),
        decimals=2,
    ),
    Metric("gaps", "gaps", "Coverage", "Stretches of targets below a depth of 20.", "count", ("coverage.gaps",)),
    Metric("genes", "genes", "Coverage", "Genes of the targets.", "count", ("coverage.genes",)),
    Metric(
        "genes_complete",
        "complete",
        "Coverage",
        "Genes whose targets have a depth of 20 and more at every base.",
        "count",
        ("coverage.genes_complete",),
    ),
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
