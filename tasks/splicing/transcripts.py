"""Transcripts, one a gene: a table in SpliceAI's format, or the canonical transcripts of a GTF."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.errors import RegionsError
from tasks.files import whole_file
from tasks.genome.contigs import match_contigs
from tasks.genome.reference import Reference
from tasks.genome.regions import text_lines

_COLUMNS = ("#NAME", "CHROM", "STRAND", "TX_START", "TX_END", "EXON_START", "EXON_END")
_ATTRIBUTE = re.compile(r'(\w+)\s+"([^"]*)"')
_CANONICAL_TAGS = ("MANE_Select", "Ensembl_canonical")


@dataclass(frozen=True, slots=True, eq=False)
class Transcripts:
    """Transcripts in the order of their file. Places are 0-based, ends exclusive.

    Attributes:
        gene: object [n], names.
        contig: int64 [n], places in the reference's contigs.
        is_reverse: bool [n], on the minus strand.
        start: int64 [n], first base.
        end: int64 [n], one past the last base.
        exon_edges: For each int64, the first and last bases of its exons, sorted.
    """

    gene: NDArray[np.object_]
    contig: NDArray[np.int64]
    is_reverse: NDArray[np.bool_]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    exon_edges: tuple[NDArray[np.int64], ...]


@dataclass(slots=True)
class _Row:
    gene: str
    contig: str
    strand: str
    start: int
    end: int
    exon_starts: list[int]
    exon_ends: list[int]
    rank: tuple[int, int] = (0, 0)


def prepare_transcripts(path: Path, reference: Reference, output: Path) -> None:
    """Reads a file of transcripts once for a whole run and writes them where `load_transcripts` finds them.

    A file whose first line begins with ``#NAME`` is a table in SpliceAI's format. Of each gene of a GTF the transcript
    tagged MANE_Select is taken, else Ensembl_canonical, else the longest, the first of equals. What lies on contigs
    that the reference does not have is left out.

    Raises:
        RegionsError: The file cannot be read, is neither, or does not fit the reference.
    """
    lines = iter(text_lines(path))
    first = next(lines, "")
    rows = _table_rows(path, first, lines) if first.startswith(_COLUMNS[0]) else _gtf_rows(path, [first], lines)
    names = list(dict.fromkeys(row.contig for row in rows))
    unstated = [None] * len(names)
    place_of = dict(zip(names, match_contigs(names, unstated, unstated, reference).index.tolist(), strict=True))
    kept = [row for row in rows if place_of[row.contig] >= 0]
    if not kept:
        raise RegionsError(
            f"{path}: no transcript on a contig of {reference.path.name}; they lie on {', '.join(names[:5]) or 'none'}",
            field="genes",
            reason="NO_GENES",
        )
    past = [row for row in kept if row.end > reference.contigs[place_of[row.contig]].length_bp]
    if past:
        raise RegionsError(
            f"{path}: {past[0].gene} ends at base {past[0].end:,} of {past[0].contig}, past the contig's end "
            f"({len(past):,} such genes); are they of another build?",
            field="genes",
            reason="PAST_CONTIG_END",
        )
    table = pa.table(
        {
            "gene": [row.gene for row in kept],
            "contig": pa.array([place_of[row.contig] for row in kept], pa.int64()),
            "is_reverse": [row.strand == "-" for row in kept],
            "start": pa.array([row.start for row in kept], pa.int64()),
            "end": pa.array([row.end for row in kept], pa.int64()),
            "exon_edges": pa.array([_edges(row) for row in kept], pa.list_(pa.int64())),
        }
    )
    with whole_file(output) as aside:
        pq.write_table(table, aside)


def load_transcripts(path: Path) -> Transcripts:
    """Reads what `prepare_transcripts` wrote."""
    table = pq.read_table(path)
    return Transcripts(
        np.array(table["gene"].to_pylist(), object),
        table["contig"].to_numpy(),
        table["is_reverse"].to_numpy(),
        table["start"].to_numpy(),
        table["end"].to_numpy(),
        tuple(np.array(edges, np.int64) for edges in table["exon_edges"].to_pylist()),
    )


def _edges(row: _Row) -> list[int]:
    return sorted({*row.exon_starts, *(end - 1 for end in row.exon_ends)})


def _table_rows(path: Path, first: str, lines: Iterable[str]) -> list[_Row]:
    """Rows of SpliceAI's table: 0-based starts, ends exclusive, lists of exons with a comma after each."""
    header = first.rstrip("\r\n").split("\t")
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        raise RegionsError(f"{path}: line 1: no column {missing[0]}", field="genes", reason="BAD_GENES")
    rows = []
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        fields = dict(zip(header, line.rstrip("\r\n").split("\t"), strict=False))
        try:
            starts, ends = ([int(x) for x in fields[name].split(",") if x] for name in ("EXON_START", "EXON_END"))
            row = _Row(
                fields["#NAME"],
                fields["CHROM"],
                fields["STRAND"],
                int(fields["TX_START"]),
                int(fields["TX_END"]),
                starts,
                ends,
            )
        except (KeyError, ValueError) as error:
            raise RegionsError(
                f"{path}: line {number}: not a row of transcripts ({error}): {line.strip()[:80]!r}",
                field="genes",
                reason="BAD_GENES",
            ) from error
        if row.strand not in ("+", "-") or not starts or len(starts) != len(ends) or not 0 <= row.start < row.end:
            raise RegionsError(
                f"{path}: line {number}: {row.gene}: strand + or -, a start before the end, and as many exon starts as "
                "ends are needed",
                field="genes",
                reason="BAD_GENES",
            )
        rows.append(row)
    return rows


