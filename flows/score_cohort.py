"""The main job: a sample sheet becomes annotated variants, a table of alleles, a report and a manifest."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from distributed import Client
from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import ValidationError
from rich.console import Console

from flows.audit_record import recorded_run
from flows.parameters import (
    CohortParameters,
    Execution,
    check_annotations,
    check_gvcf,
    check_models,
    check_regions,
    embeds_reads,
    find_genes,
    join_repositories,
    models_of,
)
from flows.prefect_server import claim_folder, wait_until_recorded
from flows.progress import RunProgress, current_progress, set_current_progress
from flows.sample_tasks import CHECK, HEADERS, WRITE, check_sample_task, prepare_sample_task, write_sample_task
from flows.shards import as_task_error, run_unit, run_units
from tasks.annotations.request import parse_requests
from tasks.annotations.source import AnnotationSource, check_inputs_free, open_source
from tasks.annotations.stage import join_annotation
from tasks.audit.run_trail import RunTrail
from tasks.cluster import caution_workers_without_redis, open_cluster
from tasks.coverage.exons import prepare_exons
from tasks.errors import BalanceError, DiskFullError, FolderError, InputError, TaskError
from tasks.files import read_json, write_json
from tasks.folder import RunFolder, locked_folder
from tasks.genome.reference import Reference, load_reference, prepare_reference
from tasks.genome.regions import read_bed
from tasks.identity.cohort import compare_cohort
from tasks.model_host import host_digests, host_statistics
from tasks.pipelines import Pipeline, make_pipeline
from tasks.plan import Plan, check_resumable, digest_files, digested_names, read_plan
from tasks.reporting.manifest import make_manifest
from tasks.reporting.multiqc import write_multiqc
from tasks.reporting.report import write_report
from tasks.run import CALLER, READ_EMBEDDER, load_run, write_run
from tasks.scoring import drop_damaged_scores, drop_scores, finish_scores, plan_score_shards, score_shard
from tasks.sheets.sheet import Sample, SampleSheet, read_sheet
from tasks.splicing.transcripts import prepare_transcripts
from tasks.stages import begin_sample, fail_sample
from tasks.variants.header import REASON_ID

DIGEST, SCORE, JOIN = "digest inputs", "score alleles", "join annotations"
_FATAL = (FolderError, DiskFullError, BalanceError)
_RUNNER: Any = ThreadPoolTaskRunner(max_workers=16)
"""Prefect tasks wait for Dask: their threads cost little."""


@dataclass(frozen=True, slots=True)
class CohortResult:
    """How a run ended.

    Attributes:
        output: The run's folder.
        done: Samples whose outputs are there.
        failed: For each other sample its reason word and message.
        incomplete: Those of them whose reads were aligned and counted, but not called.
    """

    output: Path
    done: tuple[str, ...]
    failed: dict[str, tuple[str, str]]
    incomplete: frozenset[str] = frozenset()


def folder_tag(output: Path) -> str:
    """The Prefect tag of every run in one output folder; it says nothing of the path."""
    return f"folder:{hashlib.sha256(str(output.resolve()).encode()).hexdigest()[:16]}"


@flow(
    name="score-cohort",
    flow_run_name="score-{parameters.sheet.name}",
    task_runner=_RUNNER,
    persist_result=False,
)
def score_cohort(parameters: CohortParameters, execution: Execution = Execution()) -> CohortResult:  # noqa: B008
    """Scores the variants of every sample of a sheet.

    Args:
        parameters: What is computed.
        execution: How: workers, cluster, sizes of the units of work.

    Raises:
        SheetError: The sheet is wrong; every fault is listed.
        InputError: A parameter would be without effect on the sheet's samples.
        ReferenceError: The reference cannot be read.
        RegionsError: The BED cannot be read, or does not fit the reference.
        FolderError: The folder is in use, or holds another plan.
        BalanceError: Records or alleles were lost.
        AuditError: The audit record cannot be appended to.
    """
    sheet = read_sheet(parameters.sheet)
    pipeline = make_pipeline(parameters.pipeline, parameters.options)
    check_regions(sheet, parameters.regions, parameters.padding_bp, parameters.genes, pipeline.resources)
    check_gvcf(sheet, parameters.gvcf)
    check_annotations(pipeline, parameters.annotate)
    models = models_of(parameters.models.resolve(), pipeline)
    check_models(models, pipeline, with_reads=embeds_reads(sheet, parameters.embed_reads))
    tag = folder_tag(parameters.output)
    with ExitStack() as stack:
        folder = stack.enter_context(locked_folder(parameters.output.resolve()))
        claim_folder(tag, runtime.flow_run.id)
        progress = stack.enter_context(RunProgress(Console(stderr=True), visible=execution.progress))
        set_current_progress(progress)
        trail = stack.enter_context(recorded_run(str(runtime.flow_run.id), folder))
        if parameters.overwrite:
            trail.removed()
            folder.clear()
        reference = prepare_reference(parameters.reference.resolve(), folder.reference)
        if parameters.regions:
            # A BED that does not fit is told before anything is planned.
            read_bed(parameters.regions.resolve(), reference, parameters.padding_bp)
        genes = find_genes(parameters.genes, models, pipeline, reference.build)
        if genes and "transcripts" in pipeline.resources:
            prepare_transcripts(genes, reference, folder.transcripts)
        elif genes:
            prepare_exons(genes, reference, folder.exons)
        client = stack.enter_context(
            open_cluster(
                join_repositories(models, folder.models),
                workers=execution.workers,
                scheduler=execution.scheduler,
                cache_budget_ms=execution.cache_budget_ms,
            )
        )
        caution = caution_workers_without_redis(client) if execution.scheduler else ""
        if caution:
            progress.caution(caution)
        plan = _make_plan(parameters, sheet, reference, pipeline, client, folder, genes)
        _begin(folder, plan, sheet, parameters)
        trail.started(plan, parameters.sheet.resolve(), _inputs(folder, sheet, parameters, genes))
        return _work(folder, plan, pipeline, client, execution, trail)


def _make_plan(
    parameters: CohortParameters,
    sheet: SampleSheet,
    reference: Reference,
    pipeline: Pipeline,
    client: Client,
    folder: RunFolder,
    genes: Path | None,
) -> Plan:
    """Resolves everything that decides the outputs: contents, models, options."""
    progress = current_progress()
    files = {path for sample in sheet.samples for path in sample.files}
    files |= {sample.regions for sample in sheet.samples if sample.regions}
    files |= {path.resolve() for path in (parameters.regions, genes) if path}
    requests = parse_requests(parameters.annotate, [*(field.name for field in pipeline.fields), REASON_ID])
    joined = [open_source(request, reference, folder.work) for request in requests]
    check_inputs_free(
        [path for sample in sheet.samples if sample.kind == "vcf" for path in sample.paths],
        [field.output for fields in joined for field in fields],
    )
    files |= {request.path for request in requests}
    progress.expect(DIGEST, len(files))
    digests = digest_files(sorted(files), folder.digests, lambda: progress.advance(DIGEST))
    asked = [pipeline.ensemble, CALLER]
    if embeds_reads(sheet, parameters.embed_reads):
        asked.append(READ_EMBEDDER)
    models = client.submit(host_digests, asked, pure=False).result()
    recipe: dict[str, Any] = {
        "version": version("cohortflow"),
        "reference": {"digest": reference.digest, "build": reference.build},
        "pipeline": {"name": pipeline.name, "options": pipeline.options.model_dump(mode="json")},
        "models": {pipeline.ensemble: models[pipeline.ensemble]},
        "regions": digests[parameters.regions.resolve()] if parameters.regions else None,
        "padding_bp": parameters.padding_bp,
        "genes": digests[genes.resolve()] if genes else None,
    }
    if parameters.gvcf:
        recipe["gvcf"] = True
    if requests:
        sources = [AnnotationSource(r.name, r.path, digests[r.path], f) for r, f in zip(requests, joined, strict=True)]
        recipe["annotations"] = [source.to_json() for source in sources]
    embed_reads = parameters.embed_reads
    return Plan(recipe, {sample.id: _identity(sample, digests, models, embed_reads) for sample in sheet.samples})


def _identity(sample: Sample, digests: dict[Path, str], models: dict[str, Any], embed_reads: int) -> dict[str, Any]:
    """What a sample's outputs depend on beside the recipe."""
    asked = {} if sample.kind == "vcf" else {CALLER: models[CALLER]}
    is_embedded = sample.kind == "fastq" and embed_reads > 0
    if is_embedded:
        asked[READ_EMBEDDER] = models[READ_EMBEDDER]
    lanes = [
        [lane.name, digests[lane.fastq_1], digests[lane.fastq_2] if lane.fastq_2 else None, lane.interleaved]
        for lane in sample.lanes
    ]
    return {
        "kind": sample.kind,
        "files": [digests[path] for path in sample.paths],
        "lanes": lanes,
        "vcf_sample": sample.vcf_sample,
        "regions": digests[sample.regions] if sample.regions else None,
        # A new caller is no other plan for a sample that has no reads.
        **({} if sample.kind == "vcf" else {"models": asked, "sex": sample.sex, **_kind_of_reads(sample)}),
        **({"embed_reads": embed_reads} if is_embedded else {}),
    }


