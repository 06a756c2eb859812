"""The output folder: owner alone, one run at a time, nothing of others touched."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.errors import FolderError
from tasks.folder import locked_folder

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


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("do not touch")
    with pytest.raises(FolderError, match="no run of ours"), locked_folder(tmp_path):
        pass


def test_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(FolderError, match="is a file"), locked_folder(path):
        pass


def test_clear_removes_ours_only(tmp_path: Path) -> None:
    with locked_folder(tmp_path) as folder:
        (tmp_path / "samples" / "A").mkdir(parents=True)
        folder.plan.write_text("{}")
        (tmp_path / "notes.txt").write_text("mine")
        folder.clear()
        assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "notes.txt"]
