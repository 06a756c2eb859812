"""One event of the record: a line of canonical JSON that names the digest of the line before it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tasks.files import json_sha256

FIRST_PREVIOUS = "0" * 64
"""What stands for the line before the first one."""
_KEYS = {"number", "time", "event", "by", "details", "previous", "digest"}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        number: Its place in the record, from 1.
        time: When it was appended, UTC, ISO 8601.
        kind: What happened, such as ``run.started``.
        by: Who did it: ``name``, ``source`` (``os``: the operating system's user, whom nobody authenticated), ``host``.
        details: JSON values; what they are depends on the kind.
        previous: The digest of the event before, 64 hex digits; zeros for the first.
    """

    number: int
    time: str
    kind: str
    by: dict[str, str]
    details: dict[str, Any]
    previous: str

    @property
    def digest(self) -> str:
        """The digest of everything in the event, and through `previous` of everything before it: 64 hex digits."""
        return json_sha256(self._body())

    def to_line(self) -> bytes:
        """The event as its line, with the newline."""
        value = {**self._body(), "digest": self.digest}
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"

    def _body(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "time": self.time,
            "event": self.kind,
            "by": self.by,
            "details": self.details,
            "previous": self.previous,
        }


def parse_event(line: bytes) -> Event:
    """Reads a line, newline included.

    Raises:
        ValueError: It is not, byte for byte, what `Event.to_line` wrote; the text says how it differs.
    """
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ValueError("is not JSON") from error
    if not isinstance(value, dict) or value.keys() != _KEYS:
        raise ValueError("is not an event")
    event = Event(value["number"], value["time"], value["event"], value["by"], value["details"], value["previous"])
    if event.digest != value["digest"]:
        raise ValueError("was changed: its content does not fit its digest")
    if event.to_line() != line:
        raise ValueError("was changed: it is not written as this program writes it")
    return event
