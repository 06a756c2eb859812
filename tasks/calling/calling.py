"""Calling: alignments of a sample become genotyped variants, one shard of the reference at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.bgzf import BgzfWriter
from tasks.calling.bam_stream import open_alignment
from tasks.calling.call_rows import collect_rows
from tasks.calling.genotypes import LOW_QUALITY, Call, call_genotypes
from tasks.errors import BalanceError
from tasks.files import whole_file
from tasks.genome.contigs import match_contigs
from tasks.genome.ploidy import ploidy_of
from tasks.genome.reference import Reference
from tasks.genome.regions import Regions
from tasks.intervals import Interval, to_position
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
    ]
)
"""One row a record, the fields of `tasks.calling.genotypes.Call`; `contig` is the reference's index."""

_HEADER = (
    '##FILTER=<ID=PASS,Description="All filters passed">',
    f'##FILTER=<ID=LowQual,Description="QUAL below {LOW_QUALITY:g}">',
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype: an allele for each copy of the place">',
    '##FORMAT=<ID=GQ,Number=1,Type=Integer,Description="How much likelier the genotype is than others, Phred-scaled">',
    '##FORMAT=<ID=DP,Number=1,Type=Integer,Description="Fragments that tell, overlapping mates counted once">',
    '##FORMAT=<ID=AD,Number=R,Type=Integer,Description="Fragments that show each allele">',
    '##FORMAT=<ID=AF,Number=A,Type=Float,Description="Share of the fragments that tell; mitochondrion only">',
    '##FORMAT=<ID=PL,Number=G,Type=Integer,Description="Phred-scaled genotype likelihoods, least 0">',
)
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

    Returns:
        Counts: ``reads`` (records that start in the shard by what became of them), ``candidates``,
        ``candidates_off_target``, ``calls``.

    Raises:
        AlignmentError: A record cannot be read.
    """
    index = reference.contig_index(interval.contig)
    calls: list[Call] = []
    num_candidates = num_off_target = 0
    reads: dict[str, int] = {}
    with open_alignment(Path(alignment["path"]), Path(alignment["index_path"]), reference.fasta_path) as handle:
        tid = _find_contig(handle, reference, index)
        if tid is not None:
            rows, reads = collect_rows(handle, tid, reference.contig_tokens(index), interval.start, interval.end)
            num_candidates = len(rows)
            contig = np.full(len(rows), index, np.int32)
            if regions is not None:
                lengths = np.array([len(ref) for ref in rows.ref], np.int64)
                keep = np.flatnonzero(regions.contains(contig, rows.start, rows.start + lengths))
                num_off_target = len(rows) - keep.size
                rows, contig = rows.take(keep), contig[keep]
            if len(rows):
                inputs: dict[str, np.ndarray] = {
                    "reference_window": reference_windows(reference, contig, rows.start),
                    "state": np.zeros((len(rows), state_size), np.float32),
                    "pileup": rows.pileup,
                    "evidence": rows.evidence,
                }
                told = infer(ENSEMBLE, inputs)
                calls = list(
                    call_genotypes(
                        rows.start,
                        rows.ref,
                        rows.alt,
                        rows.counts,
                        told["genotype"],
                        told["log_likelihood"],
                        ploidy_of(reference, index, rows.start, sex),
                    )
                )
    columns: dict[str, Any] = {
        name: [getattr(call, name) for call in calls] for name in CALL_SCHEMA.names if name != "contig"
    }
    table = pa.table({"contig": pa.array([index] * len(calls), pa.int32()), **columns}, schema=CALL_SCHEMA)
    with whole_file(output) as aside:
        pq.write_table(table, aside)
    return {
        "reads": reads,
        "candidates": num_candidates,
        "candidates_off_target": num_off_target,
        "calls": len(calls),
    }


def finish_calls(
    shards: Sequence[Path], reference: Reference, output_vcf: Path, sample_id: str, header_lines: Sequence[str] = ()
) -> dict[str, Any]:
    """Joins a sample's shards into one bgzip VCF in the reference's order; no shards make a VCF without records.

    Args:
        shards: Files of `call_shard`, in the order of `plan_call_shards`.
        reference: The genome.
        output_vcf: File to write, whole. The same calls give the same bytes.
        sample_id: Name of the sample's column.
        header_lines: More header lines, each beginning with ``##``.

    Returns:
        Counts: ``calls``, ``snv_calls``, ``low_quality``.

    Raises:
        BalanceError: The shards are not in order, or two of them hold one place.
    """
    names = [contig.name for contig in reference.contigs]
    header = [
        "##fileformat=VCFv4.2",
        *header_lines,
        *_HEADER,
        *(f"##contig=<ID={contig.name},length={contig.length_bp}>" for contig in reference.contigs),
        f"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{sample_id}",
    ]
    summary = {"calls": 0, "snv_calls": 0, "low_quality": 0}
    last = (-1, -1)
    with whole_file(output_vcf) as aside, open(aside, "wb") as handle, BgzfWriter(handle) as vcf:
        vcf.write(("\n".join(header) + "\n").encode())
        for shard in shards:
            for row in _rows(shard):
                place = (row["contig"], row["start"])
                if place < last:
                    raise BalanceError(f"{shard}: calls are not in the reference's order at {place} after {last}")
                last = place
                summary["calls"] += 1
                summary["snv_calls"] += len(row["ref"]) == 1 and all(len(alt) == 1 for alt in row["alts"])
                summary["low_quality"] += row["filter"] != "PASS"
                vcf.write(_format(row, names[row["contig"]]).encode())
    return summary


def _find_contig(handle: Any, reference: Reference, index: int) -> int | None:
    """The header's index of a contig of the reference; None where the alignment does not list it."""
    md5s = [line.get("M5") for line in handle.header.to_dict().get("SQ", [])] or [None] * handle.nreferences
    match = match_contigs(list(handle.references), list(handle.lengths), md5s, reference)
    found = np.flatnonzero(match.index == index)
    return int(found[0]) if found.size else None


def _rows(shard: Path) -> Iterator[dict[str, Any]]:
    for batch in pq.ParquetFile(shard).iter_batches():
        yield from batch.to_pylist()


def _format(row: dict[str, Any], contig: str) -> str:
    depths = row["allele_depths"]
    if row["alleles"]:
        values = {
            "GT": "/".join(map(str, row["alleles"])),
            "GQ": str(row["genotype_quality"]),
            "DP": str(row["depth"]),
            "AD": ",".join(map(str, depths)),
            "PL": ",".join(map(str, row["likelihoods"])),
        }
    else:
        fractions = (depth / max(row["depth"], 1) for depth in depths[1:])
        values = {
            "GT": ".",
            "DP": str(row["depth"]),
            "AD": ",".join(map(str, depths)),
            "AF": ",".join(f"{fraction:.4f}" for fraction in fractions),
        }
    fields = (
        contig,
        str(to_position(row["start"])),
        ".",
        row["ref"],
        ",".join(row["alts"]),
        f"{row['qual']:.2f}",
        row["filter"],
        ".",
        ":".join(values),
        ":".join(values.values()),
    )
    return "\t".join(fields) + "\n"
