"""`cohortflow audit` over the record that whole runs leave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from flows.audit_record import recorded_run
from flows.cli import main
from tasks.audit.record import AuditRecord
from tasks.audit.run_trail import RunTrail
from tasks.errors import FolderError
from tasks.files import file_sha256
from tasks.folder import RunFolder
from tests.conftest import REPOSITORY
from tests.flows.cohort import Cohort, run_command


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, arguments)])


def kinds(record: Path) -> list[str]:
    return [json.loads(line)["event"] for line in record.read_text().splitlines()]


@pytest.fixture(scope="module")
def recorded(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The record and the folder after a run, and a refusal of another plan."""
    folder = tmp_path_factory.mktemp("recorded")
    record, output = folder / "record.jsonl", folder / "out"
    (cohort.folder / "not.vcf").write_text("this is not a VCF\n")
    rows: list[dict[str, object]] = [
        {"sample": "V", "vcf": cohort.vcf},
        {"sample": "X", "vcf": cohort.folder / "not.vcf"},
    ]
    (cohort.folder / "audited.bed").write_text("chr1\t0\t50000\n")
    request = ["score", cohort.sheet("audited.csv", rows), "--reference", cohort.reference, "--output", output]
    other_plan = [*request, "--regions", cohort.folder / "audited.bed"]
    environment = {"COHORTFLOW_AUDIT": str(record)}
    for arguments, code in ((request, 3), (other_plan, 2)):
        ended = run_command(*arguments, "--workers", 1, environment=environment)
        assert ended.returncode == code, ended.stderr
    return record, output


def test_a_run_leaves_its_whole_story(recorded: tuple[Path, Path], cohort: Cohort) -> None:
    record, output = recorded
    assert kinds(record) == ["run.started", "run.finished", "run.refused"]
    events: list[dict[str, Any]] = [json.loads(line) for line in record.read_text().splitlines()]
    started, finished, refused = events
    assert refused["details"]["reason"] == "OTHER_PLAN"
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["audit"] == {"run": finished["details"]["run"], "event": 2, "digest": finished["digest"]}
    assert started["details"]["inputs"]["V"] == {str(cohort.vcf): file_sha256(cohort.vcf)}
    assert started["details"]["recipe"] == manifest["recipe"]
    assert finished["details"]["samples"]["X"] == {"status": "failed", "reason": "NOT_VCF", "outputs": {}}
    vcf = finished["details"]["samples"]["V"]["outputs"]["samples/V/V.vcf.gz"]
    assert vcf == file_sha256(output / "samples/V/V.vcf.gz")
    assert finished["details"]["outputs"]["report.html"] == file_sha256(output / "report.html")


def test_verify_says_how_far_the_record_is_proven(recorded: tuple[Path, Path]) -> None:
    record, output = recorded
    told = invoke("verify", "--record", record, output)
    assert told.exit_code == 0, told.output
    assert "events 1 to 2 proven by 1 manifest(s)" in told.output


def test_verify_finds_a_cut_record(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    record, _ = recorded
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[:1]))
    told = invoke("verify", "--record", cut)
    assert told.exit_code == 1
    assert "its last ones were cut off" in told.output
    assert "does NOT hold" in told.output


def test_show_tells_bytes_models_people_and_history(recorded: tuple[Path, Path], cohort: Cohort) -> None:
    record, output = recorded
    told = invoke("show", output, "--record", record)
    assert told.exit_code == 0, told.output
    manifest = json.loads((output / "manifest.json").read_text())
    for text in (
        f"run {manifest['audit']['run']}",
        f"{cohort.vcf}  sha256 {file_sha256(cohort.vcf)}",
        f"variants  version 1  digest {manifest['recipe']['models']['variants']['digest']}",
        "no approval of it is in the record",
        "X  failed: NOT_VCF",
        f"samples/V/V.vcf.gz  sha256 {file_sha256(output / 'samples/V/V.vcf.gz')}  unchanged",
        "(operating system's user)",
        "run.refused",
    ):
        assert text in told.output, text


def test_show_compares_no_files_of_a_folder_that_was_used_since(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    record, output = recorded
    longer = tmp_path / "longer.jsonl"
    shutil.copy(record, longer)
    RunTrail(AuditRecord(longer), "run-2", RunFolder(output)).removed()
    told = invoke("show", output, "--record", longer)
    assert told.exit_code == 0, told.output
    assert "the folder has been used since" in told.output
    assert "results.removed" in told.output


def test_show_finds_what_was_changed_after_delivery(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    record, output = recorded
    moved = tmp_path / "moved"
    shutil.copytree(output, moved)
    (moved / "report.html").write_text("another report")
    (moved / "samples/V/V.parquet").unlink()
    told = invoke("show", moved, "--record", record)
    assert told.exit_code == 1
    changed = {line.split()[-1]: line for line in told.output.splitlines() if line.endswith(("CHANGED", "MISSING"))}
    assert "report.html" in changed["CHANGED"]
    assert "V.parquet" in changed["MISSING"]


def test_show_tells_what_else_names_the_model(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    record, output = recorded
    digest = json.loads((output / "manifest.json").read_text())["recipe"]["models"]["variants"]["digest"]
    more = tmp_path / "more.jsonl"
    shutil.copy(record, more)
    AuditRecord(more).append("model.approved", {"digest": digest, "evidence": "report 7"})
    told = invoke("show", output, "--record", more)
    assert told.exit_code == 0, told.output
    assert "model.approved" in told.output
    assert "report 7" in told.output


@pytest.mark.parametrize("command", ["verify", "show"])
def test_what_is_not_there_ends_with_2(command: str, recorded: tuple[Path, Path], tmp_path: Path) -> None:
    record, output = recorded
    assert invoke(command, output, "--record", tmp_path / "none.jsonl").exit_code == 2
    assert invoke(command, tmp_path if command == "verify" else "no-such-run", "--record", record).exit_code == 2


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FolderError("another plan", reason="OTHER_PLAN"), "run.refused"),
        (ValueError("a defect"), "run.failed"),
        (KeyboardInterrupt(), "run.cancelled"),
    ],
)
def test_a_run_that_ends_by_an_error_is_recorded(
    error: BaseException, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COHORTFLOW_AUDIT", str(tmp_path / "record.jsonl"))
    with pytest.raises(type(error)), recorded_run("run-1", RunFolder(tmp_path)):
        raise error
    assert kinds(tmp_path / "record.jsonl") == [kind]


def test_no_run_begins_without_its_record(cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COHORTFLOW_AUDIT", str(tmp_path))
    sheet = cohort.sheet("unrecorded.csv", [{"sample": "V", "vcf": cohort.vcf}])
    request = ["score", str(sheet), "--reference", str(cohort.reference), "--output", str(tmp_path / "out")]
    told = CliRunner().invoke(main, request)
    assert told.exit_code == 1
    assert "the audit record cannot be written" in told.output
    assert not (tmp_path / "out" / "plan.json").exists()


def test_the_documents_promise_no_status() -> None:
    text = (REPOSITORY / "docs" / "audit.md").read_text().lower()
    for word in ("compliant", "certified", "validated"):
        assert word not in text, word