def _kind_of_reads(sample: Sample) -> dict[str, Any]:
    """What the sheet says of a sample's reads that decides how they are used; nothing where they are the usual ones."""
    stated = {"is_amplicon": sample.is_amplicon, "is_tumour": sample.status == 1}
    return {name: True for name, holds in stated.items() if holds}


def _begin(folder: RunFolder, plan: Plan, sheet: SampleSheet, parameters: CohortParameters) -> None:
    """Checks that the plan may run in this folder and writes it."""
    old = read_plan(folder.plan)
    if old is not None:
        finished = [i for i in old.samples if folder.summary(i, "output").exists()]
        changed = check_resumable(old, plan, finished, digested_names(folder.digests))
        for sample_id, differences in changed.items():
            current_progress().caution(f"sample {sample_id} has changed and is done anew: {'; '.join(differences)}")
        if old.recipe != plan.recipe:
            drop_scores(folder)
        for sample_id in old.samples.keys() - plan.samples.keys():
            folder.remove_sample(sample_id)
    folder.manifest.unlink(missing_ok=True)
    for warning in sheet.warnings:
        current_progress().caution(f"{sheet.path.name}: {warning}")
    settings = {
        "sheet_warnings": list(sheet.warnings),
        "regions": str(parameters.regions.resolve()) if parameters.regions else None,
        "annotations": {request.name: str(request.path) for request in parse_requests(parameters.annotate)},
        "samples": {sample.id: sample.to_json() for sample in sheet.samples},
    }
    write_run(folder, plan, settings)


