"""What organisms contigs and long reads are from: a Prefect flow with a task for each file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from serving.server import ModelServer
from tasks.errors import InputError
from tasks.files import make_folder, write_json
from tasks.origins.report import write_report
from tasks.origins.telling import sample_ids, tell_origins
from tasks.published.home import ModelsHome
from tasks.published.publication import find_publication

CLASSIFIER, EMBEDDER = "tiara", "semibin"


def check_models_added(home: ModelsHome, environment: str | None) -> None:
    """Refuses to begin without the models.

    Raises:
        InputError: A publication was not added, or has no model for that environment.
    """
    for name in (CLASSIFIER, *([EMBEDDER] if environment else [])):
        if home.facts(name) is None:
            raise InputError(f"the models of {name} are needed: cohortflow models add {name}", field="models")
    if environment and not (home.repository(EMBEDDER) / _embedder(environment)).is_dir():
        known = sorted(path.parent.name.removeprefix(f"{EMBEDDER}-") for path in _cards(home))
        raise InputError(f"--embed {environment}: there is {', '.join(known)}", field="embed")


@flow(name="classify-sequences", persist_result=False)
def classify_sequences(
    files: list[Path], output: Path, home: Path, environment: str | None = None, threads: int = 1
) -> dict[str, Any]:
    """Tells the sequences of every file apart.

    Args:
        files: FASTA or FASTQ of contigs or long reads, each a sample.
        output: Folder of the tables (`SAMPLE.origins.parquet`), `report.html`, and `origins.json`, written last.
        home: Where models were added.
        environment: Of the SemiBin model that embeds the sequences too; None: none.
        threads: CPU threads of an execution.

    Returns:
        For each sample its numbers of sequences and bases by class.

    Raises:
        InputError: A file is wrong, or models are missing.
    """
    models = ModelsHome(home)
    check_models_added(models, environment)
    samples = sample_ids(files)
    make_folder(output)
    (output / "origins.json").unlink(missing_ok=True)
    counts: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        classes = stack.enter_context(ModelServer(models.repository(CLASSIFIER), threads=threads))
        embeddings = None
        if environment:
            name = _embedder(environment)
            repository = models.repository(EMBEDDER)
            embeddings = (stack.enter_context(ModelServer(repository, threads=threads, models=[name])), name)
        for sample, path in samples.items():
            counts[sample] = _tell.with_options(name=f"classify {sample}")(
                path, output / f"{sample}.origins.parquet", classes, embeddings
            )
        asked = [(classes, model) for model in ("tiara-first", "tiara-second")] + ([embeddings] if embeddings else [])
        digests = {model: server.digest(model) for server, model in asked}
    write_report(output / "report.html", counts, find_publication(CLASSIFIER).version)
    write_json(output / "origins.json", {"samples": counts, "models": digests})
    return counts


@task(cache_policy=NO_CACHE, persist_result=False)
def _tell(path: Path, table: Path, classes: ModelServer, embeddings: tuple[ModelServer, str] | None) -> dict[str, Any]:
    return tell_origins(path, table, classes, embeddings)


def _embedder(environment: str) -> str:
    return f"{EMBEDDER}-{environment}"


def _cards(home: ModelsHome) -> list[Path]:
    return list(home.repository(EMBEDDER).glob(f"{EMBEDDER}-*/MODEL_CARD.md"))
