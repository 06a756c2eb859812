"""What can be run: each pipeline's models, resources, options and outputs, as lines for people."""

from __future__ import annotations

from pathlib import Path

from serving.config import ENSEMBLE
from serving.repository import read_model
from tasks.pipelines import OutputField, Pipeline, pipeline_types
from tasks.run import CALLER
from tasks.variants.header import REASON_ID

_FILES = (
    "samples/ID/ID.vcf.gz and its index: the input's records with these INFO fields",
    "samples/ID/ID.parquet: a row per allele",
    "cohort/alleles.parquet: a row per distinct allele of the cohort",
    "report.html, *_mqc.json, manifest.json",
)


def list_pipelines(repository: Path) -> list[str]:
    """Describes every pipeline, then what is common to all.

    Args:
        repository: The model repository.

    Raises:
        PipelineError: An entry point is no pipeline.
        ServingError: A model that a pipeline names is not in the repository, or its configuration is wrong.
    """
    lines = []
    for kind in pipeline_types().values():
        lines += _describe(kind, repository)
    lines += ["every pipeline", "  calls BAM, CRAM and FASTQ first:", *_describe_model(repository, CALLER)]
    lines.append(f"  writes INFO/{REASON_ID} (Number=A, String): why the allele has no score")
    return [*lines, *(f"  file {file}" for file in _FILES)]


def _describe(kind: type[Pipeline], repository: Path) -> list[str]:
    lines = [kind.name, f"  {kind.title}", f"  unit: {kind.unit}"]
    if kind.publication:
        lines.append(f"  model {kind.ensemble}: `cohortflow models add {kind.publication}` fetches it")
    else:
        lines += _describe_model(repository, kind.ensemble)
    lines.append(f"  resources: {', '.join(('the reference', *kind.resources))}")
    options = kind.options_type.model_fields
    lines += [f"  option {name}={info.default}: {info.description or ''}" for name, info in options.items()]
    if not options:
        lines.append("  options: none")
    lines += map(_describe_field, kind.fields)
    if kind.gene_fields:
        columns = ", ".join(field.name for field in kind.gene_fields)
        lines.append(f"  file cohort/allele_gene.parquet: a row per allele and gene ({columns})")
    if kind.caution:
        lines.append(f"  caution: {kind.caution}")
    return lines


def _describe_model(repository: Path, name: str) -> list[str]:
    """A model with its version and card, then the steps of an ensemble."""
    model = read_model(repository, name)
    steps = model.message.ensemble_scheduling.step if model.backend == ENSEMBLE else ()
    lines = [f"  model {name}, version {model.versions[-1]}: {model.path / 'MODEL_CARD.md'}"]
    for step in dict.fromkeys(step.model_name for step in steps):
        version = read_model(repository, step).versions[-1]
        lines.append(f"    step {step}, version {version}: {repository / step / 'MODEL_CARD.md'}")
    return lines


def _describe_field(field: OutputField) -> str:
    return f"  writes INFO/{field.name} (Number={field.number}, {field.kind}): {field.description}"
