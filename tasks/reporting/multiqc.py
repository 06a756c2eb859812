"""The run's numbers as MultiQC custom content, so that they stand beside other tools' in a lab's own report.

Source: MultiQC documentation, "Custom content".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.files import write_json
from tasks.folder import RunFolder
from tasks.reporting.manifest import stage_summaries
from tasks.reporting.sample_metrics import METRICS, Metric

Json = dict[str, Any]

_PARENT = {
    "parent_id": "cohortflow",
    "parent_name": "cohortflow",
    "parent_description": "Scored variants of a cohort.",
}


def write_multiqc(folder: RunFolder, manifest: Json) -> None:
    """Writes ``cohort_mqc.json`` (a table of samples) and what there is to say of coverage, reasons and identity.

    ``cohort_coverage_mqc.json`` tells how much is covered how deep.

    ``cohort_reasons_mqc.json`` has why alleles have no score, ``identity_mqc.json`` sex and what contradicts the sheet.
    The same manifest gives the same bytes. Samples that are not done are in the table with their reason.

    Args:
        folder: The run's folder.
        manifest: What `tasks.reporting.manifest.make_manifest` gathered.
    """
    made_by = f"Reference build: {manifest['recipe']['reference']['build'] or 'unknown'}. Plan: {manifest['plan']}."
    write_json(folder.multiqc, _samples(manifest["samples"], made_by))
    _write_or_remove(folder.multiqc_coverage, _coverage(folder, manifest["samples"], made_by))
    _write_or_remove(folder.multiqc_reasons, _reasons(manifest["samples"], made_by))
    _write_or_remove(folder.multiqc_identity, _identity(manifest, made_by))


def _samples(samples: Json, made_by: str) -> Json:
    """One row for each sample."""
    present = {name for sample in samples.values() for name in sample["metrics"]}
    metrics = [metric for metric in METRICS if metric.name in present]
    status = {"title": "Status", "description": "done, or why the sample is not", "scale": False, "placement": 0}
    headers = {metric.name: _header(metric, place) for place, metric in enumerate(metrics, 1)}
    return {
        **_PARENT,
        "id": "cohortflow_samples",
        "section_name": "Samples",
        "description": f"What became of each sample's records, alleles and reads. {made_by}",
        "plot_type": "table",
        "pconfig": {"id": "cohortflow_samples_table", "title": "cohortflow: samples", "col1_header": "Sample"},
        "headers": {"status": status, **headers},
        "data": {
            sample_id: {"status": sample["reason"] or sample["status"], **sample["metrics"]}
            for sample_id, sample in samples.items()
        },
    }


def _header(metric: Metric, place: int) -> Json:
    header: Json = {
        "title": f"{metric.group}: {metric.title}",
        "description": metric.description,
        "placement": place,
        "format": f"{{:,.{metric.decimals}f}}",
        "scale": "Blues",
        "min": 0,
    }
    if metric.kind == "share":
        header |= {"format": f"{{:,.{metric.decimals}%}}", "max": 1}
    return header


def _reasons(samples: Json, made_by: str) -> Json | None:
    """Skipped alleles of each sample by reason; None where there are none."""
    data = {sample_id: sample["counts"]["skipped"] for sample_id, sample in samples.items() if "counts" in sample}
    if not any(data.values()):
        return None
    return {
        **_PARENT,
        "id": "cohortflow_reasons",
        "section_name": "Alleles without a score",
        "description": f"ALT alleles that were not scored, by reason. {made_by}",
        "plot_type": "bargraph",
        "pconfig": {"id": "cohortflow_reasons_plot", "title": "cohortflow: alleles without a score", "ylab": "alleles"},
        "data": data,
    }


def _identity(manifest: Json, made_by: str) -> Json | None:
    """Sex of each sample and its warnings; None where no sample was looked at."""
    words: dict[str, list[str]] = {}
    for warning in manifest["warnings"]:
        words.setdefault(warning["sample"], []).append(warning["warning"])
    data = {}
    for sample_id, sample in manifest["samples"].items():
        sex = sample["sex"] or {}
        row = {
            "sex_sheet": sex.get("sheet"),
            "sex_data": sex.get("verdict"),
            "x_depth": sex.get("x_depth"),
            "y_depth": sex.get("y_depth"),
            "x_het": sex.get("x_het_share"),
            "warnings": ", ".join(sorted(set(words.get(sample_id, [])))) or None,
        }
        if any(value is not None for value in row.values()):
            data[sample_id] = {name: value for name, value in row.items() if value is not None}
    if not data:
        return None
    titles = {
        "warnings": ("Warnings", "What contradicts the sheet"),
        "sex_sheet": ("Sex: sheet", "By the sample sheet"),
        "sex_data": ("Sex: data", "By depth of X and Y, or genotypes on X"),
        "x_depth": ("X depth", "Depth of X over that of the autosomes"),
        "y_depth": ("Y depth", "Depth of Y over that of the autosomes"),
        "x_het": ("X het", "Share of SNVs on X that is heterozygous"),
    }
    return {
        **_PARENT,
        "id": "cohortflow_identity",
        "section_name": "Identity",
        "description": f"Whether samples are of whom the sheet says. {made_by}",
        "plot_type": "table",
        "pconfig": {"id": "cohortflow_identity_table", "title": "cohortflow: identity", "col1_header": "Sample"},
        "headers": {
            name: {"title": title, "description": description, "placement": place}
            for place, (name, (title, description)) in enumerate(titles.items(), 1)
        },
        "data": data,
    }


def _coverage(folder: RunFolder, samples: Json, made_by: str) -> Json | None:
    """The share of bases at each depth and above, a line a sample; None where no sample has reads."""
    curves = {sample_id: stage_summaries(folder, sample_id).get("coverage", {}).get("curve") for sample_id in samples}
    data = {
        sample_id: {str(depth): round(share * 100, 4) for depth, share in curve}
        for sample_id, curve in curves.items()
        if curve
    }
    if not data:
        return None
    return {
        **_PARENT,
        "id": "cohortflow_coverage",
        "section_name": "Coverage",
        "description": "Share of the targets' bases, or of the genome's known bases, at each usable depth and above. "
        f"{made_by}",
        "plot_type": "linegraph",
        "pconfig": {
            "id": "cohortflow_coverage_plot",
            "title": "cohortflow: cumulative coverage",
            "xlab": "depth",
            "ylab": "% of bases",
            "ymin": 0,
            "ymax": 100,
        },
        "data": data,
    }


def _write_or_remove(path: Path, content: Json | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        write_json(path, content)
