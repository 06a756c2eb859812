"""Genomic VCF: a sample's variants, and between them blocks that say where it has the reference.

Of the bases of a call that was left out beside a likelier one (`tasks.calling.overlaps`) nothing is said. The allele
that nobody saw is ``<*>`` (VCF 4.3, section 5.5). Records of variants have it too, as those that merge such files
expect.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.bgzf import BgzfWriter
from tasks.calling.reference_blocks import BANDS, MAX_LIKELIHOOD, Block
from tasks.calling.settling import settle_calls
from tasks.calling.vcf_text import header_text, record_line
from tasks.files import whole_file
from tasks.genome.reference import Reference
from tasks.intervals import to_position
from tasks.variants.index import write_index

BLOCK_SCHEMA = pa.schema(
    [
        ("contig", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("min_depth", pa.int32()),
        ("likelihoods", pa.list_(pa.int32())),
        ("num_copies", pa.int8()),
    ]
)
"""One row a block, the fields of `tasks.calling.reference_blocks.Block`; `contig` is the reference's index."""

UNSEEN = "<*>"
_HEADER = (
    f'##ALT=<ID=*,Description="Any allele that is not written: {UNSEEN} with INFO/END is a block of reference">',
    '##INFO=<ID=END,Number=1,Type=Integer,Description="Last position of the block">',
    '##FORMAT=<ID=MIN_DP,Number=1,Type=Integer,Description="Fewest fragments at a position of the block">',
    f"##cohortflow_gvcf_bands=<GQ={'/'.join(map(str, BANDS))}>",
)


def write_blocks(output: Path, contig: int, blocks: Sequence[Block]) -> None:
    """Writes blocks of one contig (its place in the reference), whole."""
    columns = {name: [getattr(block, name) for block in blocks] for name in BLOCK_SCHEMA.names if name != "contig"}
    table = pa.table({"contig": pa.array([contig] * len(blocks), pa.int32()), **columns}, schema=BLOCK_SCHEMA)
    with whole_file(output) as aside:
        pq.write_table(table, aside)


def finish_gvcf(
    calls: Sequence[Path],
    blocks: Sequence[Path],
    reference: Reference,
    output: Path,
    sample_id: str,
    header_lines: Sequence[str] = (),
) -> dict[str, int]:
    """Joins a sample's shards into one indexed bgzip gVCF; the same bytes wherever the shards were cut.

    Args:
        calls: The shards' files of `CALL_SCHEMA`, in the reference's order.
        blocks: Their files of `BLOCK_SCHEMA`.
        reference: The genome.
        output: File to write, whole.
        sample_id: Name of the sample's column.
        header_lines: More header lines, each beginning with ``##``.

    Returns:
        ``blocks`` and ``block_bases``.
    """
    names = [contig.name for contig in reference.contigs]
    summary = {"blocks": 0, "block_bases": 0}
    with whole_file(output) as aside:
        with open(aside, "wb") as handle, BgzfWriter(handle) as vcf:
            vcf.write(header_text(reference, sample_id, [*header_lines, *_HEADER]).encode())
            for _, _, item in heapq.merge(_settled(calls), _joined(blocks), key=lambda entry: entry[:2]):
                if isinstance(item, dict):
                    vcf.write(record_line(_with_unseen(item), names[item["contig"]]).encode())
                    continue
                contig, block = item
                summary["blocks"] += 1
                summary["block_bases"] += block.end - block.start
                base = reference.contig_tokens(contig)[block.start]
                vcf.write(_block_line(block, names[contig], "ACGTN"[min(int(base), 4)]).encode())
        write_index(aside, output, True, max(contig.length_bp for contig in reference.contigs))
    return summary


def _settled(calls: Sequence[Path]) -> Iterator[tuple[int, int, Any]]:
    for row in settle_calls(calls, {}):
        yield row["contig"], row["start"], row


def _joined(paths: Sequence[Path]) -> Iterator[tuple[int, int, Any]]:
    """The blocks, those that a shard's border cut joined again."""
    held: tuple[int, Block] | None = None
    for path in paths:
        for row in pq.read_table(path).to_pylist():
            contig = row.pop("contig")
            block = Block(**row | {"likelihoods": tuple(row["likelihoods"])})
            if held and held[0] == contig and held[1].joins(block):
                held = contig, held[1].join(block)
                continue
            if held:
                yield held[0], held[1].start, held
            held = contig, block
    if held:
        yield held[0], held[1].start, held


def _with_unseen(row: dict[str, Any]) -> dict[str, Any]:
    """A called record with the unseen allele as its last; a genotype that holds that is as unlikely as can be told."""
    num_alleles = 1 + len(row["alts"])
    likelihoods = row["likelihoods"]
    if likelihoods:
        likelihoods = [*likelihoods, *[MAX_LIKELIHOOD] * (1 if len(row["alleles"]) == 1 else num_alleles + 1)]
    return row | {
        "alts": [*row["alts"], UNSEEN],
        "allele_depths": [*row["allele_depths"], 0],
        "likelihoods": likelihoods,
    }


def _block_line(block: Block, contig: str, base: str) -> str:
    quality = block.genotype_quality
    genotype = "/".join(["0" if quality else "."] * block.num_copies)
    likelihoods = block.likelihoods[::2] if block.num_copies == 1 else block.likelihoods
    sample = f"{genotype}:{quality}:{block.min_depth}:{','.join(map(str, likelihoods))}"
    place = f"{contig}\t{to_position(block.start)}\t.\t{base}\t{UNSEEN}\t.\t.\tEND={block.end}"
    return f"{place}\tGT:GQ:MIN_DP:PL\t{sample}\n"
