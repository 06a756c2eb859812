"""Records of a VCF as arrays: contigs placed on the reference, alleles checked and keyed, a block of text at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.genome.contigs import match_contigs
from tasks.genome.reference import Reference
from tasks.genome.regions import Regions
from tasks.variants.allele_kernels import SKIP_REASONS
from tasks.variants.alleles import AlleleKeys, Records, key_alleles
from tasks.variants.header import VariantHeader, parse_header
from tasks.variants.lines import ALT, CHROM, REF, Lines, split_lines
from tasks.variants.name_ids import NameIds
from tasks.variants.text import VariantText


@dataclass(frozen=True, slots=True, eq=False)
class RecordBlock:
    """The records of a block of text.

    Attributes:
        lines: The lines and their fields.
        contig_name: int32 [n], numbers of the contigs' names in the reader's `contig_names`.
        records: Where the alleles stand.
        ref_state: uint8 [n], ``REF_*`` of `tasks.variants.allele_kernels`.
        keys: The alleles.
    """

    lines: Lines
    contig_name: NDArray[np.int32]
    records: Records
    ref_state: NDArray[np.uint8]
    keys: AlleleKeys


class RecordReader:
    """Reads a VCF block by block, checking and keying everything in it.

    Attributes:
        path: The file.
        header: Its header.
        column_line: Its ``#CHROM`` line.
        repairs: What was mended so far, by kind.
        contig_names: Names of the contigs that records lie on, in the order of first sight.
        contig_lengths_bp: Their lengths in the reference or, failing that, the header; None where neither knows.
    """

    def __init__(
        self, path: Path, reference: Reference, regions: Regions | None = None, *, keeps_records: bool = False
    ) -> None:
        """Opens the file and reads its header; `regions` and `keeps_records` as for `key_alleles`.

        Raises:
            VariantFileError: See `tasks.variants.text.VariantText`.
        """
        self._text = VariantText(path)
        self.path = path
        self.header: VariantHeader = parse_header(self._text.header)
        self.column_line = self._text.header[-1]
        self.repairs = self._text.repairs
        self.contig_names: list[str] = []
        self.contig_lengths_bp: list[int | None] = []
        self._reference = reference
        self._regions = regions
        self._keeps_records = keeps_records
        self._ids = NameIds()
        self._places = np.empty(0, dtype=np.int32)
        self._skips = np.empty(0, dtype=np.uint8)

    def blocks(self) -> Iterator[RecordBlock]:
        """Yields the blocks, in order; blank lines are counted in `repairs` and belong to no record.

        Raises:
            VariantFileError: The file is damaged or truncated.
        """
        for block in self._text.blocks():
            lines = split_lines(block, len(self.header.columns))
            self._repaired("carriage_returns", lines.num_returns)
            self._repaired("blank_lines", lines.num_blank)
            contig_name = self._ids.ids(lines.text, lines.begin_of(CHROM), lines.end_of(CHROM))
            self._match_new_contigs()
            records = Records(
                ref_begin=lines.begin_of(REF),
                ref_end=lines.end_of(REF),
                alt_begin=lines.begin_of(ALT),
                alt_end=lines.end_of(ALT),
                contig=self._places[contig_name],
                contig_skip=self._skips[contig_name],
                start=lines.position - 1,
                first_allele=np.concatenate(([0], np.cumsum(lines.num_alleles))).astype(np.int64),
            )
            ref_state, keys = key_alleles(
                lines.text, records, self._reference, self._regions, keeps_records=self._keeps_records
            )
            yield RecordBlock(lines, contig_name, records, ref_state, keys)
            self._reference.release_pages()

    def _repaired(self, kind: str, number: int) -> None:
        if number:
            self.repairs[kind] = self.repairs.get(kind, 0) + number

    def _match_new_contigs(self) -> None:
        new = [name.decode(errors="backslashreplace") for name in self._ids.names[len(self.contig_names) :]]
        if not new:
            return
        lengths_bp = [self.header.contig_lengths_bp.get(name) for name in new]
        match = match_contigs(new, lengths_bp, [self.header.contig_md5s.get(name) for name in new], self._reference)
        for place, length_bp in zip(match.index.tolist(), lengths_bp, strict=True):
            self.contig_lengths_bp.append(self._reference.contigs[place].length_bp if place >= 0 else length_bp)
        self.contig_names.extend(new)
        self._places = np.concatenate([self._places, match.index.astype(np.int32)])
        skips = [SKIP_REASONS.index(reason or "") for reason in match.reason]
        self._skips = np.concatenate([self._skips, np.array(skips, dtype=np.uint8)])
