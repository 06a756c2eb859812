"""``ID.rejected.vcf``: the lines of a sample's VCF that are not records, with line number and reason."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import IO

from tasks.files import whole_file
from tasks.variants.lines import FAULT_TEXTS, LINE_FAULTS
from tasks.variants.records import RecordBlock

_HEAD = (
    b"## Lines that are not VCF records, byte for byte as in the input. "
    b"Before each stands a line '## line NUMBER: REASON: what was found'.\n"
)


class RejectedLines(ExitStack):
    """The file, whole when the context ends without an error; there is none if no line is rejected."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        path.unlink(missing_ok=True)
        self._path = path
        self._handle: IO[bytes] | None = None

    def add(self, block: RecordBlock) -> None:
        """Writes the block's lines that are not records."""
        for row in block.lines.bad_lines.tolist():
            if self._handle is None:
                aside = self.enter_context(whole_file(self._path))
                self._handle = self.enter_context(open(aside, "wb"))  # noqa: SIM115 - it is a context manager
                self._handle.write(_HEAD)
            reason = LINE_FAULTS[block.lines.fault[row]]
            self._handle.write(f"## line {block.lines.first_line + row}: {reason}: {FAULT_TEXTS[reason]}\n".encode())
            self._handle.write(block.lines.line(row))
