"""The story of one result, told from the record: which bytes, which models, who, and on what evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.audit.anchors import Anchor
from tasks.audit.event import Event
from tasks.audit.run_trail import FINISHED, REMOVED, STARTED
from tasks.errors import AuditError
from tasks.files import file_sha256


@dataclass(frozen=True, slots=True)
class Story:
    """What a record tells of one run.

    Attributes:
        run: The run's id.
        lines: The story for people.
        faults: Delivered files that are not what was recorded; they are in `lines` too.
    """

    run: str
    lines: tuple[str, ...]
    faults: tuple[str, ...]


def tell_story(events: Sequence[Event], name: str, anchor: Anchor | None) -> Story:
    """Tells the story of a run.

    Args:
        events: The record.
        name: The run's id, or its output folder.
        anchor: That of the folder's manifest where `name` is a folder that has one.

    Raises:
        AuditError: The record does not know the run.
    """
    run = anchor.run if anchor else _run_named(events, name)
    own = [event for event in events if event.details.get("run") == run]
    if not own:
        raise AuditError(f"{name}: the record tells of no such run; give a run's id or its output folder")
    folder = Path(own[0].details["folder"])
    root = anchor.manifest.parent if anchor else folder
    started = _of_kind(own, STARTED)
    finished = _of_kind(own, FINISHED)
    lines = [f"run {run}", f"folder {folder}", *_steps(own)]
    if started:
        lines += [*_recipe(started.details), *_models(events, started.details["models"]), *_inputs(started.details)]
    faults: list[str] = []
    if finished:
        is_latest = _is_latest(events, folder, finished)
        told, faults = _outputs(root, finished.details, is_there=is_latest)
        lines += told
    elif own[-1].kind == STARTED:
        lines.append("the record tells of no end: the run still works, or its process died")
    lines += _before(events, folder, run)
    return Story(run, tuple(lines), tuple(faults))


def _run_named(events: Sequence[Event], name: str) -> str:
    """The run with this id, or the last one in this folder; the name itself where there is none."""
    folder = str(Path(name).resolve())
    in_folder = [event.details["run"] for event in events if event.details.get("folder") == folder]
    return in_folder[-1] if in_folder else name


def _of_kind(events: Sequence[Event], kind: str) -> Event | None:
    return next((event for event in reversed(events) if event.kind == kind), None)


def _is_latest(events: Sequence[Event], folder: Path, finished: Event) -> bool:
    """Whether no run was begun in the folder, and nothing removed from it, since."""
    later = [event for event in events[events.index(finished) + 1 :] if event.kind in (STARTED, REMOVED)]
    return all(event.details["folder"] != str(folder) for event in later)


def _who(event: Event) -> str:
    source = "operating system's user" if event.by["source"] == "os" else event.by["source"]
    return f"{event.by['name']} ({source}) on {event.by['host']}"


def _steps(events: Sequence[Event]) -> list[str]:
    """One line for each event: number, time, kind, who, and why."""
    told = []
    for event in events:
        reason = event.details.get("reason")
        why = f": {reason}: {event.details['message']}" if reason else ""
        told.append(f"  event {event.number:,}  {event.time}  {event.kind}  by {_who(event)}{why}")
    return told


def _recipe(details: dict[str, Any]) -> list[str]:
    recipe = details["recipe"]
    options = ", ".join(f"{key}={value}" for key, value in recipe["pipeline"]["options"].items())
    return [
        f"cohortflow {recipe['version']}, pipeline {recipe['pipeline']['name']}{f' ({options})' if options else ''}",
        f"plan {details['plan']}",
        f"reference {recipe['reference']['digest']}, build {recipe['reference']['build'] or 'unknown'}",
        f"sheet {details['sheet']['path']}  sha256 {details['sheet']['sha256']}",
    ]


def _models(events: Sequence[Event], models: dict[str, dict[str, Any]]) -> list[str]:
    """Each model with its version and digest, and every event beside runs that names the digest."""
    told = ["models"]
    for name, model in models.items():
        told.append(f"  {name}  version {model['version']}  digest {model['digest']}")
        about = [e for e in events if "run" not in e.details and model["digest"] in json.dumps(e.details)]
        for event in about:
            details = json.dumps(event.details, sort_keys=True, ensure_ascii=False)
            told.append(f"    event {event.number:,}  {event.time}  {event.kind}  by {_who(event)}: {details}")
        if not about:
            told.append("    no approval of it is in the record")
    return told


def _inputs(details: dict[str, Any]) -> list[str]:
    told = ["inputs"]
    for sample_id, files in details["inputs"].items():
        told += [f"  {sample_id or 'all samples'}  {path}  sha256 {digest}" for path, digest in files.items()]
    return told


def _outputs(root: Path, details: dict[str, Any], *, is_there: bool) -> tuple[list[str], list[str]]:
    """Every delivered file with its digest, and whether the one in the folder still has it.

    Args:
        root: Where the folder is now.
        details: Of the run's end.
        is_there: Whether the folder still is this run's: else the files in it are another one's.
    """
    told, faults = ["outputs" + ("" if is_there else " (the folder has been used since: not compared)")], []

    def add(who: str, files: dict[str, str]) -> None:
        for name, digest in files.items():
            state = _state(root / name, digest) if is_there else "as recorded"
            told.append(f"  {who}  {name}  sha256 {digest}  {state}")
            if state in ("CHANGED", "MISSING"):
                faults.append(f"{root / name}: {state}")

    add("all samples", details["outputs"])
    for sample_id, sample in details["samples"].items():
        told.append(f"  {sample_id}  {sample['status']}{': ' + sample['reason'] if sample['reason'] else ''}")
        add(sample_id, sample["outputs"])
    return told, faults


def _state(path: Path, digest: str) -> str:
    if not path.is_file():
        return "MISSING"
    return "unchanged" if file_sha256(path) == digest else "CHANGED"


def _before(events: Sequence[Event], folder: Path, run: str) -> list[str]:
    """What else the record tells of the folder: earlier attempts, refusals, removals."""
    others = [e for e in events if e.details.get("folder") == str(folder) and e.details["run"] != run]
    return ["other runs in this folder", *_steps(others)] if others else []
