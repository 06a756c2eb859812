"""The sample sheet: read as people and spreadsheets write it, and answered with every fault at once."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.errors import SheetError
from tasks.sheets.sheet import Sample, SampleSheet, read_sheet

FILES = ("a.vcf", "b.vcf.gz", "c.bcf", "a.bam", "b.bam", "a.bam.bai", "a.cram", "a.cram.crai", "a.bed", "b.bed",
         "a_R1.fq.gz", "a_R2.fq.gz", "b_R1.fq.gz", "b_R2.fq.gz", "i.fastq", "my data/a.vcf")  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my data").mkdir()
    for name in FILES:
        (tmp_path / name).write_text("x")
    return tmp_path


def read(folder: Path, content: str | bytes) -> SampleSheet:
    path = folder / "sheet.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_sheet(path)


def one(folder: Path, content: str | bytes) -> Sample:
    (sample,) = read(folder, content).samples
    return sample


def faults(folder: Path, content: str | bytes) -> list[str]:
    """The fault lines of the one answer."""
    with pytest.raises(SheetError) as caught:
        read(folder, content)
    assert caught.value.blame == "input"
    head, *rest = str(caught.value).split("\n")
    prefix = f"{folder / 'sheet.csv'}: "
    assert head.startswith(prefix)
    return [line.strip() for line in rest] if "faults" in head and rest else ["\n".join([head[len(prefix) :], *rest])]


def test_the_four_kinds(folder: Path) -> None:
    sheet = read(
        folder,
        "sample,vcf,bam,bai,cram,crai,fastq_1,fastq_2\n"
        "v,a.vcf,,,,,,\n"
        "b,,a.bam,a.bam.bai,,,,\n"
        "c,,,,a.cram,a.cram.crai,,\n"
        "f,,,,,,a_R1.fq.gz,a_R2.fq.gz\n",
    )
    v, b, c, f = sheet.samples
    assert [sample.kind for sample in sheet.samples] == ["vcf", "bam", "cram", "fastq"]
    assert v.paths == (folder / "a.vcf",)
    assert v.index_paths == (None,)
    assert (b.paths, b.index_paths) == ((folder / "a.bam",), (folder / "a.bam.bai",))
    assert (c.paths, c.index_paths) == ((folder / "a.cram",), (folder / "a.cram.crai",))
    assert (f.paths, f.lanes[0].fastq_1, f.lanes[0].fastq_2) == ((), folder / "a_R1.fq.gz", folder / "a_R2.fq.gz")
    assert f.files == (folder / "a_R1.fq.gz", folder / "a_R2.fq.gz")
    assert [sample.line for sample in sheet.samples] == [2, 3, 4, 5]
    assert v.patient == "v"
    assert v.sex is v.status is v.vcf_sample is v.regions is None
    value = json.loads(json.dumps(f.to_json()))
    assert value["lanes"][0]["fastq_2"] == str(folder / "a_R2.fq.gz")
    assert Sample.from_json(value) == f


WRITINGS = {
    "plain": b"sample,vcf\nS,a.vcf\n",
    "no final newline": b"sample,vcf\nS,a.vcf",
    "CRLF": b"sample,vcf\r\nS,a.vcf\r\n",
    "CR": b"sample,vcf\rS,a.vcf\r",
    "BOM": b"\xef\xbb\xbfsample,vcf\nS,a.vcf\n",
    "UTF-16 little": "\ufeffsample\tvcf\r\nS\ta.vcf\r\n".encode("utf-16-le"),
    "UTF-16 big": "\ufeffsample\tvcf\r\nS\ta.vcf\r\n".encode("utf-16-be"),
    "tabs": b"sample\tvcf\nS\ta.vcf\n",
    "semicolons": b"sample;vcf\nS;a.vcf\n",
    "sep= line": b"sep=;\nsample;vcf\nS;a.vcf\n",
    "blank lines": b"\n\n  \nsample,vcf\n\nS,a.vcf\n\n",
    "empty lines of a spreadsheet": b"sample,vcf,,\n,,,\nS,a.vcf,,\n,,,\n",
    "spaces": b" sample , vcf \n S , a.vcf \n",
    "quotes": b'"sample","vcf"\n"S","a.vcf"\n',
    "spaces around quotes": b'"sample" , "vcf"\n "S" , "a.vcf" \n',
    "letter case": b"SAMPLE,Vcf\nS,a.vcf\n",
    "./": b"sample,vcf\nS,././a.vcf\n",
}


@pytest.mark.parametrize("content", WRITINGS.values(), ids=WRITINGS)
def test_one_sheet_in_many_writings(folder: Path, content: bytes) -> None:
    sample = one(folder, content)
    assert (sample.id, sample.kind, sample.paths) == ("S", "vcf", (folder / "a.vcf",))


def test_paths(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert one(folder, "sample,vcf\nS,my data/a.vcf\n").paths == (folder / "my data" / "a.vcf",)
    assert one(folder, f"sample,vcf\nS,{folder}/a.vcf\n").paths == (folder / "a.vcf",)
    (folder / "x,y.vcf").write_text("x")
    assert one(folder, 'sample,vcf\nS,"x,y.vcf"\n').paths == (folder / "x,y.vcf",)
    (folder / 'a"b.vcf').write_text("x")
    assert one(folder, 'sample,vcf\nS,"a""b.vcf"\n').paths == (folder / 'a"b.vcf',)
    (folder / "größe.vcf").write_text("x")
    assert one(folder, "sample,vcf\nS,größe.vcf\n").paths == (folder / "größe.vcf",)
    monkeypatch.chdir(folder)
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert one(folder, "sample,vcf\nS,a.vcf\n").paths == (folder / "a.vcf",)
    (folder / "my data" / "deep").mkdir()
    (folder / "linked deep").symlink_to(folder / "my data" / "deep")
    for dotted in ("my data/../a.vcf", "linked deep/../a.vcf"):
        expected = (folder / dotted).resolve()
        assert one(folder, f"sample,vcf\nS,{dotted}\n").paths[0].resolve() == expected
    read(folder, "sample,vcf\nS,a.vcf\n")
    os.chdir(folder)
    assert read_sheet(Path("sheet.csv")).samples[0].paths == (folder / "a.vcf",)


def test_lanes_are_merged(folder: Path) -> None:
    sample = one(
        folder,
        "patient,sample,lane,fastq_1,fastq_2,sex,status,note\n"
        "P,S,L1,a_R1.fq.gz,a_R2.fq.gz,XX,0,one\n"
        "P,S,,b_R1.fq.gz,b_R2.fq.gz,female,normal,two\n"
        "P,S,1,i.fastq,,XX,0,one\n",
    )
    assert [lane.name for lane in sample.lanes] == ["L1", "2", "1"]
    assert [lane.fastq_2 for lane in sample.lanes] == [folder / "a_R2.fq.gz", folder / "b_R2.fq.gz", None]
    assert [lane.line for lane in sample.lanes] == [2, 3, 4]
    assert (sample.patient, sample.sex, sample.status) == ("P", "XX", 0)
    assert sample.columns["note"] == "one;two"
    assert sample.columns["sex"] == "XX;female"
    assert sample.index_paths == ()


def test_lanes_of_samples_may_be_interleaved_in_the_sheet(folder: Path) -> None:
    sheet = read(folder, "sample,fastq_1\nS,a_R1.fq.gz\nT,b_R1.fq.gz\nS,i.fastq\n")
    assert [(sample.id, len(sample.lanes)) for sample in sheet.samples] == [("S", 2), ("T", 1)]


def test_interleaved_reads_are_named_as_such(folder: Path) -> None:
    lane = one(folder, "sample,fastq_1,interleaved\nS,i.fastq,yes\n").lanes[0]
    assert lane.interleaved
    assert lane.fastq_2 is None
    assert not one(folder, "sample,fastq_1,interleaved\nS,i.fastq,\n").lanes[0].interleaved
    assert faults(folder, "sample,fastq_1,fastq_2,interleaved\nS,a_R1.fq.gz,a_R2.fq.gz,true\n") == [
        "line 2, column fastq_2, 'a_R2.fq.gz': leave it empty: interleaved reads are all in fastq_1"
    ]
    assert faults(folder, "sample,fastq_1,interleaved\nS,i.fastq,perhaps\n") == [
        "line 2, column interleaved, 'perhaps': write yes or no"
    ]
    assert "means nothing without fastq_1" in faults(folder, "sample,vcf,interleaved\nS,a.vcf,yes\n")[0]
    assert one(folder, "sample,vcf,interleaved\nS,a.vcf,no\n").kind == "vcf"


def test_several_bams_of_a_sample_are_read_together(folder: Path) -> None:
    sample = one(folder, "sample,bam,bai\nS,a.bam,a.bam.bai\nS,b.bam,\n")
    assert sample.paths == (folder / "a.bam", folder / "b.bam")
    assert sample.index_paths == (folder / "a.bam.bai", None)


def test_several_vcfs_of_a_sample_are_told_apart_by_their_callers(folder: Path) -> None:
    sheet = read(
        folder,
        "sample,vcf,variantcaller,vcf_sample,regions\n"
        "S,a.vcf,gatk,X,a.bed\n"
        "S,b.vcf.gz,deepvariant,Y,b.bed\n"
        "T,c.bcf,gatk,,\n",
    )
    assert [sample.id for sample in sheet.samples] == ["S.gatk", "S.deepvariant", "T"]
    assert [sample.vcf_sample for sample in sheet.samples] == ["X", "Y", None]
    assert [sample.regions for sample in sheet.samples] == [folder / "a.bed", folder / "b.bed", None]
    assert {sample.patient for sample in sheet.samples} == {"S", "T"}
    found = faults(folder, "sample,vcf,variantcaller\nS,a.vcf,gatk\nS,b.vcf.gz,gatk\nS,c.bcf,\n")
    assert [line.split(":")[0] for line in found] == [
        "line 3, column variantcaller, 'gatk'",
        "line 4, column variantcaller, ''",
    ]
    assert "different values of variantcaller" in faults(folder, "sample,vcf\nS,a.vcf\nS,b.vcf.gz\n")[0]
    assert "S.gatk" in faults(folder, "sample,vcf,variantcaller\nS,a.vcf,gatk\nS,b.vcf.gz,x\nS.gatk,c.bcf,\n")[0]
    assert "file name" in faults(folder, "sample,vcf,variantcaller\nS,a.vcf,a/b\n")[0]


def test_samples_may_share_a_vcf_and_nothing_else(folder: Path) -> None:
    shared = read(folder, "sample,vcf,vcf_sample\nS,a.vcf,X\nT,a.vcf,Y\n")
    assert [sample.vcf_sample for sample in shared.samples] == ["X", "Y"]
    assert faults(folder, "sample,bam\nS,a.bam\nT,./a.bam\n") == [
        "line 3, column bam, './a.bam': is already line 2's bam, of sample S"
    ]
    assert "line 2's fastq_1" in faults(folder, "sample,fastq_1,fastq_2\nS,a_R1.fq.gz,a_R1.fq.gz\n")[0]
    assert "line 2's fastq_2" in faults(folder, "sample,fastq_1,fastq_2\nS,a_R1.fq.gz,a_R2.fq.gz\nT,a_R2.fq.gz,\n")[0]
    assert "line 2's vcf" in faults(folder, "sample,vcf,variantcaller\nS,a.vcf,x\nS,a.vcf,y\n")[0]


def test_other_columns_are_kept(folder: Path) -> None:
    sample = one(
        folder,
        "sample,vcf,sex,phenotype,paternal_id,maternal_id,case_id,My Column\nS,a.vcf,male,2,F,M,fam1,red\n",
    )
    assert sample.columns == {
        "sample": "S",
        "sex": "male",
        "phenotype": "2",
        "paternal_id": "F",
        "maternal_id": "M",
        "case_id": "fam1",
        "My Column": "red",
    }
    assert sample.sex == "XY"


@pytest.mark.parametrize(
    ("value", "sex"),
    [("XX", "XX"), ("female", "XX"), ("F", "XX"), ("2", "XX"), ("xy", "XY"), ("Male", "XY"), ("1", "XY"), ("NA", "NA"),
     ("0", "NA"), ("other", "NA"), ("unknown", "NA"), ("", None)],
)  # fmt: skip
def test_sexes(folder: Path, value: str, sex: str | None) -> None:
    assert one(folder, f"sample,vcf,sex\nS,a.vcf,{value}\n").sex == sex


@pytest.mark.parametrize(
    ("value", "status"), [("0", 0), ("normal", 0), ("1", 1), ("Tumor", 1), ("tumour", 1), ("", None)]
)
def test_statuses(folder: Path, value: str, status: int | None) -> None:
    assert one(folder, f"sample,vcf,status\nS,a.vcf,{value}\n").status == status


def test_every_fault_comes_in_one_answer(folder: Path) -> None:
    (folder / "sub.vcf").mkdir()
    found = faults(
        folder,
        "patient,sample,sex,status,vcf,bam,bai\n"
        "P,S 1,XX,0,a.vcf,,\n"
        "P,T,YY,2,absent.vcf,,\n"
        "P,,XX,0,,,\n"
        "P,U,XX,0,a.vcf,a.bam,\n"
        "P,V,XX,0,https://x.org/a.vcf,,\n"
        "P,W,XX,0,,a.bam,absent.bai\n"
        "P,X,XX\n"
        "P,Y,XX,0,c.bcf,,,surplus\n"
        "P,Z,XX,0,sub.vcf,,\n"
        "Q,T,XY,0,b.vcf.gz,,\n"
        "P,AA,XX,0,,,a.bam.bai\n"
        "P,BB,XX,0,b.bam,,\n",
    )
    assert len(found) == len(set(found))
    text = "\n".join(found)
    for expected in (
        "line 2, column sample, 'S 1': becomes a file name: letters, digits, _ . + - only, and neither . nor - first "
        "nor . last; write e.g. S_1",
        "line 3, column sex, 'YY': write XX or female or 2",
        "line 3, column status, '2': write 0 for normal, 1 for tumour",
        f"line 3, column vcf, 'absent.vcf': no such file: {folder}/absent.vcf (relative paths start from the sheet's",
        "line 4, column sample, '': empty",
        "line 4: no input; fill one of vcf, bam, cram, fastq_1",
        "line 5: two kinds of input, vcf and bam",
        "line 6, column vcf, 'https://x.org/a.vcf': a URL; download the file",
        "line 7, column bai, 'absent.bai': no such file",
        "line 7, column bam, 'a.bam': is already line 5's bam, of sample U",
        "line 8, 'P,X,XX': 3 values for 7 columns",
        "line 9, 'P,Y,XX,0,c.bcf,,,surplus': 8 values for 7 columns",
        "line 10, column vcf, 'sub.vcf': a folder",
        "line 11, column patient, 'Q': sample T has 'P' here on line 3",
        "line 12, column bai, 'a.bam.bai': means nothing without bam",
        "line 13, column vcf, 'b.bam': by its ending this belongs in column bam",
    ):
        assert expected in text, expected
    lines = [int(line.split()[1].rstrip(",:")) for line in found]
    assert lines == sorted(lines)


@pytest.mark.parametrize(
    "sample_id",
    ["a b", "a/b", "../x", ".a", "-a", "a.", "a\\b", "a:b", "a*", "ä", "a'b", "CON", "nul.x", "a" * 129, "..", "#a",
     "~a", "$HOME", "a\u200bb", "a\u202eb", "@a", "%41"],
)  # fmt: skip
def test_ids_unsafe_as_file_names_are_refused(folder: Path, sample_id: str) -> None:
    (fault,) = faults(folder, f"sample,vcf\n{sample_id},a.vcf\n")
    assert fault.startswith("line 2, column sample, ")


@pytest.mark.parametrize("sample_id", ["a", "A-1", "1234N", "a.b_c-d+e", "_x", "a" * 128, "NA12878", "console"])
def test_safe_ids(folder: Path, sample_id: str) -> None:
    assert one(folder, f"sample,vcf\n{sample_id},a.vcf\n").id == sample_id


def test_ids_that_differ_in_letter_case_alone(folder: Path) -> None:
    (fault,) = faults(folder, "sample,vcf\ns1,a.vcf\nS1,b.vcf.gz\n")
    assert fault == (
        "line 3, column sample, 'S1': gives the same file names as s1 on line 2; "
        "letter case alone does not tell them apart everywhere"
    )


def test_lines_of_a_sample_must_agree(folder: Path) -> None:
    found = faults(
        folder,
        "patient,sample,sex,status,lane,fastq_1,regions\nP,S,XX,0,1,a_R1.fq.gz,a.bed\nQ,S,XY,1,1,b_R1.fq.gz,b.bed\n",
    )
    assert [line.split(":")[0] for line in found] == [
        "line 3, column patient, 'Q'",
        "line 3, column sex, 'XY'",
        "line 3, column status, '1'",
        "line 3, column regions, 'b.bed'",
        "line 3, column lane, '1'",
    ]


def test_two_kinds_for_one_sample(folder: Path) -> None:
    (fault,) = faults(folder, "sample,vcf,bam\nS,a.vcf,\nS,,a.bam\n")
    assert fault == (
        "line 3, column sample, 'S': two kinds of input for one sample: vcf on line 2 and bam on line 3; "
        "use two samples"
    )


def test_a_patient_has_one_sex(folder: Path) -> None:
    (fault,) = faults(folder, "patient,sample,sex,vcf\nP,S,XX,a.vcf\nP,T,XY,b.vcf.gz\n")
    assert "patient P is XX on line 2" in fault
    assert len(read(folder, "patient,sample,sex,vcf\nP,S,XX,a.vcf\nP,T,NA,b.vcf.gz\n").samples) == 2


def test_duplicate_lines(folder: Path) -> None:
    for column, file in (("bam", "a.bam"), ("vcf", "a.vcf")):
        text = f"sample,{column}\nS,{file}\nS,{file}\n"
        assert faults(folder, text) == ["line 3: the same as line 2; delete one"]


def test_misspelt_columns(folder: Path) -> None:
    (fault,) = faults(folder, "sample,fastq_1,fastq2\nS,a_R1.fq.gz,a_R2.fq.gz\n")
    assert fault == "line 1, column fastq2: not a column of a sample sheet; is 'fastq_2' meant?"
    assert "'fastq_1' meant" in faults(folder, "sample,read1\nS,a_R1.fq.gz\n")[0]
    assert "'sample' meant" in "".join(faults(folder, "sample_id,vcf\nS,a.vcf\n"))
    assert "'sample' meant" in "".join(faults(folder, "smaple,vcf\nS,a.vcf\n"))
    assert "'variantcaller' meant" in faults(folder, "sample,vcf,variant_caller\nS,a.vcf,x\n")[0]
    assert one(folder, "sample,vcf,samples,gvcf,batch,lanes\nS,a.vcf,1,2,3,4\n").columns["gvcf"] == "2"


@pytest.mark.parametrize(
    ("column", "value", "meant"),
    [
        ("se", "1", "sex"),
        ("sx", "XX", "sex"),
        ("Sexe", "F", "sex"),
        ("sez", "male", "sex"),
        ("gender", "female", "sex"),
        ("lanes", "L001", "lane"),
        ("bams", "a.bam", "bam"),
        ("bma", "a.bam", "bam"),
        ("crams", "a.cram", "cram"),
        ("bed", "a.bed", "regions"),
        ("r2", "a_R2.fq.gz", "fastq_2"),
    ],
)
def test_a_column_that_may_be_a_short_misspelt_one_is_told(folder: Path, column: str, value: str, meant: str) -> None:
    sheet = read(folder, f"sample,vcf,{column}\nS,a.vcf,{value}\n")
    (warning,) = sheet.warnings
    assert warning.startswith(f"line 1, column {column}: ")
    assert f"if '{meant}' is meant" in warning
    assert sheet.samples[0].columns[column] == value


LAB_COLUMNS = """
    notes age site date plate panel batch name race dob mrn case line lab bmi set seq six gene tissue library run kit
    flowcell barcode index family consent country volume operator project cohort center tex bar bag base ban crab
    land plan land_use panels name_2 case_control vial vol lims stats_2 exome gvcf bam_md5 original_bam ai cf am
