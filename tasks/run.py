"""A run as its units of work see it: the folder, the plan, and where the inputs are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tasks.annotations.source import AnnotationSource
from tasks.coverage.exons import load_exons
from tasks.coverage.targets import Targets, read_targets
from tasks.files import read_json, write_json
from tasks.folder import RunFolder
from tasks.genome.reference import Reference, load_reference
from tasks.genome.regions import Regions, read_bed
from tasks.pipelines import Pipeline, Resources, make_pipeline
from tasks.plan import Plan, read_plan
from tasks.splicing.transcripts import load_transcripts

CALLER = "reads"
"""The ensemble that turns pileups into genotypes."""
READ_EMBEDDER = "read_embedder"
"""The embedder as a model that reads whole reads, step by step."""


@dataclass(frozen=True)
class Run:
    """One run, the same in every process.

    Attributes:
        folder: Its output folder.
        plan: What it computes.
        settings: Where inputs are and how work is done: nothing that changes an output.
    """

    folder: RunFolder
    plan: Plan
    settings: dict[str, Any]

    @cached_property
    def reference(self) -> Reference:
        """The genome, its tokens mapped into memory."""
        return load_reference(self.folder.reference)

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline with its options."""
        recipe = self.plan.recipe["pipeline"]
        return make_pipeline(recipe["name"], recipe["options"])

    @cached_property
    def resources(self) -> Resources:
        """What the pipeline asked for beside the reference."""
        asked = self.pipeline.resources
        return Resources(
            genes=load_exons(self.folder.exons) if "genes" in asked else None,
            transcripts=load_transcripts(self.folder.transcripts) if "transcripts" in asked else None,
        )

    @cached_property
    def annotations(self) -> tuple[AnnotationSource, ...]:
        """The annotation files that are joined to the cohort's alleles."""
        paths = self.settings.get("annotations", {})
        recipes = self.plan.recipe.get("annotations", [])
        return tuple(AnnotationSource.from_json(recipe, Path(paths[recipe["name"]])) for recipe in recipes)

    @property
    def with_gvcf(self) -> bool:
        """Whether samples with reads get a genomic VCF."""
        return bool(self.plan.recipe.get("gvcf", False))

    def num_embedded(self, sample_id: str) -> int:
        """How many of a sample's reads are embedded, at most; 0: none."""
        return int(self.plan.samples[sample_id].get("embed_reads", 0))

    def sample(self, sample_id: str) -> dict[str, Any]:
        """Where a sample's inputs are: the sheet's row as JSON values."""
        entry: dict[str, Any] = self.settings["samples"][sample_id]
        return entry

    def bed(self, sample_id: str) -> Path | None:
        """The file of the places a sample's work keeps to: its own BED, else the run's, else None."""
        path = self.sample(sample_id)["regions"] or self.settings["regions"]
        return Path(path) if path else None

    def regions(self, sample_id: str) -> Regions | None:
        """The places a sample's work keeps to; None for everywhere."""
        path = self.bed(sample_id)
        if path is None:
            return None
        return _read_regions(path, path.stat().st_mtime_ns, self.folder.reference, self.plan.recipe["padding_bp"])

    def targets(self, sample_id: str) -> Targets | None:
        """The same places as single targets, without padding, with their genes."""
        path = self.bed(sample_id)
        if path is None:
            return None
        names_regions = self.plan.recipe["genes"] and "transcripts" not in self.pipeline.resources
        exons = self.folder.exons if names_regions else None
        return _read_targets(path, path.stat().st_mtime_ns, self.folder.reference, exons)

    def facts(self, sample_id: str) -> dict[str, str]:
        """What made a sample's outputs, as they state it."""
        return {
            "Version": self.plan.recipe["version"],
            "Plan": self.plan.sample_digest(sample_id),
            **self._common_facts(self.plan.sample_models(sample_id)),
        }

    def cohort_facts(self) -> dict[str, str]:
        """What made the cohort's scores; they depend on no sample, so neither does this."""
        return {"Version": self.plan.recipe["version"], **self._common_facts(self.plan.recipe["models"])}

    def _common_facts(self, models: dict[str, dict[str, Any]]) -> dict[str, str]:
        recipe = self.plan.recipe
        return {
            "Pipeline": recipe["pipeline"]["name"],
            "Models": ",".join(f"{name}:{each['version']}:{each['digest'][:16]}" for name, each in models.items()),
            "Build": recipe["reference"]["build"] or "unknown",
            "Reference": recipe["reference"]["digest"],
        }

    def header_lines(self, sample_id: str) -> Sequence[str]:
        """The ``##`` lines that tell where an output comes from."""
        facts = self.facts(sample_id)
        facts["Models"] = f'"{facts["Models"]}"'
        return (f"##cohortflow=<{','.join(f'{key}={value}' for key, value in facts.items())}>",)


def write_run(folder: RunFolder, plan: Plan, settings: dict[str, Any]) -> Run:
    """Puts a run's plan and settings where its units of work find them."""
    write_json(folder.settings, settings)
    plan.write(folder.plan)
    return Run(folder, plan, settings)


def load_run(root: str) -> Run:
    """The run of an output folder, kept between the units of one worker."""
    folder = RunFolder(Path(root))
    return _load(root, folder.plan.stat().st_mtime_ns, folder.settings.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _load(root: str, plan_changed_ns: int, settings_changed_ns: int) -> Run:
    folder = RunFolder(Path(root))
    plan = read_plan(folder.plan)
    assert plan is not None
    return Run(folder, plan, read_json(folder.settings))


# A worker meets the same BED in every unit of work; an exome's takes half a second to read.
@lru_cache(maxsize=4)
def _read_regions(path: Path, changed_ns: int, reference_folder: Path, padding_bp: int) -> Regions:
    return read_bed(path, load_reference(reference_folder), padding_bp)


@lru_cache(maxsize=4)
def _read_targets(path: Path, changed_ns: int, reference_folder: Path, exons: Path | None) -> Targets:
    return read_targets(path, load_reference(reference_folder), load_exons(exons) if exons else None)
