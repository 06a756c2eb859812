"""Runs that are cut short: a worker dies, the process group dies, a person cancels; and cohorts that grow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from flows.prefect_server import prefect_api, wait_until_healthy
from tests.flows.cohort import COMMAND, Cohort, outputs, run_command
from tests.flows.test_score_cohort import manifest_of

DEADLINE_S = 120.0
# A child process runs it: Prefect reads its settings once, when it is first imported.
STATES = """
import sys
from pathlib import Path
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from flows.prefect_server import unfinished_tasks
from flows.score_cohort import folder_tag

tags = FlowRunFilterTags(all_=[folder_tag(Path(sys.argv[1]))])
with get_client(sync_client=True) as client:
    runs = client.read_flow_runs(flow_run_filter=FlowRunFilter(tags=tags))
    for run in sorted(runs, key=lambda run: run.state.type.value):
        print(run.state.type.value, len(unfinished_tasks(client, run.id)))
"""


def wait_for(condition: Callable[[], object], run: subprocess.Popen[str]) -> None:
    """Waits until something shows on disk, which no handle can announce from another process group."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(COMMAND), *map(str, arguments)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def sheet(cohort: Cohort) -> Path:
    return cohort.sheet(
        "resume.csv", [{"sample": "B", "bam": cohort.individual.bam}, {"sample": "V", "vcf": cohort.vcf}]
    )


@pytest.fixture(scope="module")
def request_of(cohort: Cohort, sheet: Path) -> Callable[[Path], list[object]]:
    def request(output: Path) -> list[object]:
        return ["score", sheet, "--reference", cohort.reference, "--output", output, "--shard-bp", 5000]

    return request


@pytest.fixture(scope="module")
def whole(request_of: Callable[[Path], list[object]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The outputs of a run that nothing disturbed."""
    output = tmp_path_factory.mktemp("whole") / "out"
    run = run_command(*request_of(output))
    assert run.returncode == 0, run.stderr
    return outputs(output)


def called_shards(output: Path) -> int:
    return len(list(output.glob("work/samples/B/calls/*.json")))


@pytest.mark.usefixtures("own_server")
def test_sigkill_of_everything_then_the_same_command(
    request_of: Callable[[Path], list[object]], whole: dict[str, bytes], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with start(*request_of(output)) as run:
        wait_for(lambda: called_shards(output) >= 2, run)
        family = psutil.Process(run.pid).children(recursive=True)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    assert not (output / "manifest.json").exists()
    again = run_command(*request_of(output))
    assert again.returncode == 0, again.stderr
    assert outputs(output) == whole
    with prefect_api() as url:
        wait_until_healthy(url)
        found = subprocess.run([sys.executable, "-c", STATES, str(output)], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["COMPLETED", "0", "CRASHED", "0"]


def test_a_killed_worker_is_replaced(
    request_of: Callable[[Path], list[object]], whole: dict[str, bytes], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with start(*request_of(output)) as run:
        wait_for(lambda: called_shards(output) >= 2, run)
        workers = [
            child
            for child in psutil.Process(run.pid).children(recursive=True)
            if "multiprocessing.spawn" in " ".join(child.cmdline())
        ]
        workers[0].kill()
        _, errors = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 0, errors
    assert outputs(output) == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cancelled_means_130_and_resumable(
    number: signal.Signals, request_of: Callable[[Path], list[object]], whole: dict[str, bytes], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with start(*request_of(output)) as run:
        wait_for(lambda: called_shards(output) >= 1, run)
        run.send_signal(number)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 130, errors
    assert "Traceback" not in errors
    assert "the same command goes on" in errors
    again = run_command(*request_of(output))
    assert again.returncode == 0, again.stderr
    assert outputs(output) == whole


def test_a_sample_that_joins_costs_its_own_alleles_alone(cohort: Cohort, tmp_path: Path) -> None:
    lines = subprocess.run(["gzip", "-dc", str(cohort.vcf)], capture_output=True, text=True, check=True).stdout
    head = [line for line in lines.splitlines() if line.startswith("#")]
    body = [line for line in lines.splitlines() if not line.startswith("#")]
    for name, kept in (("first", body[: len(body) // 2]), ("second", body[len(body) // 4 :])):
        (cohort.folder / f"{name}.vcf").write_text("\n".join([*head, *kept]) + "\n")
    output = tmp_path / "out"
    rows = [{"sample": "P", "vcf": cohort.folder / "first.vcf"}, {"sample": "Q", "vcf": cohort.folder / "second.vcf"}]
    arguments = ["--reference", cohort.reference, "--output", output]
    assert run_command("score", cohort.sheet("p.csv", rows[:1]), *arguments).returncode == 0
    first = manifest_of(output)["models"]["variants"]["rows"]
    kept = (output / "samples/P/P.vcf.gz").stat().st_mtime_ns
    assert run_command("score", cohort.sheet("pq.csv", rows), *arguments).returncode == 0
    second = manifest_of(output)["models"]["variants"]["rows"]
    total = manifest_of(output)["cohort"]["distinct"]["scored"]
    assert first + second == total
    assert (output / "samples/P/P.vcf.gz").stat().st_mtime_ns == kept
    refused = run_command("score", cohort.sheet("q.csv", rows[1:]), *arguments)
    assert refused.returncode == 2
    assert "sample P: is in the folder, not in the sheet" in refused.stderr


def test_a_sample_that_changed_is_done_anew_and_the_others_are_kept(cohort: Cohort, tmp_path: Path) -> None:
    lines = subprocess.run(["gzip", "-dc", str(cohort.vcf)], capture_output=True, text=True, check=True).stdout
    (head, body) = lines[: lines.index("\n", lines.index("#CHROM")) + 1], lines.splitlines()[-60:]
    for name, kept in (("kept", body[:40]), ("changed", body[20:])):
        (tmp_path / f"{name}.vcf").write_text(head + "\n".join(kept) + "\n")
    rows = [{"sample": "P", "vcf": tmp_path / "kept.vcf"}, {"sample": "Q", "vcf": tmp_path / "changed.vcf"}]
    sheet = cohort.sheet("changed.csv", rows)
    output, fresh = tmp_path / "out", tmp_path / "fresh"
    request = ["score", sheet, "--reference", cohort.reference, "--quiet", "--output"]
    assert run_command(*request, output).returncode == 0
    kept_at = (output / "samples/P/P.vcf.gz").stat().st_mtime_ns
    (tmp_path / "changed.vcf").write_text(head + "\n".join(body[30:]) + "\n")
    again = run_command(*request, output)
    assert again.returncode == 0, again.stderr
    (caution,) = [line for line in again.stderr.splitlines() if "done anew" in line]
    assert caution.startswith("caution: sample Q has changed and is done anew: files: was ")
    assert caution.endswith("(changed.vcf)")
    assert (output / "samples/P/P.vcf.gz").stat().st_mtime_ns == kept_at
    assert run_command(*request, fresh).returncode == 0
    assert outputs(output) == outputs(fresh)
