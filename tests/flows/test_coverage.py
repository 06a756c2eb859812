"""A panel: regions with genes, from the command line to the report."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow.parquet as pq
import pysam
import pytest

from tasks.files import read_json
from tests.flows.cohort import Cohort, outputs, run_command
from tests.flows.test_score_cohort import manifest_of

PANEL = "chr1\t1000\t3000\tALPHA\nchr1\t20000\t21000\tBETA;ALPHA\nchr2\t500\t900\tGAMMA\n"
GTF = "".join(
    f'chr1\tx\texon\t{start}\t{end}\t.\t+\t.\tgene_id "{gene}";\n'
    for start, end, gene in ((1, 1_100, "ONE"), (20_500, 50_000, "TWO"))
)


@pytest.fixture(scope="module")
def panel(cohort: Cohort) -> Path:
    path = cohort.folder / "panel.bed"
    path.write_text(PANEL)
    return path


@pytest.fixture(scope="module")
def run(cohort: Cohort, panel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sample of reads, and one that needs none."""
    output = tmp_path_factory.mktemp("panel") / "out"
    sheet = cohort.sheet(
        "panel.csv", [{"sample": "B", "bam": cohort.individual.bam}, {"sample": "V", "vcf": cohort.vcf}]
    )
    done = run_command(
        "score", sheet, "--reference", cohort.reference, "--output", output, "--regions", panel, "--padding", 50,
        "--gvcf",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return output


def test_every_output_of_a_panel_is_there_and_agrees(run: Path) -> None:
    folder = run / "samples" / "B"
    targets = pq.read_table(folder / "B.targets.parquet").to_pylist()
    genes = {row["gene"]: row for row in pq.read_table(folder / "B.genes.parquet").to_pylist()}
    assert [row["bases"] for row in targets] == [2_000, 1_000, 400]
    assert {gene: row["bases"] for gene, row in genes.items()} == {"ALPHA": 3_000, "BETA": 1_000, "GAMMA": 400}
    assert all(10 < row["mean_depth"] < 35 for row in targets)
    gaps = [line.split("\t") for line in gzip.decompress((folder / "B.gaps.bed.gz").read_bytes()).decode().splitlines()]
    assert sum(int(end) - int(start) for _, start, end, *_ in gaps) == sum(row["gap_bases"] for row in targets)
    states = [line.split("\t") for line in (folder / "B.callable.bed").read_text().splitlines()]
    assert sum(int(end) - int(start) for _, start, end, _ in states) == 3_400 + 6 * 50
    sample = manifest_of(run)["samples"]["B"]
    assert sample["metrics"]["genes"] == 3
    assert sample["metrics"]["gaps"] == len(gaps)
    assert 0 < sample["metrics"]["on_target"] < sample["metrics"]["near_target"] < 0.2
    assert {f"samples/B/B{end}" for end in (".callable.bed", ".gaps.bed.gz")} <= set(sample["outputs"])
    assert not list((run / "samples" / "V").glob("V.callable.bed"))
    page = (run / "report.html").read_text()
    assert '<section id="coverage">' in page
    assert '<th scope="row">GAMMA</th>' in page
    curve = read_json(run / "cohort_coverage_mqc.json")["data"]
    assert list(curve) == ["B"]
    assert curve["B"]["20"] == round(100 * sample["metrics"]["share_20"], 4)


def test_the_genomic_vcf_covers_the_panel(run: Path) -> None:
    told = dict.fromkeys(("chr1", "chr2"), 0)
    with pysam.VariantFile(str(run / "samples/B/B.g.vcf.gz")) as file:
        assert f"Plan={manifest_of(run)['samples']['B']['plan']}" in str(file.header)
        for record in file:
            assert record.alts is not None
            assert record.alts[-1] == "<*>"
            told[record.contig] += record.stop - record.start
        assert sum(1 for _ in file.fetch("chr1", 1_500, 1_501)) >= 1
    assert told["chr1"] == pytest.approx(3_000 + 4 * 50, abs=30)
    assert told["chr2"] == pytest.approx(400 + 2 * 50, abs=30)
    assert not list((run / "samples" / "V").glob("*.g.vcf.gz"))


def test_a_lost_output_is_made_again(cohort: Cohort, panel: Path, run: Path) -> None:
    before = outputs(run)
    for name in ("B.callable.bed", "B.genes.parquet", "B.g.vcf.gz"):
        (run / "samples" / "B" / name).unlink()
    done = run_command(
        "score", cohort.folder / "panel.csv", "--reference", cohort.reference, "--output", run, "--regions", panel,
        "--padding", 50, "--gvcf",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert outputs(run) == before


def test_genes_of_a_file_are_part_of_the_plan(cohort: Cohort, panel: Path, run: Path, tmp_path: Path) -> None:
    genes = tmp_path / "genes.gtf"
    genes.write_text(GTF)
    told = run_command("check", cohort.folder / "panel.csv", "--reference", cohort.reference, "--regions", panel,
                       "--genes", genes)  # fmt: skip
    assert "3 intervals, 3,400 bp; 2 genes" in told.stdout
    done = run_command(
        "score", cohort.folder / "panel.csv", "--reference", cohort.reference, "--output", run, "--regions", panel,
        "--padding", 50, "--genes", genes,
    )  # fmt: skip
    assert done.returncode == 2
    assert "genes: was none" in done.stderr


def test_genes_without_regions_are_refused(cohort: Cohort, panel: Path, run: Path, tmp_path: Path) -> None:
    genes = tmp_path / "genes.gtf"
    genes.write_text(GTF)
    sheet = cohort.folder / "panel.csv"
    done = run_command(
        "score", sheet, "--reference", cohort.reference, "--output", tmp_path / "o", "--genes", genes
    )  # fmt: skip
    assert done.returncode == 2
    assert "there are no regions whose genes it could name" in done.stderr
