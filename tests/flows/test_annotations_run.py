"""Annotations in whole runs: joined to VCF, Parquet and the cohort's table; another annotation is another plan."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pysam

from tests.flows.cohort import Cohort, records, run_command

HEADER = """\
##fileformat=VCFv4.2
##INFO=<ID=AF,Number=A,Type=Float,Description="frequency">
##INFO=<ID=CLNSIG,Number=.,Type=String,Description="classification">
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO
"""


def test_annotations_are_joined_and_belong_to_the_plan(cohort: Cohort, tmp_path: Path) -> None:
    lines = [line.split("\t") for line in records(cohort.vcf)]
    known = lines[::2]
    text = "".join(
        f"{chrom}\t{pos}\t.\t{ref.lower()}\t{alt}\t.\t.\t"
        f"AF={','.join([f'0.{row}0'] * len(alt.split(',')))};CLNSIG=a,b\n"
        for row, (chrom, pos, _, ref, alt, *_) in enumerate(known, 1)
    )
    annotation = tmp_path / "clinvar.vcf"
    annotation.write_text(HEADER + text)
    sheet = cohort.sheet("annotated.csv", [{"sample": "V", "vcf": cohort.vcf}])
    output = tmp_path / "out"
    common = ["score", sheet, "--reference", cohort.reference, "--output", output, "--quiet", "--annotate"]
    bad = run_command(*common, f"cv={annotation}:NOPE")
    assert (bad.returncode, "it declares AF, CLNSIG" in bad.stderr) == (2, True), bad.stderr
    run = run_command(*common, f"cv={annotation}:AF,CLNSIG")
    assert run.returncode == 0, run.stderr
    expected = {(line[0], line[1], line[3]): f"0.{row}0" for row, line in enumerate(known, 1)}
    num_alleles = 0
    for line in records(output / "samples/V/V.vcf.gz"):
        chrom, pos, _, ref, alt, _, _, info = line.split("\t")[:8]
        found = dict(entry.partition("=")[::2] for entry in info.split(";"))
        value = expected.get((chrom, pos, ref))
        size = len(alt.split(",")) if value else 0
        num_alleles += size
        assert found.get("cv_AF") == (",".join([value] * size) if value else None)
        assert found.get("cv_CLNSIG") == (",".join(["a%2Cb"] * size) if value else None)
    with pysam.VariantFile(str(output / "samples/V/V.vcf.gz")) as variants:
        assert variants.header.info["cv_AF"].type == "Float"
    for name in ("samples/V/V.parquet", "cohort/alleles.parquet"):
        table = pq.read_table(output / name)
        assert len(table) - table["cv_AF"].null_count == num_alleles
        assert set(table["cv_CLNSIG"].drop_null().to_pylist()) == {"a,b"}
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["annotations"]["cv"]["found"] == num_alleles
    assert manifest["samples"]["V"]["metrics"]["annotated"] == num_alleles
    assert "clinvar" not in (output / "samples/V/V.vcf.gz").read_bytes().decode("latin-1")
    assert "cv_CLNSIG" in (output / "report.html").read_text()
    other = run_command(*common, f"cv={annotation}:AF")
    assert other.returncode == 2
    assert "holds another plan" in other.stderr
    assert "annotations" in other.stderr
