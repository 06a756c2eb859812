"""Whole runs: a real Dask cluster, a real Prefect server, real files."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cyvcf2
import numpy as np
import pyarrow.parquet as pq
import pysam
import pytest

from flows.prefect_server import prefect_api, wait_until_healthy
from tests.flows.cohort import Cohort, outputs, records, run_command


def manifest_of(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return manifest


@pytest.fixture(scope="module")
def everything(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run over one individual as VCF, BAM and FASTQ, and one broken sample."""
    (cohort.folder / "broken.vcf").write_text("this is not a VCF\n")
    sheet = cohort.sheet(
        "everything.csv",
        [
            {"sample": "V", "vcf": cohort.vcf},
            {"sample": "B", "bam": cohort.individual.bam},
            {
                "sample": "F",
                "fastq_1": cohort.individual.fastq[0],  # type: ignore[index]
                "fastq_2": cohort.individual.fastq[1],  # type: ignore[index]
            },
            {"sample": "X", "vcf": cohort.folder / "broken.vcf"},
        ],
    )
    output = tmp_path_factory.mktemp("everything") / "out"
    run = run_command("score", sheet, "--reference", cohort.reference, "--output", output)
    assert run.returncode == 3, run.stderr
    assert "failed: X: NOT_VCF" in run.stderr
    assert "Traceback" not in run.stderr
    said = [line for line in run.stderr.splitlines() if line.startswith("alignment: minimap2's index needs about")]
    assert len(said) == 1
    assert run.stderr.index(said[0]) < run.stderr.index("align reads")
    assert "3 of 4 samples done" in run.stdout
    return output


def test_every_kind_of_input_becomes_the_same_outputs(everything: Path, cohort: Cohort) -> None:
    manifest = manifest_of(everything)
    assert {i: s["status"] for i, s in manifest["samples"].items()} == {
        "V": "done",
        "B": "done",
        "F": "done",
        "X": "failed",
    }
    for sample_id in "VBF":
        folder = everything / "samples" / sample_id
        with pysam.VariantFile(str(folder / f"{sample_id}.vcf.gz")) as variants:
            scores = [record.info["CF_DEMO_EFFECT"] for record in variants]
        table = pq.read_table(folder / f"{sample_id}.parquet")
        found = [score for record in scores for score in record]
        np.testing.assert_allclose(table["CF_DEMO_EFFECT"].to_numpy(), np.array(found, dtype=float), atol=1e-6)
        assert (folder / f"{sample_id}.vcf.gz.tbi").exists()
    before = [line.split("\t")[:7] for line in records(cohort.vcf)]
    assert [line.split("\t")[:7] for line in records(everything / "samples/V/V.vcf.gz")] == before
    assert (everything / "samples/F/F.bam").exists()
    assert not (everything / "samples/X/X.vcf.gz").exists()


def test_headers_and_own_regions_are_checked_before_any_work(cohort: Cohort, tmp_path: Path) -> None:
    (cohort.folder / "other.vcf").write_text(
        "##fileformat=VCFv4.2\n##contig=<ID=chr1,length=77>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\nbroken\n"
    )
    (cohort.folder / "past.bed").write_text("chr1\t1000\t2000000\n")
    rows: list[dict[str, object]] = [
        {"sample": "V", "vcf": cohort.folder / "other.vcf"},
        {"sample": "F", "fastq_1": cohort.individual.fastq[0], "regions": cohort.folder / "past.bed"},  # type: ignore[index]
    ]
    output = tmp_path / "out"
    run = run_command("score", cohort.sheet("first.csv", rows), "--reference", cohort.reference, "--output", output)
    assert run.returncode == 3
    assert "failed: V: WRONG_REFERENCE" in run.stderr
    assert "failed: F: PAST_CONTIG_END" in run.stderr
    assert not (output / "work/samples/F/intake.json").exists()
    assert not list(output.rglob("*.bam"))


def test_calls_find_the_truth(everything: Path, cohort: Cohort) -> None:
    truth = {tuple(line.split("\t")[:2]) for line in records(cohort.vcf)}
    for sample_id in "BF":
        found = {
            tuple(line.split("\t")[:2]) for line in records(everything / f"samples/{sample_id}/{sample_id}.vcf.gz")
        }
        assert len(found & truth) / len(truth) > 0.8
        assert len(found & truth) / len(found) > 0.8


def test_the_reads_of_a_fastq_are_embedded(everything: Path) -> None:
    manifest = manifest_of(everything)
    embedding = manifest["samples"]["F"]["embedding"]
    assert (embedding["num_reads"], embedding["num_too_short"], embedding["num_too_long"]) == (10_000, 0, 0)
    assert (len(embedding["mean"]), len(embedding["sd"])) == (64, 64)
    assert manifest["models"]["read_embedder"]["rows_executed"] == 10_000
    assert [name for name, each in manifest["samples"].items() if "embedding" in each] == ["F"]
    assert not list(everything.rglob("*.arrow"))


def test_a_called_output_is_an_input_with_the_same_scores(everything: Path, cohort: Cohort, tmp_path: Path) -> None:
    called = everything / "samples/B/B.vcf.gz"
    output = tmp_path / "out"
    sheet = cohort.sheet("again.csv", [{"sample": "B", "vcf": called}])
    run = run_command("score", sheet, "--reference", cohort.reference, "--output", output)
    assert run.returncode == 0, run.stderr
    assert records(output / "samples/B/B.vcf.gz") == records(called)


@pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed (make oracle-tools)")
def test_other_programs_read_the_called_outputs(everything: Path) -> None:
    for sample_id in "BF":
        path = everything / f"samples/{sample_id}/{sample_id}.vcf.gz"
        lines = records(path)
        for command in (["view", "-H"], ["stats"]):
            run = subprocess.run(["bcftools", *command, str(path)], capture_output=True, text=True, check=True)
            assert run.stderr == ""
            if command == ["stats"]:
                assert f"number of records:\t{len(lines)}\n" in run.stdout
            else:
                assert [line.split("\t")[:5] for line in run.stdout.splitlines()] == [
                    line.split("\t")[:5] for line in lines
                ]
        assert sum(1 for _ in cyvcf2.VCF(str(path))) == len(lines)


def test_one_allele_has_one_score(everything: Path) -> None:
    scores: dict[tuple[str, ...], str] = {}
    for sample_id in "VBF":
        for line in records(everything / f"samples/{sample_id}/{sample_id}.vcf.gz"):
            contig, pos, _, ref, alt, _, _, info = line.split("\t")[:8]
            score = next(field for field in info.split(";") if field.startswith("CF_DEMO_EFFECT="))
            assert scores.setdefault((contig, pos, ref, alt), score) == score


def test_outputs_are_their_owners_alone(everything: Path) -> None:
    for path in everything.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert path.is_symlink() or mode == (0o700 if path.is_dir() else 0o600), path


def test_report_and_multiqc_are_there(everything: Path) -> None:
    page = (everything / "report.html").read_text()
    assert "no clinical meaning" in page
    assert "NOT_VCF" in page
    assert "http://" not in page.replace("http://www.w3.org/", "")
    assert list(everything.glob("*_mqc.json"))


def test_counts_balance(everything: Path) -> None:
    cohort = manifest_of(everything)["cohort"]
    assert cohort["records_in"] == cohort["records_out"] + cohort["rejected"]
    assert cohort["alleles"] == cohort["scored"] + sum(cohort["skipped"].values())
    alleles = pq.read_table(everything / "cohort" / "alleles.parquet")
    assert alleles.num_rows == cohort["distinct"]["alleles"]


def test_every_output_says_what_made_it(everything: Path) -> None:
    manifest = manifest_of(everything)
    for sample_id in "VBF":
        plan = manifest["samples"][sample_id]["plan"]
        facts = pq.read_schema(everything / f"samples/{sample_id}/{sample_id}.parquet").metadata[b"cohortflow"]
        assert (json.loads(facts)["Plan"], json.loads(facts)["Build"]) == (plan, "unknown")
    with pysam.AlignmentFile(str(everything / "samples/F/F.bam")) as alignment:
        (comment,) = alignment.header.to_dict()["CO"]
    assert f" Plan={manifest['samples']['F']['plan']} " in comment
    facts = json.loads(pq.read_schema(everything / "cohort/alleles.parquet").metadata[b"cohortflow"])
    assert (facts["Build"], facts["Reference"]) == ("unknown", manifest["recipe"]["reference"]["digest"])
    for path in everything.glob("*_mqc.json"):
        assert manifest["plan"] in path.read_text()


def test_no_task_is_left_running_and_progress_is_complete(everything: Path) -> None:
    with prefect_api() as url:
        wait_until_healthy(url)
        # A child process: Prefect reads its settings once, when it is first imported.
        script = (
            "from prefect.client.orchestration import get_client\n"
            "with get_client(sync_client=True) as client:\n"
            "    runs = client.read_task_runs()\n"
            "    print(sum(1 for run in runs if not run.state.is_final()), len(runs))\n"
            "    for artifact in client.read_artifacts():\n"
            "        print(artifact.data, artifact.description)\n"
        )
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    counts, *artifacts = found.stdout.splitlines()
    unfinished, total = map(int, counts.split())
    assert unfinished == 0
    assert total >= 8
    (progress,) = [text for text in artifacts if "check headers 4/4, check inputs 3/3" in text]
    assert progress.startswith("100")
    assert "write samples 3/3" in progress


def test_the_same_command_again_changes_nothing(everything: Path, cohort: Cohort) -> None:
    before = outputs(everything)
    stamp = (everything / "samples/V/V.vcf.gz").stat().st_mtime_ns
    run = run_command(
        "score", cohort.folder / "everything.csv", "--reference", cohort.reference, "--output", everything
    )
    assert run.returncode == 3
    assert outputs(everything) == before
    assert (everything / "samples/V/V.vcf.gz").stat().st_mtime_ns == stamp
    assert manifest_of(everything)["models"].get("embedder", {}).get("rows_executed", 0) == 0


def test_lost_and_damaged_outputs_are_made_again(everything: Path, cohort: Cohort) -> None:
    before = outputs(everything)
    (everything / "samples/V/V.vcf.gz").unlink()
    (everything / "samples/B/B.parquet").write_bytes(b"rubbish")
    (everything / "cohort/alleles.parquet").write_bytes(b"rubbish")
    run = run_command(
        "score", cohort.folder / "everything.csv", "--reference", cohort.reference, "--output", everything
    )
    assert run.returncode == 3, run.stderr
    assert outputs(everything) == before
