"""What a reader should know of a sample beside its numbers: repairs, odd inputs, missing indices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.reporting.sample_metrics import Summaries

_MAX_NAMES = 5
_REPAIRS = {
    "fileformat": "repaired: the line ##fileformat was missing and was added",
    "contig": "repaired: ##contig lines were missing and were added",
    "byte_order_mark": "repaired: the byte order mark before the header was removed",
    "carriage_returns": "repaired: Windows line ends became newlines",
    "blank_lines": "repaired: blank lines were removed",
    "final_newline": "repaired: the last line had no newline and got one",
}


@dataclass(frozen=True, slots=True)
class Note:
    """A remark on a sample.

    Attributes:
        text: What holds; the same words for every sample that it holds of.
        detail: How many, which line and so on, of this sample; may be empty.
    """

    text: str
    detail: str = ""


def read_notes(summaries: Summaries) -> list[Note]:
    """Every remark on a sample, in the order of its stages, each once."""
    return list(dict.fromkeys(_notes(summaries)))


def _notes(summaries: Summaries) -> Iterator[Note]:
    for part in _parts(summaries):
        for warning in part.get("warnings", ()):
            file, colon, text = warning.partition(": ")
            yield Note(text, file) if colon else Note(warning)
    alignment = summaries.get("intake", {}).get("alignment", {})
    for reason, contigs in alignment.get("skipped", {}).items():
        names = ", ".join(list(contigs)[:_MAX_NAMES]) + ", ..." * (len(contigs) > _MAX_NAMES)
        yield Note(f"alignment records left out: {reason}", f"{sum(contigs.values()):,} on {names}")
    if alignment.get("index_made"):
        yield Note("no index that fits the alignment was found: one was made in the run's folder")
    # The second reading of the variants knows more than the first; a sample that failed between them has one.
    variants = summaries.get("output", summaries.get("alleles", {}))
    for repair, count in variants.get("repairs", {}).items():
        yield Note(_REPAIRS[repair], f"{count:,}")
    index_reason = variants.get("index_reason")
    if index_reason == "UNSORTED":
        yield Note("the records are not in the order of their places: the annotated VCF has no index")
    elif index_reason:
        yield Note("the annotated VCF has no index", index_reason)
    if variants.get("refs_differ"):
        detail = f"{variants['refs_differ']:,} of {variants['refs_checked']:,} records"
        yield Note("REF is not what the reference has", detail)
    if variants.get("records_without_alt"):
        yield Note("records with ALT '.': no allele to score", f"{variants['records_without_alt']:,} records")
    for line in variants.get("rejected_lines", ()):
        yield Note(f"rejected: {line['found']}", f"line {line['line']:,}")
    for key, counts in variants.get("consequences", {}).items():
        if counts["malformed"]:
            yield Note(
                f"{key}: entries with a part too many or too few are empty in the table", f"{counts['malformed']:,}"
            )
        if counts["unmatched"]:
            yield Note(f"{key}: entries that name none of their record's alleles", f"{counts['unmatched']:,}")
    if summaries.get("calls", {}).get("calls") == 0:
        yield Note("nothing was called: the VCF has no records")


def _parts(summaries: Summaries) -> Iterator[Mapping[str, Any]]:
    """The summaries and the dictionaries directly in them."""
    for summary in summaries.values():
        yield summary
        yield from (value for value in summary.values() if isinstance(value, Mapping))
