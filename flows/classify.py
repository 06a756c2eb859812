"""`cohortflow classify`: what organisms contigs and long reads are from."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

_FAILED, _BAD_INPUT, _CANCELLED = 1, 2, 130


@click.command(
    short_help="Tell what organisms contigs and long reads are from.",
    epilog="Exit codes: 0 done; 2 a file, a flag or a missing model is wrong; 1 it failed; 130 cancelled.",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder for tables and report.")
@click.option("--embed", metavar="ENVIRONMENT", help="Add SemiBin's embedding, such as human-gut or global.")
@click.option("--threads", type=click.IntRange(1, 1024), help="CPU threads  [default: all cores]")
def classify(files: tuple[Path, ...], output: Path, embed: str | None, threads: int | None) -> None:
    """Tell what organisms the sequences of FILES (FASTA or FASTQ, plain or gzip) are from.

    Needs `cohortflow models add tiara`. Each file is a sample: SAMPLE.origins.parquet has a row for each sequence,
    report.html and origins.json the shares. Sequences under 3,000 bases are counted as too short to tell.
    """
    from flows.prefect_server import home, prefect_api, wait_until_healthy
    from tasks.errors import TaskError

    os.umask(0o077)
    try:
        with prefect_api() as url:
            from flows.classify_sequences import check_models_added, classify_sequences
            from tasks.origins.telling import sample_ids
            from tasks.published.home import ModelsHome

            models = home() / "models"
            sample_ids(list(files))
            check_models_added(ModelsHome(models), embed)
            wait_until_healthy(url)
            counts = classify_sequences(
                [path.resolve() for path in files],
                output.resolve(),
                models,
                embed,
                threads or os.cpu_count() or 1,
            )
    except KeyboardInterrupt:
        _end(_CANCELLED, "cancelled; origins.json was not written")
    except TaskError as error:
        _end(_BAD_INPUT if error.blame == "input" else _FAILED, error.message)
    for sample, found in counts.items():
        told = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in found["sequences"].items() if count)
        click.echo(f"{sample}: {told}")
    click.echo(f"  {output / 'report.html'}")


def _end(code: int, message: str) -> NoReturn:
    click.echo(f"cohortflow: {message}", err=True)
    sys.exit(code)
