"""Warnings about a sample's data: what is done by the letter, and yet hardly what its owner wanted.

NO_RECORDS                the VCF has none
FEW_SCORED                less than half of the alleles have a score
NO_BASE_QUALITIES         the reads have no base qualities, by which errors are told from variants
FEW_ALIGNED               less than four fifths of the reads are aligned
INTERLEAVED_AS_SINGLE     single reads come in pairs of one name
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.reads.fastq import INTERLEAVED_AS_SINGLE

_FEW_SCORED, _FEW_ALIGNED = 0.5, 0.8

Json = dict[str, Any]


def data_warnings(sample_id: str, summaries: Mapping[str, Json]) -> list[Json]:
    """The warnings about one sample, each with ``sample``, ``warning`` and ``message``.

    Args:
        sample_id: The sample.
        summaries: Of its finished stages.
    """
    return [{"sample": sample_id, "warning": word, "message": text} for word, text in _warnings(summaries)]


def _warnings(summaries: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    intake, output = summaries.get("intake", {}), summaries.get("output")
    reads, alignment = intake.get("reads", {}), intake.get("alignment")
    yield from (("INTERLEAVED_AS_SINGLE", text) for text in reads.get("warnings", ()) if INTERLEAVED_AS_SINGLE in text)
    if alignment and alignment["counts"]["used"] and not alignment["base_quality_mean"]:
        yield "NO_BASE_QUALITIES", "no read has base qualities: its calls are not to be relied on"
    if alignment and alignment["mapping_rate"] < _FEW_ALIGNED:
        yield "FEW_ALIGNED", f"{alignment['mapping_rate']:.1%} of the reads are aligned to the reference"
    if output and not output["records_in"] and "calls" not in summaries:
        yield "NO_RECORDS", "the file has no records"
    elif output and output["scored"] < _FEW_SCORED * output["alleles"]:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in output["skipped"].items())
        yield "FEW_SCORED", f"{output['scored']:,} of {output['alleles']:,} alleles have a score ({reasons})"