def _gtf_rows(path: Path, first: Iterable[str], lines: Iterable[str]) -> list[_Row]:
    """One transcript of each gene of a GTF, in the order in which the genes come."""
    transcripts: dict[tuple[str, str, str], _Row] = {}
    number = 0
    for source in (first, lines):
        for line in source:
            number += 1
            fields = line.rstrip("\r\n").split("\t")
            if line.startswith("#") or len(fields) < 9 or fields[2] != "exon":
                if not line.startswith("#") and len(fields) < 9 and line.strip():
                    raise RegionsError(
                        f"{path}: line {number}: neither GTF (nine columns with tabs) nor a table that begins with "
                        f"#NAME: {line.strip()[:80]!r}",
                        field="genes",
                        reason="BAD_GENES",
                    )
                continue
            facts: dict[str, list[str]] = {}
            for key, value in _ATTRIBUTE.findall(fields[8]):
                facts.setdefault(key, []).append(value)
            gene = facts.get("gene_id", [""])[0]
            key = (fields[0], gene, facts.get("transcript_id", [gene])[0])
            if not gene or fields[6] not in ("+", "-"):
                continue
            name = facts.get("gene_name", [gene])[0]
            row = transcripts.setdefault(key, _Row(name, fields[0], fields[6], 1 << 60, 0, [], []))
            start, end = int(fields[3]) - 1, int(fields[4])
            row.start, row.end = min(row.start, start), max(row.end, end)
            row.exon_starts.append(start)
            row.exon_ends.append(end)
            tags = [_CANONICAL_TAGS.index(tag) for tag in facts.get("tag", []) if tag in _CANONICAL_TAGS]
            row.rank = (min([row.rank[0], *(tag - len(_CANONICAL_TAGS) for tag in tags)]), 0)
    chosen: dict[tuple[str, str], _Row] = {}
    for (contig, gene, _), row in transcripts.items():
        row.rank = (row.rank[0], row.start - row.end)
        best = chosen.get((contig, gene))
        if best is None or row.rank < best.rank:
            chosen[contig, gene] = row
    return list(chosen.values())
