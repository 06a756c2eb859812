"""The audit record that this process appends to, and what becomes of a run that ends without a manifest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.prefect_server import home
from flows.progress import current_progress
from tasks.audit.record import AuditRecord
from tasks.audit.run_trail import RunTrail
from tasks.errors import TaskError
from tasks.folder import RunFolder

VARIABLE = "COHORTFLOW_AUDIT"


def record_path() -> Path:
    """Where the record is: ``COHORTFLOW_AUDIT``, else ``audit/record.jsonl`` in this program's home."""
    given = os.environ.get(VARIABLE)
    return Path(given).resolve() if given else home() / "audit" / "record.jsonl"


def audit_record() -> AuditRecord:
    """The record of this process."""
    return AuditRecord(record_path())


@contextmanager
def recorded_run(run: str, folder: RunFolder) -> Iterator[RunTrail]:
    """Opens a run's trail; where the run ends by an error, that is recorded before it goes on.

    Raises:
        AuditError: The record cannot be appended to: the run must not begin.
    """
    trail = RunTrail(audit_record(), run, folder)
    trail.record.check()
    try:
        yield trail
    except BaseException as error:
        try:
            trail.ended(error)
        except TaskError as second:  # the first is what the user has to know
            current_progress().caution(f"the end of the run is not in the audit record: {second.message}")
        raise
