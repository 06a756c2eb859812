"""The faults of a sample sheet, collected so that one answer tells them all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import SheetError

# Above this the sheet as a whole is wrong (another folder, another format), and the rest repeats it.
_FAULTS_SHOWN = 1000
_VALUE_CHARACTERS = 300


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing wrong with a sheet.

    Attributes:
        line: Line of the file, from 1; 0 for the sheet as a whole.
        column: The column's name, empty where a whole line is meant.
        value: What stands there, None where nothing does.
        message: What is wrong with it, and what would be right.
    """

    line: int
    column: str
    value: str | None
    message: str

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line else []
        where += [f"column {self.column}"] if self.column else []
        if self.value is not None:
            cut = self.value if len(self.value) <= _VALUE_CHARACTERS else f"{self.value[:_VALUE_CHARACTERS]}..."
            where.append(repr(cut))
        return f"{', '.join(where)}: {self.message}" if where else self.message


class Faults:
    """What has been found wrong so far."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, line: int, column: str, value: str | None, message: str) -> None:
        """Notes one fault; see `Fault`."""
        self._faults.append(Fault(line, column, value, message))

    def raise_any(self, path: Path) -> None:
        """Raises all faults as one error, by line; does nothing when there is none.

        Raises:
            SheetError: There are faults.
        """
        if self._faults:
            by_line = sorted(self._faults, key=lambda fault: fault.line)
            raise sheet_error(path, map(str, by_line))


def sheet_error(path: Path, faults: Iterable[str]) -> SheetError:
    """The one answer that lists `faults`, in their order."""
    lines = list(faults)
    if len(lines) == 1:
        return SheetError(f"{path}: {lines[0]}", field="sheet")
    shown = [f"  {line}" for line in lines[:_FAULTS_SHOWN]]
    if len(lines) > _FAULTS_SHOWN:
        shown.append(f"  ... and {len(lines) - _FAULTS_SHOWN:,} more")
    return SheetError("\n".join([f"{path}: {len(lines):,} faults", *shown]), field="sheet")
