from __future__ import annotations

from pathlib import Path

from tasks.files import read_json, write_json
from tasks.reporting.manifest import make_manifest
from tasks.reporting.multiqc import write_multiqc
from tests.tasks.report_cohort import SECONDS, make_cohort


def test_every_sample_is_a_row_and_every_value_has_its_column(tmp_path: Path) -> None:
    folder = make_cohort(tmp_path / "run", 6, failed={"S0002": ("NO_READS", "no reads")})
    manifest = make_manifest(folder, [], SECONDS)
    write_multiqc(folder, manifest)
    table = read_json(folder.multiqc)
    assert table["plot_type"] == "table"
    assert set(table["data"]) == set(manifest["samples"])
    assert {name for row in table["data"].values() for name in row} == set(table["headers"])
    assert table["data"]["S0001"]["records_in"] == manifest["samples"]["S0001"]["counts"]["records_in"]
    assert (table["data"]["S0001"]["status"], table["data"]["S0002"]["status"]) == ("done", "NO_READS")
    reasons = read_json(folder.multiqc_reasons)
    assert reasons["data"]["S0001"] == manifest["samples"]["S0001"]["counts"]["skipped"]
    assert "S0002" not in reasons["data"]
    for content in (table, reasons):
        assert content["description"].endswith(f"Reference build: unknown. Plan: {manifest['plan']}.")


def test_files_end_in_the_name_that_multiqc_looks_for_and_are_ours(tmp_path: Path) -> None:
    folder = make_cohort(tmp_path / "run", 2)
    write_multiqc(folder, make_manifest(folder, [], SECONDS))
    written = sorted(path.name for path in folder.root.glob("*_mqc.json"))
    assert written == ["cohort_mqc.json", "cohort_reasons_mqc.json"]
    folder.clear()
    assert not list(folder.root.iterdir())


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for name in ("a", "b"):
        folder = make_cohort(tmp_path / name / "run", 4)
        write_multiqc(folder, make_manifest(folder, [], {"score alleles": len(texts)}))
        texts.append(folder.multiqc.read_bytes() + folder.multiqc_reasons.read_bytes())
    assert texts[0] == texts[1]


def test_reasons_of_an_earlier_run_do_not_stay(tmp_path: Path) -> None:
    folder = make_cohort(tmp_path / "run", 1)
    write_multiqc(folder, make_manifest(folder, [], SECONDS))
    assert folder.multiqc_reasons.exists()
    output = read_json(folder.summary("S0001", "output"))
    write_json(folder.summary("S0001", "output"), {**output, "skipped": {}, "scored": output["alleles"]})
    write_multiqc(folder, make_manifest(folder, [], SECONDS))
    assert not folder.multiqc_reasons.exists()
