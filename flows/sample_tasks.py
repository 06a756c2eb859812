"""Prefect tasks at sample grain. They take and return paths and ids only; the Dask client is this process's default."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.progress import current_progress
from flows.shards import as_task_error, run_unit, run_units
from tasks import stages
from tasks.calling.domain import refuse_tumour
from tasks.run import load_run

HEADERS, CHECK, ALIGN, EMBED = "check headers", "check inputs", "align reads", "embed reads"
COVER, CALL, WRITE = "measure coverage", "call variants", "write samples"
_STRETCH_SHARDS = 10
"""A stretch whose depth is measured is so many times as long as one that is called."""


def check_sample(root: str, sample_id: str) -> str:
    """Compares the headers of a sample's inputs, and its own regions, with the reference; returns its id.

    Raises:
        TaskError: The sample cannot be used; `reason` and message say why.
    """
    run_unit(stages.compare_headers, root, sample_id, what=f"sample {sample_id}")
    return sample_id


def prepare_sample(root: str, sample_id: str, shard_bp: int, threads: int) -> str:
    """Brings a sample from its input to distinct alleles; returns its id.

    Raises:
        TaskError: The sample cannot be used; `reason` and message say why.
    """
    progress = current_progress()
    run = load_run(root)
    sample = run.sample(sample_id)
    what = f"sample {sample_id}"
    refuse_tumour(sample)
    if sample["kind"] == "fastq":
        progress.expect(ALIGN, 1)
        run_unit(stages.take_in, root, sample_id, threads, what=what)
        progress.advance(ALIGN)
        if run.num_embedded(sample_id):
            progress.expect(EMBED, 1)
            run_unit(stages.embed_sampled, root, sample_id, what=what)
            progress.advance(EMBED)
    elif sample["kind"] in ("bam", "cram"):
        run_unit(stages.take_in, root, sample_id, threads, what=what)
    if sample["kind"] != "vcf":
        _cover(root, sample_id, shard_bp, what)
        shards = run_unit(stages.plan_calls, root, sample_id, shard_bp, what=what)
        progress.expect(CALL, len(shards))
        run_units(
            stages.call,
            [(root, sample_id, *shard) for shard in shards],
            what=what,
            on_done=lambda: progress.advance(CALL),
        )
        run_unit(stages.join_calls, root, sample_id, shards, what=what)
    run_unit(stages.collect_alleles, root, sample_id, what=what)
    return sample_id


def _cover(root: str, sample_id: str, shard_bp: int, what: str) -> None:
    """Measures a sample's coverage."""
    progress = current_progress()
    stretches = run_unit(stages.plan_coverage, root, sample_id, _STRETCH_SHARDS * shard_bp, what=what)
    progress.expect(COVER, len(stretches))
    run_units(
        stages.measure,
        [(root, sample_id, *stretch) for stretch in stretches],
        what=what,
        on_done=lambda: progress.advance(COVER),
    )
    run_unit(stages.join_coverage, root, sample_id, stretches, what=what)


def write_sample(root: str, sample_id: str) -> str:
    """Joins the scores back and delivers a sample's files; returns its id."""
    run_unit(stages.deliver, root, sample_id, what=f"sample {sample_id}")
    return sample_id


def _may_retry(task: Any, task_run: Any, state: Any) -> bool:
    """Prefect's condition: try again only what may then succeed."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and as_task_error(error).retryable


_OPTIONS: dict[str, Any] = {
    "cache_policy": NO_CACHE,
    "persist_result": False,
    "retries": 2,
    "retry_delay_seconds": 1,
    "retry_condition_fn": _may_retry,
}
check_sample_task = task(name="check-sample", task_run_name="check-{sample_id}", **_OPTIONS)(check_sample)
prepare_sample_task = task(name="prepare-sample", task_run_name="prepare-{sample_id}", **_OPTIONS)(prepare_sample)
write_sample_task = task(name="write-sample", task_run_name="write-{sample_id}", **_OPTIONS)(write_sample)
