"""The comparison of a cohort in a run's folder: what is written, and what report and MultiQC make of it."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tasks.files import make_folder, read_json, write_json
from tasks.folder import RunFolder
from tasks.genome.reference import prepare_reference
from tasks.identity.cohort import PAIR_SCHEMA, compare_cohort
from tasks.plan import Plan
from tasks.reporting.manifest import make_manifest
from tasks.reporting.multiqc import write_multiqc
from tasks.reporting.report import write_report
from tasks.run import write_run
from tasks.sheets.sheet import read_sheet
from tasks.stages import collect_alleles
from tests.tasks.families import Population
from tests.tasks.report_cohort import SECONDS


@pytest.fixture(scope="module")
def folder(population: Population, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A family whose mother is a stranger, a repeated person, and a joint VCF, up to their alleles."""
    father, mother = population.person(), population.person()
    persons = {"dad": father, "mum": population.person(), "kid": population.child(father, mother), "again": father}
    for name, who in persons.items():
        population.vcf(f"c-{name}", {"dad" if name == "again" else name: who})
    population.vcf("c-joint", {"one": population.person(), "two": population.person()})
    sheet = population.folder / "sheet.csv"
    sheet.write_text(
        "sample,patient,sex,vcf,paternal_id,maternal_id\n"
        "dad,P1,XY,c-dad.vcf.gz,,\n"
        "mum,P2,XX,c-mum.vcf.gz,,\n"
        "kid,P3,NA,c-kid.vcf.gz,P1,P2\n"
        "again,P4,,c-again.vcf.gz,P9,\n"
        "joint,,,c-joint.vcf.gz,,\n"
    )
    folder = RunFolder(make_folder(tmp_path_factory.mktemp("compared") / "out"))
    reference = prepare_reference(population.fasta, folder.reference)
    samples = {sample.id: sample for sample in read_sheet(sheet).samples}
    recipe = {
        "version": "0.1.0",
        "reference": {"digest": reference.digest, "build": reference.build},
        "pipeline": {"name": "demo-effect", "options": {}},
        "models": {"variants": {"digest": "5b" * 32, "version": 1}},
        "regions": None,
        "padding_bp": 0,
    }
    plan = Plan(recipe, {sample_id: {"kind": "vcf", "files": ["ab" * 32]} for sample_id in samples})
    write_run(folder, plan, {"regions": None, "samples": {i: sample.to_json() for i, sample in samples.items()}})
    for sample_id in samples:
        make_folder(folder.sample_work(sample_id))
        collect_alleles(str(folder.root), sample_id)
        mark = {"status": "failed", "reason": "LATER", "message": "not scored", "blame": "input", "digests": {}}
        write_json(folder.summary(sample_id, "failed"), mark)
    compare_cohort(str(folder.root), list(samples))
    return folder


def test_every_pair_is_a_row_and_warnings_name_what_contradicts_the_sheet(folder: RunFolder) -> None:
    table = pq.read_table(folder.identity)
    assert table.schema.equals(PAIR_SCHEMA)
    assert table.num_rows == 6 * 5 // 2
    found = read_json(folder.identity_summary)
    assert {(each["sample"], each["warning"]) for each in found["warnings"]} == {
        ("dad", "ONE_PERSON_TWO_PATIENTS"),
        ("kid", "TRIO_DIFFERS"),
        ("again", "SAMPLE_NAME_DIFFERS"),
        ("again", "UNKNOWN_PARENT"),
    }
    (unknown,) = [each["message"] for each in found["warnings"] if each["warning"] == "UNKNOWN_PARENT"]
    assert "names P9 as father (paternal_id)" in unknown
    assert [trio["verdict"] for trio in found["trios"]] == ["mother wrong"]
    assert found["subjects"] == ["dad", "mum", "kid", "again", "joint:one", "joint:two"]
    assert sum(found["relations"].values()) == found["pairs"] == table.num_rows
    assert [row[place] for place, row in enumerate(found["concordance"])] == [1.0] * 6


def test_the_same_samples_give_the_same_bytes(folder: RunFolder) -> None:
    before = folder.identity.read_bytes(), folder.identity_summary.read_bytes()
    compare_cohort(str(folder.root), ["dad", "mum", "kid", "again", "joint"])
    assert (folder.identity.read_bytes(), folder.identity_summary.read_bytes()) == before


def test_manifest_report_and_multiqc_tell_it(folder: RunFolder) -> None:
    manifest = make_manifest(folder, [], SECONDS)
    assert len(manifest["warnings"]) == 4
    assert "concordance" not in manifest["identity"]
    assert manifest["samples"]["dad"]["sex"]["verdict"] == "too little data"
    assert manifest["samples"]["joint"]["sex"] is None
    write_report(folder, manifest)
    page = folder.report.read_text()
    assert page.count('class="shade-') == 36
    assert all(warning["message"].split(" ")[0] in page for warning in manifest["warnings"])
    assert "mother wrong" in page
    write_multiqc(folder, manifest)
    table = read_json(folder.multiqc_identity)
    assert table["data"]["kid"]["warnings"] == "TRIO_DIFFERS"
    assert {name for row in table["data"].values() for name in row} <= set(table["headers"])


def test_a_cohort_of_none(folder: RunFolder) -> None:
    before = read_json(folder.identity_summary)
    assert compare_cohort(str(folder.root), []) == {"subjects": 0, "warnings": 0}
    assert pq.read_table(folder.identity).num_rows == 0
    write_json(folder.identity_summary, before)
