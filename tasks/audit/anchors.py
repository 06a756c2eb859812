"""Anchors: heads of the record that are kept elsewhere, so that a cut or rewritten record shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.audit.event import Event
from tasks.errors import AuditError
from tasks.files import json_sha256, read_json
from tasks.folder import RunFolder

ENTRY = "audit"
"""The manifest's key of its anchor."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """What a run's manifest says of the record.

    Attributes:
        manifest: The manifest's path.
        run: The run that wrote it.
        number: The event that was the record's last when the manifest was written.
        digest: That event's digest.
        content: The digest of the rest of the manifest, which that event states too.
    """

    manifest: Path
    run: str
    number: int
    digest: str
    content: str


def manifest_content(manifest: dict[str, Any]) -> str:
    """The digest of a manifest without its anchor, which is known only after this was recorded: 64 hex digits."""
    return json_sha256({key: value for key, value in manifest.items() if key != ENTRY})


def manifest_entry(run: str, event: Event) -> dict[str, Any]:
    """What a run's manifest keeps of the record, whose last event is `event`."""
    return {"run": run, "event": event.number, "digest": event.digest}


def read_anchor(folder: Path) -> Anchor | None:
    """Reads the anchor in the manifest of a run's folder; None where the folder has no manifest.

    Raises:
        AuditError: The manifest is not one of this program, or was written by a version that kept no record.
    """
    path = RunFolder(folder).manifest
    try:
        manifest = read_json(path)
        entry = manifest[ENTRY]
        return Anchor(path, entry["run"], int(entry["event"]), entry["digest"], manifest_content(manifest))
    except FileNotFoundError:
        return None
    except KeyError as error:
        raise AuditError(f"{path}: the manifest names no audit record") from error
    except (OSError, ValueError, TypeError) as error:
        raise AuditError(f"{path}: not a manifest of this program ({error})") from error


def recorded_anchors(events: Iterable[Event]) -> tuple[list[Anchor], list[str]]:
    """Looks for anchors in the folders of the runs that a record tells of.

    Returns:
        The anchors, and why a manifest that is there is none. Folders that have gone, or whose last run is not over,
        have no manifest and are passed over.
    """
    folders = dict.fromkeys(event.details["folder"] for event in events if "folder" in event.details)
    anchors, notes = [], []
    for folder in folders:
        try:
            anchor = read_anchor(Path(folder))
        except AuditError as error:
            notes.append(error.message)
            continue
        if anchor:
            anchors.append(anchor)
    return anchors, notes
