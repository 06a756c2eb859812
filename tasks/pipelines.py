"""Pipelines: declarations of what a run computes for each allele.

A lab adds its own by an entry point of the group ``cohortflow.pipelines`` that names a `Pipeline` subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from tasks.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tasks.coverage.exons import Exons
    from tasks.genome.reference import Reference
    from tasks.splicing.transcripts import Transcripts


UNITS, KEYS, RESOURCES = ("allele",), ("allele",), ("genes", "transcripts")
"""What a run can compute for, what it tells units apart by, and what it can give a pipeline beside the reference: one
that asks for anything else is refused when it is loaded."""


LABELS = ("simulated", "clinical")
"""What a model of effects may have learnt from."""


class PipelineError(InputError):
    """No such pipeline, or an option it does not have."""

    default_reason = "BAD_PIPELINE"


@dataclass(frozen=True, slots=True)
class OutputField:
    """One INFO field that a pipeline writes.

    Attributes:
        name: The INFO ID.
        kind: Its VCF Type.
        number: ``A``, one value per ALT; ``.``, any number of entries, each of which names its allele.
        description: The header's text.
        decimals: Declared precision of a Float; values are rounded to it before they are stored.
    """

    name: str
    kind: Literal["Float", "Integer", "String"]
    number: Literal["A", "."]
    description: str
    decimals: int | None = None

    @property
    def header_line(self) -> str:
        """The field's ``##INFO`` line."""
        description = self.description.replace("\\", "\\\\").replace('"', '\\"')
        return f'##INFO=<ID={self.name},Number={self.number},Type={self.kind},Description="{description}">'


@dataclass(frozen=True, slots=True)
class Rows:
    """What a pipeline asks of its ensemble.

    Attributes:
        inputs: Named arrays, each ``[num_rows, ...]``.
        allele: int64 ``[num_rows]``, the allele that each row belongs to.
        reason: object ``[num_alleles]``, why an allele has no row, else None.
        gene: object ``[num_rows]``, the gene that each row is of, where an allele has a row for each of several.
        context: Whatever `Pipeline.collapse` is to know of these rows.
    """

    inputs: dict[str, NDArray[Any]]
    allele: NDArray[np.int64]
    reason: NDArray[np.object_]
    gene: NDArray[np.object_] | None = None
    context: Any = None


@dataclass(frozen=True, slots=True)
class Resources:
    """What a pipeline may need beside the reference; None where it did not ask for it.

    Attributes:
        genes: The exons of the run's ``--genes``.
        transcripts: One transcript a gene: of the run's ``--genes``, else those that come with the model.
    """

    genes: Exons | None = None
    transcripts: Transcripts | None = None


@dataclass(frozen=True, slots=True)
class GeneValues:
    """Answers of a finer grain: a row for each allele and gene.

    Attributes:
        allele: int64 [n], ascending, the place of the allele among those that were asked for.
        gene: n names of genes.
        values: For each field of `Pipeline.gene_fields` an array [n]; NaN (Float) or None marks a missing value.
    """

    allele: NDArray[np.int64]
    gene: Sequence[str]
    values: dict[str, NDArray[Any]]


NO_RESOURCES = Resources()


