"""Simulated families whose sheet is right, and sheets with every kind of swap."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tasks.identity.kinship import compare_pairs
from tasks.identity.pedigree import (
    Trio,
    check_trios,
    count_mendelian_errors,
    pair_warning,
    parent_warnings,
    read_persons,
)
from tasks.identity.sites import GenotypeFile, Matrix, build_matrix
from tasks.identity.warnings import IdentityWarning
from tests.tasks.families import Population


@pytest.fixture(scope="module")
def files(population: Population) -> dict[str, GenotypeFile]:
    father, mother, stranger = population.person(), population.person(), population.person()
    persons = {
        "father": father,
        "mother": mother,
        "stranger": stranger,
        "child": population.child(father, mother),
        "sibling": population.child(father, mother),
        "again": father,
    }
    found = {
        name: population.collect(f"p-{name}", population.vcf(f"p-{name}", {name: who})) for name, who in persons.items()
    }
    found["joint"] = population.collect("p-joint", population.vcf("p-joint", {"child": persons["child"], "x": father}))
    return found


def test_parents_whom_the_sheet_does_not_have() -> None:
    family = [("kid", "dad", "mum"), ("dad", "0", ""), ("two", "daad", "NA"), ("three", "joint column", "")]
    rows = {sample: row(sample, paternal_id=father, maternal_id=mother) for sample, father, mother in family}
    found = {(each.sample, each.warning): each.message for each in parent_warnings(rows, ["joint column"])}
    assert set(found) == {("kid", "UNKNOWN_PARENT"), ("two", "UNKNOWN_PARENT")}
    assert "mum as mother (maternal_id)" in found["kid", "UNKNOWN_PARENT"]
    assert found["two", "UNKNOWN_PARENT"].endswith("; is dad meant?")


def row(sample: str, **columns: str) -> dict[str, Any]:
    """A line of a sheet, as a run's settings hold it."""
    status = columns.pop("status", None)
    return {
        "id": sample,
        "patient": columns.get("patient", sample),
        "status": int(status) if status else None,
        "columns": {"sample": sample, **columns},
    }


def look(
    files: dict[str, GenotypeFile], sheet: dict[str, tuple[str, dict[str, str]]]
) -> tuple[list[IdentityWarning], list[Trio]]:
    """Compares samples whose data are those of other persons: sample to (person, columns)."""
    chosen = [GenotypeFile(sample, files[who].path) for sample, (who, _) in sheet.items()]
    matrix = build_matrix(chosen)
    rows = {sample: row(sample, **columns) for sample, (_, columns) in sheet.items()}
    persons = read_persons(matrix.samples, matrix.columns, rows)
    (block,) = compare_pairs(matrix)
    warnings = [
        warning
        for one, other in product(range(len(persons)), repeat=2)
        if one < other
        and (
            warning := pair_warning(
                persons[one],
                persons[other],
                int(block.relation[one, other]),
                float(block.kinship[one, other]),
                int(block.sites[one, other]),
            )
        )
    ]
    trios = list(check_trios(matrix, persons, block.relation))
    return warnings + [warning for _, warning in trios if warning], [trio for trio, _ in trios]


FAMILY = {"paternal_id": "dad", "maternal_id": "mum"}


def test_a_family_as_the_sheet_says(files: dict[str, GenotypeFile]) -> None:
    warnings, trios = look(
        files,
        {"dad": ("father", {}), "mum": ("mother", {}), "kid": ("child", FAMILY), "sis": ("sibling", FAMILY)},
    )
    assert warnings == []
    assert [(trio.child, trio.father, trio.mother, trio.verdict) for trio in trios] == [
        ("kid", "dad", "mum", "fits"),
        ("sis", "dad", "mum", "fits"),
    ]
    assert all(trio.errors == 0 and trio.sites > 1_000 for trio in trios)


@pytest.mark.parametrize(
    ("data", "verdict", "hint"),
    [
        ({"dad": "stranger", "mum": "mother", "kid": "child"}, "father wrong", ""),
        ({"dad": "father", "mum": "stranger", "kid": "child"}, "mother wrong", ""),
        ({"dad": "father", "mum": "mother", "kid": "stranger"}, "both wrong", ""),
        ({"dad": "child", "mum": "mother", "kid": "father"}, "mother wrong", "child and parent may be swapped"),
    ],
)
def test_a_swap_in_a_trio_says_who_is_wrong(
    files: dict[str, GenotypeFile], data: dict[str, str], verdict: str, hint: str
) -> None:
    sheet = {sample: (who, FAMILY if sample == "kid" else {}) for sample, who in data.items()}
    warnings, (trio,) = look(files, sheet)
    assert trio.verdict == verdict
    assert trio.error_rate > 0.1 or verdict == "mother wrong"
    (warning,) = warnings
    assert (warning.sample, warning.warning) == ("kid", "TRIO_DIFFERS")
    assert verdict in warning.message
    assert hint in warning.message


