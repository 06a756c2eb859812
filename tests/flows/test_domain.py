"""Whole runs over reads that the caller was not made for: aligned, counted, delivered, not called."""

from __future__ import annotations

import gzip
from pathlib import Path

import pysam
import pytest

from tests.flows.cohort import Cohort, run_command
from tests.flows.test_score_cohort import manifest_of


@pytest.fixture(scope="module")
def odd_reads(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    """The cohort's individual sequenced to 3x, as copied fragments, and as if an intron were in every tenth read."""
    folder = tmp_path_factory.mktemp("odd_reads")
    assert cohort.individual.fastq is not None
    for mate, path in enumerate(cohort.individual.fastq, 1):
        with gzip.open(path, "rb") as lines:
            records = [b"".join(record) for record in zip(lines, lines, lines, lines, strict=True)]
        (folder / f"shallow_R{mate}.fastq").write_bytes(b"".join(records[::8]))
        copies = [record.replace(b"@", b"@copy-", 1) for record in records]
        (folder / f"copied_R{mate}.fastq").write_bytes(b"".join(records + copies))
    with (
        pysam.AlignmentFile(str(cohort.individual.bam)) as reads,
        pysam.AlignmentFile(str(folder / "spliced.bam"), "wb", template=reads) as spliced,
    ):
        for number, read in enumerate(reads):
            if number % 10 == 0 and read.cigarstring == "150M":
                read.cigarstring = "75M100N75M"
            spliced.write(read)
    return Cohort(folder, cohort.reference, cohort.individual)


def fastq(folder: Path, name: str) -> dict[str, Path]:
    return {"fastq_1": folder / f"{name}_R1.fastq", "fastq_2": folder / f"{name}_R2.fastq"}


def test_reads_outside_the_domain_are_delivered_and_not_called(odd_reads: Cohort, tmp_path: Path) -> None:
    sheet = odd_reads.sheet(
        "sheet.csv",
        [
            {"sample": "shallow", **fastq(odd_reads.folder, "shallow")},
            {"sample": "amplicons", "protocol": "Amplicon", **fastq(odd_reads.folder, "copied")},
            {"sample": "spliced", "bam": odd_reads.folder / "spliced.bam"},
            {"sample": "tumour_reads", "status": 1, "bam": odd_reads.individual.bam},
            {"sample": "tumour_calls", "status": 1, "vcf": odd_reads.vcf},
        ],
    )
    output = tmp_path / "out"
    run = run_command("score", sheet, "--reference", odd_reads.reference, "--output", output)
    assert run.returncode == 3, run.stderr
    samples = manifest_of(output)["samples"]
    assert {name: (sample["status"], sample.get("reason")) for name, sample in samples.items()} == {
        "shallow": ("incomplete", "DEPTH_TOO_LOW"),
        "amplicons": ("done", None),
        "spliced": ("incomplete", "SPLICED_ALIGNMENTS"),
        "tumour_reads": ("failed", "TUMOUR_SAMPLE"),
        "tumour_calls": ("done", None),
    }
    endings = (".bam", ".bam.bai", ".callable.bed")
    assert samples["shallow"]["outputs"] == [f"samples/shallow/shallow{ending}" for ending in endings]
    assert samples["spliced"]["outputs"] == ["samples/spliced/spliced.callable.bed"]
    assert "incomplete: shallow: DEPTH_TOO_LOW" in run.stderr
    assert "failed: tumour_reads: TUMOUR_SAMPLE" in run.stderr
    assert samples["shallow"]["metrics"]["depth"] == pytest.approx(3.3, abs=0.6)
    assert samples["spliced"]["metrics"]["mapped"] > 0.9
    assert samples["tumour_reads"]["outputs"] == []
    assert samples["tumour_reads"]["metrics"] == {}  # refused before its reads were looked at
    assert samples["amplicons"]["metrics"]["duplicates"] == 0
    assert samples["amplicons"]["metrics"]["depth"] == pytest.approx(50, abs=6)
    assert samples["shallow"]["embedding"]["num_reads"] == samples["shallow"]["metrics"]["reads"]
    assert "DEPTH_TOO_LOW" in (output / "report.html").read_text()

    bam = output / "samples" / "shallow" / "shallow.bam"
    content = bam.read_bytes()
    bam.write_bytes(b"lost")
    again = run_command("score", sheet, "--reference", odd_reads.reference, "--output", output)
    assert again.returncode == 3, again.stderr
    assert bam.read_bytes() == content

    check = run_command("check", sheet, "--reference", odd_reads.reference)
    assert check.returncode == 2
    assert "FAULT   tumour_reads: TUMOUR_SAMPLE" in check.stdout
    assert "FAULT   spliced: SPLICED_ALIGNMENTS" in check.stdout
    assert "ok      tumour_calls" in check.stdout
