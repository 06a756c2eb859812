"""The text of a called VCF: header and records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.calling.genotypes import LOW_QUALITY
from tasks.genome.reference import Reference
from tasks.intervals import to_position

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


def header_text(reference: Reference, sample_id: str, lines: Sequence[str]) -> str:
    """The header of one sample's calls, with more ``##`` lines behind the first."""
    return "".join(
        f"{line}\n"
        for line in (
            "##fileformat=VCFv4.2",
            *lines,
            *_HEADER,
            *(f"##contig=<ID={contig.name},length={contig.length_bp}>" for contig in reference.contigs),
            f"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{sample_id}",
        )
    )


def record_line(row: dict[str, Any], contig: str) -> str:
    """The line of a call: a row of `tasks.calling.calling.CALL_SCHEMA`, and its contig's name."""
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
