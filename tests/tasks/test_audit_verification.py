"""Every manipulation of a record is found, or said not to be provable."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.audit.anchors import Anchor, read_anchor
from tasks.audit.event import FIRST_PREVIOUS, Event, parse_event
from tasks.audit.record import AuditRecord
from tasks.audit.run_trail import RunTrail
from tasks.audit.verification import Verification, verify
from tasks.errors import AuditError
from tasks.files import read_json, write_json
from tasks.folder import RunFolder
from tests.tasks.test_audit_record import a_clock

NOT_PROVABLE = "internally consistent, end not provable"
MANIFEST: dict[str, Any] = {"plan": "ab" * 32, "samples": {}, "seconds": {"score": 0.1}}


@pytest.fixture
def record(tmp_path: Path) -> AuditRecord:
    """Six events; the manifest in the folder `out` names the fifth."""
    made = AuditRecord(tmp_path / "record.jsonl", a_clock)
    for number in (1, 2, 3, 4):
        made.append("test", {"number": number})
    finish(made, tmp_path / "out")
    made.append("test", {"number": 6})
    return made


def finish(record: AuditRecord, root: Path) -> None:
    folder = RunFolder(root)
    write_json(folder.manifest, RunTrail(record, "run-1", folder).finished(MANIFEST))


def events_of(record: AuditRecord) -> list[Event]:
    return [parse_event(line) for line in record.path.read_bytes().splitlines(keepends=True)]


def rewrite(record: AuditRecord, events: list[Event]) -> None:
    """Writes events as a forger would who knows how the chain is made."""
    previous, lines = FIRST_PREVIOUS, []
    for number, event in enumerate(events, start=1):
        forged = replace(event, number=number, previous=previous)
        previous = forged.digest
        lines.append(forged.to_line())
    record.path.write_bytes(b"".join(lines))


def change_lines(record: AuditRecord, change: Callable[[list[bytes]], list[bytes]]) -> None:
    record.path.write_bytes(b"".join(change(record.path.read_bytes().splitlines(keepends=True))))


def anchors(tmp_path: Path) -> list[Anchor]:
    anchor = read_anchor(tmp_path / "out")
    assert anchor is not None
    return [anchor]


def without_anchors(record: AuditRecord, tmp_path: Path) -> Verification:
    """What is found where the manifest is gone."""
    (tmp_path / "out" / "manifest.json").rename(tmp_path / "elsewhere.json")
    return verify(record.path)


def test_an_untouched_record_holds_as_far_as_its_anchors_reach(record: AuditRecord) -> None:
    found = verify(record.path)
    assert (found.faults, found.notes, found.num_proven) == ((), (), 5)
    assert found.lines()[-1].startswith("internally consistent; events 1 to 5 proven by 1 manifest(s)")


def test_without_anchors_the_end_is_not_provable(record: AuditRecord, tmp_path: Path) -> None:
    found = without_anchors(record, tmp_path)
    assert found.faults == ()
    assert found.lines()[-1].startswith(NOT_PROVABLE)


def test_any_byte_that_is_changed_is_found(record: AuditRecord, tmp_path: Path) -> None:
    (tmp_path / "out" / "manifest.json").unlink()
    content = record.path.read_bytes()
    for place in range(0, len(content) - 1, 13):
        changed = bytearray(content)
        changed[place] ^= 1
        record.path.write_bytes(changed)
        assert verify(record.path).faults, (place, content[place : place + 1])


def test_a_change_whose_digest_was_made_to_fit_is_found_by_the_next_line(record: AuditRecord, tmp_path: Path) -> None:
    events = events_of(record)
    forged = replace(events[2], details={"number": 33}).to_line()
    change_lines(record, lambda lines: [*lines[:2], forged, *lines[3:]])
    (tmp_path / "out" / "manifest.json").unlink()
    assert verify(record.path).faults == ("line 4 does not follow the line before it: one of the two was replaced",)


@pytest.mark.parametrize("place", range(5))
def test_a_removed_line_is_found(record: AuditRecord, place: int) -> None:
    change_lines(record, lambda lines: lines[:place] + lines[place + 1 :])
    assert f"line {place + 1} is event {place + 2}, not {place + 1}" in verify(record.path).faults[0]


@pytest.mark.parametrize("place", range(5))
def test_reordered_lines_are_found(record: AuditRecord, place: int) -> None:
    change_lines(record, lambda x: [*x[:place], x[place + 1], x[place], *x[place + 2 :]])
    assert f"line {place + 1} is event {place + 2}, not {place + 1}" in verify(record.path).faults[0]


def test_a_line_that_was_put_in_twice_is_found(record: AuditRecord) -> None:
    change_lines(record, lambda lines: [*lines[:2], lines[1], *lines[2:]])
    assert "line 3 is event 2, not 3" in verify(record.path).faults[0]


@pytest.mark.parametrize("num_kept", range(5))
def test_lines_cut_before_the_anchor_are_found(record: AuditRecord, tmp_path: Path, num_kept: int) -> None:
    change_lines(record, lambda lines: lines[:num_kept])
    assert verify(record.path).faults == ()  # the record no longer names the folder
    (fault,) = verify(record.path, anchors(tmp_path)).faults
    assert f"names event 5, the record has {num_kept} lines: its last ones were cut off" in fault


def test_lines_cut_after_the_anchor_are_said_not_to_be_provable(record: AuditRecord) -> None:
    change_lines(record, lambda lines: lines[:5])
    found = verify(record.path)
    assert found.faults == ()
    assert found.lines()[-1].endswith("what came after is not provable")


def test_a_rewritten_record_is_found_by_its_anchors(record: AuditRecord, tmp_path: Path) -> None:
    events = events_of(record)
    rewrite(record, [replace(events[0], details={"number": 11}), *events[1:]])
    (fault,) = verify(record.path).faults
    assert "event 5 is not the one that" in fault
    told = without_anchors(record, tmp_path)
    assert told.faults == ()
    assert told.lines()[-1].startswith(NOT_PROVABLE)


def test_a_rewritten_record_that_names_no_folder_is_found_by_given_anchors(record: AuditRecord, tmp_path: Path) -> None:
    rewrite(record, [replace(event, details={}) for event in events_of(record)])
    assert verify(record.path).lines()[-1].startswith(NOT_PROVABLE)
    assert "event 5 is not the one that" in verify(record.path, anchors(tmp_path)).faults[0]


def test_a_changed_manifest_is_found(record: AuditRecord, tmp_path: Path) -> None:
    path = tmp_path / "out" / "manifest.json"
    write_json(path, {**read_json(path), "seconds": {"score": 0.2}})
    (fault,) = verify(record.path).faults
    assert "was changed after event 5" in fault


def test_a_torn_line_is_a_note(record: AuditRecord) -> None:
    with record.path.open("ab") as file:
        file.write(b'{"by":')
    found = verify(record.path)
    assert found.faults == ()
    assert found.notes[0].startswith("line 7 is torn after 6 bytes")
    record.append("test", {})
    assert verify(record.path).notes == ()


def test_folders_without_an_anchor_are_noted(record: AuditRecord, tmp_path: Path) -> None:
    path = tmp_path / "out" / "manifest.json"
    manifest = read_json(path)
    del manifest["audit"]
    write_json(path, manifest)
    assert "names no audit record" in verify(record.path).notes[0]
    path.write_text(json.dumps([1]))
    assert "not a manifest of this program" in verify(record.path).notes[0]


def test_a_record_that_is_gone_is_told(record: AuditRecord, tmp_path: Path) -> None:
    record.path.unlink()
    with pytest.raises(AuditError, match=r"No such file or directory; .*out/manifest.json was made beside it"):
        verify(record.path, anchors(tmp_path))
