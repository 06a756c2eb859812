"""What is told of a sheet before work starts."""

from __future__ import annotations

from pathlib import Path

import pysam.bcftools
import pytest

from flows.check_cohort import check_cohort
from flows.shared_details import SharedDetails
from tasks import precheck
from tests.tasks.variant_files import COLUMNS, make_genome, vcf_text

CONTIGS = tuple(f"##contig=<ID=chr1{number or ''},length={1000 + number}>" for number in range(40))


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return make_genome(tmp_path)[0].fasta_path


def sheet_of(folder: Path, vcfs: dict[str, str]) -> Path:
    for sample_id, text in vcfs.items():
        (folder / f"{sample_id}.vcf").write_text(text)
    sheet = folder / "sheet.csv"
    sheet.write_text("sample,vcf\n" + "".join(f"{sample_id},{sample_id}.vcf\n" for sample_id in vcfs))
    return sheet


def test_contig_lists_of_one_origin_are_shown_once(tmp_path: Path, reference: Path) -> None:
    wrong = vcf_text(["chr1 5 . A C . . ."], header=("##fileformat=VCFv4.2", *CONTIGS))
    lines, num_faults = check_cohort(sheet_of(tmp_path, {"A": wrong, "B": wrong, "C": vcf_text([])}), reference, None)
    assert num_faults == 2
    faults = [line for line in lines if line.startswith("FAULT")]
    assert [line.split()[1:3] for line in faults] == [["A:", "WRONG_REFERENCE:"], ["B:", "WRONG_REFERENCE:"]]
    for line in faults:
        assert "chr1 (1,000 bp, there 2,000)" in line
        assert "\n" not in line
    (details,) = [line for line in lines if line.startswith("details of")]
    assert details.splitlines()[0] == "details of A, B:"
    assert details.count("1,000 bp") == 1
    assert len(details.splitlines()) == 13
    assert details.endswith("more")


def test_fields_of_another_program_are_told(tmp_path: Path, reference: Path) -> None:
    mine = '##INFO=<ID=CF_REASON,Number=1,Type=Integer,Description="a reason">'
    ours = '##INFO=<ID=CF_DEMO_EFFECT,Number=A,Type=Float,Description="x",Source="cohortflow">'
    text = vcf_text([], header=("##fileformat=VCFv4.2", mine, ours))
    lines, _ = check_cohort(sheet_of(tmp_path, {"A": text}), reference, None)
    assert "caution: INFO/CF_REASON of another program would be replaced" in lines[1]
    assert "CF_DEMO_EFFECT" not in lines[1]


@pytest.mark.parametrize("cut", [1, 28, 60])
def test_a_bcf_that_is_cut_off_is_told_as_such(tmp_path: Path, reference: Path, cut: int) -> None:
    (tmp_path / "a.vcf").write_text(vcf_text(["chr1 5 . A C . . ."]))
    bcf = tmp_path / "a.bcf"
    pysam.bcftools.view("-Ob", "-o", str(bcf), str(tmp_path / "a.vcf"), catch_stdout=False)
    bcf.write_bytes(bcf.read_bytes()[:-cut])
    (tmp_path / "sheet.csv").write_text("sample,vcf\nA,a.bcf\n")
    lines, num_faults = check_cohort(tmp_path / "sheet.csv", reference, None)
    assert num_faults == 1
    assert lines[1].startswith("FAULT   A: TRUNCATED: ")


def test_what_is_dropped_of_regions_is_told(tmp_path: Path, reference: Path) -> None:
    (tmp_path / "own.bed").write_text("chr1\t1\t50\nchr8\t1\t50\n")
    (tmp_path / "all.bed").write_text("chr1\t1\t50\nchr9\t1\t50\n")
    sheet = sheet_of(tmp_path, {"A": vcf_text([])})
    sheet.write_text("sample,vcf,regions\nA,A.vcf,own.bed\nB,A.vcf,\n")
    lines, _ = check_cohort(sheet, reference, tmp_path / "all.bed")
    told = [line for line in lines if "does not have were left out" in line]
    assert [line.split(":")[0] for line in told] == ["regions", "ok      A"]
    assert "1 on chr9: " in told[0]
    assert "1 on chr8: " in told[1]


@pytest.mark.parametrize("max_whole_bytes", [precheck.MAX_WHOLE_BYTES, 1], ids=["read whole", "too large for that"])
def test_mates_in_the_wrong_place_are_told(
    tmp_path: Path, reference: Path, max_whole_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precheck, "MAX_WHOLE_BYTES", max_whole_bytes)
    for name, mate in (("a_1.fq", 1), ("a_2.fq", 2), ("b_1.fq", 1)):
        (tmp_path / name).write_text("".join(f"@r{i}/{mate}\n{'ACGT' * 25}\n+\n{'I' * 100}\n" for i in range(20)))
    rows = ["S,a_2.fq,a_1.fq", "T,b_1.fq,c_1.fq"]
    (tmp_path / "c_1.fq").write_text((tmp_path / "a_1.fq").read_text())
    sheet = tmp_path / "reads.csv"
    sheet.write_text("\n".join(["sample,fastq_1,fastq_2", *rows, ""]))
    lines, num_faults = check_cohort(sheet, reference, None)
    assert num_faults == 1
    (swapped,) = [line for line in lines if line.startswith("ok      S:")]
    assert swapped.count("caution: a_2.fq and a_1.fq: the read names say that second mates stand") == 1
    (same,) = [line for line in lines if line.startswith("FAULT   T: MATES_DIFFER")]
    assert "c_1.fq: both hold mate 1" in same


def test_parents_and_columns_of_the_sheet_that_are_hardly_meant_are_told(tmp_path: Path, reference: Path) -> None:
    (tmp_path / "kid.vcf").write_text(vcf_text([], columns=f"{COLUMNS}\tFORMAT\tkid\tmum"))
    sheet = tmp_path / "family.csv"
    sheet.write_text("sample,vcf,paternal_id,maternal_id,sx\nkid,kid.vcf,dad,mum,XX\n")
    lines, num_faults = check_cohort(sheet, reference, None)
    assert num_faults == 0
    assert any(line.startswith("sheet: caution: line 1, column sx: ") for line in lines)
    (line,) = [line for line in lines if line.startswith("ok      kid:")]
    assert "caution: UNKNOWN_PARENT: the sheet names dad as father" in line
    assert line.count("UNKNOWN_PARENT") == 1


def test_contigs_named_in_two_ways_are_told(tmp_path: Path, reference: Path) -> None:
    records = [f"{name} 5 . N T . . ." for name in ("chr1", "1")]
    text = vcf_text(records, header=("##fileformat=VCFv4.2",))
    usual = vcf_text(records[1:], header=("##fileformat=VCFv4.2",))
    lines, num_faults = check_cohort(sheet_of(tmp_path, {"A": text, "B": usual}), reference, None)
    assert num_faults == 0
    told = {line.split()[1]: "caution: MIXED_CONTIG_NAMES" in line for line in lines if line.startswith("ok")}
    assert told == {"A:": True, "B:": False}


def test_details_keep_to_their_samples() -> None:
    details = SharedDetails()
    assert details.add("A", "first\ntable\nrow") == "first"
    assert details.add("B", "alone") == "alone"
    assert details.add("C", "other first\ntable\nrow") == "other first"
    assert details.add("D", "first\nanother") == "first"
    assert details.lines() == ["details of A, C:\ntable\nrow", "details of D:\nanother"]
