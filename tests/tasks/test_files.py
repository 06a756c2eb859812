"""Files that appear whole or not at all, and what is said when the disk is full."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.errors import DiskFullError
from tasks.files import json_sha256, make_folder, read_json, whole_file, write_bytes, write_json


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system may be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with whole_file(path) as aside:
        aside.write_bytes(b"content")
        assert not path.exists()
    assert path.read_bytes() == b"content"
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")
    with pytest.raises(IsADirectoryError), whole_file(path) as aside:
        aside.write_bytes(tmp_path.read_bytes())
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_says_path_and_bytes(small_disk: Path) -> None:
    write_bytes(small_disk / "file", b"old")
    with pytest.raises(DiskFullError, match=r"disk/file: the disk is full after [\d,]+ bytes") as caught:
        write_bytes(small_disk / "file", b"x" * (2 << 20))
    assert caught.value.blame == "system"
    assert [(p.name, p.read_bytes()) for p in small_disk.iterdir()] == [("file", b"old")]


def test_json_survives_and_its_digest_ignores_order(tmp_path: Path) -> None:
    value = {"b": [1, None, "ü"], "a": {"y": 1.5, "x": True}}
    write_json(tmp_path / "v.json", value)
    assert read_json(tmp_path / "v.json") == value
    assert json_sha256(value) == json_sha256({"a": {"x": True, "y": 1.5}, "b": [1, None, "ü"]})
    assert json_sha256(value) != json_sha256({**value, "c": 0})


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_folder(tmp_path / "a" / "b")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
