"""Places on the reference: 0-based half-open inside, 1-based text outside, converted here and nowhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tasks.errors import RegionsError

_REGION = re.compile(r"^(?P<contig>.+?)(?::(?P<first>[0-9][0-9,]*)(?:-(?P<last>[0-9][0-9,]*))?)?$")


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """A half-open interval ``[start, end)`` of a contig, 0-based, in bases."""

    contig: str
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise RegionsError(f"{self.contig}: not an interval: start {self.start}, end {self.end}")

    @property
    def length_bp(self) -> int:
        """Number of bases."""
        return self.end - self.start


def parse_region(text: str, lengths_bp: dict[str, int]) -> Interval:
    """Reads a samtools region (``contig``, ``contig:first`` or ``contig:first-last``, 1-based, inclusive).

    A contig whose name contains ``:`` is preferred over a split of the text, as in samtools.

    Raises:
        RegionsError: The contig is not in `lengths_bp`, or the numbers are not a place on it.
    """
    if text in lengths_bp:
        return Interval(text, 0, lengths_bp[text])
    match = _REGION.match(text)
    if match is None or match["contig"] not in lengths_bp:
        raise RegionsError(f"region {text!r}: no such contig; the reference has {', '.join(list(lengths_bp)[:5])}")
    length_bp = lengths_bp[match["contig"]]
    first = int(match["first"].replace(",", "")) if match["first"] else 1
    last = int(match["last"].replace(",", "")) if match["last"] else length_bp
    if not 1 <= first <= last or first > length_bp:
        raise RegionsError(f"region {text!r}: must lie within 1-{length_bp}, first before last")
    return Interval(match["contig"], first - 1, min(last, length_bp))


def format_region(interval: Interval) -> str:
    """Prints an interval as a samtools region, 1-based and inclusive."""
    return f"{interval.contig}:{interval.start + 1}-{interval.end}"


def to_position(start: int) -> int:
    """The 1-based POS of VCF and SAM text for a 0-based start."""
    return start + 1


def from_position(position: int) -> int:
    """The 0-based start for a 1-based POS."""
    return position - 1
