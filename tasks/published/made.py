"""A model made from a publication, before it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.files import make_folder
from tasks.published.publication import Publication

_CARD = """\
# {name}

{description}

## Source

{package} {version}, {file_name}, SHA-256 {sha256}. The weights were read from that file without running or unpickling
anything of it.

{citation}

## Check

{checked}

## Licence

{licence}. {terms}
"""


@dataclass(frozen=True, slots=True)
class MadeModel:
    """One model of a repository.

    Attributes:
        name: Its folder.
        config: Its config.pbtxt.
        files: The files of version 1, by name.
        description: What goes in, what comes out, what to know: Markdown for its card.
        resources: Files beside its version that pipelines read, by name.
    """

    name: str
    config: str
    files: Mapping[str, bytes]
    description: str
    resources: Mapping[str, bytes]

    def write(self, repository: Path) -> None:
        """Writes the model to a repository, but for its card."""
        folder = repository / self.name
        make_folder(folder / "1")
        (folder / "config.pbtxt").write_text(self.config)
        for name, content in self.files.items():
            (folder / "1" / name).write_bytes(content)
        for name, content in self.resources.items():
            (folder / name).write_bytes(content)

    def write_card(self, repository: Path, publication: Publication, checked: str) -> None:
        """Writes the model's card, which says where it is from and how it was checked."""
        card = _CARD.format(
            name=self.name,
            description=self.description,
            package=publication.package,
            version=publication.version,
            file_name=publication.file_name,
            sha256=publication.sha256,
            citation=publication.citation,
            checked=checked,
            licence=publication.licence,
            terms=publication.terms,
        )
        (repository / self.name / "MODEL_CARD.md").write_text(card)
