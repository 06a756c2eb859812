"""The record: an append-only file of events, each chained to the one before it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import pwd
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks.audit.event import FIRST_PREVIOUS, Event, parse_event
from tasks.errors import AuditError, DiskFullError
from tasks.files import FILE_MODE, make_folder

REPAIRED = "record.repaired"
_LOCK_DEADLINE_S = 30.0
_BLOCK_BYTES = 1 << 16


def utc_now() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(UTC)


def os_user() -> dict[str, str]:
    """Who runs this process, as the operating system says: nobody has authenticated them to us."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"uid {os.getuid()}"
    return {"name": name, "source": "os", "host": socket.gethostname()}


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A record, which any number of processes append to.

    Attributes:
        path: Its file; made with mode 0600 when the first event is appended.
        clock: Tells the time of an event.
        lock_deadline_s: How long an append waits for others.
    """

    path: Path
    clock: Callable[[], datetime] = utc_now
    lock_deadline_s: float = _LOCK_DEADLINE_S

    def append(self, kind: str, details: dict[str, Any]) -> Event:
        """Appends an event and returns it once it is on the disk.

        A last line without its end, which a process that died left, is taken off; what it held is the first event
        appended after it.

        Args:
            kind: What happened.
            details: JSON values.

        Raises:
            AuditError: The file cannot be written, its last line is damaged, or others hold it for too long.
            DiskFullError: The disk is full; the record is as it was.
        """
        with self._locked() as file:
            whole_bytes = self._repair(file)
            event = self._next(self._last(file, whole_bytes), kind, details)
            _write_all(file, event.to_line(), whole_bytes, self.path)
            return event

    def check(self) -> None:
        """Checks, before work starts, that events can be appended.

        Raises:
            AuditError: They cannot.
        """
        with self._locked() as file:
            self._last(file, _whole_bytes(file))

    def _next(self, last: Event | None, kind: str, details: dict[str, Any]) -> Event:
        now = self.clock().isoformat(timespec="milliseconds")
        number, previous = (last.number + 1, last.digest) if last else (1, FIRST_PREVIOUS)
        return Event(number, now, kind, os_user(), details, previous)

    def _repair(self, file: int) -> int:
        """Replaces a torn last line by an event that holds it; returns the size of the record, in bytes."""
        whole_bytes = _whole_bytes(file)
        torn = os.pread(file, os.fstat(file).st_size - whole_bytes, whole_bytes)
        if not torn:
            return whole_bytes
        details = {
            "torn_bytes": len(torn),
            "sha256": hashlib.sha256(torn).hexdigest(),
            "text": torn.decode(errors="backslashreplace"),
        }
        event = self._next(self._last(file, whole_bytes), REPAIRED, details)
        os.ftruncate(file, whole_bytes)
        line = event.to_line()
        _write_all(file, line, whole_bytes, self.path)
        return whole_bytes + len(line)

    def _last(self, file: int, whole_bytes: int) -> Event | None:
        """The last event of the first `whole_bytes` of the record."""
        if not whole_bytes:
            return None
        start = _line_end_before(file, whole_bytes - 1)
        try:
            return parse_event(os.pread(file, whole_bytes - start, start))
        except ValueError as error:
            raise AuditError(
                f"{self.path}: the last line {error}; nothing is appended to a damaged record. `cohortflow audit "
                "verify` says more; keep the file, and move it aside to begin another"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Yields the open file, made if it was not there, while no other process appends."""
        try:
            make_folder(self.path.parent)
            is_new = not self.path.exists()
            file = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise AuditError(f"{self.path}: the audit record cannot be written: {error.strerror}") from error
        try:
            self._wait_for_lock(file)
            if is_new:
                _sync_folder(self.path.parent)
            yield file
        finally:
            os.close(file)

    def _wait_for_lock(self, file: int) -> None:
        deadline = time.monotonic() + self.lock_deadline_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise AuditError(
                        f"{self.path}: another process has held the audit record for {self.lock_deadline_s:g} s"
                    ) from error
                # The system's own wait for this lock knows no deadline; appends take milliseconds.
                time.sleep(0.01)


def _whole_bytes(file: int) -> int:
    """How many bytes of a file are lines with their end."""
    return _line_end_before(file, os.fstat(file).st_size)


def _line_end_before(file: int, end: int) -> int:
    """Where the line that holds byte `end` begins: just after the last newline before it."""
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _write_all(file: int, line: bytes, size_bytes: int, path: Path) -> None:
    """Appends a line and syncs it; where that fails, the file keeps its `size_bytes`."""
    try:
        done = 0
        while done < len(line):
            done += os.write(file, line[done:])
        os.fsync(file)
    except OSError as error:
        os.ftruncate(file, size_bytes)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"{path}: the disk is full; free space and run again") from error
        raise AuditError(f"{path}: the audit record cannot be written: {error.strerror}") from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
