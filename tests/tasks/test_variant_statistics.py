from __future__ import annotations

from pathlib import Path

import pysam
import pytest

from tasks.pipelines import make_pipeline
from tasks.variants.statistics import variant_statistics
from tasks.variants.table import write_variant_table

HEADER = """##fileformat=VCFv4.2
##INFO=<ID=CF_DEMO_EFFECT,Number=A,Type=Float,Description="x">
##INFO=<ID=CF_REASON,Number=A,Type=String,Description="x">
##FORMAT=<ID=GT,Number=1,Type=String,Description="x">
##contig=<ID=chr1,length=400>
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"""
RECORDS = (
    ("10", "A", "G,<DEL>", "CF_DEMO_EFFECT=0.5,.;CF_REASON=.,SYMBOLIC", "1/2"),  # a transition, a symbol; het
    ("11", "A", ".", ".", "0/0"),
    ("12", "a", "CT", "CF_DEMO_EFFECT=0.25", "1|1"),  # an insertion; hom
    ("12", "A", "t", "CF_DEMO_EFFECT=0.75", "0/1"),  # another record at one place: a transversion; het
    ("13", "CAT", "C", "CF_DEMO_EFFECT=0.1", "./."),  # a deletion
    ("14", "C", "T", "CF_DEMO_EFFECT=0.9", "1"),  # a transition; haploid
    ("15", "N", "T", ".", "0/1"),  # REF is no base; het
)


def _table(folder: Path, num_samples: int) -> Path:
    names = "".join(f"\tS{n}" for n in range(num_samples))
    lines = [HEADER + ("\tFORMAT" + names if num_samples else "")]
    for position, ref, alt, info, genotype in RECORDS:
        columns = ["chr1", position, ".", ref, alt, ".", ".", info, *(["GT"] if num_samples else [])]
        lines.append("\t".join([*columns, *[genotype] * num_samples]))
    plain = folder / "s.vcf"
    plain.write_text("\n".join(lines) + "\n")
    pysam.tabix_compress(str(plain), str(folder / "s.vcf.gz"))
    table = folder / "s.parquet"
    write_variant_table(folder / "s.vcf.gz", table, ["CF_DEMO_EFFECT", "CF_REASON"], {})
    return table


@pytest.mark.parametrize("num_samples", [0, 1, 2])
def test_alleles_genotypes_and_scores(tmp_path: Path, num_samples: int) -> None:
    found = variant_statistics(_table(tmp_path, num_samples), make_pipeline("demo-effect").fields)
    kinds = {"transitions": 2, "transversions": 1, "insertions": 1, "deletions": 1}
    # One sample alone has genotypes to count: of several, each would have its own.
    genotypes = {"het": 3, "hom": 1} if num_samples == 1 else {}
    scores = {"CF_DEMO_EFFECT": [0.1, 0.25, 0.5, 0.75, 0.9]}
    assert found == {**kinds, **genotypes, "scores": scores}