def _inputs(
    folder: RunFolder, sheet: SampleSheet, parameters: CohortParameters, genes: Path | None
) -> dict[str, dict[Path, str]]:
    """The digests of each sample's files, and under an empty name of those that all samples share."""
    digests = {Path(path): digest for path, (_, digest) in read_json(folder.digests).items()}
    shared = [path.resolve() for path in (parameters.regions, genes) if path]
    shared += [request.path for request in parse_requests(parameters.annotate)]
    paths = {"": shared} | {s.id: [*s.files, *([s.regions] if s.regions else [])] for s in sheet.samples}
    return {name: {path: digests[path] for path in each} for name, each in paths.items()}


def _work(
    folder: RunFolder, plan: Plan, pipeline: Pipeline, client: Client, execution: Execution, trail: RunTrail
) -> CohortResult:
    """Runs every stage; one bad sample is recorded, the others go on."""
    progress = current_progress()
    root = str(folder.root)
    failed: dict[str, TaskError] = {}
    has_scores = drop_damaged_scores(folder)
    finished = {sample_id for sample_id in plan.samples if begin_sample(folder, plan, sample_id)}
    open_samples = [sample_id for sample_id in plan.samples if sample_id not in finished]

    if any(plan.samples[i]["kind"] == "fastq" for i in open_samples):
        from tasks.reads.index import memory_line

        progress.say(memory_line(load_reference(folder.reference)))
    threads = max(client.nthreads().values())
    # What headers tell of every sample comes before the first hour of work on any.
    progress.expect(HEADERS, len(open_samples))
    fitting = _each_sample(check_sample_task, [(root, i) for i in open_samples], failed, HEADERS)
    progress.expect(CHECK, len(fitting))
    prepared = _each_sample(
        prepare_sample_task, [(root, i, execution.shard_bp, threads) for i in fitting], failed, CHECK
    )
    if prepared or (finished and not has_scores):
        score_alleles_task(root, [*prepared, *finished], execution.shard_alleles)
    progress.expect(WRITE, len(prepared))
    written = _each_sample(write_sample_task, [(root, i) for i in prepared], failed, WRITE)
    incomplete = frozenset(sample_id for sample_id, error in failed.items() if fail_sample(folder, sample_id, error))
    done = [i for i in plan.samples if i in finished or i in set(written)]
    run_unit(compare_cohort, root, done, what="comparing the samples with each other")
    statistics = client.run(host_statistics)
    write_results_task(trail, list(statistics.values()), progress.seconds)
    return CohortResult(folder.root, tuple(done), {i: (e.reason, e.message) for i, e in failed.items()}, incomplete)


