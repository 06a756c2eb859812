"""Files that real tools ship because they once broke something: an output or a clear reason for each, in one cohort."""

from __future__ import annotations

import re
from pathlib import Path

import pysam
import pytest

from tests.flows.cohort import run_command
from tests.flows.test_score_cohort import manifest_of

KINDS = {"vcf": "vcf", "alignments": "bam", "fastq": "fastq_1"}


@pytest.fixture(scope="module")
def odd_files(shared_data: Path) -> dict[str, tuple[str, Path]]:
    """Sample ids made of the names, each with its column and file."""
    found = {}
    for folder, column in KINDS.items():
        for path in sorted((shared_data / "odd" / folder).iterdir()):
            if path.suffix in (".tbi", ".bai"):
                continue
            kind = "cram" if path.suffix == ".cram" else column
            found[re.sub(r"[^A-Za-z0-9.]", "-", path.name)] = (kind, path)
    return found


def test_every_odd_file_is_done_or_told(
    odd_files: dict[str, tuple[str, Path]], shared_data: Path, tmp_path: Path
) -> None:
    lines = ["sample\tvcf\tbam\tcram\tfastq_1"]
    for sample_id, (kind, path) in odd_files.items():
        cells = [str(path) if kind == column else "" for column in ("vcf", "bam", "cram", "fastq_1")]
        lines.append("\t".join([sample_id, *cells]))
    sheet = tmp_path / "odd.tsv"
    sheet.write_text("\n".join(lines) + "\n")
    reference = shared_data / "na12878" / "ucsc.hg19.chr20.unittest.fasta.gz"
    output = tmp_path / "out"
    run = run_command("score", sheet, "--reference", reference, "--output", output)
    assert run.returncode == 3, run.stderr
    assert "Traceback" not in run.stderr + run.stdout
    samples = manifest_of(output)["samples"]
    assert set(samples) == set(odd_files)
    for sample_id, sample in samples.items():
        if sample["status"] != "done":
            assert sample["reason"] not in ("FAILED", "INTERNAL_ERROR", "WORKER_LOST"), sample
            assert len(sample["message"]) > 20
            assert re.search(rf"{sample['status']}: {re.escape(sample_id)}: {sample['reason']}", run.stderr)
            continue
        counts = sample["counts"]
        assert counts["records_in"] == counts["records_out"] + counts["rejected"]
        assert counts["alleles"] == counts["scored"] + sum(counts["skipped"].values())
        with pysam.VariantFile(str(output / "samples" / sample_id / f"{sample_id}.vcf.gz")) as variants:
            assert "CF_DEMO_EFFECT" in variants.header.info
