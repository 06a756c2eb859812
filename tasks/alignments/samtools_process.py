"""A samtools command as a process of its own, so that commands can be joined by pipes.

pysam runs samtools inside this process and holds the interpreter's lock meanwhile;
``python -m tasks.alignments.samtools_process PARENT COMMAND ARGUMENTS`` runs one command of pysam's samtools and dies
with its parent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pysam
from pysam.utils import SamtoolsError

from tasks.errors import AlignmentError, DiskFullError
from tasks.isolation import die_with_parent

_SAID_BYTES = 1000


@contextmanager
def samtools_pipeline(*commands: list[str], folder: Path) -> Iterator[IO[bytes]]:
    """Runs commands that read each other's output; yields the standard input of the first.

    At the end of the block the input ends and the commands are waited for; when the block fails they are killed.

    Args:
        commands: Each a command and its arguments; ``-`` is standard input or output.
        folder: Where their messages are kept while they run.

    Raises:
        AlignmentError: A command failed; the message is samtools' own.
        DiskFullError: It failed because the disk is full.
    """
    running: list[subprocess.Popen[bytes]] = []
    messages = [folder / f"{place}-{command[0]}.log" for place, command in enumerate(commands)]
    try:
        for command, log in zip(commands, messages, strict=True):
            source = running[-1].stdout if running else None
            with open(log, "wb") as log_file:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tasks.alignments.samtools_process", str(os.getpid()), *command],
                    stdin=source or subprocess.PIPE,
                    stdout=subprocess.PIPE if command is not commands[-1] else subprocess.DEVNULL,
                    stderr=log_file,
                )
            running.append(process)
            if source:
                source.close()  # this process would hold the pipe open when its reader dies
        stdin = running[0].stdin
        if stdin is None:
            raise RuntimeError("the first command has no standard input")
        try:
            yield stdin
            stdin.close()
        except BrokenPipeError:
            pass  # a command died: its status and message are looked at next
        # The last that failed is the one that failed first: the ones before it lost their reader.
        for process, log, command in reversed(list(zip(running, messages, commands, strict=True))):
            if process.wait():
                raise _failure(command[0], process.returncode, log)
    finally:
        for process in running:
            process.kill()
            process.wait()
        for log in messages:
            log.unlink(missing_ok=True)


def samtools_said(error: SamtoolsError) -> str:
    """What samtools printed, on one line, without pysam's ``samtools returned with error 1: stdout=, stderr=``."""
    text = str(error).partition("stderr=")[2] or str(error)
    return " ".join(text.replace("\\n", " ").strip("'\"").split())[-_SAID_BYTES:]


def _failure(command: str, status: int, log: Path) -> AlignmentError | DiskFullError:
    said = " ".join(log.read_bytes()[-_SAID_BYTES:].decode(errors="replace").split())
    if "No space left on device" in said:
        return DiskFullError(f"samtools {command}: the disk is full: {said}")
    return AlignmentError(f"samtools {command} failed ({status}): {said}", reason="SAMTOOLS_FAILED")


def _main(parent: int, command: str, *arguments: str) -> int:
    die_with_parent(parent)
    try:
        getattr(pysam, command)(*arguments, catch_stdout=False)
    except SamtoolsError as error:
        print(samtools_said(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), *sys.argv[2:]))
