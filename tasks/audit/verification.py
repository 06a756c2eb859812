"""Whether a record holds: every line, the chain between them, and the heads that are kept elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.audit.anchors import Anchor, recorded_anchors
from tasks.audit.event import FIRST_PREVIOUS, Event, parse_event
from tasks.errors import AuditError


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found of a record.

    Attributes:
        path: The record.
        events: The lines that are whole and unchanged, in their order.
        faults: Where it does not hold, for people; empty where it is consistent and every anchor fits.
        notes: What is worth knowing and no fault of the record.
        anchors: Those that fit.
    """

    path: Path
    events: tuple[Event, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    anchors: tuple[Anchor, ...]

    @property
    def num_proven(self) -> int:
        """How many events, from the first, an anchor outside of the record proves."""
        return max((anchor.number for anchor in self.anchors), default=0)

    def lines(self) -> list[str]:
        """The verdict for people."""
        told = [f"{self.path}: {len(self.events):,} events", *(f"FAULT: {fault}" for fault in self.faults)]
        told += [f"note: {note}" for note in self.notes]
        if self.faults:
            told.append("the record does NOT hold")
        elif not self.anchors:
            told.append("internally consistent, end not provable: there is no manifest that names the record's head")
        else:
            told.append(
                f"internally consistent; events 1 to {self.num_proven:,} proven by {len(self.anchors)} manifest(s); "
                "what came after is not provable"
            )
        return told


def verify(path: Path, given: Sequence[Anchor] = ()) -> Verification:
    """Checks a record against itself, against `given` anchors, and against the manifests of the runs it tells of.

    Args:
        path: The record.
        given: Anchors that the caller knows of. A forger who rewrites the record names no folders in it, so that only
            these show it.

    Raises:
        AuditError: There is no record, or it cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        known = f"; {given[0].manifest} was made beside it" if given else ""
        raise AuditError(f"{path}: the audit record cannot be read: {error.strerror}{known}") from error
    *lines, torn = content.split(b"\n")
    events, faults = _check_chain(lines)
    notes = []
    if torn:
        notes.append(
            f"line {len(lines) + 1} is torn after {len(torn):,} bytes: an append was cut short; the next one takes it "
            "off and records it"
        )
    found, remarks = recorded_anchors(events)
    anchors = list({anchor.manifest.resolve(): anchor for anchor in (*found, *given)}.values())
    by_number = {event.number: event for event in events}
    fitting = []
    for anchor in anchors:
        fault = _anchor_fault(anchor, by_number, len(lines))
        if fault:
            faults.append(fault)
        else:
            fitting.append(anchor)
    return Verification(path, tuple(events), tuple(faults), (*notes, *remarks), tuple(fitting))


def _check_chain(lines: Sequence[bytes]) -> tuple[list[Event], list[str]]:
    """The events of a record's lines, and where a line or the chain between two is broken."""
    events: list[Event] = []
    faults: list[str] = []
    previous: str | None = FIRST_PREVIOUS
    expected = 1
    for place, line in enumerate(lines, start=1):
        try:
            event = parse_event(line + b"\n")
        except ValueError as error:
            faults.append(f"line {place} {error}")
            previous, expected = None, expected + 1
            continue
        if event.number != expected:
            faults.append(
                f"line {place} is event {event.number}, not {expected}: lines before it were removed, added or moved"
            )
        elif previous is not None and event.previous != previous:
            faults.append(f"line {place} does not follow the line before it: one of the two was replaced")
        events.append(event)
        previous, expected = event.digest, event.number + 1
    return events, faults


def _anchor_fault(anchor: Anchor, events: dict[int, Event], num_lines: int) -> str | None:
    """How an anchor contradicts the record; None where it fits."""
    event = events.get(anchor.number)
    if event is None and anchor.number > num_lines:
        return (
            f"{anchor.manifest} names event {anchor.number:,}, the record has {num_lines:,} lines: its last ones were "
            "cut off, or the manifest was made beside another record"
        )
    if event is None:
        return f"{anchor.manifest} names event {anchor.number:,}, which the record lacks"
    if event.digest != anchor.digest:
        return (
            f"event {anchor.number:,} is not the one that {anchor.manifest} names: the record was rewritten, or the "
            "manifest was made beside another record"
        )
    if event.details.get("manifest") != anchor.content:
        return f"{anchor.manifest} was changed after event {anchor.number:,} had recorded its content"
    return None
