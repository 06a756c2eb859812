"""A sample's FASTQ files: summaries, mates, and every odd file we know."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitoring.kmers import KmerProfile
from tasks.errors import ReadsError
from tasks.isolation import run_isolated
from tasks.reads.fastq import MATES_OUT_OF_TURN, MATES_SWAPPED, check_reads
from tests.tasks.fastq_text import bgzip, record, write


def check(first: Path, second: Path | None = None, *, interleaved: bool = False) -> dict[str, Any]:
    lane = {"fastq_1": str(first), "fastq_2": str(second) if second else None, "interleaved": interleaved}
    return check_reads([lane])


def refusal(*args: Any, **kwargs: Any) -> ReadsError:
    with pytest.raises(ReadsError) as caught:
        check(*args, **kwargs)
    return caught.value


def test_the_summary_of_a_small_file(tmp_path: Path) -> None:
    text = record("a", "ACGTAC", "IIIIII") + record("b", "GGNN", "5555") + record("c", "")
    summary = check(write(tmp_path / "reads.fq", text))
    assert (summary["num_reads"], summary["num_bases"], summary["num_empty_reads"]) == (3, 10, 1)
    assert summary["length_bp"] == {
        "min": 0,
        "max": 6,
        "mean": 3.33,
        "median": 4,
        "n50": 6,
        "histogram": [[0, 0, 1], [4, 4, 1], [6, 6, 1]],
    }
    assert summary["quality"]["mean"] == 32.0
    assert summary["quality"]["mean_by_position"] == [30.0, 30.0, 30.0, 30.0, 40.0, 40.0]
    assert summary["quality"]["q30_share"] == 0.6
    assert (summary["n_share"], summary["gc_share"]) == (0.2, 0.625)
    assert summary["kmers"] == KmerProfile.of_tokens(np.array([0, 1, 2, 3, 0, 1], dtype=np.uint8)).to_json()
    assert summary["long_reads"] is False


def test_lanes_add_up(tmp_path: Path) -> None:
    lanes = [write(tmp_path / f"{i}.fq", record("a", "ACGTACGT" * (i + 1)) * (i + 1)) for i in range(3)]
    summary = check_reads([{"fastq_1": str(lane)} for lane in lanes])
    apart = [check(lane) for lane in lanes]
    assert summary["num_reads"] == sum(one["num_reads"] for one in apart) == 6
    profile = KmerProfile.from_json(apart[0]["kmers"])
    for one in apart[1:]:
        profile += KmerProfile.from_json(one["kmers"])
    assert summary["kmers"] == profile.to_json()
    assert [file["num_reads"] for file in summary["files"]] == [1, 2, 3]


def test_mates_that_agree(tmp_path: Path) -> None:
    first = write(tmp_path / "1.fq", "".join(record(f"r{i}/1", "ACGT") for i in range(50)))
    text = "".join(record(f"r{i}/2", "ACGTA") for i in range(50))
    second = write(tmp_path / "2.fq.gz", bgzip(text.encode()))
    summary = check(first, second)
    assert (summary["num_pairs"], summary["num_reads"], summary["layouts"]) == (50, 100, ["paired"])
    assert summary["warnings"] == []


def test_mates_that_differ(tmp_path: Path) -> None:
    reads = [record(f"r{i}", "ACGT") for i in range(20)]
    first = write(tmp_path / "1.fq", "".join(reads))
    assert "has 20 records" in refusal(first, write(tmp_path / "2.fq", "".join(reads[:-1]))).message
    assert "has 19 records" in refusal(tmp_path / "2.fq", first).message
    swapped = [*reads[:4], reads[5], reads[4], *reads[6:]]
    error = refusal(first, write(tmp_path / "3.fq.gz", gzip.compress("".join(swapped).encode())))
    assert "record 5 should be one pair, but is 'r4' and 'r5'" in error.message
    assert error.reason == "MATES_DIFFER"


def test_the_same_mate_twice(tmp_path: Path) -> None:
    for header in ("r/1", "r 1:N:0:ACGT"):
        files = [write(tmp_path / f"{i}.fq", record(header, "ACGT")) for i in range(2)]
        error = refusal(*files)
        assert "0.fq" in error.message
        assert "1.fq: both hold mate 1" in error.message


@pytest.mark.parametrize(("one", "two"), [("r/1", "r/2"), ("r 1:N:0:ACGT", "r 2:N:0:ACGT")])
def test_swapped_mates_are_told_with_their_files(tmp_path: Path, one: str, two: str) -> None:
    first, second = (write(tmp_path / f"{i}.fq", record(name, "ACGT")) for i, name in enumerate((one, two)))
    assert check(first, second)["warnings"] == []
    (warning,) = check(second, first)["warnings"]
    assert warning == f"1.fq and 0.fq: {MATES_SWAPPED}"


def test_interleaved_mates_have_their_turns(tmp_path: Path) -> None:
    texts = {mates: "".join(record(f"r/{mate}", "ACGT") for mate in mates) for mates in ("12", "21", "11")}
    files = {mates: write(tmp_path / f"{mates}.fq", text) for mates, text in texts.items()}
    assert check(files["12"], interleaved=True)["warnings"] == []
    assert check(files["21"], interleaved=True)["warnings"] == [f"21.fq: {MATES_OUT_OF_TURN}"]
    assert "both reads are mate 1" in refusal(files["11"], interleaved=True).message


def test_interleaved(tmp_path: Path) -> None:
    pairs = [record(f"r{i}/{mate}", "ACGT") for i in range(10) for mate in (1, 2)]
    path = write(tmp_path / "reads.fq", "".join(pairs))
    assert check(path, interleaved=True)["num_pairs"] == 10
    assert "interleaved" in check(path)["warnings"][0]
    assert "odd number" in refusal(write(tmp_path / "odd.fq", "".join(pairs[:-1])), interleaved=True).message
    torn = refusal(write(tmp_path / "torn.fq", "".join(pairs[:2] + pairs[3:])), interleaved=True)
    assert "records 3 and 4 should be mates" in torn.message


def test_quality_offset_64(tmp_path: Path) -> None:
    text = record("a", "ACGT" * 30, "h" * 60 + "B" * 60)
    assert refusal(write(tmp_path / "old.fq", text)).reason == "QUALITY_OFFSET_64"
    assert check(write(tmp_path / "new.fq", text + record("b", "A", "#")))["num_reads"] == 2
    long_read = record("hifi", "ACGT" * 1000, "~" * 4000)
    assert check(write(tmp_path / "hifi.fq", long_read))["long_reads"] is True


def test_no_reads(tmp_path: Path) -> None:
    for name, content in {"empty.fq": b"", "blank.fq": b"\n\n", "empty.fq.gz": gzip.compress(b"")}.items():
        assert refusal(write(tmp_path / name, content)).reason == "NO_READS"


def test_bgzip_without_its_end_is_warned_of(tmp_path: Path) -> None:
    path = write(tmp_path / "reads.fq.gz", bgzip(record("a", "ACGT").encode(), end=False))
    assert "cut off" in check(path)["warnings"][0]


ODD = {
    "error_diff_ids.fastq": "BAD_FASTQ",
    "error_double_seq.fastq": "BAD_FASTQ",
    "error_long_qual.fastq": "BAD_FASTQ",
    "error_spaces.fastq": "BAD_FASTQ",
    "error_trunc_in_qual.fastq": "BAD_FASTQ",
    "example_dos.fastq": 3,
    "faidx_empty_seq.fq": 10,
    "interleaved.fq": 10,
    "longline.fq": 1,
    "longreads_original_sanger.fastq": "BAD_FASTQ",
    "malformed.fastq": "BAD_FASTQ",
    "malformed2.fastq": "BAD_FASTQ",
    "multiline.fq": "BAD_FASTQ",
    "sanger_full_range_original_sanger.fastq": 2,
    "solexa_full_range_as_illumina.fastq": "QUALITY_OFFSET_64",
    "test_reads.bgzip.fastq.gz": 4,
    "test_reads.fastq.gz": 4,
    "tricky.fastq": "BAD_FASTQ",
    "zero_length.fastq": 5,
}


def test_every_odd_file_has_an_answer(shared_data: Path) -> None:
    answers: dict[str, Any] = {}
    for path in sorted((shared_data / "odd" / "fastq").iterdir()):
        try:
            answers[path.name] = check(path)["num_reads"]
        except ReadsError as error:
            answers[path.name] = error.reason
    assert answers == ODD


def test_the_real_pair_in_a_child(shared_data: Path) -> None:
    names = [f"NA12878_chr20_10_10p1mb_R{mate}.fastq.gz" for mate in (1, 2)]
    first, second = (str(shared_data / "na12878" / name) for name in names)
    seen: list[Any] = []
    summary = run_isolated(
        "tasks.reads.fastq:check_reads",
        {"lanes": [{"fastq_1": first, "fastq_2": second}]},
        what=first,
        progress=seen.append,
    )
    assert (summary["num_reads"], summary["num_pairs"]) == (51_678, 25_839)
    assert summary["length_bp"]["median"] == 101
    assert sum(step["num_reads"] for step in seen) == 51_678
    assert summary["warnings"] == []
