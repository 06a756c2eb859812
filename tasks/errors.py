"""What can go wrong with the files and the work of a run.

    TaskError
    ├── InputError            a file, record, flag or sheet is wrong: the sample fails, the others go on
    │   ├── SheetError        the sample sheet (every fault in one answer)
    │   ├── ReferenceError    the FASTA, its index, or a header that does not fit it
    │   ├── VariantFileError  VCF and BCF
    │   ├── AlignmentError    BAM and CRAM
    │   ├── ReadsError        FASTQ
    │   ├── RegionsError      BED and region strings
    │   └── ModelDataError    no shipped model fits this data (long reads, too little depth)
    ├── FolderError           the output folder is locked, holds another plan, or cannot be written
    ├── DiskFullError         the disk is full: the run stops and can go on
    ├── AuditError            the audit record cannot be appended to, or does not hold
    ├── BalanceError          counts do not balance: a defect of this program, the run fails
    ├── MemoryShortError      work that is known to need more memory than is free now
    └── ParserCrashError      a parser died on a signal while it read an untrusted file

`reason` is a stable upper-case word that outputs and scripts use; the message is for people: what was found, where
(file, line or record, column, sample), and what to do.
"""

from __future__ import annotations

from typing import ClassVar, Literal


class TaskError(Exception):
    """Root of every error this package raises.

    Attributes:
        retryable: Whether the same work may succeed if it is tried again unchanged.
        blame: Whose fault it is: ``input`` (the user's data) or ``system`` (this program or the machine).
        reason: A stable upper-case word for outputs and scripts.
        field: The option, column or field at fault, if one is.
    """

    retryable: ClassVar[bool] = False
    blame: ClassVar[Literal["input", "system"]] = "system"
    default_reason: ClassVar[str] = "FAILED"

    def __init__(self, message: str, *, field: str | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.reason = reason or self.default_reason

    @property
    def message(self) -> str:
        """The text for people."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args[0], self.field, self.reason)


def _rebuild(cls: type[TaskError], message: str, field: str | None, reason: str) -> TaskError:
    return cls(message, field=field, reason=reason)


class InputError(TaskError):
    """The user's data is wrong."""

    blame = "input"
    default_reason = "BAD_INPUT"


class SheetError(InputError):
    """The sample sheet is wrong; the message lists every fault."""

    default_reason = "BAD_SHEET"


class ReferenceError(InputError):
    """The reference FASTA is wrong, or an input was made with another one."""

    default_reason = "WRONG_REFERENCE"


class VariantFileError(InputError):
    """A VCF or BCF cannot be read."""

    default_reason = "BAD_VCF"


class AlignmentError(InputError):
    """A BAM or CRAM cannot be read."""

    default_reason = "BAD_ALIGNMENT"


class ReadsError(InputError):
    """A FASTQ file cannot be read."""

    default_reason = "BAD_FASTQ"


class RegionsError(InputError):
    """A BED file or a region string is wrong."""

    default_reason = "BAD_REGIONS"


class ModelDataError(InputError):
    """No shipped model was made for this data."""

    default_reason = "NO_MODEL_FOR_THIS_DATA"


class FolderError(TaskError):
    """The output folder cannot be used for this run."""

    blame = "input"
    default_reason = "FOLDER"


class DiskFullError(TaskError):
    """The disk is full: the run stops, and goes on when there is space."""

    default_reason = "DISK_FULL"


class AuditError(TaskError):
    """The audit record cannot be appended to or read: nothing is computed that it would not tell of."""

    default_reason = "AUDIT"


class BalanceError(TaskError):
    """Records or alleles were lost or made up: counts do not balance."""

    default_reason = "UNBALANCED"


class MemoryShortError(TaskError):
    """Work needs more memory than this machine has free now; said before it starts."""

    retryable = True
    default_reason = "OUT_OF_MEMORY"


class ParserCrashError(TaskError):
    """A parser died on a signal while it read an untrusted file."""

    blame = "input"
    default_reason = "PARSER_CRASHED"
