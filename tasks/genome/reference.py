"""The reference genome as workers see it: tokens in memory-mapped files, contigs in the FASTA's order."""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tasks.errors import FolderError, ReferenceError
from tasks.files import json_sha256, make_folder, read_json, whole_file, write_bytes, write_json
from tasks.genome.builds import recognise_build
from tasks.genome.fasta import FastaScan, ScannedContig
from tasks.genome.fasta_text import gzi_bytes, is_bgzip, read_bgzip, read_plain
from tasks.intervals import Interval

_FORMAT = 1
_JSON, _TOKENS = "reference.json", "tokens.u8"
_LINK, _LINK_BGZIP, _COPY = "reference.fa", "reference.fa.gz", "rewrapped.fa"
_OTHER_TOKEN = 4
# Upper-case letter to token: A0 C1 G2 T3, everything else 4.
_TO_TOKEN = bytes("ACGT".index(chr(code)) if chr(code) in "ACGT" else _OTHER_TOKEN for code in range(256))
_TO_LETTER = b"ACGTN" + bytes(251)


@dataclass(frozen=True, slots=True)
class Contig:
    """A sequence of the reference.

    Attributes:
        name: Its name, exactly as in the FASTA.
        length_bp: Number of bases.
        md5: MD5 of the upper-cased sequence, 32 hex digits (SAM's M5).
    """

    name: str
    length_bp: int
    md5: str


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A FASTA that has been read once and lies in a run's folder as tokens.

    A reference pickles as its folder: what travels between processes is a path, never the genome.

    Attributes:
        path: The user's FASTA.
        folder: Where the prepared files lie.
        contigs: In the FASTA's order.
        build: The published build, or None.
        digest: SHA-256 over all contigs' names, lengths and M5, hex; the same for plain, bgzip and lower-case files.
        tokens: uint8 [sum of lengths], read-only memory map.
        offsets: int64 [num_contigs + 1], each contig's start in `tokens`.
        fasta_path: The FASTA for htslib: a link to `path`, or a copy where its lines are too uneven for an index.
        fai_path: Its `.fai`, beside `fasta_path`.
        gzi_path: Its `.gzi`, beside `fasta_path`; None where the FASTA is not bgzip.
    """

    path: Path
    folder: Path
    contigs: tuple[Contig, ...]
    build: str | None
    digest: str
    tokens: np.ndarray
    offsets: np.ndarray
    fasta_path: Path
    fai_path: Path
    gzi_path: Path | None
    _index_of: dict[str, int] = field(repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return load_reference, (self.folder,)

    def contig_index(self, name: str) -> int:
        """The place of a contig, by its exact name.

        Raises:
            ReferenceError: There is no such contig.
        """
        try:
            return self._index_of[name]
        except KeyError:
            some = ", ".join([contig.name for contig in self.contigs[:5]] + ["..."] * (len(self.contigs) > 5))
            raise ReferenceError(
                f"{self.path}: no contig {name!r}; it has {len(self.contigs):,}: {some}",
                reason="UNKNOWN_CONTIG",
            ) from None

    def contig_tokens(self, index: int) -> np.ndarray:
        """A contig's tokens: uint8 [length_bp], a read-only view."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def sequence(self, interval: Interval) -> str:
        """The bases of an interval, upper-cased, ``N`` for whatever is not A, C, G or T.

        Raises:
            ReferenceError: The contig is unknown, or the interval ends past it.
        """
        tokens = self.contig_tokens(self.contig_index(interval.contig))
        if interval.end > len(tokens):
            raise ReferenceError(
                f"{interval.contig}: base {interval.end:,} is past the contig's end at {len(tokens):,}",
                reason="PAST_CONTIG_END",
            )
        return tokens[interval.start : interval.end].tobytes().translate(_TO_LETTER).decode()

    def release_pages(self) -> None:
        """Takes the tokens' pages out of this process; they stay in the system's cache.

        Variants all over a genome touch every page of it: 3 GB that would count as this process's memory.
        """
        pages: object = self.tokens.base
        if isinstance(pages, mmap.mmap):
            pages.madvise(mmap.MADV_DONTNEED)


