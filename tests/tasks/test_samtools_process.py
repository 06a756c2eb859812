"""samtools commands joined by pipes: what they write, how they fail, and that none outlives its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pysam
import pytest

from tasks.alignments.samtools_process import samtools_pipeline
from tasks.errors import AlignmentError
from tests.conftest import REPOSITORY
from tests.tasks.alignments import genome, reads_of, sam_text

LENGTHS = {"chr1": 2_000}


def commands(folder: Path) -> list[list[str]]:
    sort = ["sort", "--no-PG", "-T", str(folder / "sort"), "-o", str(folder / "sorted.bam"), "-"]
    return [["view", "--no-PG", "-u", "-"], sort]


def test_commands_read_each_other(tmp_path: Path) -> None:
    lines = reads_of("chr1", genome(LENGTHS)["chr1"])
    with samtools_pipeline(*commands(tmp_path), folder=tmp_path) as sam:
        sam.write(sam_text(LENGTHS, reversed(lines)).encode())
    with pysam.AlignmentFile(str(tmp_path / "sorted.bam")) as alignment:
        starts = [row.reference_start for row in alignment]
    assert len(starts) == 60
    assert starts == sorted(starts)
    assert [path.name for path in tmp_path.iterdir()] == ["sorted.bam"]


def test_a_failed_command_says_why(tmp_path: Path) -> None:
    with pytest.raises(AlignmentError, match=r"samtools view failed \(1\): .*rubbish") as caught:
        with samtools_pipeline(["view", "-u", "-T", "/absent/rubbish.fa", "-"], folder=tmp_path) as sam:
            sam.write(b"@SQ\tSN:chr1\tLN:10\n" * 100_000)
    assert caught.value.reason == "SAMTOOLS_FAILED"
    with pytest.raises(AlignmentError, match="samtools sort failed"):
        with samtools_pipeline(commands(tmp_path)[0], ["sort", "-o", "/absent/out.bam", "-"], folder=tmp_path) as sam:
            sam.write(sam_text(LENGTHS, reads_of("chr1", genome(LENGTHS)["chr1"])).encode())


def test_a_failure_in_the_block_ends_the_commands(tmp_path: Path) -> None:
    def write_and_fail() -> None:
        with samtools_pipeline(*commands(tmp_path), folder=tmp_path) as sam:
            sam.write(b"@HD\tVN:1.6\n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []
    assert not [child for child in psutil.Process().children() if "samtools_process" in " ".join(child.cmdline())]


def test_commands_die_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from tasks.alignments.samtools_process import samtools_pipeline\n"
        f"with samtools_pipeline(*{commands(tmp_path)!r}, folder=Path({str(tmp_path)!r})):\n"
        "    print('up', flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        children = psutil.Process(parent.pid).children()
        assert len(children) == 2
        parent.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(children, timeout=20)
    assert (len(gone), alive) == (2, [])
    time.sleep(0.1)
    assert not (tmp_path / "sorted.bam").exists()
