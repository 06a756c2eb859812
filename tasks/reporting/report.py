"""The report: one page for people, which opens offline and holds everything it shows.

Two runs of one plan give the same page but for the section ``timing``. Sample ids, contig names and messages come from
outside: the template escapes every text, and the page's policy lets no script run but its own.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from tasks.files import write_bytes
from tasks.folder import RunFolder
from tasks.genome.reference import load_reference
from tasks.identity.cohort import read_identity
from tasks.pipelines import Pipeline, make_pipeline
from tasks.plan import read_plan
from tasks.reporting.embeddings import embedding_figures
from tasks.reporting.figures import (
    Figure,
    alignment_figures,
    coverage_figures,
    read_figures,
    score_figures,
    skip_figure,
)
from tasks.reporting.gene_coverage import GeneCoverage, gene_figure, read_gene_coverage
from tasks.reporting.heat_map import heat_map
from tasks.reporting.manifest import stage_summaries
from tasks.reporting.plots import PlotText
from tasks.reporting.reasons import read_reason_sentence, reason_sentence
from tasks.reporting.sample_metrics import METRICS, Metric
from tasks.run import CALLER, READ_EMBEDDER

_TEMPLATE = Path(__file__).with_name("report.html.j2")
_STYLE, _SCRIPT = Path(__file__).with_name("report.css"), Path(__file__).with_name("report.js")
_MAX_NAMES = 12
_MAX_NOTES = 40
_MAX_SHEET_COLUMNS = 8
_MAX_OPEN_LINES = 8
_BREAK_AFTER = re.compile(r"(?<=[_.+-])(?=.)")
_FLAG = re.compile(r"--[a-z][a-z-]*")
_READ_GROUPS = ("Reads", "Alignment", "Coverage")
_MAX_GENES = 40

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """One reason of skipped alleles.

    Attributes:
        reason: Its word.
        meaning: Its sentence.
        num_alleles: Alleles of all samples.
        num_samples: Samples that have any.
    """

    reason: str
    meaning: str
    num_alleles: int
    num_samples: int


@dataclass(frozen=True, slots=True)
class FileRow:
    """One kind of output.

    Attributes:
        name: Its path in the run's folder, ``ID`` for the sample.
        meaning: What it is.
    """

    name: str
    meaning: str


def write_report(folder: RunFolder, manifest: Json) -> None:
    """Writes ``report.html``.

    Args:
        folder: The run's folder.
        manifest: What `tasks.reporting.manifest.make_manifest` gathered.
    """
    write_bytes(folder.report, _page(folder, manifest).encode())


def _page(folder: RunFolder, manifest: Json) -> str:
    plan = read_plan(folder.plan)
    assert plan is not None
    recipe, samples = manifest["recipe"], manifest["samples"]
    pipeline = make_pipeline(recipe["pipeline"]["name"], recipe["pipeline"]["options"])
    summaries = {sample_id: stage_summaries(folder, sample_id) for sample_id in samples}
    genes = read_gene_coverage(folder, samples)
    reasons, skipped_figure = _reasons(samples)
    failed = {sample_id: sample for sample_id, sample in samples.items() if sample["status"] != "done"}
    style, script = _STYLE.read_text(), _SCRIPT.read_text()
    page: str = _template().render(
        manifest=manifest,
        cohort=manifest["cohort"],
        samples=samples,
        recipe=recipe,
        models=plan.models,
        pipeline=pipeline,
        reference=load_reference(folder.reference),
        variant_columns=_columns(samples, ("Records", "Alleles", "Variants")),
        read_columns=_columns(samples, _READ_GROUPS),
        read_samples={i: sample for i, sample in samples.items() if _columns({i: sample}, _READ_GROUPS)},
        sheet_columns=_sheet_columns(samples),
        failed=failed,
        failed_reasons=_most_common(sample["reason"] for sample in failed.values()),
        notes=_notes(samples),
        max_notes=_MAX_NOTES,
        max_open_lines=_MAX_OPEN_LINES,
        warnings=manifest["warnings"],
        identity=manifest["identity"],
        identity_figures=_identity_figures(folder),
        figures=_figures(folder, pipeline, samples, summaries, genes),
        genes=genes,
        max_genes=_MAX_GENES,
        reasons=reasons,
        skipped_figure=skipped_figure,
        alignment_records=_alignment_records(summaries),
        roles=_roles(pipeline),
        files=_files(samples),
        style=Markup(style),  # noqa: S704 - a file of this program
        script=Markup(script),  # noqa: S704 - a file of this program
        style_hash=_policy_hash(style),
        script_hash=_policy_hash(script),
    )
    return page


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["share_of"] = _share_of
    environment.filters["count"] = lambda value: f"{value:,}"
    environment.filters["names"] = _names
    environment.filters["breakable"] = lambda text: Markup("<wbr>").join(_BREAK_AFTER.split(text))
    environment.filters["flags"] = _whole_flags
    return environment.from_string(_TEMPLATE.read_text())


def _policy_hash(text: str) -> str:
    """The source expression by which the page's policy knows its own script or style.

    Source: Content Security Policy Level 3, section 2.3.1 (hash-source).
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _share_of(part: int, whole: int) -> str:
    """A part in percent, rounded down: only all is 100 %."""
    return f"{1000 * part // whole / 10:.1f}\u00a0%" if whole else ""


