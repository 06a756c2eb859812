"""What the values of a sample sheet may be."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Literal

Kind = Literal["vcf", "bam", "cram", "fastq"]
Sex = Literal["XX", "XY", "NA"]

MAX_ID_CHARACTERS = 128
_SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
# Names that some file systems keep for devices, with any extension.
_RESERVED_ID = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.I)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SEXES: dict[str, Sex] = {
    **dict.fromkeys(("xx", "female", "f", "2"), "XX"),
    **dict.fromkeys(("xy", "male", "m", "1"), "XY"),
    **dict.fromkeys(("na", "n/a", "nan", "0", "other", "unknown", "unk", "u", "."), "NA"),
}
_STATUSES = {
    **dict.fromkeys(("0", "normal", "germline"), 0),
    **dict.fromkeys(("1", "tumor", "tumour"), 1),
}
AMPLICON = "amplicon"
_ANSWERS = {
    **dict.fromkeys(("true", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "no", "n", "0", ""), False),
}
# File name endings by the column they belong in.
_ENDINGS = {
    "vcf": (".vcf", ".vcf.gz", ".vcf.bgz", ".bcf"),
    "bam": (".bam", ".sam"),
    "cram": (".cram",),
    "fastq_1": (".fastq", ".fq", ".fastq.gz", ".fq.gz", ".fastq.bgz", ".fq.bgz"),
    "bai": (".bai", ".csi"),
    "crai": (".crai",),
    "regions": (".bed", ".bed.gz"),
}


def id_fault(value: str) -> str | None:
    """Says why a sample id is not safe as a file name, and offers one that is; None for a safe one."""
    if _SAFE_ID.fullmatch(value) and not value.endswith(".") and len(value) <= MAX_ID_CHARACTERS:
        if _RESERVED_ID.fullmatch(value):
            return f"a name that some systems keep for devices; write e.g. {value}_1"
        return None
    if len(value) > MAX_ID_CHARACTERS:
        return f"longer than {MAX_ID_CHARACTERS} characters; it becomes a file name"
    offer = re.sub(r"[^A-Za-z0-9_.+-]+", "_", value).strip(".-")
    return (
        "becomes a file name: letters, digits, _ . + - only, and neither . nor - first nor . last"
        f"{f'; write e.g. {offer}' if offer.strip('_') else ''}"
    )


def parse_sex(value: str) -> Sex | None:
    """Reads a sex as sarek (XX, XY, NA), PED (1, 2, 0) or people write it; None where it is none of them."""
    return _SEXES.get(value.lower())


def names_sex(value: str) -> bool:
    """Whether a value can hardly be anything but a sex, as ``XX`` and ``male`` are, and the numbers of PED are not."""
    return value.isalpha() and parse_sex(value) in ("XX", "XY")


def parse_status(value: str) -> int | None:
    """Reads sarek's status: 0 normal, 1 tumour; None where it is neither."""
    return _STATUSES.get(value.lower())


def is_amplicon(value: str) -> bool:
    """Whether a protocol is nf-core/viralrecon's ``amplicon``; a lab's own words for others say nothing."""
    return value.lower() == AMPLICON


def protocol_fault(value: str) -> str | None:
    """Says why a protocol may be a misspelt ``amplicon``; None for any other text."""
    if not is_amplicon(value) and "amplic" in value.lower():
        return f"write {AMPLICON} for amplicons, which have no duplicates marked; leave it empty for other libraries"
    return text_fault(value)


def parse_answer(value: str) -> bool | None:
    """Reads a yes or no; None where it is neither."""
    return _ANSWERS.get(value.lower())


def text_fault(value: str) -> str | None:
    """Says why a text cannot go into file headers; None for one that can."""
    return "has a line end or another control character" if not value.isprintable() else None


def path_fault(column: str, value: str, folder: Path) -> str | None:
    """Says why a value is not a readable file for its column; None where it is one.

    Args:
        column: The sheet's column.
        value: The value as it stands there.
        folder: What relative paths start from.
    """
    if _URL.match(value):
        return "a URL; download the file and give its path (this program fetches nothing)"
    if not value.isprintable():
        return "a path with a line end or another control character"
    belongs = column_of(value)
    if belongs is not None and belongs != column and not (column == "fastq_2" and belongs == "fastq_1"):
        return f"by its ending this belongs in column {belongs}"
    path = sheet_path(value, folder)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path == Path(value):
            return "no such file"
        hint = "; ~ and variables are not expanded" if value.startswith(("~", "$")) else ""
        return f"no such file: {path} (relative paths start from the sheet's folder{hint})"
    except OSError as error:
        return f"cannot be read: {error.strerror}: {path}"
    if stat.S_ISDIR(mode):
        return f"a folder: {path}; give the file itself"
    if not stat.S_ISREG(mode):
        return f"not a regular file: {path}; inputs are read more than once"
    if not os.access(path, os.R_OK):
        return f"cannot be read by this user: {path}"
    return None


def sheet_path(value: str, folder: Path) -> Path:
    """The absolute path of a sheet's value; symbolic links stay as they are, but those that ``..`` leads back over."""
    path = Path(os.path.abspath(folder)) / value
    return Path(os.path.realpath(path.parent)) / path.name if ".." in path.parts else path


def column_of(value: str) -> str | None:
    """The column that a file belongs in by its name's ending; None where that says nothing."""
    lower = value.lower()
    return next((column for column, endings in _ENDINGS.items() if lower.endswith(endings)), None)
