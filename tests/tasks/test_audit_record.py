"""The record: many writers, a torn last line, a disk that takes no more, a damaged end."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tasks.audit.event import FIRST_PREVIOUS, Event, parse_event
from tasks.audit.record import REPAIRED, AuditRecord
from tasks.errors import AuditError

APPEND = """
import sys
from pathlib import Path
from tasks.audit.record import AuditRecord
for number in range(25):
    AuditRecord(Path(sys.argv[1])).append("test", {"writer": sys.argv[2], "number": number})
"""
# The limit of the file's size stands for a full disk: the system takes a part of the line, then refuses.
APPEND_LIMITED = """
import resource, sys
from pathlib import Path
from tasks.audit.record import AuditRecord
from tasks.errors import AuditError
path = Path(sys.argv[1])
size = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, size + 40))
try:
    AuditRecord(path).append("test", {})
except AuditError as error:
    print(error.message)
"""


def a_clock() -> datetime:
    return datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


def events_of(path: Path) -> list[Event]:
    return [parse_event(line) for line in path.read_bytes().splitlines(keepends=True)]


@pytest.fixture
def record(tmp_path: Path) -> AuditRecord:
    made = AuditRecord(tmp_path / "audit" / "record.jsonl", a_clock)
    for number in range(3):
        made.append("test", {"text": f"ä{number}", "number": number})
    return made


def test_events_are_chained_and_their_owners_alone(record: AuditRecord) -> None:
    events = events_of(record.path)
    assert [event.number for event in events] == [1, 2, 3]
    assert [event.previous for event in events] == [FIRST_PREVIOUS, events[0].digest, events[1].digest]
    assert {event.time for event in events} == {"2026-03-01T12:30:00.000+00:00"}
    assert events[0].by["source"] == "os"
    assert stat.S_IMODE(record.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.path.parent.stat().st_mode) == 0o700


def test_many_processes_append_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", APPEND, str(path), name]) for name in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    events = events_of(path)
    assert [event.number for event in events] == list(range(1, 76))
    assert all(event.previous == before.digest for before, event in pairwise(events))
    for name in "abc":
        own = [event.details["number"] for event in events if event.details["writer"] == name]
        assert own == list(range(25))


def test_a_line_torn_anywhere_is_taken_off_and_noted(record: AuditRecord) -> None:
    content = record.path.read_bytes()
    start = content[:-1].rindex(b"\n") + 1
    for end in (start + 1, start + 20, len(content) - 2, len(content) - 1):
        record.path.write_bytes(content[:end])
        last = record.append("after", {})
        first, second, repaired, after = events_of(record.path)
        assert (repaired.kind, repaired.previous, after) == (REPAIRED, second.digest, last)
        torn = content[start:end]
        assert repaired.details["torn_bytes"] == len(torn)
        assert repaired.details["text"] == torn.decode(errors="backslashreplace")
        assert first.number == 1


def test_the_first_line_may_be_torn(tmp_path: Path) -> None:
    record = AuditRecord(tmp_path / "record.jsonl")
    record.path.write_bytes(b'{"by"')
    record.append("test", {})
    assert [event.kind for event in events_of(record.path)] == [REPAIRED, "test"]


def test_a_line_longer_than_a_block_is_found(record: AuditRecord) -> None:
    record.append("test", {"text": "x" * 200_000})
    assert record.append("test", {}).number == 5


def test_a_damaged_last_line_is_appended_to_by_nobody(record: AuditRecord) -> None:
    record.path.write_bytes(record.path.read_bytes()[:-9] + b"\n")
    before = record.path.read_bytes()
    for attempt in (record.check, lambda: record.append("test", {})):
        with pytest.raises(AuditError, match="the last line is not JSON"):
            attempt()
    assert record.path.read_bytes() == before


def test_a_line_that_was_written_in_part_is_taken_back(record: AuditRecord) -> None:
    before = record.path.read_bytes()
    told = subprocess.run(
        [sys.executable, "-c", APPEND_LIMITED, str(record.path)], capture_output=True, text=True, check=True
    )
    assert "cannot be written: File too large" in told.stdout
    assert record.path.read_bytes() == before


def test_a_record_that_cannot_be_written_is_told_before_work(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="cannot be written"):
        AuditRecord(tmp_path).check()


def test_waiting_for_others_has_an_end(record: AuditRecord) -> None:
    held = os.open(record.path, os.O_RDWR)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AuditError, match="another process has held"):
            AuditRecord(record.path, lock_deadline_s=0.05).append("test", {})
    finally:
        os.close(held)
    assert record.append("test", {}).number == 4
