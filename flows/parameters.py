"""What a cohort run computes: the parameters that the command line, the Prefect form and the server share."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from flows.prefect_server import home
from serving.errors import ServingError
from serving.repository import list_models, read_model
from tasks.errors import InputError
from tasks.files import make_folder
from tasks.pipelines import DEFAULT_PIPELINE, Pipeline
from tasks.published.home import ModelsHome
from tasks.run import CALLER, READ_EMBEDDER
from tasks.sheets.sheet import SampleSheet

REPOSITORY = Path(__file__).resolve().parent.parent / "data" / "models"
"""The shipped models."""


class CohortParameters(BaseModel):
    """Parameters of ``score_cohort``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sheet: Path = Field(description="Sample sheet, CSV or TSV: sample and one of vcf, bam, cram, fastq_1[, fastq_2]")
    reference: Path = Field(description="Reference genome, FASTA or bgzipped FASTA")
    output: Path = Field(description="Folder for the results; a run that was cut short goes on in it")
    pipeline: str = Field(DEFAULT_PIPELINE, description="What is computed for each allele")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the pipeline")
    models: Path = Field(REPOSITORY, description="Model repository; the shipped models where it is not said")
    regions: Path | None = Field(None, description="BED: calling and scoring keep to it")
    padding_bp: int = Field(0, ge=0, le=10_000, description="Bases added on both sides of every region")
    genes: Path | None = Field(
        None, description="GTF or GFF3: names the genes of the regions, or are those that the pipeline needs"
    )
    gvcf: bool = Field(False, description="Write a genomic VCF of every sample with reads")
    annotate: tuple[str, ...] = Field(
        (), description="NAME=FILE.vcf.gz:FIELD,FIELD: ClinVar- or gnomAD-like files joined to the alleles"
    )
    embed_reads: int = Field(
        10_000, ge=0, le=100_000, description="Reads of each FASTQ sample whose mean embedding is told; 0: none"
    )
    overwrite: bool = Field(False, description="Remove what an earlier run of another plan left in the folder")


class Execution(BaseModel):
    """How a run is carried out; nothing here changes an output."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workers: int | None = Field(None, ge=1, le=1024, description="Worker processes; default one a core or GPU")
    scheduler: str | None = Field(None, description="Dask scheduler, tcp://host:port or tls://host:port")
    cache_budget_ms: float = Field(50.0, gt=0, le=60_000, description="Longest wait for Redis in one look-up")
    shard_alleles: int = Field(20_000, ge=1, description="Alleles that one unit of work scores")
    shard_bp: int = Field(100_000, ge=1_000, description="Bases that one unit of work calls")
    progress: bool = Field(True, description="Show progress bars")


def embeds_reads(sheet: SampleSheet, embed_reads: int) -> bool:
    """Whether reads of any sample are to be embedded."""
    return embed_reads > 0 and any(sample.kind == "fastq" for sample in sheet.samples)


def models_home() -> ModelsHome:
    """Where `cohortflow models add` puts published models."""
    return ModelsHome((home() / "models").resolve())


def models_of(repository: Path, pipeline: Pipeline) -> Path:
    """The repository of a pipeline's models: the one given, or where `cohortflow models add` puts a published one."""
    if pipeline.publication is None or repository != REPOSITORY:
        return repository
    return models_home().repository(pipeline.publication)


def join_repositories(own: Path, links: Path) -> Path:
    """A repository of a pipeline's own models and, beside them, the shipped ones that it does not have.

    Args:
        own: Of `models_of`.
        links: The folder that is made, with links to both, where they are two.
    """
    if own == REPOSITORY or CALLER in list_models(own):
        return own
    shutil.rmtree(links, ignore_errors=True)
    make_folder(links)
    for repository in (REPOSITORY, own):
        for name in list_models(repository):
            (links / name).unlink(missing_ok=True)
            (links / name).symlink_to((repository / name).resolve())
    return links


def find_genes(genes: Path | None, repository: Path, pipeline: Pipeline, build: str | None) -> Path | None:
    """The file of a run's genes: the one given, or, where transcripts are needed, the model's of the reference's build.

    Raises:
        InputError: The pipeline needs transcripts, none are given, and the model has no table of that build.
    """
    if genes or "transcripts" not in pipeline.resources:
        return genes.resolve() if genes else None
    table = repository / pipeline.ensemble / f"{(build or 'unknown').lower()}.txt"
    if build is None or not table.is_file():
        raise InputError(
            f"pipeline {pipeline.name}: its model has no table of genes for the reference's build "
            f"({build or 'none that is known'}); give a GTF, or a table in SpliceAI's format, by --genes",
            field="genes",
            reason="BAD_PARAMETER",
        )
    return table


