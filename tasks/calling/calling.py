"""Calling: alignments of a sample become genotyped variants, one shard of the reference at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.bgzf import BgzfWriter
from tasks.calling.bam_records import MAX_SPAN_BP
from tasks.calling.bam_stream import open_alignment
from tasks.calling.call_rows import CallRows, collect_rows
from tasks.calling.genotypes import Call, call_genotypes, doubts_of
from tasks.calling.gvcf import write_blocks
from tasks.calling.overlaps import CONTRADICTED
from tasks.calling.reference_blocks import Block, find_blocks
from tasks.calling.settling import JOINED, settle_calls
from tasks.calling.vcf_text import header_text, record_line
from tasks.errors import BalanceError
from tasks.files import whole_file
from tasks.genome.contigs import match_contigs
from tasks.genome.ploidy import ploidy_of
from tasks.genome.reference import Reference
from tasks.genome.regions import Regions
from tasks.intervals import Interval
from tasks.sheets.values import Sex
from tasks.windows import UNKNOWN_TOKEN, reference_windows

SHARD_BP = 100_000
ENSEMBLE = "reads"

CALL_SCHEMA = pa.schema(
    [
        ("contig", pa.int32()),
        ("start", pa.int64()),
        ("ref", pa.string()),
        ("alts", pa.list_(pa.string())),
        ("qual", pa.float64()),
        ("filter", pa.string()),
        ("alleles", pa.list_(pa.int32())),
        ("genotype_quality", pa.int32()),
        ("depth", pa.int32()),
        ("allele_depths", pa.list_(pa.int32())),
        ("likelihoods", pa.list_(pa.int32())),
        ("next_alt", pa.string()),
        ("together", pa.int32()),
        ("apart", pa.int32()),
    ]
)
"""One row a record, the fields of `tasks.calling.genotypes.Call`; `contig` is the reference's index."""

_SCAN_BP = 4096

Infer = Callable[[str, dict[str, np.ndarray]], dict[str, np.ndarray]]


class Alignment(TypedDict):
    """A BAM or CRAM of one sample that has been checked and indexed."""

    path: str
    index_path: str
    kind: str
    sample_id: str


def plan_call_shards(
    reference: Reference, contig_read_counts: dict[str, int], regions: Regions | None, shard_bp: int = SHARD_BP
) -> list[Interval]:
    """Cuts the reference into shards to call, in the reference's order.

    Contigs without reads, stretches without a known base and, when there are regions, stretches outside them are left
    out: nothing can be called there.

    Args:
        reference: The genome.
        contig_read_counts: Mapped reads by the reference's contig names; a contig that is not there has none.
        regions: Where to call; everywhere when None.
        shard_bp: Length of a shard in bases.

    Raises:
        ReferenceError: A name is not one of the reference's.
    """
    counts = {reference.contig_index(name): count for name, count in contig_read_counts.items()}
    shards = []
    for index, contig in enumerate(reference.contigs):
        if not counts.get(index):
            continue
        tokens = reference.contig_tokens(index)
        for start in range(0, contig.length_bp, shard_bp):
            end = min(start + shard_bp, contig.length_bp)
            if regions is not None and not regions.contains(np.array([index]), np.array([start]), np.array([end]))[0]:
                continue
            if any((tokens[at : min(at + _SCAN_BP, end)] < UNKNOWN_TOKEN).any() for at in range(start, end, _SCAN_BP)):
                shards.append(Interval(contig.name, start, end))
    return shards


def call_shard(
    alignment: Alignment,
    reference: Reference,
    interval: Interval,
    infer: Infer,
    output: Path,
    *,
    regions: Regions | None = None,
    sex: Sex | None = None,
    state_size: int,
    blocks: Path | None = None,
) -> dict[str, Any]:
    """Calls the variants whose normalised start lies in a shard and writes them to `output`, whole.

    The same calls come out wherever the shards are cut.

    Args:
        alignment: The sample's reads.
        reference: The genome.
        interval: The shard.
        infer: Runs a model by name on named arrays of n rows.
        output: Parquet file to write, of `CALL_SCHEMA`.
        regions: Keep to alleles that overlap these; everywhere when None.
        sex: Decides how many copies of X and Y there are; two of both where it is not known.
        state_size: Length of the embedder's state.
        blocks: Parquet file to write, of `BLOCK_SCHEMA`: where the sample has the reference; None for none.

    Returns:
        Counts: ``reads`` (records that start in the shard by what became of them), ``candidates``,
        ``candidates_off_target``, ``calls``.

    Raises:
        AlignmentError: A record cannot be read.
    """
    index = reference.contig_index(interval.contig)
    calls: list[Call] = []
    summary: dict[str, Any] = {"reads": {}, "candidates": 0, "candidates_off_target": 0, "calls": 0}
    found: list[Block] = []
    with open_alignment(Path(alignment["path"]), Path(alignment["index_path"]), reference.fasta_path) as handle:
        tid = _find_contig(handle, reference, index)
        if tid is not None:
            caller = _Caller(handle, tid, reference, index, infer, regions, sex, state_size)
            called = caller.call(interval.start, interval.end, with_reference=blocks is not None)
            calls, summary = called.calls, called.counts
            if blocks:
                # A deletion that begins before the shard may reach into it.
                before = max(interval.start - MAX_SPAN_BP, 0)
                earlier = caller.call(before, interval.start).calls if before < interval.start else []
                found = list(caller.find_blocks(called, earlier))
    write_calls(output, index, calls)
    if blocks:
        write_blocks(blocks, index, found)
    return summary


