"""Which alignment format a file is, whether it is whole, and what its header says."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pysam

from tasks.bgzf import EOF_BLOCK, GZIP_MAGIC, HEADER_BYTES, block_bytes
from tasks.errors import AlignmentError
from tasks.quoting import quoted
from tasks.stand_ins import stand_in

Kind = Literal["bam", "cram", "sam"]

# Source: CRAM 3.1, section 9 (end of file marker), for major version 3 and for 2.1; 2.0 has none.
_CRAM_END = {
    3: bytes.fromhex("0f000000ffffffff0fe0454f4600000000010005bdd94f0001000606010001000100ee63014b"),
    2: bytes.fromhex("0b000000ffffffff0fe0454f460000000001000001000606010001000100"),
}
_CRAM_MAJORS = (2, 3)
_SAM_TAGS = (b"@HD\t", b"@SQ\t", b"@RG\t", b"@PG\t", b"@CO\t")
_SAM_FIELDS = 11
_LONG_PLATFORMS = frozenset({"ONT", "PACBIO"})
_DEAD_PROXY = "http://127.0.0.1:9"  # the discard port: nothing listens


@dataclass(frozen=True, slots=True)
class AlignmentHeader:
    """What a header says.

    Attributes:
        names: Contigs, in the file's order.
        lengths_bp: Their lengths.
        md5s: Their M5; None where not stated.
        read_groups: ``id``, ``sample`` and ``platform`` of each read group; empty strings where not stated.
    """

    names: tuple[str, ...]
    lengths_bp: tuple[int, ...]
    md5s: tuple[str | None, ...]
    read_groups: tuple[dict[str, str], ...]

    @property
    def has_long_platform(self) -> bool:
        """Whether a read group was sequenced by Nanopore or PacBio. Source: SAM v1, section 1.3, @RG PL."""
        return any(group["platform"].upper() in _LONG_PLATFORMS for group in self.read_groups)


def recognise_kind(path: Path) -> Kind:
    """Tells BAM, CRAM and SAM (plain or gzip) apart by content, and checks that BAM and CRAM have their end marker.

    Raises:
        AlignmentError: None of them, not readable, or cut off.
    """
    try:
        size_bytes = path.stat().st_size
        with open(path, "rb") as handle:
            head = handle.read(1 << 16)
            handle.seek(max(0, size_bytes - 64))
            end = handle.read()
    except OSError as error:
        raise AlignmentError(f"{path}: cannot be read: {error.strerror}", reason="UNREADABLE") from error
    if not head:
        raise AlignmentError(f"{path}: the file is empty", reason="EMPTY_FILE")
    if head.startswith(b"CRAM"):
        _check_cram_end(path, head, end)
        return "cram"
    text = head
    if head.startswith(GZIP_MAGIC):
        try:
            text = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head, 1 << 12)
        except zlib.error as error:
            raise AlignmentError(f"{path}: damaged gzip data at its start: {error}") from error
        if text.startswith(b"BAM\x01"):
            if block_bytes(head[:HEADER_BYTES]) is None:
                raise AlignmentError(f"{path}: BAM in gzip without blocks; rewrite it by samtools view -b")
            if not end.endswith(EOF_BLOCK):
                raise _cut_off(path)
            return "bam"
    if text.startswith(_SAM_TAGS):
        return "sam"
    if what := stand_in(text):
        raise AlignmentError(f"{path}: not BAM, CRAM or SAM: this is {what}", reason="NOT_ALIGNMENT")
    first = text.split(b"\n", 1)[0]
    if first.count(b"\t") >= _SAM_FIELDS - 1:
        raise AlignmentError(
            f"{path}: SAM without a header: no @SQ lines name the contigs; put them back (samtools view -t REF.fai)",
            reason="NO_CONTIGS",
        )
    raise AlignmentError(f"{path}: not BAM, CRAM or SAM: it begins with {quoted(text[:12])}", reason="NOT_ALIGNMENT")


def _check_cram_end(path: Path, head: bytes, end: bytes) -> None:
    major, minor = (head + b"\0\0")[4:6]
    if major not in _CRAM_MAJORS:
        raise AlignmentError(f"{path}: CRAM version {major}.{minor} is not read; convert it to 3.0 by samtools view -C")
    has_end = major != 2 or minor > 0
    if has_end and not end.endswith(_CRAM_END[major]):
        raise _cut_off(path)


def _cut_off(path: Path) -> AlignmentError:
    return AlignmentError(
        f"{path}: the end-of-file marker is missing: the file was cut off; copy it again", reason="TRUNCATED"
    )


def keep_offline() -> None:
    """Sets this process's environment so that htslib looks for CRAM references on no server.

    Without REF_PATH, htslib asks a public server; a header's UR may name one, which libcurl would ask.
    """
    os.environ["REF_PATH"] = os.devnull
    os.environ.pop("REF_CACHE", None)
    for scheme in ("http", "https", "ftp", "all"):
        os.environ[f"{scheme}_proxy"] = _DEAD_PROXY


def open_alignment(path: Path, index_path: Path | None, fasta_path: Path) -> Any:
    """Opens an alignment file of any kind.

    Args:
        path: The file.
        index_path: Its index; None: the one beside it, if there is one.
        fasta_path: Decodes a CRAM; no reference is fetched from the network instead.

    Returns:
        A `pysam.AlignmentFile`.

    Raises:
        AlignmentError: The header is broken, or the index cannot be opened.
    """
    # In a process where `keep_offline` was not called.
    os.environ.setdefault("REF_PATH", os.devnull)
    try:
        return pysam.AlignmentFile(
            str(path),
            index_filename=str(index_path) if index_path else None,
            reference_filename=str(fasta_path),
            check_sq=False,
        )
    except (OSError, ValueError) as error:
        raise AlignmentError(f"{path}: cannot be opened: {error}", reason="BAD_HEADER") from error


def read_header(path: Path, alignment: Any) -> AlignmentHeader:
    """Reads the header of an open file.

    Raises:
        AlignmentError: It lists no contigs.
    """
    names = tuple(alignment.references)
    if not names:
        raise AlignmentError(
            f"{path}: the header lists no contigs: these are reads that were never aligned; give them as FASTQ "
            "(samtools fastq)",
            reason="NO_CONTIGS",
        )
    md5_of: dict[str, str] = {}
    groups: list[dict[str, str]] = []
    for line in str(alignment.header).splitlines():
        fields = dict(part.split(":", 1) for part in line.split("\t")[1:] if ":" in part)
        if line.startswith("@SQ\t") and "M5" in fields:
            md5_of[fields.get("SN", "")] = fields["M5"].lower()
        elif line.startswith("@RG\t"):
            stated = {"id": fields.get("ID", ""), "sample": fields.get("SM", ""), "platform": fields.get("PL", "")}
            groups.append(stated)
    return AlignmentHeader(
        names=names,
        lengths_bp=tuple(alignment.lengths),
        md5s=tuple(md5_of.get(name) for name in names),
        read_groups=tuple(groups),
    )
