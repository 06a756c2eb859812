"""What the sheet says of who is who, beside what the genotypes say."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.identity.kinship import FIRST, MIN_SITES, RELATIONS, SAME, TOO_LITTLE, UNCLEAR
from tasks.identity.sites import Matrix
from tasks.identity.warnings import IdentityWarning

MAX_TRIO_ERRORS = 0.05
"""Share of a trio's sites at which the child's genotype cannot come of the parents'. Errors of calling make some 1 % of
a true trio's, a stranger in a parent's place 10 to 20 %."""
_NO_PARENT = frozenset({"", "0", "na", "none", "unknown", "."})
_MAX_FITTING = 3
# Likeness of two names, by difflib, from which one may be the other misspelt.
_NEAR = 0.75


@dataclass(frozen=True, slots=True)
class Person:
    """Who a row of the matrix is by the sheet.

    Attributes:
        label: The sample id; with the column's name where a sample's VCF has several.
        sample: The sample id.
        patient: The patient; None where the sheet does not say, as of a column it does not name.
        is_patient_stated: Whether the sheet has a patient, or the sample stands for itself.
        names: What other lines may call this person.
        father: What the sheet calls the father; None where it names none.
        mother: The same of the mother.
        is_tumour: Whether the sample is of a tumour, whose genotypes are not its patient's own.
    """

    label: str
    sample: str
    patient: str | None
    is_patient_stated: bool = False
    names: frozenset[str] = frozenset()
    father: str | None = None
    mother: str | None = None
    is_tumour: bool = False


@dataclass(frozen=True, slots=True)
class Trio:
    """A child with the parents that are in the cohort.

    Attributes:
        child: The child's label.
        father: The father's; None where he is not in the cohort.
        mother: The mother's; None where she is not.
        sites: Sites known of all, at which one at least is not REF.
        errors: Those at which the child's genotype cannot come of the parents'.
        error_rate: Their share.
        verdict: ``fits``, ``father wrong``, ``mother wrong``, ``both wrong``, ``wrong`` (which one cannot be told) or
            ``too little data``.
    """

    child: str
    father: str | None
    mother: str | None
    sites: int
    errors: int
    error_rate: float
    verdict: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def read_persons(matrix_samples: Sequence[str], columns: Sequence[str], sheet: Mapping[str, Any]) -> list[Person]:
    """Says of each row of a matrix who it is.

    Args:
        matrix_samples: For each row the sample id.
        columns: For each row the VCF's column.
        sheet: For each sample id the sheet's row (`tasks.sheets.sheet.Sample.to_json`).
    """
    persons = {sample_id: _person(sample_id, row) for sample_id, row in sheet.items()}
    named: dict[str, Person] = {}
    for person in persons.values():
        for name in sorted(person.names):
            named.setdefault(name, person)
    num_columns = {sample: list(matrix_samples).count(sample) for sample in set(matrix_samples)}
    rows = []
    for sample, column in zip(matrix_samples, columns, strict=True):
        if num_columns[sample] == 1:
            rows.append(persons[sample])
            continue
        label, known = f"{sample}:{column}", named.get(column)
        if known is None:
            rows.append(Person(label, sample, None, names=frozenset({column})))
        else:
            rows.append(
                Person(label, sample, known.patient, known.is_patient_stated, known.names, known.father, known.mother)
            )
    return rows


def _person(sample_id: str, row: Mapping[str, Any]) -> Person:
    columns = row["columns"]
    names = {sample_id, columns.get("sample", sample_id), row["patient"]}

    def parent(column: str) -> str | None:
        value = columns.get(column, "")
        return None if value.lower() in _NO_PARENT else value

    return Person(
        label=sample_id,
        sample=sample_id,
        patient=row["patient"],
        is_patient_stated=bool(columns.get("patient")),
        names=frozenset(names),
        father=parent("paternal_id"),
        mother=parent("maternal_id"),
        is_tumour=row["status"] == 1,
    )


def parent_warnings(sheet: Mapping[str, Any], others: Iterable[str] = ()) -> list[IdentityWarning]:
    """Warnings about parents that the sheet names and the cohort does not have: nothing is compared with them.

    Args:
        sheet: For each sample id the sheet's row (`tasks.sheets.sheet.Sample.to_json`).
        others: Who else may be a parent: columns of VCFs of several persons.
    """
    persons = [_person(sample_id, row) for sample_id, row in sheet.items()]
    known = {name for person in persons for name in person.names} | set(others)
    warnings = []
    for person in persons:
        for word, column, parent in (
            ("father", "paternal_id", person.father),
            ("mother", "maternal_id", person.mother),
        ):
            if parent is None or parent in known:
                continue
            near = difflib.get_close_matches(parent, sorted(known - person.names), n=1, cutoff=_NEAR)
            hint = f"; is {near[0]} meant?" if near else ""
            message = f"the sheet names {parent} as {word} ({column}), who is no sample or patient of it{hint}"
            warnings.append(IdentityWarning(person.sample, "UNKNOWN_PARENT", message))
    return warnings


def pair_expectation(one: Person, other: Person) -> str | None:
    """What the sheet makes of two rows: ``same person``, ``first degree``, ``different``, or None: it does not say."""
    if one.is_tumour or other.is_tumour:
        return None
    if one.patient is None or other.patient is None:
        return "different" if one.sample == other.sample else None
    if one.patient == other.patient:
        return RELATIONS[SAME]
    if _is_parent(one, other) or _is_parent(other, one):
        return RELATIONS[FIRST]
    if one.father and one.mother and one.father == other.father and one.mother == other.mother:
        return RELATIONS[FIRST]
    return "different"


def _is_parent(parent: Person, child: Person) -> bool:
    return bool({child.father, child.mother} & parent.names)


def pair_warning(one: Person, other: Person, relation: int, kinship: float, sites: int) -> IdentityWarning | None:
    """A warning where the genotypes of two rows contradict the sheet; of parents and children see `check_trios`."""
    if relation in (UNCLEAR, TOO_LITTLE):
        return None
    expected = pair_expectation(one, other)
    numbers = f"kinship {kinship:.2f} at {sites:,} sites: {RELATIONS[relation]}"
    if expected == RELATIONS[SAME] and relation != SAME:
        message = f"{one.label} and {other.label} are both patient {one.patient} in the sheet, but are not one person"
        return IdentityWarning(one.sample, "TWO_PERSONS_ONE_PATIENT", f"{message} ({numbers})")
    if expected in ("different", RELATIONS[FIRST]) and relation == SAME:
        message = f"{one.label} and {other.label} are one person, or identical twins"
        if one.patient is not None and other.patient is not None:
            message += f", but patients {one.patient} and {other.patient} in the sheet"
            if not (one.is_patient_stated and other.is_patient_stated):
                message += " (if they are one on purpose, give both the same value in the column patient)"
        return IdentityWarning(one.sample, "ONE_PERSON_TWO_PATIENTS", f"{message} ({numbers})")
    is_line = _is_parent(one, other) or _is_parent(other, one)
    if expected == RELATIONS[FIRST] and relation != FIRST and not is_line:
        message = f"{one.label} and {other.label} have the same parents in the sheet"
        return IdentityWarning(
            one.sample, "NOT_FIRST_DEGREE", f"{message}, but are not kin of the first degree ({numbers})"
        )
    return None


def check_trios(
    matrix: Matrix, persons: Sequence[Person], relation: npt.NDArray[np.uint8]
) -> Iterator[tuple[Trio, IdentityWarning | None]]:
    """Compares each child with its parents, as far as they are in the cohort.

    Args:
        matrix: The genotypes.
        persons: Who the rows are.
        relation: uint8 [n, n], what each two rows are.
    """
    rows_of: dict[str, list[int]] = {}
    for row, person in enumerate(persons):
        for name in person.names if not person.is_tumour else ():
            rows_of.setdefault(name, []).append(row)
    for child, person in enumerate(persons):
        if person.is_tumour:
            continue
        fathers: Sequence[int | None] = rows_of.get(person.father or "") or [None]
        mothers: Sequence[int | None] = rows_of.get(person.mother or "") or [None]
        for father, mother in product(fathers, mothers):
            if father is not None or mother is not None:
                yield _check_trio(matrix, persons, relation, child, father, mother)


def _check_trio(
    matrix: Matrix,
    persons: Sequence[Person],
    relation: npt.NDArray[np.uint8],
    child: int,
    father: int | None,
    mother: int | None,
) -> tuple[Trio, IdentityWarning | None]:
    parents = {name: row for name, row in (("father", father), ("mother", mother)) if row is not None}
    errors, sites = count_mendelian_errors(matrix.values[child], [matrix.values[row] for row in parents.values()])
    rate = round(errors / sites, 4) if sites else 0.0
    codes = {name: int(relation[child, row]) for name, row in parents.items()}
    wrong = [name for name, code in codes.items() if code not in (FIRST, UNCLEAR, TOO_LITTLE)]
    if sites < MIN_SITES or all(code in (UNCLEAR, TOO_LITTLE) for code in codes.values()):
        verdict = "too little data"
    elif wrong:
        verdict = "both wrong" if len(wrong) == 2 else f"{wrong[0]} wrong"
    else:
        verdict = "wrong" if rate > MAX_TRIO_ERRORS else "fits"
    labels = {name: persons[row].label for name, row in parents.items()}
    trio = Trio(persons[child].label, labels.get("father"), labels.get("mother"), sites, errors, rate, verdict)
    if verdict in ("fits", "too little data"):
        return trio, None
    said = [f"{name} {labels[name]}: {RELATIONS[code]}" for name, code in codes.items()]
    message = (
        f"{trio.child} cannot be the child of {' and '.join(labels.values())}: {rate:.1%} of {sites:,} sites break "
        f"Mendel's rule; {', '.join(said)}; {verdict if wrong else 'which of them is wrong cannot be told'}"
    )
    message += _hints(persons, relation, child, parents)
    return trio, IdentityWarning(persons[child].sample, "TRIO_DIFFERS", message)


def _hints(persons: Sequence[Person], relation: npt.NDArray[np.uint8], child: int, parents: Mapping[str, int]) -> str:
    """What else the genotypes say: a swap of child and parent, or who would be kin of the child."""
    hint = ""
    rows = list(parents.values())
    if len(rows) == 2 and relation[rows[0], rows[1]] == FIRST:
        hint += "; father and mother are kin of the first degree: child and parent may be swapped"
    fitting = [int(row) for row in np.flatnonzero(relation[child] == FIRST) if row not in (*rows, child)]
    if fitting:
        names = ", ".join(persons[row].label for row in fitting[:_MAX_FITTING]) + ", ..." * (
            len(fitting) > _MAX_FITTING
        )
        hint += f"; kin of the first degree would be {names}"
    return hint


def count_mendelian_errors(child: npt.NDArray[np.int8], parents: Sequence[npt.NDArray[np.int8]]) -> tuple[int, int]:
    """Counts sites at which a child's genotype cannot come of its parents'.

    Args:
        child: int8 [m], ALT alleles of two; -1 unknown.
        parents: int8 [m] of one parent or of both.

    Returns:
        Errors, and sites known of all at which one at least is not REF.
    """
    known = (child >= 0) & np.logical_and.reduce([parent >= 0 for parent in parents])
    informative = known & ((child > 0) | np.logical_or.reduce([parent > 0 for parent in parents]))
    gives_ref = [parent < 2 for parent in parents]
    gives_alt = [parent > 0 for parent in parents]
    if len(parents) == 1:
        anything = np.ones(len(child), dtype=np.bool_)
        gives_ref.append(anything)
        gives_alt.append(anything)
    possible = np.select(
        [child == 0, child == 2],
        [gives_ref[0] & gives_ref[1], gives_alt[0] & gives_alt[1]],
        (gives_ref[0] & gives_alt[1]) | (gives_alt[0] & gives_ref[1]),
    )
    return int((informative & ~possible).sum()), int(informative.sum())
