"""The manifest: what a run did, in one JSON file; the report and MultiQC are made of it."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.counts import sum_counts
from tasks.errors import BalanceError
from tasks.files import read_json
from tasks.folder import RunFolder
from tasks.identity.cohort import read_identity
from tasks.pipelines import make_pipeline
from tasks.plan import Plan, read_plan
from tasks.reporting.data_warnings import data_warnings
from tasks.reporting.sample_metrics import read_metrics
from tasks.reporting.sample_notes import read_notes

FORMAT = 1
STAGES = ("intake", "embedding", "coverage", "calls", "alleles", "output")
_COUNTS = ("records_in", "records_out", "rejected", "alleles", "scored")
_SOFTWARE = (
    "cohortflow", "dask", "distributed", "isal", "mappy", "numba", "numpy", "onnxruntime", "prefect", "pyarrow",
    "pydantic", "pysam", "redis", "torch", "tritonclient",
)  # fmt: skip
_NOT_TOLD = ("concordance", "subjects", "warnings")
# An absolute path in a message: what identifies a file in a report is its name.
_PATH = re.compile(r"(?<![\w.~*/:<-])/(?:[^\s/:;,'\"()]+/)+")

Json = dict[str, Any]


def make_manifest(folder: RunFolder, statistics: Sequence[Json], seconds: dict[str, float]) -> Json:
    """Gathers what a run did.

    Args:
        folder: The run's folder; every sample of its plan is done or has its reason.
        statistics: For each worker what its model server counted.
        seconds: For each stage how long it took.

    Returns:
        JSON values: ``plan`` (digest), ``recipe``, ``cohort`` (counts), ``samples`` (per id ``status``, ``reason``
        (null if done), ``kind``, ``plan`` (the digest that its VCF's header states), ``inputs``, ``outputs``, ``sheet``
        (its other columns), ``metrics``, ``sex`` (null where its variants were not read), ``notes``, ``common_kmers``
        (of FASTQ, with their shares), ``embedding`` (of FASTQ, unless it was turned off: mean and standard deviation
        over the reads that were sampled, see `tasks.stages.embed_sampled`), ``calls`` (of reads: how many were found,
        left out, halved and joined); one that is done has its ``counts``; one that is not, ``failed`` or
        ``incomplete``, has none, but ``message`` (what was found, for people) and ``blame`` (``input`` or ``system``),
        and of the other keys what the stages told that it came through), ``identity`` (how alike samples are: counts,
        flagged pairs, trios), ``warnings`` (a list of ``sample``, null for the sheet as a whole, ``warning``,
        ``message``), ``annotations`` (counts of each file), ``models`` (statistics), ``seconds``, ``software``. Inputs
        are named without folders.

    Raises:
        BalanceError: Records, alleles or samples were lost or made up.
    """
    plan = read_plan(folder.plan)
    assert plan is not None
    settings = read_json(folder.settings)
    summaries = {sample_id: stage_summaries(folder, sample_id) for sample_id in plan.samples}
    samples = {sample_id: _sample(folder, plan, settings, sample_id, summaries[sample_id]) for sample_id in summaries}
    identity = read_identity(folder.identity_summary)
    return {
        "format": FORMAT,
        "plan": plan.digest,
        "recipe": plan.recipe,
        "cohort": _cohort(samples) | {"distinct": _distinct(folder, plan)},
        "samples": samples,
        "identity": {name: value for name, value in identity.items() if name not in _NOT_TOLD},
        "warnings": [
            *({"sample": None, "warning": "SHEET", "message": text} for text in settings.get("sheet_warnings", ())),
            *identity.get("warnings", []),
            *(each for sample_id, found in summaries.items() for each in data_warnings(sample_id, found)),
        ],
        "annotations": _annotations(folder, plan),
        "models": sum_counts(statistics),
        "seconds": dict(seconds),
        "software": _software(),
    }


def stage_summaries(folder: RunFolder, sample_id: str) -> dict[str, Json]:
    """The summaries of a sample's finished stages."""
    paths = {stage: folder.summary(sample_id, stage) for stage in STAGES}
    return {stage: read_json(path) for stage, path in paths.items() if path.exists()}


def _sample(folder: RunFolder, plan: Plan, settings: Json, sample_id: str, summaries: dict[str, Json]) -> Json:
    """What became of one sample, by the summaries of its stages."""
    inputs = _absolute_paths(settings["samples"][sample_id])
    named = [*inputs, *_absolute_paths(settings["regions"])]

    def plain(text: str) -> str:
        return without_folders(text, folder, named)

    entry: Json = {
        "kind": plan.samples[sample_id]["kind"],
        "plan": plan.sample_digest(sample_id),
        "inputs": [Path(path).name for path in inputs],
        "sheet": {key: value for key, value in settings["samples"][sample_id]["columns"].items() if key != "sample"},
        "outputs": _outputs(folder, sample_id),
        "metrics": read_metrics(summaries),
        "sex": summaries.get("alleles", {}).get("sex"),
        "notes": [{"text": plain(note.text), "detail": plain(note.detail)} for note in read_notes(summaries)],
    }
    if "reads" in summaries.get("intake", {}):
        entry["common_kmers"] = summaries["intake"]["reads"]["common_kmers"]
    if "embedding" in summaries:
        entry["embedding"] = summaries["embedding"]
    if "calls" in summaries:
        entry["calls"] = {name: count for name, count in summaries["calls"].items() if name.startswith("calls")}
    if "output" in summaries:
        return {"status": "done", "reason": None, **entry, "counts": _checked_counts(sample_id, summaries["output"])}
    mark = folder.summary(sample_id, "failed")
    if not mark.exists():
        raise BalanceError(f"sample {sample_id}: neither finished nor failed; this is a defect of the program")
    failure = read_json(mark)
    return {
        "status": failure["status"],
        "reason": failure["reason"],
        "message": plain(failure["message"]),
        "blame": failure["blame"],
        **entry,
    }


def _outputs(folder: RunFolder, sample_id: str) -> list[str]:
    """The sample's files, relative to the run's folder."""
    files = (path for path in folder.sample(sample_id).glob("*") if not path.name.startswith("."))
    return sorted(path.relative_to(folder.root).as_posix() for path in files)


def _checked_counts(sample_id: str, output: Json) -> Json:
    """A sample's counts, after a check that nothing vanished.

    Raises:
        BalanceError: Something did.
    """
    counts: Json = {name: output[name] for name in _COUNTS}
    counts["skipped"] = dict(sorted(output["skipped"].items()))
    _check(f"sample {sample_id}", counts)
    return counts


def _check(what: str, counts: Json) -> None:
    records_in, records_out, rejected = counts["records_in"], counts["records_out"], counts["rejected"]
    if records_in != records_out + rejected:
        raise BalanceError(f"{what}: {records_in:,} records in, {records_out:,} out, {rejected:,} rejected")
    num_skipped = sum(counts["skipped"].values())
    if counts["alleles"] != counts["scored"] + num_skipped:
        raise BalanceError(
            f"{what}: {counts['alleles']:,} alleles, {counts['scored']:,} scored, {num_skipped:,} skipped with a reason"
        )


def _cohort(samples: dict[str, Json]) -> Json:
    """Counts over all samples."""
    done = [sample["counts"] for sample in samples.values() if sample["status"] == "done"]
    counts: Json = {**dict.fromkeys(_COUNTS, 0), "skipped": {}, **sum_counts(done)}
    counts["skipped"] = dict(sorted(counts["skipped"].items()))
    _check("the cohort", counts)
    statuses = Counter(sample["status"] for sample in samples.values())
    return {
        "samples": len(samples),
        "done": len(done),
        "failed": statuses["failed"],
        "incomplete": statuses["incomplete"],
        **counts,
    }


def _distinct(folder: RunFolder, plan: Plan) -> Json:
    """Counts of the cohort's table: each allele once, however many samples have it.

    Raises:
        BalanceError: An allele has neither a score nor a reason.
    """
    counts: Json = {"alleles": 0, "scored": 0, "skipped": {}}
    if not folder.alleles.exists():
        return counts
    recipe = plan.recipe["pipeline"]
    fields = [field.name for field in make_pipeline(recipe["name"], recipe["options"]).fields]
    skipped: Counter[str] = Counter()
    for batch in pq.ParquetFile(folder.alleles).iter_batches(columns=[*fields, "reason"]):
        has_reason = pc.is_valid(batch["reason"])
        has_answer = has_reason
        for field in fields:
            has_answer = pc.or_(has_answer, pc.is_valid(batch[field]))
        num_lost = batch.num_rows - has_answer.true_count
        if num_lost:
            raise BalanceError(f"cohort/alleles.parquet: {num_lost:,} alleles have neither a score nor a reason")
        counts["alleles"] += batch.num_rows
        counts["scored"] += batch.num_rows - has_reason.true_count
        for entry in pc.value_counts(batch["reason"].drop_null()).to_pylist():
            skipped[entry["values"]] += entry["counts"]
    return {**counts, "skipped": dict(sorted(skipped.items()))}


def _annotations(folder: RunFolder, plan: Plan) -> Json:
    """What was read of each annotation file, and how many of the cohort's alleles it has."""
    names = [source["name"] for source in plan.recipe.get("annotations", [])]
    paths = {name: folder.annotations / f"{name}.json" for name in names}
    return {name: read_json(path) for name, path in paths.items() if path.exists()}


def _absolute_paths(value: Any) -> list[str]:
    """Every absolute path in JSON values, in their order."""
    if isinstance(value, dict):
        return [path for each in value.values() for path in _absolute_paths(each)]
    if isinstance(value, list):
        return [path for each in value for path in _absolute_paths(each)]
    return [value] if isinstance(value, str) and value.startswith("/") else []


def without_folders(text: str, folder: RunFolder, paths: Sequence[str]) -> str:
    """`text` with the names of files in place of their paths: the same for the same run in another folder.

    Args:
        text: A message or remark.
        folder: The run's folder; what lies below it keeps its place in it.
        paths: Files that the text may name, folders with spaces among them.
    """
    text = text.replace(f"{folder.root}/", "")
    for path in sorted(paths, key=len, reverse=True):
        text = text.replace(path, Path(path).name)
    return _PATH.sub("", text)


def _software() -> dict[str, str]:
    """Versions of what did the work."""
    versions = {"python": platform.python_version()}
    for name in _SOFTWARE:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
