"""`cohortflow audit`: whether the record of what was done holds, and what it tells of one result."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from tasks.audit.anchors import Anchor

_OK, _DOES_NOT_HOLD, _BAD_INPUT = 0, 1, 2
_EXIT_CODES = "Exit codes: 0 it holds; 1 it does not, each fault is named; 2 there is no record, or no such run."
_RECORD = click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The record  [default: COHORTFLOW_AUDIT, else audit/record.jsonl in COHORTFLOW_HOME or ~/.cohortflow]",
)


@click.group(short_help="Check and read the record of what was done.")
def audit() -> None:
    """Check and read the append-only record that every run leaves."""


@audit.command(epilog=_EXIT_CODES)
@click.argument("runs", nargs=-1, metavar="[FOLDER]...", type=click.Path(path_type=Path, exists=True, file_okay=False))
@_RECORD
def verify(runs: tuple[Path, ...], record: Path | None) -> None:
    """Check that no line of the record was changed, removed or moved.

    The manifests of the runs that the record names are compared with it where they still are; those in each FOLDER too,
    whatever the record says. Name folders of your own choice: a record that was rewritten as a whole names none that
    would contradict it.
    """
    from flows.audit_record import record_path
    from tasks.audit.verification import verify as verify_record
    from tasks.errors import TaskError

    try:
        found = verify_record(record or record_path(), [_anchor(folder) for folder in runs])
    except TaskError as error:
        _end(error.message)
    for line in found.lines():
        click.echo(line)
    sys.exit(_DOES_NOT_HOLD if found.faults else _OK)


@audit.command(epilog=_EXIT_CODES)
@click.argument("run")
@_RECORD
def show(run: str, record: Path | None) -> None:
    """Tell the whole story of RUN: an output folder, or the id of a run.

    Which inputs, models and files, by their digests; who did it; what the record says of the models; and whether the
    delivered files are still those that were recorded.
    """
    from flows.audit_record import record_path
    from tasks.audit.anchors import read_anchor
    from tasks.audit.story import tell_story
    from tasks.audit.verification import verify as verify_record
    from tasks.errors import TaskError

    try:
        anchor = read_anchor(Path(run)) if Path(run).is_dir() else None
        found = verify_record(record or record_path(), [anchor] if anchor else [])
        if found.faults:
            click.echo("\n".join(found.lines()))
        story = tell_story(found.events, run, anchor)
    except TaskError as error:
        _end(error.message)
    for line in (*story.lines, *([] if found.faults else found.lines())):
        click.echo(line)
    sys.exit(_DOES_NOT_HOLD if found.faults or story.faults else _OK)


def _anchor(folder: Path) -> Anchor:
    """The anchor in a folder that the user named: one without is not passed over.

    Raises:
        AuditError: It has none.
    """
    from tasks.audit.anchors import read_anchor
    from tasks.errors import AuditError

    anchor = read_anchor(folder)
    if anchor is None:
        raise AuditError(f"{folder}: has no manifest: no run is over there")
    return anchor


def _end(message: str) -> NoReturn:
    click.echo(f"cohortflow: {message}", err=True)
    sys.exit(_BAD_INPUT)