@dataclass(frozen=True, slots=True)
class _Called:
    """What was called of a stretch: the calls, the counts, and the rows with what the model told of them."""

    start: int
    calls: list[Call]
    counts: dict[str, Any]
    rows: CallRows
    log_likelihood: np.ndarray


@dataclass(frozen=True, slots=True)
class _Caller:
    """Calls stretches of one contig of one sample."""

    handle: Any
    tid: int
    reference: Reference
    index: int
    infer: Infer
    regions: Regions | None
    sex: Sex | None
    state_size: int

    def call(self, start: int, end: int, *, with_reference: bool = False) -> _Called:
        """Calls ``[start, end)``."""
        tokens = self.reference.contig_tokens(self.index)
        rows, reads = collect_rows(self.handle, self.tid, tokens, start, end, with_reference=with_reference)
        num_candidates = len(rows)
        contig = np.full(len(rows), self.index, np.int32)
        if self.regions is not None:
            lengths = np.array([len(ref) for ref in rows.ref], np.int64)
            keep = np.flatnonzero(self.regions.contains(contig, rows.start, rows.start + lengths))
            rows, contig = rows.take(keep), contig[keep]
        calls: list[Call] = []
        log_likelihood = np.zeros((0, 3), np.float32)
        if len(rows):
            inputs: dict[str, np.ndarray] = {
                "reference_window": reference_windows(self.reference, contig, rows.start),
                "state": np.zeros((len(rows), self.state_size), np.float32),
                "pileup": rows.pileup,
                "evidence": rows.evidence,
            }
            told = self.infer(ENSEMBLE, inputs)
            log_likelihood = told["log_likelihood"]
            ploidy = ploidy_of(self.reference, self.index, rows.start, self.sex)
            called = call_genotypes(
                rows.start, rows.ref, rows.alt, rows.counts, told["genotype"], log_likelihood, ploidy
            )
            following = rows.following()
            calls = [replace(call, **following.get((call.start, *call.alts), {})) for call in called]
        counts = {
            "reads": reads,
            "candidates": num_candidates,
            "candidates_off_target": num_candidates - len(rows),
            "calls": len(calls),
        }
        return _Called(start, calls, counts, rows, log_likelihood)

    def find_blocks(self, called: _Called, earlier: list[Call]) -> Iterator[Block]:
        """Yields the reference blocks of a stretch that was called with its reference counts."""
        counts = called.rows.reference_counts
        assert counts is not None, "the stretch was called with its reference counts"
        places = np.arange(called.start, called.start + len(counts))
        is_inside = np.ones(len(counts), np.bool_)
        if self.regions is not None:
            is_inside = self.regions.contains(np.full(len(places), self.index, np.int32), places, places + 1)
        ploidy = ploidy_of(self.reference, self.index, places, self.sex)
        doubts = doubts_of(called.rows.start, called.log_likelihood, ploidy[called.rows.start - called.start])
        return find_blocks(counts, called.start, ploidy, is_inside, [*earlier, *called.calls], doubts)


def write_calls(output: Path, contig: int, calls: Sequence[Call]) -> None:
    """Writes calls of one contig (its place in the reference), whole."""
    columns: dict[str, Any] = {
        name: [getattr(call, name) for call in calls] for name in CALL_SCHEMA.names if name != "contig"
    }
    table = pa.table({"contig": pa.array([contig] * len(calls), pa.int32()), **columns}, schema=CALL_SCHEMA)
    with whole_file(output) as aside:
        pq.write_table(table, aside)


def finish_calls(
    shards: Sequence[Path], reference: Reference, output_vcf: Path, sample_id: str, header_lines: Sequence[str] = ()
) -> dict[str, Any]:
    """Settles a sample's shards and writes one bgzip VCF; no shards make a VCF without records.

    Args:
        shards: Files of `call_shard`, in the order of `plan_call_shards`.
        reference: The genome.
        output_vcf: File to write, whole. The same calls give the same bytes.
        sample_id: Name of the sample's column.
        header_lines: More header lines, each beginning with ``##``.

    Returns:
        Counts: ``calls``, ``snv_calls``, ``low_quality``, and those of `settle_calls`.

    Raises:
        BalanceError: The shards are not in order.
    """
    names = [contig.name for contig in reference.contigs]
    summary = {"calls": 0, "snv_calls": 0, "low_quality": 0}
    with whole_file(output_vcf) as aside, open(aside, "wb") as handle, BgzfWriter(handle) as vcf:
        vcf.write(header_text(reference, sample_id, header_lines).encode())
        for row in settle_calls(shards, summary):
            summary["calls"] += 1
            summary["snv_calls"] += len(row["ref"]) == 1 and all(len(alt) == 1 for alt in row["alts"])
            summary["low_quality"] += row["filter"] != "PASS"
            vcf.write(record_line(row, names[row["contig"]]).encode())
    if summary["calls"] + summary[CONTRADICTED] + summary[JOINED] != summary["calls_found"]:
        raise BalanceError(f"{output_vcf}: the calls do not add up: {summary}")
    return summary


def _find_contig(handle: Any, reference: Reference, index: int) -> int | None:
    """The header's index of a contig of the reference; None where the alignment does not list it."""
    md5s = [line.get("M5") for line in handle.header.to_dict().get("SQ", [])] or [None] * handle.nreferences
    match = match_contigs(list(handle.references), list(handle.lengths), md5s, reference)
    found = np.flatnonzero(match.index == index)
    return int(found[0]) if found.size else None
