from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.errors import BalanceError
from tasks.files import read_json, write_json
from tasks.folder import RunFolder
from tasks.reporting.manifest import make_manifest, without_folders
from tasks.run import load_run
from tests.tasks.report_cohort import SECONDS, STATISTICS, make_cohort

FAILED = {"S0003": ("TRUNCATED", "/lab/incoming/S0003.fastq: cut off; copy it again")}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return make_cohort(tmp_path / "run", 6, failed=FAILED)


def _manifest(folder: RunFolder) -> dict[str, Any]:
    return make_manifest(folder, [{"variants": STATISTICS}, {}, {"variants": STATISTICS}], SECONDS)


def _change(folder: RunFolder, sample_id: str, stage: str, **changes: Any) -> None:
    path = folder.summary(sample_id, stage)
    write_json(path, {**read_json(path), **changes})


def test_every_sample_is_done_or_has_its_reason(folder: RunFolder) -> None:
    samples = _manifest(folder)["samples"]
    assert list(samples) == [f"S000{n}" for n in range(1, 7)]
    assert {i: s["status"] for i, s in samples.items() if s["status"] != "done"} == {"S0003": "failed"}
    assert {i: s["reason"] for i, s in samples.items()} == dict.fromkeys(samples) | {"S0003": "TRUNCATED"}
    assert samples["S0003"]["message"] == "S0003.fastq: cut off; copy it again"
    assert samples["S0003"]["metrics"]["reads"] == 51_678  # what was found before it failed is told
    assert samples["S0001"]["outputs"] == [f"samples/S0001/S0001.{end}" for end in ("parquet", "vcf.gz", "vcf.gz.tbi")]


def test_what_the_sheet_says_of_a_sample_is_kept(folder: RunFolder) -> None:
    assert _manifest(folder)["samples"]["S0001"]["sheet"] == {"patient": "P-S0001", "phenotype": "2"}


def test_the_quality_of_reads_is_told(folder: RunFolder) -> None:
    samples = _manifest(folder)["samples"]
    (fastq,) = [sample for sample in samples.values() if sample["kind"] == "fastq"]
    told = {name: fastq["metrics"][name] for name in ("n", "read_length", "kmer_entropy")}
    assert told == {"n": 0.0004, "read_length": 101, "kmer_entropy": 10.71}
    assert fastq["common_kmers"] == {"AAAAAA": 0.0041, "AAAAAT": 0.0027}
    assert "common_kmers" not in samples["S0001"]


def test_what_became_of_a_samples_calls_adds_up(folder: RunFolder) -> None:
    for sample in _manifest(folder)["samples"].values():
        assert ("calls" in sample) == (sample["kind"] != "vcf" and sample["status"] == "done")
        if "calls" in sample:
            counts = sample["calls"]
            assert counts["calls_halved"] == 3
            left = counts["calls_found"] - counts["calls_contradicted"] - counts["calls_joined"]
            assert left == counts["calls"] == sample["metrics"]["calls"]


def test_a_sample_has_the_digest_that_its_vcf_states(folder: RunFolder) -> None:
    for sample_id, sample in _manifest(folder)["samples"].items():
        (line,) = load_run(str(folder.root)).header_lines(sample_id)
        assert f",Plan={sample['plan']}," in line


def test_cohort_is_the_sum_of_its_samples(folder: RunFolder) -> None:
    manifest = _manifest(folder)
    done = [sample["counts"] for sample in manifest["samples"].values() if sample["status"] == "done"]
    cohort = manifest["cohort"]
    assert (cohort["samples"], cohort["done"], cohort["failed"]) == (6, 5, 1)
    for name in ("records_in", "records_out", "rejected", "alleles", "scored"):
        assert cohort[name] == sum(counts[name] for counts in done)
    assert cohort["skipped"]["OFF_TARGET"] == sum(counts["skipped"].get("OFF_TARGET", 0) for counts in done)
    assert cohort["distinct"] == {"alleles": 5_000, "scored": 4_980, "skipped": {"TOO_LONG": 20}}


def test_counters_of_workers_are_summed(folder: RunFolder) -> None:
    manifest = _manifest(folder)
    assert manifest["models"]["variants"]["rows"] == 2 * STATISTICS["rows"]
    assert manifest["models"]["variants"]["cache_hits_redis"] == 2 * STATISTICS["cache_hits_redis"]
    assert manifest["seconds"] == SECONDS
    assert {"python", "numpy", "onnxruntime", "pysam"} <= set(manifest["software"])


def test_manifest_is_json_and_holds_no_folders(folder: RunFolder) -> None:
    text = json.dumps(_manifest(folder))
    assert json.loads(text) == _manifest(folder)
    assert str(folder.root) not in text
    assert "/lab/incoming" not in text


@pytest.mark.parametrize("name", ["records_in", "records_out", "rejected", "alleles", "scored"])
def test_a_count_that_is_off_by_one_stops_the_run(folder: RunFolder, name: str) -> None:
    found = read_json(folder.summary("S0001", "output"))[name]
    _change(folder, "S0001", "output", **{name: found + 1})
    with pytest.raises(BalanceError, match="S0001"):
        _manifest(folder)


def test_a_lost_sample_stops_the_run(folder: RunFolder) -> None:
    folder.summary("S0003", "failed").unlink()
    with pytest.raises(BalanceError, match="S0003"):
        _manifest(folder)


def test_an_allele_with_neither_score_nor_reason_stops_the_run(folder: RunFolder) -> None:
    table = pq.read_table(folder.alleles)
    scores = table["CF_DEMO_EFFECT"].to_pylist()
    scores[7] = None
    place = table.schema.get_field_index("CF_DEMO_EFFECT")
    pq.write_table(table.set_column(place, "CF_DEMO_EFFECT", pa.array(scores, pa.float64())), folder.alleles)
    with pytest.raises(BalanceError, match="1 alleles have neither"):
        _manifest(folder)


def test_no_sample_done_is_a_manifest_too(tmp_path: Path) -> None:
    failed = {f"S000{n}": ("EMPTY_FILE", "empty") for n in (1, 2)}
    folder = make_cohort(tmp_path / "run", 2, failed=failed)
    folder.alleles.unlink()
    cohort = make_manifest(folder, [], {})["cohort"]
    assert (cohort["done"], cohort["failed"], cohort["alleles"], cohort["distinct"]["alleles"]) == (0, 2, 0, 0)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("/out/run/work/samples/S/calls.vcf.gz: bad", "work/samples/S/calls.vcf.gz: bad"),
        ("/data/my files/a.bam: no reads", "a.bam: no reads"),
        ("sample S (/elsewhere/b.cram): cut off", "sample S (b.cram): cut off"),
        ("the file '/x/y/z.vcf' is empty", "the file 'z.vcf' is empty"),
        ("line 7: GT 0/1/1 and chr1/2 and 3 and/or 4", "line 7: GT 0/1/1 and chr1/2 and 3 and/or 4"),
    ],
)
def test_files_are_named_without_folders(text: str, plain: str) -> None:
    assert without_folders(text, RunFolder(Path("/out/run")), ["/data/my files/a.bam"]) == plain