def test_a_wrong_parent_alone_and_who_would_fit(files: dict[str, GenotypeFile]) -> None:
    sheet = {"dad": ("stranger", {}), "uncle": ("father", {}), "kid": ("child", FAMILY)}
    (warning,), (trio,) = look(files, sheet)
    assert (trio.father, trio.mother, trio.verdict) == ("dad", None, "father wrong")
    assert "kin of the first degree would be uncle" in warning.message


def test_one_person_under_two_patients(files: dict[str, GenotypeFile]) -> None:
    stated = {"a": ("father", {"patient": "P1"}), "b": ("again", {"patient": "P2"})}
    (warning,), _ = look(files, stated)
    assert warning.warning == "ONE_PERSON_TWO_PATIENTS"
    assert "patients P1 and P2" in warning.message
    assert "on purpose" not in warning.message
    (warning,), _ = look(files, {"a": ("father", {}), "b": ("again", {})})
    assert "give both the same value in the column patient" in warning.message


def test_two_persons_under_one_patient(files: dict[str, GenotypeFile]) -> None:
    sheet: dict[str, tuple[str, dict[str, str]]] = {
        name: (name, {"patient": "P1"}) for name in ("father", "again", "stranger")
    }
    warnings, _ = look(files, sheet)
    assert [warning.warning for warning in warnings] == ["TWO_PERSONS_ONE_PATIENT"] * 2
    assert all("stranger" in warning.message for warning in warnings)


def test_siblings_of_the_sheet_that_are_none(files: dict[str, GenotypeFile]) -> None:
    (warning,), trios = look(files, {"kid": ("child", FAMILY), "sis": ("stranger", FAMILY)})
    assert warning.warning == "NOT_FIRST_DEGREE"
    assert trios == []


def test_a_tumour_is_not_judged(files: dict[str, GenotypeFile]) -> None:
    sheet = {"normal": ("father", {"patient": "P1"}), "tumour": ("stranger", {"patient": "P1", "status": "1"})}
    assert look(files, sheet) == ([], [])


def test_columns_of_one_file_are_persons_by_their_names(files: dict[str, GenotypeFile]) -> None:
    """The column ``child`` is the sheet's sample of that name; the column ``x`` is nobody the sheet knows."""
    sheet = {"all": ("joint", {}), "child": ("stranger", {}), "dad": ("father", {})}
    (warning,), _ = look(files, sheet)
    assert warning.warning == "TWO_PERSONS_ONE_PATIENT"
    assert "all:child and child" in warning.message


def test_mendelian_errors_are_those_of_all_gametes() -> None:
    values = np.array(list(product((-1, 0, 1, 2), repeat=3)), dtype=np.int8)
    gametes = {0: {0}, 1: {0, 1}, 2: {1}}
    for child, father, mother in values.tolist():
        errors, sites = count_mendelian_errors(
            np.array([child], np.int8), [np.array([father], np.int8), np.array([mother], np.int8)]
        )
        is_informative = min(child, father, mother) >= 0 and max(child, father, mother) > 0
        assert sites == is_informative
        if is_informative:
            assert errors == (child not in {a + b for a in gametes[father] for b in gametes[mother]})
        errors, sites = count_mendelian_errors(np.array([child], np.int8), [np.array([father], np.int8)])
        assert errors == (sites and abs(child - father) == 2)


def test_no_sites_is_too_little_data() -> None:
    names = ("kid", "dad")
    matrix = Matrix(names, names, np.empty((2, 0), np.int8), np.empty(0, np.uint64), 0, 0)
    rows = {"kid": row("kid", paternal_id="dad"), "dad": row("dad")}
    persons = read_persons(names, names, rows)
    (block,) = compare_pairs(matrix)
    ((trio, warning),) = check_trios(matrix, persons, block.relation)
    assert (trio.verdict, warning) == ("too little data", None)