""".split()  # noqa: SIM905 - a line each would be three pages


@pytest.mark.parametrize("value", ["1", "2020-01-01", "", "x.bam.md5", "NA"])
def test_a_labs_own_columns_are_no_misspelt_ones(folder: Path, value: str) -> None:
    header = ",".join(["sample", "vcf", *LAB_COLUMNS])
    assert read(folder, f"{header}\nS,a.vcf,{','.join([value] * len(LAB_COLUMNS))}\n").warnings == ()


def test_columns_that_are_missing_doubled_or_nameless(folder: Path) -> None:
    found = faults(folder, "name|vcf\nS|a.vcf\n")
    assert any(
        "column sample: there is no such column; the header has 'name|vcf'; columns are separated by" in f
        for f in found
    )
    assert any("none of the columns vcf, bam, cram, fastq_1 is there" in fault for fault in found)
    assert (
        faults(folder, "sample,vcf,VCF\nS,a.vcf,b.vcf\n")[0]
        == "line 1, column VCF: columns 2 and 3 have this name; keep one"
    )
    assert "column 2 has no name" in faults(folder, "sample,,vcf\nS,x,a.vcf\n")[0]


NO_SHEETS = {
    "empty": (b"", "the file is empty"),
    "blank": (b"\n \n\t\n", "the file is empty"),
    "BOM alone": (b"\xef\xbb\xbf", "the file is empty"),
    "header only": (b"sample,vcf\n", "only a header"),
    "separators only": (b"sep=;\n", "no header line"),
    "Excel": (b"PK\x03\x04" + b"\x00" * 50, "Excel workbook"),
    "old Excel": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Excel"),
    "gzip": (gzip.compress(b"sample,vcf\n"), "compressed"),
    "VCF": (b"##fileformat=VCFv4.2\n#CHROM\n", "a VCF; name it in a sample sheet"),
    "binary": (b"sample,vcf\nS,a\x00.vcf\n", "a binary file"),
    "UTF-16 without its mark": ("sample,vcf\nS,a.vcf\n".encode("utf-16-le"), "UTF-16 without its mark"),
    "Latin-1": ("sample,vcf\nS,größe.vcf\n".encode("latin-1"), "line 2: bytes that are not UTF-8"),
    "JSON": (b'{"sample": 1}', "JSON"),
    "endless value": (b"sample,vcf,x\nS,a.vcf," + b"x" * 200_000, "line 2: a value of more than 131,072 characters"),
    "open quote": (b'sample,vcf\nS,a.vcf\nT,"b.vcf\nU,c.bcf\n', "line 3: a quote that is not closed"),
    "text after a quote": (b'sample,vcf\nS,"a".vcf\n', "line 2: "),
}


@pytest.mark.parametrize(("content", "message"), NO_SHEETS.values(), ids=NO_SHEETS)
def test_what_is_no_sheet(folder: Path, content: bytes, message: str) -> None:
    (fault,) = faults(folder, content)
    assert message in fault


def test_faults_of_columns_quotes_and_bytes_come_in_that_answer_too(folder: Path) -> None:
    text = 'sample,vcf,lab\nA,absent.vcf,x\nB,a.vcf,"x\nC,gone.vcf,x\nD,a.vcf,größe\n'
    found = faults(folder, text.encode("latin-1"))
    assert len(found) == 4
    for number, words in enumerate(("no such file", "quote that is not closed", "no such file", "not UTF-8"), 2):
        assert found[number - 2].startswith(f"line {number}")
        assert words in found[number - 2]
    misspelt = faults(folder, "smple,vcf\nS,absent.vcf\n")
    assert [fault.split(",")[0] for fault in misspelt] == ["line 1", "line 1", "line 2"]
    assert "is 'sample' meant" in misspelt[0]
    assert "no such file" in misspelt[2]


def test_missing_sheet_and_folder(tmp_path: Path) -> None:
    with pytest.raises(SheetError, match="no such file"):
        read_sheet(tmp_path / "absent.csv")
    with pytest.raises(SheetError, match="a folder"):
        read_sheet(tmp_path)


ILLUMINA = {
    "v1": "[Header]\nIEMFileVersion,4\n\n[Reads]\n151\n\n[Data]\nSample_ID,index\nLib1,ACGT\nLib2,TTTT\n",
    "v1 of a spreadsheet": "[Header],,\r\nx,4,\r\n,,\r\n[Data],,\r\nLane,Sample_ID,index\r\n1,Lib1,A\r\n2,Lib1,A\r\n",
    "v2": "[Header]\nFileFormatVersion,2\n\n[BCLConvert_Data]\nLane,Sample_ID,Index\n1,Lib1,ACGT\n",
    "data only": "[Data]\nSample_ID,index\nLib1,ACGT\n",
    "no sections": "Lane,Sample_ID,index\n1,Lib1,ACGT\n",
    "no data": "[Header]\nx,1\n",
}


@pytest.mark.parametrize(("content", "kind"), [(text, kind) for kind, text in ILLUMINA.items()], ids=ILLUMINA)
def test_illumina_sheets_are_answered_with_what_to_give(folder: Path, content: str, kind: str) -> None:
    (fault,) = faults(folder, content)
    assert f"this is Illumina's SampleSheet (v{2 if kind == 'v2' else 1})" in fault
    assert "sample,fastq_1,fastq_2" in fault
    if kind != "no data":
        assert "Lib1,Lib1_S1_L001_R1_001.fastq.gz,Lib1_S1_L001_R2_001.fastq.gz" in fault


def test_not_a_regular_file(folder: Path) -> None:
    os.mkfifo(folder / "pipe.vcf")
    assert "not a regular file" in faults(folder, "sample,vcf\nS,pipe.vcf\n")[0]
    (folder / "dangling.vcf").symlink_to("nowhere")
    assert "no such file" in faults(folder, "sample,vcf\nS,dangling.vcf\n")[0]
    assert "cannot be read: File name too long" in faults(folder, f"sample,vcf\nS,{'x' * 300}.vcf\n")[0]
    assert "control character" in faults(folder, 'sample,vcf\nS,"a\nb.vcf"\n')[0]
    assert "~ and variables are not expanded" in faults(folder, "sample,vcf\nS,~/a.vcf\n")[0]


@pytest.mark.parametrize("url", ["s3://bucket/a.vcf", "https://x/a.vcf", "gs://b/a.vcf", "ftp://x/a", "file:///a.vcf"])
def test_urls_are_refused(folder: Path, url: str) -> None:
    assert faults(folder, f"sample,vcf\nS,{url}\n") == [
        f"line 2, column vcf, {url!r}: a URL; download the file and give its path (this program fetches nothing)"
    ]


def test_lines_are_counted_over_quoted_line_ends(folder: Path) -> None:
    (fault,) = faults(folder, 'sample,vcf,note\nS,a.vcf,"two\nlines"\n\nT,absent.vcf,x\n')
    assert fault.startswith("line 5, column vcf, 'absent.vcf'")


def test_a_large_sheet_is_quick(folder: Path) -> None:
    rows = "".join(f"S{number},P{number},a.vcf,{number},x\n" for number in range(20_000))
    start = time.monotonic()
    assert len(read(folder, f"sample,patient,vcf,note,other\n{rows}").samples) == 20_000
    assert time.monotonic() - start < 10
    with pytest.raises(SheetError) as caught:
        read(folder, "sample,vcf\n" + "".join(f"S{number},absent.vcf\n" for number in range(5_000)))
    assert "5,000 faults" in str(caught.value)
    assert str(caught.value).endswith("... and 4,000 more")


cell = st.text(st.characters(codec="utf-8", exclude_characters='\n\r\x00",;\t'), max_size=8)


@pytest.fixture(scope="module")
def oddities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("oddities")
    for name in ("a.vcf", "a.bam", "r.fq"):
        (folder / name).write_text("x")
    return folder


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    header=st.lists(
        st.sampled_from(["sample", "vcf", "bam", "fastq_1", "fastq_2", "lane", "sex", "patient", "odd", "", "Sample"])
        | cell,
        max_size=6,
    ),
    rows=st.lists(
        st.lists(st.sampled_from(["S", "T", "a.vcf", "a.bam", "r.fq", "", "XX", "0"]) | cell, max_size=7), max_size=5
    ),
    delimiter=st.sampled_from(",;\t"),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_any_table_is_read_or_refused_in_words(
    oddities: Path, header: list[str], rows: list[list[str]], delimiter: str, end: str
) -> None:
    path = oddities / "sheet.csv"
    path.write_bytes(end.join(delimiter.join(row) for row in [header, *rows]).encode())
    try:
        samples = read_sheet(path).samples
    except SheetError:
        return
    assert samples
    assert len({sample.id.lower() for sample in samples}) == len(samples)
    assert all(file.is_file() for sample in samples for file in sample.files)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_refused_in_words(oddities: Path, content: bytes) -> None:
    path = oddities / "bytes.csv"
    path.write_bytes(content)
    with pytest.raises(SheetError):
        read_sheet(path)


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("raredisease_samplesheet.csv", ["10 faults", "line 6, column fastq_2, 'https://", "a URL; download"]),
        ("sarek_fastq_multi_lane.csv", ["line 3, column fastq_1", "a URL; download"]),
        (
            "sarek_fastq_multiple_sample_ids.csv",
            ["line 4, column patient, 'test2': sample test has 'test' here on line 2"],
        ),
        ("sarek_fastq_pair.csv", ["4 faults", "a URL"]),
        ("sarek_fastq_sample_with_space.csv", ["line 3, column sample, 'test 2'", "write e.g. test_2"]),
        ("sarek_mapped_single_bam.csv", ["line 2, column bam", "line 2, column bai", "a URL"]),
        ("sarek_mapped_single_cram.csv", ["line 2, column cram", "line 2, column crai", "a URL"]),
        ("sarek_schema_input.json", ["this is JSON"]),
        ("sarek_vcf_single.csv", ["line 2, column vcf", "a URL"]),
        ("v2_novaseq_x_dual_index.csv", ["Illumina's SampleSheet (v2)", "Sample1,Sample1_S1_L001_R1_001.fastq.gz"]),
        ("viralrecon_samplesheet.csv", ["3 faults", "line 3, column fastq_1", "no such file"]),
    ],
)
def test_the_real_sheets(shared_data: Path, name: str, messages: list[str]) -> None:
    with pytest.raises(SheetError) as caught:
        read_sheet(shared_data / "sample_sheets" / name)
    for message in messages:
        assert message in str(caught.value)


def test_the_real_sheets_with_their_files_at_hand(shared_data: Path, tmp_path: Path) -> None:
    """The same sheets, their URLs replaced by local files."""
    for name, kinds in {
        "raredisease_samplesheet.csv": [("1234N", "fastq", 5)],
        "sarek_fastq_pair.csv": [("test", "fastq", 1), ("test2", "fastq", 1)],
        "sarek_mapped_single_bam.csv": [("test", "bam", 0)],
        "sarek_mapped_single_cram.csv": [("test", "cram", 0)],
        "sarek_vcf_single.csv": [("test", "vcf", 0)],
        "viralrecon_samplesheet.csv": [("SAMPLE_PE", "fastq", 1), ("SAMPLE_SE", "fastq", 1)],
    }.items():
        text = (shared_data / "sample_sheets" / name).read_text()
        words = {word for line in text.splitlines() for word in line.split(",") if "/" in word}
        for word in words:
            (tmp_path / word.rsplit("/", 1)[1]).write_text("x")
            text = text.replace(word, word.rsplit("/", 1)[1])
        (tmp_path / name).write_text(text)
        samples = read_sheet(tmp_path / name).samples
        assert [(sample.id, sample.kind, len(sample.lanes)) for sample in samples] == kinds


@pytest.mark.parametrize(
    ("value", "amplicon"), [("amplicon", True), ("AMPLICON", True), ("capture v7", False), ("", False)]
)
def test_protocols(folder: Path, value: str, amplicon: bool) -> None:
    assert one(folder, f"sample,fastq_1,protocol\nS,a_R1.fq.gz,{value}\n").is_amplicon is amplicon


def test_a_misspelt_amplicon_is_no_other_protocol(folder: Path) -> None:
    with pytest.raises(SheetError, match="line 2, column protocol, 'Amplicons': write amplicon"):
        one(folder, "sample,fastq_1,protocol\nS,a_R1.fq.gz,Amplicons\n")


def test_parents_are_others_and_of_their_sex(folder: Path) -> None:
    header = "sample,patient,sex,paternal_id,maternal_id,vcf\n"
    trio = "dad,d,XY,,,a.vcf\nmum,m,XX,,,b.vcf.gz\nkid,k,XX,{},{},c.bcf\n"
    for father, mother in (("dad", "mum"), ("d", "m"), ("0", "nobody here")):
        assert len(read(folder, header + trio.format(father, mother)).samples) == 3
    found = faults(folder, header + trio.format("mum", "kid"))
    assert found == [
        "line 4, column paternal_id, 'mum': is a father here, and its own line says sex XX",
        "line 4, column maternal_id, 'kid': nobody is the mother of themselves",
    ]
