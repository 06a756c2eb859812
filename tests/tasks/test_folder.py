"""The output folder: owner alone, one run at a time, nothing of others touched."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.errors import FolderError
from tasks.files import make_folder
from tasks.folder import locked_folder
from tasks.plan import Plan

HOLD = """
import sys
from pathlib import Path
from tasks.folder import locked_folder
with locked_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    with locked_folder(tmp_path / "a" / "b") as folder:
        assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder.root / ".lock").stat().st_mode) == 0o600


def test_second_run_is_refused_until_the_first_dies(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FolderError, match=f"process {holder.pid}") as caught, locked_folder(tmp_path):
            pass
        assert caught.value.reason == "LOCKED"
        holder.kill()
        holder.wait()
    with locked_folder(tmp_path):
        pass


@pytest.mark.parametrize(
    "name", ["thesis.doc", "samples/A/mydata.txt", "work/ab/12cd/x.bam", "cohort/x", "report.html", "plan.json"]
)
def test_a_folder_of_others_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("do not touch")
    with pytest.raises(FolderError, match="no run of ours"), locked_folder(tmp_path):
        pass
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [tmp_path / name]


def test_a_folder_of_ours_is_known_by_its_mark_or_plan(tmp_path: Path) -> None:
    with locked_folder(tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
    with locked_folder(tmp_path) as folder:
        Plan({}, {}).write(folder.plan)
    (tmp_path / ".cohortflow").unlink()
    with locked_folder(tmp_path):
        pass


def test_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(FolderError, match="is a file"), locked_folder(path):
        pass


def test_clear_removes_ours_only(tmp_path: Path) -> None:
    with locked_folder(tmp_path) as folder:
        for sample_id in "AB":
            make_folder(folder.sample_work(sample_id))
            make_folder(folder.sample(sample_id))
            (folder.sample(sample_id) / f"{sample_id}.vcf.gz").touch()
            (folder.sample(sample_id) / f".{sample_id}.bam.12345678.part").touch()
        for path in (folder.plan, folder.report, folder.manifest, folder.multiqc, folder.multiqc_reasons):
            path.touch()
        make_folder(folder.alleles.parent)
        folder.alleles.touch()
        others = {".cohortflow", ".lock", "notes.txt", "samples/A/mydata.txt", "samples/mine/mine.txt", "cohort/my.png"}
        for name in others - {".cohortflow", ".lock"}:
            make_folder((tmp_path / name).parent)
            (tmp_path / name).write_text("mine")
        folder.clear()
        assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()} == others
        assert not folder.sample("B").exists()
        assert not folder.work.exists()