class NoOptions(BaseModel):
    """A pipeline without options."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Pipeline(ABC):
    """What a run computes for each distinct normalised allele.

    Attributes:
        name: How users call it.
        title: One line for people.
        unit: What it computes for, one of `UNITS`.
        key: What makes two units one, of which the answer is computed once: one of `KEYS`.
        ensemble: The model that answers its rows.
        publication: What `cohortflow models add` is to be told for the ensemble; None: it ships or is the user's.
        alleles_at_once: Alleles that it is asked about at once: what its rows take of memory is bounded by them.
        labels: What the ensemble must say that it learnt from (the parameter ``labels`` of its configuration, see
            `LABELS`); None where that does not matter.
        resources: What it needs beside the reference, of `RESOURCES`.
        fields: The INFO fields it writes, a value for each allele (``A``), or entries that each name their allele.
        gene_fields: The columns of ``cohort/allele_gene.parquet``, a row for each allele and gene; none without.
        caution: What a reader of its output must know, or None; the report shows it.
        options_type: The pydantic model of its options.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str] = "allele"
    key: ClassVar[str] = "allele"
    ensemble: ClassVar[str]
    publication: ClassVar[str | None] = None
    alleles_at_once: ClassVar[int] = 100_000
    labels: ClassVar[str | None] = None
    resources: ClassVar[tuple[str, ...]] = ()
    fields: ClassVar[tuple[OutputField, ...]]
    gene_fields: ClassVar[tuple[OutputField, ...]] = ()
    caution: ClassVar[str | None] = None
    options_type: ClassVar[type[BaseModel]] = NoOptions

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        try:
            self.options = self.options_type.model_validate(dict(options or {}))
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            known = ", ".join(self.options_type.model_fields) or "none"
            raise PipelineError(f"pipeline {self.name}: {faults} (options: {known})", field="option") from error

    @property
    def keeps_records(self) -> bool:
        """Whether alleles are told apart as their records write them, not trimmed and left-aligned."""
        return False

    @abstractmethod
    def expand(
        self,
        alleles: pa.Table,
        reference: Reference,
        shapes: Mapping[str, tuple[int, ...]],
        resources: Resources = NO_RESOURCES,
    ) -> Rows:
        """Turns alleles into rows of the ensemble, or a reason.

        Args:
            alleles: Distinct alleles in `tasks.variants.alleles.ALLELE_SCHEMA`.
            reference: The genome.
            shapes: For each input of the ensemble its dimensions without the batch's.
            resources: What the pipeline asked for.
        """

    @abstractmethod
    def collapse(self, num_alleles: int, rows: Rows, outputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Turns the ensemble's answers into one value per allele and field; asked where an allele has no reason.

        Returns:
            For each field an array ``[num_alleles]``; NaN (Float) or None marks a missing value. A field of any number
            of entries is a String, its entries joined by commas.
        """

    def collapse_genes(self, num_alleles: int, rows: Rows, outputs: Mapping[str, NDArray[Any]]) -> GeneValues:
        """Turns the ensemble's answers into a row for each allele and gene; asked of pipelines with `gene_fields`."""
        raise NotImplementedError(f"pipeline {self.name} has gene_fields and does not say their values")

    def as_written(self, text: str, alt: str, shift_bp: int) -> str:
        """A value of a field of any number of entries, for a record that writes its allele in another way.

        Args:
            text: The value of the trimmed and left-aligned allele.
            alt: ALT of the record.
            shift_bp: How far the record's POS lies right of the left-aligned one.
        """
        return text


DEFAULT_PIPELINE = "demo-effect"


@cache
def pipeline_types() -> dict[str, type[Pipeline]]:
    """Every pipeline that can be run, by name: the shipped ones, then those of installed entry points.

    Raises:
        PipelineError: An entry point is no pipeline, or asks for what no run can give.
    """
    from tasks.effect_pipelines import DemoEffect, Pathogenicity
    from tasks.splicing.pipeline import SpliceAi

    types: dict[str, type[Pipeline]] = {kind.name: kind for kind in (DemoEffect, Pathogenicity, SpliceAi)}
    for point in entry_points(group="cohortflow.pipelines"):
        loaded = point.load()
        if not (isinstance(loaded, type) and issubclass(loaded, Pipeline)):
            raise PipelineError(f"entry point {point.name!r} ({point.value}) is not a Pipeline subclass")
        labels = (loaded.labels,) if loaded.labels is not None else ()
        asked = (("unit", (loaded.unit,), UNITS), ("key", (loaded.key,), KEYS), ("labels", labels, LABELS))
        for what, wanted, known in (*asked, ("resource", loaded.resources, RESOURCES)):
            strange = [each for each in wanted if each not in known]
            if strange:
                raise PipelineError(
                    f"pipeline {loaded.name!r} ({point.value}): {what} {strange[0]!r}; this version has "
                    f"{', '.join(known)} only"
                )
        types[loaded.name] = loaded
    return types


def make_pipeline(name: str, options: Mapping[str, Any] | None = None) -> Pipeline:
    """Builds the named pipeline.

    Raises:
        PipelineError: No pipeline of that name, or an option is wrong.
    """
    types = pipeline_types()
    if name not in types:
        raise PipelineError(f"no pipeline {name!r}; there is: {', '.join(types)}", field="pipeline")
    return types[name](options)
