"""A FASTA file as a stream: its contigs in order, their bases in pieces, their M5 and `.fai` entries."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.errors import ReferenceError
from tasks.quoting import quoted

_UPPER = bytes(range(256)).upper()
_BLANKS = b"\n\r \t\v\f"
# IUPAC nucleotide codes, U, and what old assemblies write for an unknown base.
_BASES = b"ACGTURYSWKMBDHVNX-*."
_HEADER_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
# Source: SAM v1, section 1.2.1, reference sequence names.
_NAME = re.compile(rb"[0-9A-Za-z!#$%&+./:;?@^_|~-][0-9A-Za-z!#$%&*+./:;=?@^_|~-]*")


@dataclass(frozen=True, slots=True)
class ScannedContig:
    """One contig as it lies in the text.

    Attributes:
        name: The header's first word.
        length_bp: Number of bases.
        md5: MD5 of the upper-cased sequence, hex (SAM's M5).
        text_start: Where the first base lies in the uncompressed text, in bytes.
        line_bases: Bases of a full line.
        line_bytes: Bytes of a full line with its end.
        regular: Whether all lines but the last are full, which a ``.fai`` needs.
    """

    name: str
    length_bp: int
    md5: str
    text_start: int
    line_bases: int
    line_bytes: int
    regular: bool

    def fai_line(self) -> str:
        """The contig's line of a ``.fai`` file. Source: faidx(5)."""
        return f"{self.name}\t{self.length_bp}\t{self.text_start}\t{self.line_bases}\t{self.line_bytes}\n"


class FastaScan:
    """Reads FASTA text of any size in bounded memory.

    Attributes:
        contigs: The contigs read so far, in the file's order; complete when `pieces` ends.
    """

    def __init__(self, source: Path) -> None:
        self.contigs: list[ScannedContig] = []
        self._source = source
        self._lines_of: dict[str, int] = {}
        self._open: _OpenContig | None = None
        self._line = 1

    def pieces(self, blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yields the contig's number and its next bases, upper-cased, without line ends.

        Args:
            blocks: The uncompressed text, cut anywhere.

        Raises:
            ReferenceError: The text is not FASTA, or a contig's name or sequence is not usable; the message names
                the line.
        """
        at_line_start, header, text_at = True, None, 0
        for block in blocks:
            at = 0
            if text_at == 0 and block.startswith(_BOM):
                at = len(_BOM)
            while at < len(block):
                if header is not None:
                    end = block.find(b"\n", at)
                    header += block[at:] if end < 0 else block[at:end]
                    if end < 0:
                        self._check_header_bytes(header)
                        break
                    self._start_contig(header, text_at + end + 1)
                    header, at, at_line_start = None, end + 1, True
                    self._line += 1
                elif at_line_start and block[at] == ord(">"):
                    self._close_contig(text_at + at)
                    header, at = b"", at + 1
                else:
                    found = block.find(b"\n>", at)
                    end = len(block) if found < 0 else found + 1
                    bases = self._take(block[at:end], text_at + at)
                    if bases:
                        yield len(self.contigs), bases
                    at_line_start = block[end - 1] == ord("\n")
                    at = end
            text_at += len(block)
        if header is not None:
            self._start_contig(header, text_at)
        self._close_contig(text_at)
        if not self.contigs:
            raise self._error("no sequence in it: not one line begins with '>'", reason="EMPTY_FILE")

    def _take(self, text: bytes, text_at: int) -> bytes:
        """Takes sequence lines into the open contig; returns the bases."""
        bases = text.translate(_UPPER, _BLANKS)
        if bases.translate(None, _BASES):
            self._refuse_character(text)
        if self._open is None:
            if bases:
                raise self._error(f"line {self._line}: the first line must begin with '>' and a contig's name")
        else:
            self._open.take(text, text_at, bases)
        self._line += text.count(b"\n")
        return bases

    def _refuse_character(self, text: bytes) -> None:
        allowed = set(_BASES) | set(_BASES.lower()) | set(_BLANKS)
        where = next(i for i, byte in enumerate(text) if byte not in allowed)
        line = self._line + text.count(b"\n", 0, where)
        if self._open is None:
            raise self._error(f"line {line}: the first line must begin with '>' and a contig's name")
        hint = "is this a protein FASTA?" if chr(text[where]).isalpha() else "is the file damaged?"
        raise self._error(
            f"line {line}: contig {self._open.name}: {quoted(text[where : where + 1])} is not a nucleotide code; {hint}"
        )

    def _check_header_bytes(self, header: bytes) -> None:
        if len(header) > _HEADER_BYTES:
            raise self._error(
                f"line {self._line}: a header of more than {_HEADER_BYTES:,} bytes: line ends are missing"
            )

    def _start_contig(self, header: bytes, text_start: int) -> None:
        self._check_header_bytes(header)
        if b"\r" in header.rstrip(b"\r"):
            raise self._error(f"line {self._line}: lines end in a lone CR (old Macintosh); convert them to LF")
        name = header.split(maxsplit=1)[0] if header[:1].strip() else b""
        if not _NAME.fullmatch(name):
            raise self._error(
                f"line {self._line}: {quoted(name)} is not a contig name; right after '>' comes a "
                "name of letters, digits and punctuation other than , \" ' ( ) < > [ ] { } \\ `"
            )
        text = name.decode()
        if text in self._lines_of:
            raise self._error(
                f"line {self._line}: contig {text} for the second time, first on line {self._lines_of[text]}; "
                "names must differ"
            )
        self._lines_of[text] = self._line
        self._open = _OpenContig(text, text_start)

    def _close_contig(self, text_end: int) -> None:
        if self._open is None:
            return
        contig = self._open.close(text_end)
        if not contig.length_bp:
            raise self._error(
                f"line {self._lines_of[contig.name]}: contig {contig.name} has no bases; is it truncated?"
            )
        self.contigs.append(contig)
        self._open = None

    def _error(self, message: str, reason: str = "NOT_FASTA") -> ReferenceError:
        return ReferenceError(f"{self._source}: {message}", field="reference", reason=reason)


class _OpenContig:
    """The contig being read: its digest, and whether its lines fit a ``.fai``."""

    def __init__(self, name: str, text_start: int) -> None:
        self.name = name
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._length_bp = 0
        self._text_start = self._line_start = text_start
        self._line_bytes = self._end_bytes = self._num_lines = 0
        self._short_line_seen = False
        self._regular = True
        self._last_byte = b""

    def take(self, text: bytes, text_at: int, bases: bytes) -> None:
        """Adds sequence text that lies at `text_at` and holds `bases`."""
        self._md5.update(bases)
        self._length_bp += len(bases)
        ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n"))
        if len(ends):
            if not self._num_lines:
                before = text[ends[0] - 1 : ends[0]] if ends[0] else self._last_byte
                self._end_bytes = 2 if before == b"\r" else 1
            line_starts = np.concatenate(([self._line_start], ends + (text_at + 1)))
            self._take_lines(np.diff(line_starts))
            self._line_start = int(line_starts[-1])
        self._last_byte = text[-1:]

    def _take_lines(self, line_bytes: np.ndarray) -> None:
        if not self._num_lines:
            self._line_bytes = int(line_bytes[0])
        self._num_lines += len(line_bytes)
        odd = np.flatnonzero(line_bytes != self._line_bytes)
        if self._short_line_seen:
            self._regular &= bool((line_bytes == self._end_bytes).all())
        elif len(odd):
            self._short_line_seen = True
            after = line_bytes[odd[0] + 1 :]
            self._regular &= bool(line_bytes[odd[0]] < self._line_bytes and (after == self._end_bytes).all())

    def close(self, text_end: int) -> ScannedContig:
        """Ends the contig where the text has its next header or its end."""
        rest = text_end - self._line_start
        if not self._num_lines:
            self._line_bytes, self._end_bytes = rest + 1, 1
        line_bases = self._line_bytes - self._end_bytes
        unended_fits = rest == 0 or (rest <= line_bases and not self._short_line_seen)
        # Blanks inside lines, or line ends of two kinds, show as bytes that are neither bases nor the expected ends.
        num_other_bytes = text_end - self._text_start - self._length_bp - self._num_lines * self._end_bytes
        return ScannedContig(
            name=self.name,
            length_bp=self._length_bp,
            md5=self._md5.hexdigest(),
            text_start=self._text_start,
            line_bases=line_bases,
            line_bytes=self._line_bytes,
            regular=self._regular and unended_fits and num_other_bytes == 0 and line_bases > 0,
        )
