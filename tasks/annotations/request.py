"""What a user asks to join: ``NAME=FILE.vcf.gz:FIELD,FIELD``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import InputError

_FORM = "NAME=FILE.vcf.gz:FIELD,FIELD"
# Source: VCF 4.3, section 1.6.1 (INFO keys).
_ID = re.compile(r"[A-Za-z_][0-9A-Za-z_.]*")
_RESERVED = ("CF", "INFO", "FORMAT", "CSQ", "ANN")
"""First parts of names that the outputs use for other things."""


class AnnotationError(InputError):
    """An annotation cannot be joined: the request is wrong, or its file does not have what is asked for."""

    default_reason = "BAD_ANNOTATION"


@dataclass(frozen=True, slots=True)
class AnnotationRequest:
    """One file and the fields that are wanted of it.

    Attributes:
        name: Stands before each field's name in the outputs.
        path: VCF or BCF.
        fields: INFO IDs of the file.
    """

    name: str
    path: Path
    fields: tuple[str, ...]

    def output_id(self, field: str) -> str:
        """The INFO ID and column that a field of the file gets in the outputs."""
        return f"{self.name}_{field}"


def parse_requests(texts: Iterable[str], taken: Sequence[str] = ()) -> tuple[AnnotationRequest, ...]:
    """Reads requests and checks that their names can be written.

    Args:
        texts: ``NAME=FILE:FIELD,...`` each.
        taken: INFO IDs that the run writes already.

    Raises:
        AnnotationError: One of them is not of that form, its file is not there, or names collide.
    """
    requests: list[AnnotationRequest] = []
    owners = dict.fromkeys(taken, "the pipeline")
    for text in texts:
        request = _parse(text)
        if request.name in (other.name for other in requests):
            raise _wrong(text, f"the name {request.name!r} is given twice; give each file a name of its own")
        requests.append(request)
        for field in request.fields:
            name = request.output_id(field)
            if name in owners:
                raise _wrong(text, f"{name} is written by {owners[name]} already; choose another name")
            owners[name] = f"annotation {request.name}"
    return tuple(requests)


def _parse(text: str) -> AnnotationRequest:
    name, equals, rest = text.partition("=")
    path, colon, fields = rest.rpartition(":")
    if not (equals and colon and path):
        raise _wrong(text, f"must be {_FORM}")
    if not _ID.fullmatch(name):
        raise _wrong(text, f"{name!r} cannot begin an INFO ID: letters, digits, _ and ., not a digit first")
    if name.split("_")[0] in _RESERVED:
        raise _wrong(text, f"names that begin with {', '.join(_RESERVED)} are used by other columns; choose another")
    wanted = tuple(dict.fromkeys(field.strip() for field in fields.split(",")))
    bad = [field for field in wanted if not re.fullmatch(r"[0-9A-Za-z_.]+", field)]
    if bad:
        raise _wrong(text, f"{bad[0]!r} is no INFO ID; after the last colon stand the wanted fields: {_FORM}")
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise _wrong(text, f"{path}: no such file")
    return AnnotationRequest(name, file, wanted)


def _wrong(text: str, what: str) -> AnnotationError:
    return AnnotationError(f"annotation {text!r}: {what}", field="annotate")
