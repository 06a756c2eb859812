"""The command line. Imports happen inside the commands that need them: help must be instant.

Exit codes: 0 all samples done; 3 finished, some samples not done; 2 the sheet, a flag or the folder is wrong; 1 the run
failed; 130 cancelled, and the same command resumes it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from flows.audit import audit
from flows.classify import classify
from flows.models import models
from flows.serve_models import serve_models

if TYPE_CHECKING:
    from flows.score_cohort import CohortResult

OK, RUN_FAILED, BAD_INPUT, SOME_FAILED, CANCELLED = 0, 1, 2, 3, 130
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_EXIT_CODES = (
    "Exit codes: 0 all samples done; 3 finished, some samples failed or are incomplete (each with its "
    "reason); 2 the sheet, a flag or the folder is wrong; 1 the run failed; 130 cancelled: the same command resumes."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=_EXIT_CODES)
@click.version_option(package_name="cohortflow")
def main() -> None:
    """From a sample sheet to scored variants: FASTQ, BAM, CRAM and VCF of whole cohorts."""


main.add_command(serve_models)
main.add_command(audit)
main.add_command(classify)
main.add_command(models)


@main.command(epilog=_EXIT_CODES)
@click.argument("sheet", type=_FILE)
@click.option("--reference", required=True, type=_FILE, help="Reference genome, FASTA plain or bgzipped.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder for the results.")
@click.option("--pipeline", default="demo-effect", show_default=True, help="See `cohortflow pipelines`.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Option of the pipeline.")
@click.option("--models", type=_FOLDER, help="Model repository  [default: the shipped models]")
@click.option("--regions", type=_FILE, help="BED: calling and scoring keep to it.")
@click.option(
    "--padding", type=click.IntRange(0, 10_000), default=0, help="Bases added around each region; needs regions."
)
@click.option("--genes", type=_FILE, help="GTF or GFF3: names the regions' genes; without it column 4 does.")
@click.option("--gvcf", is_flag=True, help="Write ID.g.vcf.gz too, which says where a sample has the reference.")
@click.option(
    "--annotate",
    multiple=True,
    metavar="NAME=FILE:FIELD,...",
    help="INFO fields of a VCF (ClinVar, gnomAD) joined to the alleles; may be given several times.",
)
@click.option(
    "--embed-reads",
    type=click.IntRange(0, 100_000),
    default=10_000,
    show_default=True,
    help="Reads of each FASTQ sample whose mean embedding is told; 0: none.",
)
@click.option("--workers", type=click.IntRange(1, 1024), help="Worker processes  [default: one a core or GPU]")
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler, tcp://host:port or tls://host:port.")
@click.option("--redis", metavar="URL", help="Cache of rows seen before  [or COHORTFLOW_REDIS_URL].")
@click.option(
    "--redis-budget-ms", type=click.FloatRange(1, 60_000), default=50.0, show_default=True, help="Longest look-up."
)
@click.option("--overwrite", is_flag=True, help="Remove what another plan left in the output folder.")
@click.option(
    "--shard-alleles", type=click.IntRange(1), default=20_000, show_default=True, help="Alleles a unit scores."
)
@click.option("--shard-bp", type=click.IntRange(1_000), default=100_000, show_default=True, help="Bases a unit calls.")
@click.option("--quiet", is_flag=True, help="No progress bars.")
def score(
    sheet: Path,
    reference: Path,
    output: Path,
    pipeline: str,
    options: tuple[str, ...],
    models: Path | None,
    regions: Path | None,
    padding: int,
    genes: Path | None,
    gvcf: bool,
    annotate: tuple[str, ...],
    embed_reads: int,
    workers: int | None,
    scheduler: str | None,
    redis: str | None,
    redis_budget_ms: float,
    overwrite: bool,
    shard_alleles: int,
    shard_bp: int,
    quiet: bool,
) -> None:
    """Score the variants of every sample of SHEET.

    Each sample gets an annotated VCF and a table (DIR/samples/ID/), the cohort a table of alleles (DIR/cohort/), a
    report (DIR/report.html) and a manifest (DIR/manifest.json). A run that was cut short goes on where it stopped when
    the same command is given again; samples added to the sheet cost only their own new alleles.
    """
    from tasks.errors import InputError, TaskError

    named = _options(options)
    _refuse_idle_flags(workers, scheduler, redis)
    interrupts = _interrupt_on_signals()
    # Genomes are their owner's alone: also the files that libraries write, here and in the workers this starts.
    os.umask(0o077)
    if redis:
        os.environ["COHORTFLOW_REDIS_URL"] = redis
    try:
        parameters = {
            "sheet": sheet,
            "reference": reference,
            "output": output,
            "pipeline": pipeline,
            "options": named,
            "regions": regions,
            "padding_bp": padding,
            "genes": genes,
            "gvcf": gvcf,
            "annotate": annotate,
            "embed_reads": embed_reads,
            "overwrite": overwrite,
            **({"models": models.resolve()} if models else {}),
        }
        execution = {
            "workers": workers,
            "scheduler": scheduler,
            "cache_budget_ms": redis_budget_ms,
            "shard_alleles": shard_alleles,
            "shard_bp": shard_bp,
            "progress": not quiet,
        }
        _check_before_start(parameters, scheduler)
        result = _run(parameters, execution)
    except KeyboardInterrupt:
        _end(CANCELLED, f"cancelled; the same command goes on in {output}")
    except InputError as error:
        _end(BAD_INPUT, error.message)
    except TaskError as error:
        _end(BAD_INPUT if error.blame == "input" else RUN_FAILED, error.message)
    except Exception as error:  # the last resort: a defect is told in one line, its traceback on request
        if interrupts:  # a library made an error of its own of the interrupt
            _end(CANCELLED, f"cancelled; the same command goes on in {output}")
        if os.environ.get("COHORTFLOW_TRACEBACK"):
            raise
        _end(RUN_FAILED, f"the run failed: {type(error).__name__}: {error} (COHORTFLOW_TRACEBACK=1 shows where)")
    _tell(result)


def _refuse_idle_flags(workers: int | None, scheduler: str | None, redis: str | None) -> None:
    """Refuses flags that would be without effect beside, or without, another one.

    Raises:
        click.UsageError: There is one; it exits with 2.
    """
    if scheduler and workers is not None:
        raise click.UsageError("--workers: a cluster given by --scheduler has its own; leave one of the two out")
    if scheduler and redis:
        raise click.UsageError(
            "--redis: the workers of --scheduler read COHORTFLOW_REDIS_URL from their own environment; set it there"
        )
    budget = click.get_current_context().get_parameter_source("redis_budget_ms")
    is_given = budget is not click.core.ParameterSource.DEFAULT
    if is_given and not (scheduler or redis or os.environ.get("COHORTFLOW_REDIS_URL")):
        raise click.UsageError("--redis-budget-ms: there is no Redis to wait for; give --redis or COHORTFLOW_REDIS_URL")


def _check_before_start(parameters: dict[str, Any], scheduler: str | None) -> None:
    """Finds what is wrong with the request before any service is started."""
    from flows.audit_record import audit_record
    from flows.parameters import (
        REPOSITORY,
        check_annotations,
        check_gvcf,
        check_models,
        check_regions,
        embeds_reads,
        models_of,
    )
    from tasks.annotations.request import parse_requests
    from tasks.folder import locked_folder
    from tasks.pipelines import make_pipeline
    from tasks.sheets.sheet import read_sheet

    sheet = read_sheet(parameters["sheet"])
    pipeline = make_pipeline(parameters["pipeline"], parameters["options"])
    regions, padding_bp, genes = parameters["regions"], parameters["padding_bp"], parameters["genes"]
    check_regions(sheet, regions, padding_bp, genes, pipeline.resources)
    check_gvcf(sheet, parameters["gvcf"])
    with_reads = embeds_reads(sheet, parameters["embed_reads"])
    check_annotations(pipeline, parameters["annotate"])
    repository = models_of(parameters.get("models", REPOSITORY), pipeline)
    check_models(repository, pipeline, with_reads=with_reads)
    parse_requests(parameters["annotate"], [field.name for field in pipeline.fields])
    with locked_folder(parameters["output"].resolve()):
        pass
    audit_record().check()
    redis = os.environ.get("COHORTFLOW_REDIS_URL")
    if redis:
        from tasks.cluster import check_redis

        caution = check_redis(redis)
        if caution:
            click.echo(f"caution: {caution}", err=True)
    if scheduler:
        from tasks.cluster import check_address

        caution = check_address(scheduler)
        if caution:
            click.echo(f"caution: {caution}", err=True)


def _run(parameters: dict[str, Any], execution: dict[str, Any]) -> CohortResult:
    """Runs the flow against the Prefect API of this run."""
    from flows.prefect_server import prefect_api, wait_until_healthy

    with prefect_api() as url:
        # Importing takes a second or two; meanwhile the server starts.
        from flows.score_cohort import run_score_cohort

        wait_until_healthy(url)
        return run_score_cohort(parameters, execution)


def _options(pairs: tuple[str, ...]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r}: must be NAME=VALUE", param_hint="--option")
        options[name] = value
    return options


def _tell(result: CohortResult) -> NoReturn:
    """Prints how the run ended and exits."""
    from flows.shared_details import SharedDetails

    details = SharedDetails()
    for sample_id, (reason, message) in result.failed.items():
        status = "incomplete" if sample_id in result.incomplete else "failed"
        click.echo(f"{status}: {sample_id}: {reason}: {details.add(sample_id, message)}", err=True)
    for line in details.lines():
        click.echo(line, err=True)
    click.echo(f"{len(result.done)} of {len(result.done) + len(result.failed)} samples done")
    for name in ("report.html", "manifest.json", "cohort/alleles.parquet", "samples"):
        if (result.output / name).exists():
            click.echo(f"  {result.output / name}")
    sys.exit(SOME_FAILED if result.failed else OK)


def _end(code: int, message: str) -> NoReturn:
    click.echo(f"cohortflow: {message}", err=True)
    sys.exit(code)


def _interrupt_on_signals() -> list[int]:
    """SIGTERM cancels as Ctrl-C does; returns a list that will hold the signals that came."""
    came: list[int] = []

    def interrupt(number: int, frame: object) -> NoReturn:
        came.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    return came


@main.command(short_help="Tell what is wrong with SHEET before work starts.")
@click.argument("sheet", type=_FILE)
@click.option("--reference", required=True, type=_FILE, help="Reference genome, FASTA plain or bgzipped.")
@click.option("--regions", type=_FILE, help="BED that calling and scoring would keep to.")
@click.option("--genes", type=_FILE, help="GTF or GFF3 that would name the genes of the regions.")
@click.option("--annotate", multiple=True, metavar="NAME=FILE:FIELD,...", help="As for score.")
@click.option("--models", type=_FOLDER, help="As for score.")
def check(
    sheet: Path,
    reference: Path,
    regions: Path | None,
    genes: Path | None,
    annotate: tuple[str, ...],
    models: Path | None,
) -> None:
    """Tell everything about SHEET that can be told before work starts."""
    from flows.check_cohort import check_cohort
    from flows.parameters import REPOSITORY
    from tasks.errors import TaskError

    try:
        lines, num_faults = check_cohort(sheet, reference, regions, genes, annotate, models or REPOSITORY)
    except TaskError as error:
        _end(BAD_INPUT, error.message)
    for line in lines:
        click.echo(line)
    sys.exit(BAD_INPUT if num_faults else OK)


@main.command()
@click.option("--models", type=_FOLDER, help="Model repository  [default: the shipped models]")
def pipelines(models: Path | None) -> None:
    """List what can be run: models, resources, options, outputs."""
    from flows.list_pipelines import list_pipelines
    from flows.parameters import REPOSITORY
    from serving.errors import ServingError
    from tasks.errors import TaskError

    try:
        lines = list_pipelines(models or REPOSITORY)
    except (TaskError, ServingError) as error:
        _end(BAD_INPUT if models else RUN_FAILED, str(error))
    for line in lines:
        click.echo(line)


@main.command(short_help="Train the shipped models on simulated data.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Model repository to write.")
@click.option("--seed", default=1, show_default=True, help="Seed of everything random.")
@click.option("--scratch", type=click.Path(path_type=Path), help="Keeps examples, so that a training can go on.")
def train(output: Path, seed: int, scratch: Path | None) -> None:
    """Train the shipped models on simulated data; takes about an hour of one core."""
    from flows.train import train_models

    train_models(output, seed, scratch=scratch, report=click.echo)


@main.command("train-effect", short_help="Train a model of pathogenicity on ClinVar.")
@click.option("--clinvar", required=True, type=_FILE, help="ClinVar-format VCF: CLNSIG, CLNREVSTAT, perhaps MC.")
@click.option("--benign", type=_FILE, help="gnomAD-format VCF with AF; without it ClinVar's benign alleles.")
@click.option("--reference", required=True, type=_FILE, help="Reference genome of both.")
@click.option(
    "--output", required=True, type=click.Path(path_type=Path), help="Model repository to write; must be new."
)
@click.option("--min-stars", default=1, show_default=True, type=click.IntRange(0, 4), help="Review stars needed.")
@click.option(
    "--min-benign-frequency",
    default=1e-3,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True),
    help="AF from which an allele counts as benign.",
)
@click.option("--seed", default=1, show_default=True, help="Of held-out blocks, first weights and batches.")
def train_effect(
    clinvar: Path,
    benign: Path | None,
    reference: Path,
    output: Path,
    min_stars: int,
    min_benign_frequency: float,
    seed: int,
) -> None:
    """Train the model of the pipeline `pathogenicity` on classified alleles.

    Writes a whole model repository for `score --models`: the shipped models, with `effect` trained anew. Its card says
    what it learnt from and how well it tells held-out alleles apart, consequence by consequence.
    """
    from flows.train_effect import train_effect as train
    from tasks.errors import TaskError

    given = click.get_current_context().get_parameter_source("min_benign_frequency")
    if benign is None and given is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--min-benign-frequency: is of --benign, which is not given; leave it out")
    _interrupt_on_signals()
    try:
        train(
            clinvar,
            benign,
            reference,
            output,
            min_stars=min_stars,
            min_benign_frequency=min_benign_frequency,
            seed=seed,
            report=click.echo,
        )
    except KeyboardInterrupt:
        _end(CANCELLED, "cancelled; nothing was written")
    except TaskError as error:
        _end(BAD_INPUT if error.blame == "input" else RUN_FAILED, error.message)


if __name__ == "__main__":
    main()
