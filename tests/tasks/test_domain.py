"""What the caller was made for: read from its configuration, and held against alignments."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tasks.calling.domain import CallerDomain, read_domain, refuse_tumour
from tasks.errors import ModelDataError
from tests.conftest import REPOSITORY

DOMAIN = CallerDomain(("ILLUMINA", "ELEMENT"), (70, 300), (5, 100), 0.02)


def alignment(**changes: Any) -> dict[str, Any]:
    return {
        "read_length_median": 150,
        "long_reads": False,
        "read_groups": [{"id": "g", "sample": "s", "platform": "ILLUMINA"}],
        "usual_depth": 30,
        "depth_in_regions": False,
        "spliced_share": 0.0,
        **changes,
    }


def group(platform: str) -> dict[str, str]:
    return {"id": platform, "sample": "s", "platform": platform}


def test_the_shipped_caller_states_its_domain() -> None:
    domain = read_domain(REPOSITORY / "data" / "models", "reads")
    assert "ILLUMINA" in domain.platforms
    assert domain.read_length_bp[0] <= 100
    assert domain.read_length_bp[1] >= 151
    assert domain.depth[0] == 5
    assert 0 < domain.max_spliced_share < 0.1


@pytest.mark.parametrize(
    ("old", "new"),
    [("domain_depth", "domain_width"), ('"5-100"', '"five"'), ('string_value: "0.02"', 'string_value: "few"')],
)
def test_a_configuration_that_does_not_state_it_is_named(tmp_path: Path, old: str, new: str) -> None:
    shutil.copytree(REPOSITORY / "data" / "models" / "reads", tmp_path / "reads")
    config = tmp_path / "reads" / "config.pbtxt"
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    with pytest.raises(ModelDataError, match=r"reads/config\.pbtxt"):
        read_domain(tmp_path, "reads")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"read_groups": []},
        {"read_groups": [group(""), group("illumina"), group("HiSeq 2500")]},
        {"read_length_median": 70},
        {"read_length_median": 300},
        {"usual_depth": 5},
        {"spliced_share": 0.02},
    ],
)
def test_data_of_the_domain(changes: dict[str, Any]) -> None:
    assert DOMAIN.check_alignment(alignment(**changes), "sample s") == []


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({"long_reads": True, "read_length_median": 9_000}, "NO_MODEL_FOR_THIS_DATA", "long reads .median 9000 bp"),
        ({"read_length_median": 36}, "NO_MODEL_FOR_THIS_DATA", "another length .median 36 bp.*70 to 300 bp"),
        ({"read_groups": [group("ILLUMINA"), group("IonTorrent")]}, "NO_MODEL_FOR_THIS_DATA", "IONTORRENT in @RG PL"),
        ({"spliced_share": 0.31}, "SPLICED_ALIGNMENTS", "31.0% of the reads skip an intron"),
        ({"usual_depth": 4}, "DEPTH_TOO_LOW", "lies at 4x: .* 5x and more"),
        ({"usual_depth": 4, "depth_in_regions": True}, "DEPTH_TOO_LOW", "read inside the regions lies at 4x"),
    ],
)
def test_data_outside_of_it_is_refused_with_numbers(changes: dict[str, Any], reason: str, message: str) -> None:
    with pytest.raises(ModelDataError, match=f"^sample s: .*{message}") as caught:
        DOMAIN.check_alignment(alignment(**changes), "sample s")
    assert caught.value.reason == reason


def test_more_depth_than_in_training_is_said() -> None:
    (warning,) = DOMAIN.check_alignment(alignment(usual_depth=400, depth_in_regions=True), "sample s")
    assert warning == "deeper than what the caller was trained on (5-100x): 400x inside the regions"


@pytest.mark.parametrize(("kind", "status"), [("vcf", 1), ("bam", 0), ("fastq", None)])
def test_variants_of_tumours_and_reads_of_others_go_on(kind: str, status: int | None) -> None:
    refuse_tumour({"id": "s", "kind": kind, "status": status})


@pytest.mark.parametrize("kind", ["bam", "cram", "fastq"])
def test_reads_of_a_tumour_are_refused(kind: str) -> None:
    with pytest.raises(ModelDataError, match="sample s: a tumour") as caught:
        refuse_tumour({"id": "s", "kind": kind, "status": 1})
    assert caught.value.reason == "TUMOUR_SAMPLE"
