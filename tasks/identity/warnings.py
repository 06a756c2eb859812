"""What is wrong about who the samples are: one list for the manifest, the report and MultiQC.

SEX_DIFFERS               the data say another sex than the sheet
SAMPLE_NAME_DIFFERS       the file's own sample name (SM, VCF column) is not the sheet's
ONE_PERSON_TWO_PATIENTS   two samples of different patients are of one person
TWO_PERSONS_ONE_PATIENT   two samples of one patient are of different persons
NOT_FIRST_DEGREE          two samples that the sheet makes kin of the first degree are not
TRIO_DIFFERS              a child's genotypes cannot come of the parents that the sheet names
UNKNOWN_PARENT            the sheet names a parent of whom the cohort has nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

WARNINGS = {
    "SEX_DIFFERS": "The data say another sex than the sheet.",
    "SAMPLE_NAME_DIFFERS": "The file's own sample name is not the sheet's sample.",
    "ONE_PERSON_TWO_PATIENTS": "Samples of different patients are of one person.",
    "TWO_PERSONS_ONE_PATIENT": "Samples of one patient are of different persons.",
    "NOT_FIRST_DEGREE": "Samples that the sheet makes kin of the first degree are not.",
    "TRIO_DIFFERS": "A child's genotypes cannot come of the parents that the sheet names.",
    "UNKNOWN_PARENT": "The sheet names a parent of whom the cohort has nothing.",
}


@dataclass(frozen=True, slots=True)
class IdentityWarning:
    """A caution on one sample.

    Attributes:
        sample: The sheet's sample id.
        warning: Its word, a key of `WARNINGS`.
        message: What was found, for people.
    """

    sample: str
    warning: str
    message: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def name_warning(sample: str, sheet_names: Sequence[str], found: Sequence[str], where: str) -> IdentityWarning | None:
    """A warning where a file names another sample than the sheet does.

    Args:
        sample: The sample id, which is the output's name too.
        sheet_names: What the file may name: the sample id, the sheet's `sample`, its patient.
        found: The names in the file, empty ones left out.
        where: What holds the names, for the message.
    """
    others = sorted(set(found) - set(sheet_names))
    if not others:
        return None
    names = ", ".join(others[:5]) + ", ..." * (len(others) > 5)
    return IdentityWarning(sample, "SAMPLE_NAME_DIFFERS", f"{where} the sample {names}, the sheet {sample}")