def _names(sample_ids: list[str]) -> str:
    """Some of the ids, and how many more there are."""
    more = len(sample_ids) - _MAX_NAMES
    return ", ".join(sample_ids[:_MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _whole_flags(text: str) -> Markup:
    """A message whose flags (``--reference``) are not broken at their hyphens."""
    return Markup(_FLAG.sub(r'<span class="whole">\g<0></span>', str(escape(text))))  # noqa: S704 - escaped before


def _most_common(words: Iterable[str]) -> list[tuple[str, int]]:
    """Each word and how often it is there, most frequent first, then by word."""
    return sorted(Counter(words).items(), key=lambda row: (-row[1], row[0]))


def _columns(samples: Json, heads: Sequence[str]) -> dict[str, list[Metric]]:
    """The metrics of some heads that any sample has."""
    present = {name for sample in samples.values() for name in sample["metrics"]}
    groups: dict[str, list[Metric]] = defaultdict(list)
    for metric in METRICS:
        if metric.group in heads and metric.name in present:
            groups[metric.group].append(metric)
    return dict(groups)


def _sheet_columns(samples: Json) -> list[str]:
    """The sheet's columns that are no inputs, in the order of first sight; none where they are too many for a page."""
    columns = list(dict.fromkeys(column for sample in samples.values() for column in sample["sheet"]))
    return columns if len(columns) <= _MAX_SHEET_COLUMNS else []


def _notes(samples: Json) -> list[tuple[str, list[str]]]:
    """Each remark with the samples it is about and their details, the most common first."""
    about: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for sample_id, sample in samples.items():
        for note in sample["notes"]:
            about[note["text"]][sample_id] += [note["detail"]] if note["detail"] else []
    notes = [
        (
            text,
            [f"{sample_id} ({', '.join(details)})" if details else sample_id for sample_id, details in which.items()],
        )
        for text, which in about.items()
    ]
    return sorted(notes, key=lambda note: (-len(note[1]), note[1], note[0]))


def _figures(
    folder: RunFolder,
    pipeline: Pipeline,
    samples: Json,
    summaries: dict[str, dict[str, Json]],
    genes: Sequence[GeneCoverage],
) -> list[tuple[str, list[Figure]]]:
    """The figures under their heads; a head without figures is left out."""
    reads = {i: each["intake"]["reads"] for i, each in summaries.items() if "reads" in each.get("intake", {})}
    quantiles = {i: each.get("output", {}).get("variants", {}).get("scores", {}) for i, each in summaries.items()}
    sections = [
        ("Scores", score_figures(folder, pipeline.fields, quantiles)),
        ("Reads", read_figures(samples, reads) + embedding_figures(samples)),
        ("Alignments", alignment_figures(samples)),
        ("Coverage", coverage_figures(samples) + ([gene_figure(genes)] if genes else [])),
    ]
    return [(title, figures) for title, figures in sections if figures]


def _identity_figures(folder: RunFolder) -> list[Figure]:
    """The picture of how alike samples are, where there are two to some sixty of them."""
    found = read_identity(folder.identity_summary)
    rows, labels = found.get("concordance"), found.get("subjects", [])
    if rows is None or len(labels) < 2 or not found["sites"]:
        return []
    title = "Concordance of genotypes"
    caption = (
        "Share of equal genotypes at sites where one of two samples at least is not REF: near 100 % for one person, "
        "some 40 to 60 % for parents and children, less for strangers. Point at a cell for its number."
    )
    text = PlotText("plot-concordance", title, f"{len(labels)} samples, {found['sites']:,} sites.")
    return [Figure(title, caption, heat_map(text, labels, rows))]


def _reasons(samples: Json) -> tuple[list[ReasonRow], Figure | None]:
    """Why alleles have no score, most frequent first, and their plot."""
    num_alleles: dict[str, int] = defaultdict(int)
    num_samples: dict[str, int] = defaultdict(int)
    for sample in samples.values():
        for reason, count in sample.get("counts", {}).get("skipped", {}).items():
            num_alleles[reason] += count
            num_samples[reason] += 1
    rows = [
        ReasonRow(reason, reason_sentence(reason), count, num_samples[reason]) for reason, count in num_alleles.items()
    ]
    if not rows:
        return [], None
    figure = skip_figure("plot-skipped", "Skipped alleles by reason", "Alleles of all samples.", num_alleles)
    return sorted(rows, key=lambda row: (-row.num_alleles, row.reason)), figure


def _alignment_records(summaries: dict[str, dict[str, Json]]) -> list[tuple[str, str, int]]:
    """What became of the alignments' records, the used ones first: word, sentence, count over all samples."""
    total: dict[str, int] = defaultdict(int)
    for each in summaries.values():
        for word, count in each.get("intake", {}).get("alignment", {}).get("counts", {}).items():
            total[word] += count
    total.pop("total", None)
    rows = sorted(total.items(), key=lambda row: (row[0] != "used", -row[1], row[0]))
    return [(word, read_reason_sentence(word), count) for word, count in rows if count]


def _roles(pipeline: Pipeline) -> dict[str, str]:
    """What the plan's models are for."""
    return {
        pipeline.ensemble: f"scores alleles (pipeline {pipeline.name})",
        CALLER: "calls variants from reads",
        READ_EMBEDDER: "embeds reads",
    }


def _files(samples: Json) -> list[FileRow]:
    """The kinds of outputs that this run has."""
    names = {output.rpartition("/")[2] for sample in samples.values() for output in sample["outputs"]}
    kinds = (
        (".vcf.gz", "The sample's records with the fields below added to INFO, as bgzip."),
        (".vcf.gz.tbi", "Index of the annotated VCF."),
        (".vcf.gz.csi", "Index of the annotated VCF, for contigs longer than 512 Mb."),
        (".parquet", "The same as a table: one row for each allele."),
        (
            ".callable.bed",
            "Stretches of the genome, or of its regions: where no record means the reference, and why not elsewhere.",
        ),
        (".g.vcf.gz", "Genomic VCF: the calls, and blocks where the sample has the reference; for joint genotyping."),
        (".g.vcf.gz.tbi", "Index of the genomic VCF."),
        (".targets.parquet", "Depth of each line of the regions' BED."),
        (".genes.parquet", "Depth of each gene, over the bases of its targets."),
        (".gaps.bed.gz", "Stretches of targets below a depth of 20: their genes and lowest depth."),
        (".rejected.vcf", "Lines of the input that are no VCF records, with line number and reason."),
        (".bam", "The sample's reads, aligned, sorted, duplicates marked (not of amplicons and long reads)."),
        (".bam.bai", "Index of the alignment."),
    )
    rows = [
        FileRow(f"samples/ID/ID{ending}", meaning)
        for ending, meaning in kinds
        if any(name.endswith(ending) for name in names)
    ]
    return [
        *rows,
        FileRow("cohort/alleles.parquet", "Every distinct allele of the cohort with its score or its reason."),
        FileRow("cohort/identity.parquet", "How alike every two samples are: sites, concordance, kinship, relation."),
        FileRow(
            "cohort_mqc.json", "The tables of samples for MultiQC; cohort_reasons_mqc.json: why alleles have no score."
        ),
        FileRow("manifest.json", "What this run did, for programs: counts, files, versions, timings."),
        FileRow("plan.json", "What this run computes, for programs: inputs' digests, options, models."),
    ]
