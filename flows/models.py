"""`cohortflow models`: published models, added by one command each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from tasks.published.home import ModelsHome

_OK, _FAILED, _BAD_INPUT, _CANCELLED = 0, 1, 2, 130
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group(
    epilog="Added models live in COHORTFLOW_HOME/models, else ~/.cohortflow/models. Exit codes: 0 done; 2 a name, a "
    "flag, the package or the folder is wrong; 1 it failed; 130 cancelled, and nothing half is left.",
)
def models() -> None:
    """Add published models, and tell which there are."""


@models.command()
@click.argument("name")
@click.option(
    "--accept-licence", is_flag=True, help="You may use it under its licence; needed where that restricts use."
)
@click.option("--package", type=_FILE, metavar="FILE", help="The wheel, already downloaded.")
@click.option(
    "--find-links", multiple=True, metavar="PLACE", help="Folder or page of links that holds it; no index is asked."
)
def add(name: str, accept_licence: bool, package: Path | None, find_links: tuple[str, ...]) -> None:
    """Download the published model NAME, check it, and make a model repository of it.

    Its package is downloaded by pip, alone and at one version, and believed by its SHA-256. Nothing in it is run or
    unpickled. The models are there when they answer as the publication's own tool does, or not at all.
    """
    from tasks.errors import TaskError
    from tasks.published.publication import find_publication

    if package and find_links:
        raise click.UsageError("--package and --find-links: give one of the two")
    try:
        publication = find_publication(name)
        click.echo(f"{name}: {publication.package} {publication.version}, licence {publication.licence}")
        click.echo(f"  {publication.terms}")
        # After what is quick: it imports torch.
        from tasks.published.adding import READERS, add_model

        repository = add_model(
            publication,
            READERS[name],
            _home(),
            is_accepted=accept_licence,
            file=package,
            find_links=find_links,
        )
    except KeyboardInterrupt:
        _end(_CANCELLED, "cancelled; nothing was added")
    except TaskError as error:
        _end(_BAD_INPUT if error.blame == "input" else _FAILED, error.message)
    facts = _home().facts(name)
    assert facts is not None, "it was just added"
    click.echo(f"  {facts['checked']}")
    click.echo(f"  cite: {publication.citation}")
    click.echo(f"{repository}")


@models.command("list")
def list_models() -> None:
    """List the published models, and which were added."""
    from tasks.published.publication import PUBLICATIONS

    home = _home()
    for publication in PUBLICATIONS:
        state = home.repository(publication.name) if home.facts(publication.name) else "not added"
        click.echo(f"{publication.name}: {publication.package} {publication.version}, {publication.licence}: {state}")
        click.echo(f"  {publication.purpose}")


@models.command()
@click.argument("name")
def show(name: str) -> None:
    """Tell what is known of the model NAME; of an added one also its cards, and whether its files are as they were."""
    from tasks.errors import TaskError
    from tasks.published.publication import find_publication

    home = _home()
    try:
        publication = find_publication(name)
    except TaskError as error:
        _end(_BAD_INPUT, error.message)
    click.echo(f"{name}: {publication.purpose}")
    click.echo(f"  package   {publication.file_name}, SHA-256 {publication.sha256}")
    click.echo(f"  licence   {publication.licence}. {publication.terms}")
    click.echo(f"  cite      {publication.citation}")
    facts = home.facts(name)
    if facts is None:
        restricted = " --accept-licence" if publication.is_restricted else ""
        click.echo(f"  not added: cohortflow models add {name}{restricted}")
        return
    click.echo(f"  added     {home.repository(name)}")
    click.echo(f"  checked   {facts['checked']}")
    for card in sorted(home.repository(name).glob("*/MODEL_CARD.md")):
        click.echo(f"  card      {card}")
    if changed := home.changed_files(name):
        _end(
            _BAD_INPUT,
            f"{name}: changed or lost since it was added: {', '.join(changed)}; add it again, or remove it",
        )


@models.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove the added model NAME, and its downloaded package."""
    from tasks.errors import TaskError
    from tasks.published.publication import find_publication

    try:
        _home().remove(find_publication(name))
    except TaskError as error:
        _end(_BAD_INPUT if error.blame == "input" else _FAILED, error.message)
    click.echo(f"{name}: removed")


def _home() -> ModelsHome:
    from flows.parameters import models_home

    return models_home()


def _end(code: int, message: str) -> NoReturn:
    click.echo(f"cohortflow: {message}", err=True)
    sys.exit(code)
