"""Whole runs with Redis: warm it saves every execution, broken it changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.cohort import Cohort, outputs, run_command
from tests.flows.test_score_cohort import manifest_of
from tests.redis_fixture import RedisServer, redis_server

__all__ = ["redis_server"]


@pytest.fixture
def sheet(cohort: Cohort) -> Path:
    return cohort.sheet(
        "redis.csv", [{"sample": "B", "bam": cohort.individual.bam}, {"sample": "V", "vcf": cohort.vcf}]
    )


def executed(output: Path) -> int:
    models = manifest_of(output)["models"]
    return sum(models[name]["rows_executed"] for name in ("embedder", "caller", "effect"))


def test_warm_redis_executes_nothing_and_a_dead_one_changes_nothing(
    cohort: Cohort, sheet: Path, redis_server: RedisServer, tmp_path: Path
) -> None:
    def run(name: str) -> Path:
        output = tmp_path / name
        ended = run_command(
            "score", sheet, "--reference", cohort.reference, "--output", output, "--redis-budget-ms", 5000,
            environment={"COHORTFLOW_REDIS_URL": redis_server.url},
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return output

    cold = run("cold")
    assert executed(cold) > 0
    warm = run("warm")
    assert executed(warm) == 0
    assert outputs(warm) == outputs(cold)
    redis_server.stop()
    dead = run("dead")
    # At least as many as cold: there one worker found in Redis what the other had put there.
    assert executed(dead) >= executed(cold)
    assert outputs(dead) == outputs(cold)


def test_a_wrong_url_is_refused_without_its_password(cohort: Cohort, sheet: Path, tmp_path: Path) -> None:
    ended = run_command(
        "score", sheet, "--reference", cohort.reference, "--output", tmp_path / "o", "--redis", "http://:hunter2@host"
    )
    assert ended.returncode == 2
    assert "not a Redis URL" in ended.stderr
    assert "hunter2" not in ended.stderr + ended.stdout
