"""Warnings about a sample's data: what is done by the letter, and yet hardly what its owner wanted.

NO_RECORDS                the VCF has none
MIXED_CONTIG_NAMES        the VCF names contigs in two ways, as chr1 and 1 are
FEW_SCORED                less than half of the alleles have a score
NO_BASE_QUALITIES         the reads have no base qualities, by which errors are told from variants
FEW_ALIGNED               less than four fifths of the reads are aligned
INTERLEAVED_AS_SINGLE     single reads come in pairs of one name
MATES_SWAPPED             by the read names, second mates stand where first ones belong
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.reads.fastq import INTERLEAVED_AS_SINGLE, MATES_OUT_OF_TURN, MATES_SWAPPED

_FEW_SCORED, _FEW_ALIGNED = 0.5, 0.8
_WORD_OF_READS = {
    INTERLEAVED_AS_SINGLE: "INTERLEAVED_AS_SINGLE",
    MATES_SWAPPED: "MATES_SWAPPED",
    MATES_OUT_OF_TURN: "MATES_SWAPPED",
}

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
    for text in reads.get("warnings", ()):
        yield from ((word, text) for words, word in _WORD_OF_READS.items() if words in text)
    if alignment and alignment["counts"]["used"] and not alignment["base_quality_mean"]:
        yield "NO_BASE_QUALITIES", "no read has base qualities: its calls are not to be relied on"
    if alignment and alignment["mapping_rate"] < _FEW_ALIGNED:
        yield "FEW_ALIGNED", f"{alignment['mapping_rate']:.1%} of the reads are aligned to the reference"
    if summaries.get("alleles", {}).get("mixed_names"):
        yield "MIXED_CONTIG_NAMES", summaries["alleles"]["mixed_names"]
    if output and not output["records_in"] and "calls" not in summaries:
        yield "NO_RECORDS", "the file has no records"
    elif output and output["scored"] < _FEW_SCORED * output["alleles"]:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in output["skipped"].items())
        yield "FEW_SCORED", f"{output['scored']:,} of {output['alleles']:,} alleles have a score ({reasons})"
