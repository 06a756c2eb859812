"""A whole run over a simulated family whose sheet is wrong in every way that is looked for."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from tests.flows.cohort import run_command
from tests.tasks.families import make_population


def test_what_contradicts_the_sheet_is_told(tmp_path: Path) -> None:
    population = make_population(tmp_path)
    father, mother, stranger = population.person(), population.person(), population.person()
    persons = {
        "dad": father,
        "mum": stranger,
        "kid": population.child(father, mother),
        "other": father,
        "twice": stranger,
    }
    for name, who in persons.items():
        population.vcf(name, {"SOMEBODY" if name == "other" else name: who})
    patients = {"dad": "P1", "mum": "P2", "kid": "P3", "other": "P4", "twice": "P3"}
    lines = ["sample,patient,vcf,paternal_id,maternal_id"]
    lines += [
        f"{name},{patient},{name}.vcf.gz,{'dad,mum' if name == 'kid' else ','}" for name, patient in patients.items()
    ]
    sheet = tmp_path / "sheet.csv"
    sheet.write_text("\n".join(lines) + "\n")
    output = tmp_path / "out"
    run = run_command("score", sheet, "--reference", population.fasta, "--output", output)
    assert run.returncode == 0, run.stderr
    manifest = json.loads((output / "manifest.json").read_text())
    found = {(each["sample"], each["warning"]) for each in manifest["warnings"]}
    assert found == {
        ("dad", "ONE_PERSON_TWO_PATIENTS"),  # dad and other
        ("mum", "ONE_PERSON_TWO_PATIENTS"),  # mum and twice
        ("kid", "TWO_PERSONS_ONE_PATIENT"),  # kid and twice
        ("kid", "TRIO_DIFFERS"),
        ("other", "SAMPLE_NAME_DIFFERS"),
    }
    (trio,) = manifest["identity"]["trios"]
    assert trio["verdict"] == "mother wrong"
    assert manifest["samples"]["dad"]["sex"]["verdict"] == "too little data"
    pairs = pq.read_table(output / "cohort/identity.parquet").to_pylist()
    assert len(pairs) == 10
    kinship = {(pair["sample_1"], pair["sample_2"]): pair["relation"] for pair in pairs}
    assert kinship["dad", "kid"] == "first degree"
    assert kinship["dad", "other"] == "same person"
    page = (output / "report.html").read_text()
    assert '<section id="identity">' in page
    assert "plot-concordance" in page
    assert json.loads((output / "identity_mqc.json").read_text())["data"]["kid"]["warnings"]
