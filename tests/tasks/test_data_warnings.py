from __future__ import annotations

from typing import Any

import pytest

from tasks.reads.fastq import INTERLEAVED_AS_SINGLE, MATES_SWAPPED
from tasks.reporting.data_warnings import data_warnings

ALIGNMENT = {"counts": {"used": 90}, "base_quality_mean": 31.0, "mapping_rate": 0.99}
OUTPUT = {"records_in": 10, "alleles": 10, "scored": 9, "skipped": {"SYMBOLIC": 1}}


def words(**summaries: Any) -> list[str]:
    found = data_warnings("S", summaries)
    assert all(each["sample"] == "S" and each["message"] for each in found)
    return [each["warning"] for each in found]


def test_a_usual_sample_has_none() -> None:
    assert words(intake={"alignment": ALIGNMENT, "reads": {"warnings": []}}, calls={}, output=OUTPUT) == []
    assert words() == []


@pytest.mark.parametrize(
    ("summaries", "word"),
    [
        ({"intake": {"alignment": {**ALIGNMENT, "base_quality_mean": 0.0}}}, "NO_BASE_QUALITIES"),
        ({"intake": {"alignment": {**ALIGNMENT, "mapping_rate": 0.49}}}, "FEW_ALIGNED"),
        ({"intake": {"reads": {"warnings": [f"a.fq: {INTERLEAVED_AS_SINGLE}"]}}}, "INTERLEAVED_AS_SINGLE"),
        ({"intake": {"reads": {"warnings": [f"a.fq and b.fq: {MATES_SWAPPED}"]}}}, "MATES_SWAPPED"),
        ({"output": {**OUTPUT, "records_in": 0, "alleles": 0, "scored": 0}}, "NO_RECORDS"),
        ({"alleles": {"mixed_names": "chr1 beside 1"}, "output": OUTPUT}, "MIXED_CONTIG_NAMES"),
        ({"output": {**OUTPUT, "scored": 4, "skipped": {"UNKNOWN_CONTIG": 6}}}, "FEW_SCORED"),
    ],
)
def test_what_is_hardly_meant_is_told(summaries: dict[str, Any], word: str) -> None:
    assert words(**summaries) == [word]


def test_a_sample_with_nothing_to_call_is_no_file_without_records() -> None:
    assert words(calls={"calls": 0}, output={**OUTPUT, "records_in": 0, "alleles": 0, "scored": 0, "skipped": {}}) == []