def prepare_reference(path: Path, folder: Path) -> Reference:
    """Reads a FASTA once and writes what workers need: tokens, an index, `reference.json`.

    The index is always made here, in the run's folder, from the bases that were read: one beside the FASTA may be stale
    or not writable. Needs one byte of disk a base and a few MB of memory. Work already done for the same file (path,
    size and time of change) is kept.

    Args:
        path: The FASTA, plain or bgzip.
        folder: The run's folder for it, made when missing.

    Raises:
        ReferenceError: The file is missing, empty, damaged, gzip without blocks, or not usable as FASTA.
        FolderError: The folder cannot be written, or the disk is full.
    """
    path = Path(os.path.abspath(path))
    bgzip = is_bgzip(path)
    source = _source_state(path)
    link = folder / (_LINK_BGZIP if bgzip else _LINK)
    try:
        prepared = load_reference(folder)
        if prepared.path == path and read_json(folder / _JSON)["source"] == source:
            return prepared
    except ReferenceError:
        pass  # Not prepared yet, or not whole: it is made now.
    make_folder(folder)
    (folder / _JSON).unlink(missing_ok=True)
    block_starts: list[tuple[int, int]] = []
    scan = FastaScan(path)
    with whole_file(folder / _TOKENS) as aside, open(aside, "wb") as tokens:
        for _, bases in scan.pieces(_text(path, bgzip, block_starts)):
            tokens.write(bases.translate(_TO_TOKEN))
    if _source_state(path) != source:
        raise ReferenceError(f"{path}: the file changed while it was read; start again when it is whole")
    _link(path, link)
    for stale in (folder / _COPY, folder / f"{_COPY}.fai", Path(f"{link}.gzi")):
        stale.unlink(missing_ok=True)
    if all(contig.regular for contig in scan.contigs):
        fasta, fai = link, "".join(contig.fai_line() for contig in scan.contigs)
        if bgzip:
            write_bytes(Path(f"{link}.gzi"), gzi_bytes(block_starts))
    else:
        fasta, fai = folder / _COPY, _write_copy(path, bgzip, folder / _COPY, scan.contigs)
    write_bytes(Path(f"{fasta}.fai"), fai.encode())
    contigs = [{"name": contig.name, "length_bp": contig.length_bp, "md5": contig.md5} for contig in scan.contigs]
    write_json(
        folder / _JSON,
        {"format": _FORMAT, "source": source, "link": link.name, "fasta": fasta.name, "contigs": contigs},
    )
    return load_reference(folder)


def load_reference(folder: Path) -> Reference:
    """Opens a prepared reference; cheap, and the memory is shared between the processes of a machine.

    Raises:
        ReferenceError: The folder holds no prepared reference, or not a whole one.
    """
    try:
        record = read_json(folder / _JSON)
        if record["format"] != _FORMAT:
            raise ReferenceError(f"{folder}: the reference was prepared by another version of this program")
        contigs = tuple(Contig(**contig) for contig in record["contigs"])
        path = Path(os.readlink(folder / record["link"]))
        lengths_bp = [contig.length_bp for contig in contigs]
        offsets = np.concatenate(([0], np.cumsum(lengths_bp, dtype=np.int64))).astype(np.int64)
        num_bytes = (folder / _TOKENS).stat().st_size
        if num_bytes != offsets[-1]:
            raise ReferenceError(f"{folder / _TOKENS}: {num_bytes:,} bytes for {offsets[-1]:,} bases; prepare it again")
        tokens = np.memmap(folder / _TOKENS, dtype=np.uint8, mode="r")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ReferenceError(f"{folder}: no prepared reference in it ({error})", reason="NOT_PREPARED") from error
    fasta = folder / record["fasta"]
    return Reference(
        path=path,
        folder=folder,
        contigs=contigs,
        build=recognise_build(contigs),
        digest=json_sha256([[contig.name, contig.length_bp, contig.md5] for contig in contigs]),
        tokens=tokens,
        offsets=offsets,
        fasta_path=fasta,
        fai_path=Path(f"{fasta}.fai"),
        gzi_path=Path(f"{fasta}.gzi") if fasta.name == _LINK_BGZIP else None,
        _index_of={contig.name: index for index, contig in enumerate(contigs)},
    )


def _text(path: Path, bgzip: bool, block_starts: list[tuple[int, int]]) -> Iterator[bytes]:
    return read_bgzip(path, block_starts) if bgzip else read_plain(path)


def _source_state(path: Path) -> dict[str, int]:
    state = path.stat()
    return {"size_bytes": state.st_size, "modified_ns": state.st_mtime_ns}


def _link(path: Path, link: Path) -> None:
    """Points `link` at the user's file, in one step."""
    aside = link.with_name(f".{link.name}.{secrets.token_hex(4)}.part")
    try:
        os.symlink(path, aside)
        os.replace(aside, link)
    except OSError as error:
        raise FolderError(f"{link}: cannot link to the FASTA here: {error.strerror}") from error


def _write_copy(path: Path, bgzip: bool, copy: Path, contigs: list[ScannedContig]) -> str:
    """Writes the FASTA with one line a contig; returns its ``.fai``.

    htslib indexes only sequences whose lines but the last are of one length.
    """
    fai, at, written = [], 0, -1
    with whole_file(copy) as aside, open(aside, "wb") as handle:
        for index, bases in FastaScan(path).pieces(_text(path, bgzip, [])):
            contig = contigs[index]
            if index != written:
                header = f"{chr(10) * (written >= 0)}>{contig.name}\n".encode()
                at += handle.write(header)
                fai.append(f"{contig.name}\t{contig.length_bp}\t{at}\t{contig.length_bp}\t{contig.length_bp + 1}\n")
                written = index
            at += handle.write(bases)
        handle.write(b"\n")
    return "".join(fai)
