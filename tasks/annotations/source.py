"""An annotation file as a run uses it: its fields as the header declares them, and a check that it fits the genome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tasks.annotations.request import AnnotationError, AnnotationRequest
from tasks.genome.header_check import check_header_contigs
from tasks.genome.reference import Reference
from tasks.pipelines import OutputField
from tasks.variants.binary import as_text, is_bcf
from tasks.variants.header import OWN_SOURCE, Declaration, VariantHeader, parse_header
from tasks.variants.records import RecordReader
from tasks.variants.scanning import ScanCounts
from tasks.variants.text import VariantText

_NAMES_SHOWN = 40
_PER_ALLELE = ("A", "R")
Kind = Literal["Float", "Integer", "String"]


@dataclass(frozen=True, slots=True)
class JoinedField:
    """A field of an annotation file and what becomes of it.

    Attributes:
        id: Its INFO ID in the file.
        number: Its Number there.
        is_flag: Whether it is a Flag.
        output: The field that is written.
    """

    id: str
    number: str
    is_flag: bool
    output: OutputField

    @property
    def is_per_allele(self) -> bool:
        """Whether the file holds one value for each allele."""
        return self.number in _PER_ALLELE


@dataclass(frozen=True, slots=True)
class AnnotationSource:
    """One annotation of a run.

    Attributes:
        name: As in its request.
        path: Where its file is.
        digest: SHA-256 of the file.
        fields: What is taken from it.
    """

    name: str
    path: Path
    digest: str
    fields: tuple[JoinedField, ...]

    @property
    def outputs(self) -> tuple[OutputField, ...]:
        """The fields that are written."""
        return tuple(field.output for field in self.fields)

    @property
    def header_lines(self) -> list[str]:
        """Their ``##INFO`` lines, which name the file by its digest."""
        return [
            f'{output.header_line[:-1]},Source="{OWN_SOURCE}",Version="sha256:{self.digest}">'
            for output in self.outputs
        ]

    def to_json(self) -> dict[str, Any]:
        """What decides its outputs, as JSON values."""
        fields = [
            {
                "id": field.id,
                "number": field.number,
                "is_flag": field.is_flag,
                "kind": field.output.kind,
                "description": field.output.description,
            }
            for field in self.fields
        ]
        return {"name": self.name, "digest": self.digest, "fields": fields}

    @classmethod
    def from_json(cls, value: dict[str, Any], path: Path) -> AnnotationSource:
        """The source that `to_json` described, its file at `path`."""
        fields = tuple(
            JoinedField(
                field["id"],
                field["number"],
                field["is_flag"],
                OutputField(f"{value['name']}_{field['id']}", field["kind"], "A", field["description"]),
            )
            for field in value["fields"]
        )
        return cls(value["name"], path, value["digest"], fields)


def open_source(request: AnnotationRequest, reference: Reference, scratch: Path) -> tuple[JoinedField, ...]:
    """Finds the wanted fields in the file's header, and checks header and first records beside the genome.

    Args:
        request: File and fields.
        reference: The genome.
        scratch: Folder for a BCF's header as text.

    Raises:
        AnnotationError: The header does not declare a field; the message names those it does.
        VariantFileError: The file is not a whole VCF or BCF.
        ReferenceError: It was made with another reference.
    """
    what = f"annotation {request.name} ({request.path.name})"
    with as_text(request.path, scratch, header_only=True) as text:
        reader = RecordReader(text, reference)
        header = reader.header
        missing = [field for field in request.fields if field not in header.info]
        if missing:
            there = ", ".join(sorted(header.info)[:_NAMES_SHOWN]) + ", ..." * (len(header.info) > _NAMES_SHOWN)
            raise AnnotationError(
                f"{what}: its header declares no INFO {', '.join(missing)}; it declares {there or 'none'}",
                field="annotate",
                reason="NO_SUCH_FIELD",
            )
        names = list(header.contig_lengths_bp)
        if names:
            lengths_bp = [header.contig_lengths_bp[name] for name in names]
            md5s = [header.contig_md5s[name] for name in names]
            check_header_contigs(what, names, lengths_bp, md5s, [None] * len(names), reference)
        counts = ScanCounts()
        for block in reader.blocks():
            counts.add(block)
            break
        counts.check(what, request.path)
    return tuple(_joined(request, name, header.info[name]) for name in request.fields)


def _joined(request: AnnotationRequest, name: str, declared: Declaration) -> JoinedField:
    is_flag = declared.kind == "Flag"
    kind: Kind = "String"
    if is_flag:
        kind = "Integer"
    elif declared.number in (*_PER_ALLELE, "1"):
        kind = "Float" if declared.kind == "Float" else "Integer" if declared.kind == "Integer" else "String"
    remark = " (flag: 1 set, 0 not set)" if is_flag else ""
    output = OutputField(request.output_id(name), kind, "A", f"{declared.description}{remark}")
    return JoinedField(name, declared.number, is_flag, output)


def check_free(what: str, header: VariantHeader, outputs: Iterable[OutputField]) -> None:
    """Refuses to overwrite fields that an input has from elsewhere.

    Raises:
        AnnotationError: The input's header declares a field that this run would write, and no run of ours wrote it.
    """
    there = header.info.keys() - header.own_ids
    taken = [output.name for output in outputs if output.name in there]
    if taken:
        raise AnnotationError(
            f"{what}: has INFO {', '.join(taken)} already, not from this program; give the annotation another name",
            field="annotate",
            reason="FIELD_EXISTS",
        )


def check_inputs_free(paths: Sequence[Path], outputs: Sequence[OutputField]) -> None:
    """`check_free` for the inputs whose headers can be read at once; the others' are checked with their records.

    Raises:
        AnnotationError: An input has such a field.
    """
    for path in paths:
        if outputs and path.is_file() and not is_bcf(path):
            try:
                header = parse_header(VariantText(path).header)
            except Exception:  # noqa: S112 - what is wrong with an input is its sample's fault, told with it
                continue
            check_free(str(path), header, outputs)
