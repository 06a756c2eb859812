"""The run's numbers as MultiQC custom content, so that they stand beside other tools' in a lab's own report.

Source: MultiQC documentation, "Custom content".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.files import write_json
from tasks.folder import RunFolder
from tasks.reporting.sample_metrics import METRICS, Metric

Json = dict[str, Any]

_PARENT = {
    "parent_id": "cohortflow",
    "parent_name": "cohortflow",
    "parent_description": "Scored variants of a cohort.",
}


def write_multiqc(folder: RunFolder, manifest: Json) -> None:
    """Writes ``cohort_mqc.json`` (a table of samples) and ``cohort_reasons_mqc.json`` (why alleles have no score).

    The same manifest gives the same bytes. Samples that are not done are in the table with their reason.

    Args:
        folder: The run's folder.
        manifest: What `tasks.reporting.manifest.make_manifest` gathered.
    """
    write_json(folder.multiqc, _samples(manifest["samples"]))
    _write_or_remove(folder.multiqc_reasons, _reasons(manifest["samples"]))


def _samples(samples: Json) -> Json:
    """One row for each sample."""
    present = {name for sample in samples.values() for name in sample["metrics"]}
    metrics = [metric for metric in METRICS if metric.name in present]
    status = {"title": "Status", "description": "done, or why the sample is not", "scale": False, "placement": 0}
    headers = {metric.name: _header(metric, place) for place, metric in enumerate(metrics, 1)}
    return {
        **_PARENT,
        "id": "cohortflow_samples",
        "section_name": "Samples",
        "description": "What became of each sample's records, alleles and reads.",
        "plot_type": "table",
        "pconfig": {"id": "cohortflow_samples_table", "title": "cohortflow: samples", "col1_header": "Sample"},
        "headers": {"status": status, **headers},
        "data": {
            sample_id: {"status": sample.get("reason", sample["status"]), **sample["metrics"]}
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


def _reasons(samples: Json) -> Json | None:
    """Skipped alleles of each sample by reason; None where there are none."""
    data = {sample_id: sample["counts"]["skipped"] for sample_id, sample in samples.items() if "counts" in sample}
    if not any(data.values()):
        return None
    return {
        **_PARENT,
        "id": "cohortflow_reasons",
        "section_name": "Alleles without a score",
        "description": "ALT alleles that were not scored, by reason.",
        "plot_type": "bargraph",
        "pconfig": {"id": "cohortflow_reasons_plot", "title": "cohortflow: alleles without a score", "ylab": "alleles"},
        "data": data,
    }


def _write_or_remove(path: Path, content: Json | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        write_json(path, content)