def check_models(repository: Path, pipeline: Pipeline | None = None, *, with_reads: bool = False) -> None:
    """Refuses a model repository that lacks a model that will be asked, or that learnt from other labels.

    Args:
        repository: The repository.
        pipeline: What is to be computed; None where that is not known yet.
        with_reads: Whether reads are to be embedded.

    Raises:
        InputError: It does.
    """
    try:
        if pipeline is None or pipeline.publication is None:
            read_model(repository, CALLER)
        message = read_model(repository, pipeline.ensemble).message if pipeline else None
    except ServingError as error:
        if pipeline is not None and pipeline.publication and not repository.is_dir():
            raise InputError(
                f"pipeline {pipeline.name}: its model is not there ({repository}); `cohortflow models add "
                f"{pipeline.publication}` fetches it, or --models names a repository that has it",
                field="models",
                reason="BAD_PARAMETER",
            ) from error
        raise InputError(f"models {repository}: {error.message}", field="models", reason="BAD_PARAMETER") from error
    is_whole = CALLER in list_models(repository)
    if with_reads and is_whole and READ_EMBEDDER not in list_models(repository):
        raise InputError(
            f"models {repository}: there is no {READ_EMBEDDER!r}, which embeds reads of FASTQ; take it over from the "
            "shipped models, or give --embed-reads 0",
            field="models",
            reason="BAD_PARAMETER",
        )
    if pipeline is None or message is None or pipeline.labels is None:
        return
    labels = message.parameters["labels"].string_value if "labels" in message.parameters else None
    if labels != pipeline.labels:
        raise InputError(
            f"pipeline {pipeline.name} needs a model of {pipeline.labels} labels; model {pipeline.ensemble!r} of "
            f"{repository} {f'has learnt from {labels} ones' if labels else 'does not say what it has learnt from'}"
            + ("; `cohortflow train-effect` makes one for --models" if pipeline.labels == "clinical" else ""),
            field="models",
            reason="BAD_PARAMETER",
        )


def check_annotations(pipeline: Pipeline, annotate: Sequence[str]) -> None:
    """Refuses annotation files where alleles are not normalised: those of the files are.

    Raises:
        InputError: There are some.
    """
    if annotate and pipeline.keeps_records:
        raise InputError(
            f"--annotate: pipeline {pipeline.name} keeps alleles as they are written, which no other file can be "
            "compared with; leave one of the two out",
            field="annotate",
            reason="BAD_PARAMETER",
        )


def check_gvcf(sheet: SampleSheet, gvcf: bool) -> None:
    """Refuses to write genomic VCF where no sample has reads.

    Raises:
        InputError: There is none.
    """
    if gvcf and all(sample.kind == "vcf" for sample in sheet.samples):
        raise InputError(
            "--gvcf: no sample has reads to write a genomic VCF of; leave it out", field="gvcf", reason="BAD_PARAMETER"
        )


def check_regions(
    sheet: SampleSheet,
    regions: Path | None,
    padding_bp: int = 0,
    genes: Path | None = None,
    resources: Sequence[str] = (),
) -> None:
    """Refuses regions, padding and genes that would be without effect on every sample, and genes that are missing.

    Args:
        sheet: The sample sheet.
        regions: The run's BED.
        padding_bp: Bases added around its intervals.
        genes: The run's genes.
        resources: What the pipeline needs.

    Raises:
        InputError: There is padding, or there are genes, and nothing they are for; or there are regions and each
            sample has its own; or the pipeline needs genes and there are none.
    """
    if "genes" in resources and not genes:
        raise InputError(
            "the pipeline needs genes; give a GTF or GFF3 by --genes", field="genes", reason="BAD_PARAMETER"
        )
    if padding_bp and not regions and not any(sample.regions for sample in sheet.samples):
        raise InputError(
            f"--padding {padding_bp}: there are no regions to pad; give --regions, or a column regions in the sheet",
            field="padding_bp",
            reason="BAD_PARAMETER",
        )
    if genes and not resources and not regions and not any(sample.regions for sample in sheet.samples):
        raise InputError(
            f"--genes {genes}: there are no regions whose genes it could name; give --regions, or a column regions in "
            "the sheet",
            field="genes",
            reason="BAD_PARAMETER",
        )
    if regions and all(sample.regions for sample in sheet.samples):
        raise InputError(
            f"--regions {regions}: every sample has regions of its own in the sheet, which go first; leave it out, or "
            "the sheet's column",
            field="regions",
            reason="BAD_PARAMETER",
        )
