"""Functions that test_isolation runs in children: good, noisy, failing, crashing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from tasks.errors import AlignmentError, MemoryShortError
from tasks.isolation import report_progress


def echo(**payload: Any) -> Any:
    return payload


def noisy(lines: int) -> int:
    for line in range(lines):
        os.write(1, b'{"result": "stdout is not the answer"}\n')
        os.write(2, b"[W::htslib] line %d\n" % line)
    return lines


def refuse(path: str) -> None:
    os.write(2, b"[E::bgzf_read] Read block operation failed\n")
    raise AlignmentError(f"{path}: cut off", field="bam", reason="TRUNCATED")


def lack_memory() -> None:
    raise MemoryShortError("needs 19 GB")


def defect() -> None:
    raise ValueError("an unexpected thing")


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def leave() -> None:
    os._exit(7)


def allocate(num_bytes: int) -> int:
    return len(bytearray(num_bytes))


def count(steps: int) -> int:
    for step in range(steps):
        report_progress({"done": step + 1})
    return steps


def sleep_and_say_pid(pid_file: str) -> None:
    Path(pid_file).write_text(str(os.getpid()))
    time.sleep(120)


def ignore_interrupt() -> str:
    os.kill(os.getpid(), signal.SIGINT)
    return "still here"
