"""The reads of FASTQ files that `tasks.reads.records` has checked, as an aligner takes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.reads.blocks import read_blocks

Read = tuple[str, str, str]
"""Name, bases and qualities of a read."""

_RECORD_LINES = 4


def read_sequences(path: Path) -> Iterator[Read]:
    """Yields the reads of a file that `read_records` has checked, under the name they share with their mates."""
    lines: list[str] = []
    last = ""
    for block in read_blocks(path):
        *more, last = (last + block.decode("latin-1")).split("\n")
        lines += more
        whole = len(lines) - len(lines) % _RECORD_LINES
        for at in range(0, whole, _RECORD_LINES):
            if lines[at].strip():
                yield _read(lines[at], lines[at + 1], lines[at + 3])
        del lines[:whole]
    lines.append(last)
    if lines[0].strip():
        lines += [""] * (_RECORD_LINES - len(lines))  # an empty read may end the file without its last line
        yield _read(lines[0], lines[1], lines[3])


def _read(header: str, bases: str, qualities: str) -> Read:
    name = header[1:].split(None, 1)[0]
    if len(name) > 2 and name[-2:] in ("/1", "/2"):
        name = name[:-2]
    return name, bases.rstrip("\r"), qualities.rstrip("\r")
