"""Flags that would be without effect are refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.cohort import Cohort, run_command

CLUSTER = ("--scheduler", "tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--padding", 10), "--padding 10: there are no regions to pad"),
        ((*CLUSTER, "--workers", 2), "--workers: a cluster given by --scheduler has its own"),
        ((*CLUSTER, "--redis", "redis://localhost"), "COHORTFLOW_REDIS_URL from their own environment"),
        (("--redis-budget-ms", 20), "--redis-budget-ms: there is no Redis"),
        (("--embed-reads", 100_001), "100001 is not in the range 0<=x<=100000"),
    ],
)
def test_idle_flags_are_refused(cohort: Cohort, tmp_path: Path, flags: tuple[object, ...], said: str) -> None:
    sheet = cohort.sheet("flags.csv", [{"sample": "V", "vcf": cohort.vcf}])
    run = run_command("score", sheet, "--reference", cohort.reference, "--output", tmp_path / "out", *flags,
                      environment={"COHORTFLOW_REDIS_URL": ""})  # fmt: skip
    assert run.returncode == 2
    assert said in run.stderr
    assert not (tmp_path / "out" / "plan.json").exists()


def test_regions_that_no_sample_keeps_to(cohort: Cohort, tmp_path: Path) -> None:
    bed = tmp_path / "own.bed"
    bed.write_text("chr1\t1000\t2000\n")
    rows: list[dict[str, object]] = [{"sample": "V", "vcf": cohort.vcf, "regions": bed}]
    for command in (["check"], ["score", "--output", tmp_path / "out"]):
        sheet = cohort.sheet("own.csv", rows)
        run = run_command(*command, sheet, "--reference", cohort.reference, "--regions", bed)
        assert run.returncode == 2
        assert "every sample has regions of its own" in run.stderr
    sheet = cohort.sheet("some.csv", [*rows, {"sample": "W", "vcf": cohort.vcf}])
    assert run_command("check", sheet, "--reference", cohort.reference, "--regions", bed).returncode == 0


def test_regions_that_do_not_fit_are_refused_before_the_plan(cohort: Cohort, tmp_path: Path) -> None:
    bed = tmp_path / "bad.bed"
    bed.write_text("chr1\t1000\t2000000\n")
    sheet = cohort.sheet("bed.csv", [{"sample": "V", "vcf": cohort.vcf}])
    output = tmp_path / "out"
    arguments = ["score", sheet, "--reference", cohort.reference, "--output", output, "--regions", bed]
    run = run_command(*arguments)
    assert run.returncode == 2
    assert "line 1: chr1:1000-2000000 ends past the contig" in run.stderr
    assert not (output / "plan.json").exists()
    bed.write_text("chr1\t1000\t2000\n")
    assert run_command(*arguments).returncode == 0


def test_padding_of_a_samples_own_regions(cohort: Cohort, tmp_path: Path) -> None:
    bed = tmp_path / "own.bed"
    bed.write_text("chr1\t1000\t2000\n")
    sheet = cohort.sheet("regions.csv", [{"sample": "V", "vcf": cohort.vcf, "regions": bed}])
    run = run_command("score", sheet, "--reference", cohort.reference, "--output", tmp_path / "out", "--padding", 10)
    assert run.returncode == 0, run.stderr
