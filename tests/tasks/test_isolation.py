"""A child's answer, error, crash and death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import AlignmentError, MemoryShortError, ParserCrashError, TaskError
from tasks.isolation import report_progress, run_isolated
from tests.conftest import REPOSITORY

FUNCTIONS = "tests.tasks.isolated_functions"


@pytest.fixture(autouse=True)
def tests_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def run(name: str, *, memory_bytes: int | None = None, **payload: Any) -> Any:
    return run_isolated(f"{FUNCTIONS}:{name}", payload, what="sample.bam", memory_bytes=memory_bytes)


def test_json_goes_in_and_comes_out() -> None:
    value = {
        "text": "naïve \n line",
        "number": 1.5,
        "big": 1 << 60,
        "none": None,
        "list": [1, [2]],
        "long": "x" * 300_000,
    }
    assert run("echo", **value) == value


def test_what_a_parser_prints_does_not_touch_the_answer() -> None:
    assert run("noisy", lines=20_000) == 20_000


def test_a_task_error_comes_back_as_itself_with_the_parsers_last_words() -> None:
    with pytest.raises(AlignmentError, match=r"^a\.bam: cut off \(htslib: Read block operation failed\)$") as caught:
        run("refuse", path="a.bam")
    assert (caught.value.field, caught.value.reason) == ("bam", "TRUNCATED")


def test_a_system_error_comes_back_as_itself() -> None:
    with pytest.raises(MemoryShortError, match=r"^needs 19 GB$") as caught:
        run("lack_memory")
    assert (caught.value.reason, caught.value.retryable) == ("OUT_OF_MEMORY", True)


def test_a_defect_is_one_line_not_a_traceback() -> None:
    with pytest.raises(TaskError, match=r"^sample\.bam: ValueError: an unexpected thing$") as caught:
        run("defect")
    assert caught.value.blame == "system"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_signal_is_the_samples_reason(number: signal.Signals) -> None:
    with pytest.raises(ParserCrashError, match=rf"sample\.bam.*{number.name}"):
        run("die", number=int(number))


def test_an_end_without_an_answer_is_a_crash() -> None:
    with pytest.raises(ParserCrashError, match="status 7"):
        run("leave")


def test_memory_limit_holds() -> None:
    with pytest.raises(ParserCrashError, match="more memory") as caught:
        run("allocate", memory_bytes=1 << 30, num_bytes=2 << 30)
    assert caught.value.reason == "OUT_OF_MEMORY"
    assert run("allocate", memory_bytes=1 << 30, num_bytes=1 << 20) == 1 << 20


def test_progress_arrives_in_order() -> None:
    seen: list[Any] = []
    run_isolated(f"{FUNCTIONS}:count", {"steps": 5}, what="steps", progress=seen.append)
    assert seen == [{"done": step} for step in range(1, 6)]
    report_progress("outside of a child this does nothing")


def test_interrupt_is_left_to_the_parent() -> None:
    assert run("ignore_interrupt") == "still here"


def wait_for(condition: Any, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_dies_with_its_killed_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "from tasks.isolation import run_isolated;"
        f"run_isolated('{FUNCTIONS}:sleep_and_say_pid', {{'pid_file': {str(pid_file)!r}}}, what='a sleeper')"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY)
    assert wait_for(lambda: pid_file.exists() and pid_file.read_text())
    child = int(pid_file.read_text())
    assert is_running(child)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert wait_for(lambda: not is_running(child))
