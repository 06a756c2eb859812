"""The first reading: counts, reasons, and the refusal of files that are damaged or made with another reference."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pysam.bcftools
import pytest

from tasks.errors import InputError, ReferenceError, VariantFileError
from tasks.genome.reference import Reference, prepare_reference
from tasks.genome.regions import merge_regions, read_bed
from tasks.reporting.sample_notes import read_notes
from tasks.variants import text as vcf_text
from tasks.variants.allele_runs import distinct_alleles
from tasks.variants.scanning import scan_variants
from tests.tasks.variant_files import COLUMNS, make_genome, write_bgzip
from tests.tasks.variant_files import vcf_text as make_text

Genome = tuple[Reference, dict[str, str]]


@pytest.fixture(scope="module")
def genome(tmp_path_factory: pytest.TempPathFactory) -> Genome:
    return make_genome(tmp_path_factory.mktemp("genome"))


def snv(genome: Genome, contig: str, position: int, *, match: bool = True) -> str:
    """A record whose REF is the reference, or is not."""
    base = genome[1][contig][position - 1]
    other = "ACGT"[("ACGT".index(base) + 1) % 4]
    return f"{contig} {position} . {base if match else other} {other if match else base} . PASS ."


def scan(text: str | bytes, genome: Genome, folder: Path, **options: Any) -> dict[str, Any]:
    path = folder / "x.vcf"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return scan_variants(path, genome[0], folder / "work", **options)


def test_counts_what_it_reads(genome: Genome, tmp_path: Path) -> None:
    base = genome[1]["chr1"][9]
    records = [
        f"chr1 10 . {base} <DEL>,* . . .",
        f"chr1 10 . {base} . . . .",
        "chr1 101 . AA A . . .",
        "chr1 110 . AA A . . .",
        "nowhere 5 . A C . . .",
        snv(genome, "2:x", 7),
        snv(genome, "2:x", 7),
    ]
    summary = scan(make_text(records), genome, tmp_path, what="sample A")
    assert summary == {
        "records_in": 7,
        "records": 7,
        "rejected": 0,
        "rejected_lines": [],
        "records_without_alt": 1,
        "alleles": 7,
        "scorable": 4,
        "skipped": {"SPANNING_DELETION": 1, "SYMBOLIC": 1, "UNKNOWN_CONTIG": 1},
        "refs_checked": 6,
        "refs_differ": 0,
        "sorted": True,
        "max_position": 111,
        "runs": ["alleles-0000.parquet"],
        "contigs": {"chr1": 4, "nowhere": 1, "2:x": 2},
        "samples": [],
        "build": None,
        "mixed_names": None,
        "repairs": {},
        "warnings": [],
    }
    alleles = distinct_alleles([tmp_path / "work" / "alleles-0000.parquet"], 0, 1 << 63)
    assert alleles["start"].to_pylist() == [99, 6]


@pytest.mark.parametrize("container", ["plain", "gzip", "bgzip", "bcf", "crlf", "no newline", "tiny blocks"])
def test_every_container_gives_the_same_alleles(
    container: str, genome: Genome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [snv(genome, "chr1", position) for position in range(200, 1900, 3)]
    text = make_text(records).encode()
    expected = scan(text, genome, tmp_path)
    runs = [tmp_path / "work" / name for name in expected["runs"]]
    alleles = distinct_alleles(runs, 0, 1 << 63)
    path = tmp_path / "y"
    if container == "plain":
        path.write_bytes(text)
    elif container == "gzip":
        path.write_bytes(gzip.compress(text))
    elif container == "bgzip":
        write_bgzip(path, text)
    elif container == "bcf":
        pysam.bcftools.view("-Ob", "-o", str(path), str(tmp_path / "x.vcf"), catch_stdout=False)
    elif container == "crlf":
        path.write_bytes(text.replace(b"\n", b"\r\n"))
    elif container == "no newline":
        path.write_bytes(text[:-1])
    else:
        path.write_bytes(text)
        monkeypatch.setattr(vcf_text, "BLOCK_BYTES", 300)
        monkeypatch.setattr(vcf_text, "_READ_BYTES", 100)
    summary = scan_variants(path, genome[0], tmp_path / "again")
    assert summary | {"repairs": {}} == expected
    assert alleles == distinct_alleles([tmp_path / "again" / name for name in summary["runs"]], 0, 1 << 63)
    assert list((tmp_path / "again").glob(".*")) == []


def test_record_order_and_the_spelling_of_contigs_change_nothing(genome: Genome, tmp_path: Path) -> None:
    records = [snv(genome, contig, position) for contig in ("chr1", "2:x") for position in range(200, 400)]
    found = []
    for variant in range(3):
        folder = tmp_path / str(variant)
        folder.mkdir()
        ordered = records if variant != 1 else list(np.random.default_rng(1).permutation(records))
        text = make_text(ordered, header=["##fileformat=VCFv4.2"])
        summary = scan(text if variant != 2 else text.replace("chr1\t", "1\t"), genome, folder)
        assert summary["sorted"] == (variant != 1)
        found.append(distinct_alleles([folder / "work" / name for name in summary["runs"]], 0, 1 << 63))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("contigs", "is_sorted"),
    [
        ("chr1 5,chr1 5,chr1 6,2:x 1", True),
        ("2:x 1,chr1 5", True),
        ("chr1 6,chr1 5", False),
        ("chr1 5,2:x 1,chr1 6", False),
        ("chr1 5,nowhere 1,2:x 1", True),
    ],
)
@pytest.mark.parametrize("block_bytes", [2, 1 << 20])
def test_sees_whether_records_are_sorted(
    contigs: str, is_sorted: bool, block_bytes: int, genome: Genome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vcf_text, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(vcf_text, "_READ_BYTES", block_bytes)
    text = make_text([f"{place} . N <DEL> . . ." for place in contigs.split(",")])
    assert scan(text, genome, tmp_path)["sorted"] == is_sorted


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("chr1\t5\t.\tA\tC\t.\t.", "FIELD_COUNT"),
        ("chr1\t5\t.\tA\tC\t.\t.\t.\tGT", "FIELD_COUNT"),
        ("chr1 5 . A C . . .", "FIELD_COUNT"),
        ("chr1\t123abc\t.\tA\tC\t.\t.\t.", "BAD_POS"),
        ("chr1\t\t.\tA\tC\t.\t.\t.", "BAD_POS"),
        ("chr1\t-1\t.\tA\tC\t.\t.\t.", "BAD_POS"),
        ("chr1\t1.5\t.\tA\tC\t.\t.\t.", "BAD_POS"),
        ("chr1\t1234567890123456789\t.\tA\tC\t.\t.\t.", "BAD_POS"),
        ("\t5\t.\tA\tC\t.\t.\t.", "EMPTY_FIELD"),
        ("chr1\t5\t.\t\tC\t.\t.\t.", "EMPTY_FIELD"),
        ("chr1\t5\t.\tA\t\t.\t.\t.", "EMPTY_FIELD"),
        ("chr1\t5\t.\tA\tC\t.\t.\tX=\0", "NUL_BYTE"),
        ("#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO", "HEADER_LINE"),
    ],
)
def test_a_line_that_is_no_record_is_counted_with_its_number(
    line: str, reason: str, genome: Genome, tmp_path: Path
) -> None:
    records = [snv(genome, "chr1", position) for position in range(200, 300)]
    text = make_text(records[:40]) + line + "\n" + "\n".join(record.replace(" ", "\t") for record in records[40:])
    summary = scan(text, genome, tmp_path)
    assert (summary["records_in"], summary["records"], summary["rejected"]) == (101, 100, 1)
    (fault,) = summary["rejected_lines"]
    assert (fault["line"], fault["reason"]) == (45, reason)


def test_more_than_one_percent_of_bad_lines_fails(genome: Genome, tmp_path: Path) -> None:
    records = [snv(genome, "chr1", position) for position in range(200, 397)]
    bad = ["chr1 x . A C . . ."]
    assert scan(make_text(records + bad), genome, tmp_path)["rejected"] == 1
    with pytest.raises(VariantFileError, match=r"2 of 199 lines .* line 202: POS is not") as caught:
        scan(make_text(records + bad * 2), genome, tmp_path, rejected=tmp_path / "S.rejected.vcf")
    assert caught.value.reason == "TOO_MANY_REJECTED"
    head, *lines = (tmp_path / "S.rejected.vcf").read_text().splitlines()
    assert "byte for byte" in head
    assert lines[::2] == [f"## line {line}: BAD_POS: POS is not a whole number, 0 or more" for line in (202, 203)]
    assert lines[1::2] == [bad[0].replace(" ", "\t")] * 2
    scan(make_text(records), genome, tmp_path, rejected=tmp_path / "S.rejected.vcf")
    assert not (tmp_path / "S.rejected.vcf").exists()


def test_blank_lines_are_mended_and_are_no_records(genome: Genome, tmp_path: Path) -> None:
    text = make_text([snv(genome, "chr1", 9), "", snv(genome, "chr1", 10)]) + "\n\r\n"
    summary = scan(text, genome, tmp_path)
    assert summary["records_in"] == summary["records"] == 2
    assert summary["repairs"] == {"blank_lines": 3, "carriage_returns": 1}


@pytest.mark.parametrize(
    ("matching", "differing", "fails"),
    [(0, 1, True), (1, 1, False), (30, 1, False), (0, 2, True), (7, 3, True), (95, 5, True), (98, 2, False)],
)
def test_a_wrong_reference_is_told_by_its_bases(
    matching: int, differing: int, fails: bool, genome: Genome, tmp_path: Path
) -> None:
    records = [snv(genome, "chr1", 200 + n, match=n >= differing) for n in range(matching + differing)]
    if fails:
        with pytest.raises(ReferenceError, match="wrong reference"):
            scan(make_text(records), genome, tmp_path)
    else:
        summary = scan(make_text(records), genome, tmp_path)
        assert (summary["refs_checked"], summary["refs_differ"]) == (matching + differing, differing)
        assert summary["skipped"].get("REF_MISMATCH", 0) == differing


def test_a_larger_build_without_contig_lines_is_told(genome: Genome, tmp_path: Path) -> None:
    header = ["##fileformat=VCFv4.2"]
    beyond = [f"chr1 {position} . A C . PASS ." for position in range(2002, 2102)]
    with pytest.raises(ReferenceError, match="goes past its contig's end, in 100 of 100 records"):
        scan(make_text(beyond, header=header), genome, tmp_path)
    # The two telomeres are no bases of the contig.
    ends = [f"{contig} {position} . N <DEL> . PASS ." for contig in ("chr1", "2:x") for position in (0, 2001)]
    summary = scan(make_text(ends, header=header), genome, tmp_path)
    assert (summary["refs_checked"], summary["refs_differ"]) == (0, 0)


def test_another_build_in_the_header_is_refused(genome: Genome, tmp_path: Path) -> None:
    header = ["##fileformat=VCFv4.2", "##contig=<ID=chr1,length=1999>", "##contig=<ID=2:x,length=2000>"]
    with pytest.raises(ReferenceError, match="another length"):
        scan(make_text([snv(genome, "chr1", 9)], header=header), genome, tmp_path)
    # Only a contig that carries records must fit.
    assert scan(make_text([snv(genome, "2:x", 9)], header=header), genome, tmp_path)["scorable"] == 1


def test_regions_keep_what_overlaps_them(genome: Genome, tmp_path: Path) -> None:
    regions = merge_regions(np.array([0]), np.array([249]), np.array([260]))
    summary = scan(
        make_text([snv(genome, "chr1", position) for position in range(240, 270)]), genome, tmp_path, regions=regions
    )
    assert (summary["scorable"], summary["skipped"]) == (11, {"OFF_TARGET": 19})


def test_a_sample_column_that_is_not_there_is_refused(genome: Genome, tmp_path: Path) -> None:
    text = make_text([snv(genome, "chr1", 9) + " GT 0/1 0/1"], columns=f"{COLUMNS}\tFORMAT\tA\tB")
    assert scan(text, genome, tmp_path, vcf_sample="B")["samples"] == ["A", "B"]
    with pytest.raises(VariantFileError, match="no sample 'C'; it has A, B") as caught:
        scan(text, genome, tmp_path, vcf_sample="C")
    assert caught.value.reason == "NO_SUCH_SAMPLE"


def test_what_was_dropped_of_the_regions_is_told(genome: Genome, tmp_path: Path) -> None:
    (tmp_path / "regions.bed").write_text("chr1\t5\t20\nchr7\t1\t2\n")
    regions = read_bed(tmp_path / "regions.bed", genome[0])
    summary = scan(make_text([snv(genome, "chr1", 9)]), genome, tmp_path, regions=regions)
    (note,) = read_notes({"alleles": summary})
    assert note.text == "intervals of the regions whose contig the reference does not have were left out"
    assert note.detail == "1 on chr7"


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_truncated_bcf_is_refused(cut: int, genome: Genome, tmp_path: Path) -> None:
    (tmp_path / "x.vcf").write_text(make_text([snv(genome, "chr1", position) for position in range(200, 900)]))
    bcf = tmp_path / "x.bcf"
    pysam.bcftools.view("-Ob", "-o", str(bcf), str(tmp_path / "x.vcf"), catch_stdout=False)
    content = bcf.read_bytes()
    bcf.write_bytes(content[:-cut])
    with pytest.raises(VariantFileError) as caught:
        scan_variants(bcf, genome[0], tmp_path / "work")
    assert caught.value.reason == "TRUNCATED"
    bcf.write_bytes(content[:-300] + content[-200:])
    with pytest.raises(InputError):
        scan_variants(bcf, genome[0], tmp_path / "work")


def test_a_file_without_records_has_no_runs(genome: Genome, tmp_path: Path) -> None:
    summary = scan(make_text([]), genome, tmp_path)
    assert (summary["records_in"], summary["alleles"], summary["runs"]) == (0, 0, [])


def test_many_contigs_in_any_order(tmp_path: Path) -> None:
    names = [f"scaffold_{number}" for number in range(3000)]
    (tmp_path / "g.fa").write_text("".join(f">{name}\nACGT\n" for name in names))
    reference = prepare_reference(tmp_path / "g.fa", tmp_path / "prepared")
    order = np.random.default_rng(1).permutation(np.repeat(names, 3))
    path = tmp_path / "x.vcf"
    path.write_text(make_text([f"{name} 2 . C G . . ." for name in order], header=[]))
    summary = scan_variants(path, reference, tmp_path / "work")
    assert summary["contigs"] == dict.fromkeys(dict.fromkeys(order.tolist()), 3)
    assert summary["scorable"] == 9000


def test_the_engine_imports_nothing_heavy() -> None:
    code = (
        "import sys, tasks.variants.scanning, tasks.variants.annotating;"
        "print(sorted({'torch', 'pandas', 'prefect', 'mlflow', 'evidently', 'pysam'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_every_odd_file_has_an_outcome(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "na12878"
    reference = prepare_reference(folder / "ucsc.hg19.chr20.unittest.fasta.gz", tmp_path / "reference")
    outcomes = {}
    for path in sorted((shared_data / "odd" / "vcf").glob("*.vcf*")):
        if path.suffix == ".tbi":
            continue
        try:
            summary = scan_variants(path, reference, tmp_path / path.name)
            outcomes[path.name] = f"{summary['records']}/{summary['scorable']}"
        except InputError as error:
            outcomes[path.name] = error.reason
    good = {name: outcome for name, outcome in outcomes.items() if outcome != "WRONG_REFERENCE"}
    assert good == {
        "15.vcf": "296/2",
        "empty.vcf": "EMPTY_FILE",
        "example_empty.vcf": "EMPTY_FILE",
        "example_vcf42_only_header.vcf": "0/0",
        "golden.postprocess_gvcf_output.g.vcf": "225/77",
        "malformed.vcf": "TOO_MANY_REJECTED",
        "multi-contig.vcf.gz": "9/0",
        "test-invalid-header.vcf": "BAD_HEADER",
        "vcf_no_header.vcf": "NO_HEADER",
    }
    assert len(outcomes) > 25


def test_a_text_that_ends_inside_a_line_is_cut_off(genome: Genome, tmp_path: Path) -> None:
    base = genome[1]["chr1"][9]
    whole = make_text([f"chr1 10 . {base} <DEL> . . ."] * 300)
    assert scan(whole, genome, tmp_path)["records"] == 300
    for lost in (6, 12):
        with pytest.raises(VariantFileError, match=r"cut off: the last line .* after 299 records") as caught:
            scan(whole[: len(whole) - lost], genome, tmp_path)
        assert caught.value.reason == "TRUNCATED"
    assert scan(whole.rstrip(), genome, tmp_path)["records"] == 300
    fewer = whole.replace("<DEL>\t.\t.\t.\n", "<DEL>\n", 1)
    assert scan(fewer, genome, tmp_path)["rejected"] == 1
