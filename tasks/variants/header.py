"""The header of a VCF: what its ``##`` lines declare, and the header that an output gets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

OWN_SOURCE = "cohortflow"
"""``Source`` of the INFO lines that this program writes, and the key of its other ``##`` lines."""
REASON_ID = "CF_REASON"
REASON_LINE = (
    f'##INFO=<ID={REASON_ID},Number=A,Type=String,Description="Why the allele has no score",Source="{OWN_SOURCE}">'
)
_FILEFORMAT = b"##fileformat="
_DEFAULT_FILEFORMAT = b"##fileformat=VCFv4.2"
_STRUCTURED = re.compile(r"^##(?P<key>[^=]+)=<(?P<body>.*)>\s*$", re.DOTALL)
# A value is quoted, with backslash escapes, or runs to the next comma. Source: VCF 4.3, section 1.4.
_ATTRIBUTE = re.compile(r'\s*(?P<name>[^=,"]+)=(?:"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<plain>[^,]*))\s*(?:,|$)')
_FIXED_COLUMNS = 9


@dataclass(frozen=True, slots=True)
class Declaration:
    """An INFO or FORMAT line.

    Attributes:
        number: ``1``, ``A``, ``R``, ``G``, ``.`` or another count.
        kind: Integer, Float, Flag, Character or String.
        description: Its text, without the escapes of quotes.
    """

    number: str
    kind: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class VariantHeader:
    """What a header says.

    Attributes:
        lines: The ``##`` lines, as they are.
        columns: The ``#CHROM`` line's fields.
        contig_lengths_bp: Declared contigs, in order, and their lengths; None where not stated.
        contig_md5s: Their M5; None where not stated.
        info: INFO declarations by ID.
        formats: FORMAT declarations by ID.
        own_ids: INFO IDs that an earlier run of this program wrote.
    """

    lines: tuple[bytes, ...]
    columns: tuple[str, ...]
    contig_lengths_bp: dict[str, int | None] = field(default_factory=dict)
    contig_md5s: dict[str, str | None] = field(default_factory=dict)
    info: dict[str, Declaration] = field(default_factory=dict)
    formats: dict[str, Declaration] = field(default_factory=dict)
    own_ids: frozenset[str] = frozenset()

    def foreign_ids(self, replaced_ids: Collection[str]) -> list[str]:
        """Those of `replaced_ids` that the header declares without being ours: another program's INFO fields."""
        return [name for name in self.info if name in replaced_ids and name not in self.own_ids]

    @property
    def samples(self) -> tuple[str, ...]:
        """Names of the samples, in the columns' order."""
        return self.columns[_FIXED_COLUMNS:]


def parse_header(lines: Sequence[bytes]) -> VariantHeader:
    """Reads header lines, ``#CHROM`` last; a line that is not understood is kept and declares nothing."""
    lengths_bp: dict[str, int | None] = {}
    md5s: dict[str, str | None] = {}
    info: dict[str, Declaration] = {}
    formats: dict[str, Declaration] = {}
    own_ids = set()
    for line in lines[:-1]:
        key, attributes = _structured(line)
        name = attributes.get("ID")
        if name is None:
            continue
        if key == "contig" and name not in lengths_bp:
            length = attributes.get("length", "").strip()
            lengths_bp[name] = int(length) if length.isascii() and length.isdigit() else None
            md5s[name] = attributes.get("md5", attributes.get("M5", attributes.get("MD5"))) or None
        elif key in ("INFO", "FORMAT"):
            text = re.sub(r"\\(.)", r"\1", attributes.get("Description", ""))
            declaration = Declaration(attributes.get("Number", "."), attributes.get("Type", "String"), text)
            (info if key == "INFO" else formats).setdefault(name, declaration)
            if key == "INFO" and attributes.get("Source") == OWN_SOURCE:
                own_ids.add(name)
    return VariantHeader(
        lines=tuple(lines[:-1]),
        columns=tuple(column.decode(errors="replace") for column in lines[-1].split(b"\t")),
        contig_lengths_bp=lengths_bp,
        contig_md5s=md5s,
        info=info,
        formats=formats,
        own_ids=frozenset(own_ids),
    )


def output_header(
    header: VariantHeader,
    own_lines: Sequence[str],
    replaced_ids: Collection[str],
    contigs: Mapping[str, int | None],
    column_line: bytes,
) -> tuple[bytes, dict[str, int]]:
    """Writes the header of an output.

    The input's lines stay as they are, but for those that an earlier run of this program wrote; a missing
    ``##fileformat`` and missing ``##contig`` lines are added.

    Args:
        header: The input's.
        own_lines: ``##`` lines of this run, put last.
        replaced_ids: INFO IDs whose old declarations are left out.
        contigs: Contigs that records lie on, and their lengths in bases where known.
        column_line: The ``#CHROM`` line.

    Returns:
        The header's text, and the number of lines added by kind: ``fileformat``, ``contig``.
    """
    kept = [line for line in header.lines if not _is_own(line, replaced_ids)]
    repairs = {}
    first = next((line for line in kept if line.startswith(_FILEFORMAT)), None)
    if first is None or kept[0] != first:
        kept = [first or _DEFAULT_FILEFORMAT, *(line for line in kept if line is not first)]
        repairs["fileformat"] = 1
    missing = {name: length_bp for name, length_bp in contigs.items() if name not in header.contig_lengths_bp}
    if missing:
        repairs["contig"] = len(missing)
    for name, length_bp in missing.items():
        kept.append(f"##contig=<ID={name}{'' if length_bp is None else f',length={length_bp}'}>".encode())
    kept.extend(line.encode() for line in own_lines)
    return b"\n".join([*kept, column_line, b""]), repairs


def _structured(line: bytes) -> tuple[str, dict[str, str]]:
    """Key and attributes of ``##key=<name=value,...>``; no attributes if the line is of another form."""
    match = _STRUCTURED.match(line.decode(errors="replace"))
    if match is None:
        return "", {}
    attributes: dict[str, str] = {}
    for found in _ATTRIBUTE.finditer(match["body"]):
        value = found["quoted"] if found["quoted"] is not None else found["plain"]
        attributes.setdefault(found["name"].strip(), value)
    return match["key"], attributes


def _is_own(line: bytes, replaced_ids: Collection[str]) -> bool:
    if line.startswith(f"##{OWN_SOURCE}=".encode()):
        return True
    key, attributes = _structured(line)
    return key == "INFO" and (attributes.get("ID") in replaced_ids or attributes.get("Source") == OWN_SOURCE)