def _each_sample(stage: Any, arguments: list[tuple[Any, ...]], failed: dict[str, TaskError], name: str) -> list[str]:
    """Runs a Prefect task for each sample; returns the ids that came through, and adds the others to `failed`."""
    progress = current_progress()
    futures = [(each[1], stage.submit(*each)) for each in arguments]
    through = []
    for sample_id, future in futures:
        future.wait()
        value = future.result(raise_on_failure=False)
        progress.advance(name)
        if not isinstance(value, BaseException):
            through.append(sample_id)
            continue
        error = as_task_error(value)
        if isinstance(error, _FATAL):
            raise error
        failed[sample_id] = error
    return through


def score_alleles(root: str, sample_ids: list[str], shard_alleles: int) -> dict[str, Any]:
    """Scores the cohort's distinct alleles, shard by shard, and joins the shards; returns the counts."""
    progress = current_progress()
    folder = RunFolder(Path(root))
    names = sorted(str(run) for i in sample_ids for run in folder.sample_work(i).glob("alleles-*.parquet"))
    shards = run_unit(plan_score_shards, names, shard_alleles, what="looking where the alleles lie")
    progress.expect(SCORE, len(shards))
    run_units(
        score_shard,
        [(root, shard, names) for shard in shards],
        what="scoring the cohort's alleles",
        on_done=lambda: progress.advance(SCORE),
    )
    annotations = [source.name for source in load_run(root).annotations]
    if annotations:
        progress.expect(JOIN, len(annotations))
        run_units(
            join_annotation,
            [(root, name, shards) for name in annotations],
            what="joining annotations",
            on_done=lambda: progress.advance(JOIN),
        )
    counts: dict[str, Any] = run_unit(finish_scores, root, shards, what="joining the scores")
    return counts


def write_results(trail: RunTrail, statistics: list[dict[str, Any]], seconds: dict[str, float]) -> str:
    """Writes the report, records the end, then writes the manifest, which says so; returns the report's path."""
    folder = trail.folder
    manifest = make_manifest(folder, statistics, seconds)
    write_report(folder, manifest)
    write_multiqc(folder, manifest)
    write_json(folder.manifest, trail.finished(manifest))
    return str(folder.report)


score_alleles_task = task(name="score-alleles", cache_policy=NO_CACHE, persist_result=False)(score_alleles)
write_results_task = task(name="write-results", cache_policy=NO_CACHE, persist_result=False)(write_results)


def run_score_cohort(parameters: dict[str, Any], execution: dict[str, Any]) -> CohortResult:
    """Runs the flow in this process and waits until the API has recorded its end.

    Raises:
        InputError: A parameter is wrong.
        KeyboardInterrupt: The run was cancelled.
    """
    try:
        request = CohortParameters.model_validate(parameters)
        how = Execution.model_validate(execution)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise InputError(faults, reason="BAD_PARAMETER") from error
    state = score_cohort(request, how, return_state=True)
    flow_run_id = state.state_details.flow_run_id
    wait_until_recorded(flow_run_id)
    result = state.result(raise_on_failure=False)
    if isinstance(result, CohortResult):
        return result
    if isinstance(result, Exception):
        raise result
    raise KeyboardInterrupt
