from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tasks.calling.overlaps import CONTRADICTED, HALVED, MAX_DELETIONS, share_copies
from tests.tasks.test_settling import HET, HOM, call, settle

Row = dict[str, Any]
Genotype = tuple[int, ...]


def row(start: int, ref: str, alt: str, alleles: Genotype = HOM, likelihoods: Sequence[int] = (60, 30, 0)) -> Row:
    return {
        "contig": 0,
        "start": start,
        "ref": ref,
        "alts": [alt],
        "alleles": list(alleles),
        "likelihoods": list(likelihoods),
        "genotype_quality": 30,
    }


def share(rows: Sequence[Row]) -> tuple[list[Row], dict[str, int]]:
    counts = {CONTRADICTED: 0, HALVED: 0}
    shared = list(share_copies(iter(rows), counts))
    assert len(shared) + counts[CONTRADICTED] == len(rows)
    assert [each["start"] for each in shared] == sorted(each["start"] for each in shared)
    return shared, counts


def test_a_likelier_call_within_halves_a_deletion(tmp_path: Path) -> None:
    deletion = call(10, "ACGT", "A", likelihoods=(60, 9, 0))
    found, counts = settle(tmp_path, [deletion, call(12, "G", "T", HET), call(20, "G", "T")])
    assert found == [(10, "ACGT", "A", HET), (12, "G", "T", HET), (20, "G", "T", HOM)]
    assert counts["calls_contradicted"] == 0


def test_a_less_likely_call_within_a_deletion_is_left_out(tmp_path: Path) -> None:
    deletion = call(10, "ACGT", "A", likelihoods=(99, 70, 0))
    for cut in range(4):
        calls = [deletion, call(12, "G", "T", HET), call(13, "T", "G", HET)]
        found, counts = settle(tmp_path, calls[:cut], calls[cut:])
        if cut == 3:
            assert found == [(10, "ACGT", "A", HET), (12, "G", "T", HET), (13, "T", "G", HET)], "80 outweighs 70"
        assert counts["calls_contradicted"] == 0
    found, counts = settle(tmp_path, [deletion, call(12, "G", "T", HET)])
    assert found == [(10, "ACGT", "A", HOM)]
    assert counts["calls_contradicted"] == 1


def test_where_there_is_one_copy_one_of_them_goes(tmp_path: Path) -> None:
    inner = call(12, "G", "T", (1,))
    assert settle(tmp_path, [call(10, "ACGT", "A", (1,), likelihoods=(44, 0)), inner])[0] == [(12, "G", "T", (1,))]
    assert settle(tmp_path, [call(10, "ACGT", "A", (1,), likelihoods=(45, 0)), inner])[0] == [(10, "ACGT", "A", (1,))]


def test_what_touches_a_deletion_without_lying_in_it_stays(tmp_path: Path) -> None:
    calls = [
        call(10, "A", "C"),
        call(10, "ACGT", "A", likelihoods=(99, 99, 0)),
        call(13, "T", "TA"),
        call(14, "G", "C"),
    ]
    assert len(settle(tmp_path, calls)[0]) == 4
    assert len(settle(tmp_path, [*calls[:2], call(13, "T", "G"), *calls[2:]])[0]) == 4
    assert len(settle(tmp_path, [call(10, "ACGT", "A", HET), call(13, "T", "TG")])[0]) == 2


def test_deletions_of_two_copies_need_no_doubt_and_leave_none_for_others(tmp_path: Path) -> None:
    outer = call(10, "ACGTACGT", "A", likelihoods=(60, 5, 0))
    inner = call(12, "GTAC", "G", likelihoods=(60, 90, 0))
    found, counts = settle(tmp_path, [outer, inner, call(14, "A", "T", HET)])
    assert found == [(10, "ACGTACGT", "A", HET), (12, "GTAC", "G", HET)]
    assert (counts["calls_contradicted"], counts["calls_halved"]) == (1, 2)


def test_a_base_beside_a_deletion_of_one_copy_is_on_the_other() -> None:
    (deletion, base), counts = share(
        [row(10, "ACGT", "A", HET, (25, 0, 26)), row(12, "G", "T", HOM, (14, 17, 0))],
    )
    assert (deletion["alleles"], base["alleles"]) == ([0, 1], [0, 1])
    assert base["likelihoods"] == [14, 0, 25], "two copies of it are as unlikely as no deletion"
    assert base["genotype_quality"] == 14
    assert (deletion["likelihoods"], deletion["genotype_quality"]) == ([25, 0, 26], 25)
    assert counts == {CONTRADICTED: 0, HALVED: 1}


def test_deletions_that_overlap_are_on_different_copies() -> None:
    shared, _ = share([row(10, "ACGT", "A", HOM, (16, 21, 0)), row(12, "GTCA", "G", HOM, (23, 25, 0))])
    assert [each["alleles"] for each in shared] == [[0, 1], [0, 1]]
    assert [each["likelihoods"] for each in shared] == [[16, 0, 23], [23, 0, 16]]


def test_an_insertion_within_a_deletion_is_on_the_other_copy() -> None:
    shared, _ = share([row(10, "ACGTC", "A", HET, (40, 0, 50)), row(12, "G", "GTT")])
    assert [each["alleles"] for each in shared] == [[0, 1], [0, 1]]


def test_what_was_not_weighed_stays_as_it_was() -> None:
    rows = [row(10, "ACGT", "A", HET, (40, 0, 50)), row(12, "G", "T", HET, (40, 0, 50)), row(14, "G", "T")]
    mitochondrial = [row(10, "ACGT", "A", (), ()), row(12, "G", "T", (), ())]
    elsewhere = [row(10, "ACGT", "A"), row(12, "G", "T") | {"contig": 1}]
    for each in (rows, mitochondrial, elsewhere):
        assert share(each) == (each, {CONTRADICTED: 0, HALVED: 0})


def test_a_site_of_two_alleles_stays_or_goes_whole() -> None:
    both = row(12, "G", "T", (1, 2)) | {"alts": ["T", "C"]}
    for doubt, expected in ((45, [12]), (35, [10])):
        site = both | {"likelihoods": [doubt, 90, 90, 90, 0, 90]}
        assert [each["start"] for each in share([row(10, "ACGT", "A", HET, (40, 0, 50)), site])[0]] == expected


def test_many_deletions_over_one_base_are_weighed_in_time() -> None:
    rows = [row(start, "A" * 60, "A", HOM, (100 + start, 50, 0)) for start in range(40)]
    shared, counts = share(rows)
    assert [each["start"] for each in shared] == [38, 39]
    assert counts == {CONTRADICTED: 38, HALVED: 2}
    assert len(rows) > MAX_DELETIONS


@st.composite
def overlapping(draw: st.DrawFn) -> list[Row]:
    """Calls within a few bases of each other, one at most of a kind at a place."""
    rows = []
    for start in range(draw(st.integers(3, 6))):
        for kind in draw(st.sets(st.sampled_from(("base", "longer", "shorter")))) - draw(
            st.sets(st.sampled_from(("longer", "shorter")), min_size=1)
        ):
            alleles = draw(st.sampled_from((HOM, HET)))
            likelihoods = draw(st.lists(st.integers(0, 60), min_size=3, max_size=3))
            ref, alt = {"base": ("A", "C"), "longer": ("A", "AC")}.get(kind, ("A" * draw(st.integers(2, 5)), "A"))
            rows.append(row(start, ref, alt, alleles, likelihoods))
    return sorted(rows, key=lambda each: (each["start"], len(each["alts"][0]) != len(each["ref"])))


def place_of(each: Row) -> int:
    return int(each["start"]) + (len(each["ref"]) != len(each["alts"][0]))


def is_lost(each: Row, place: int) -> bool:
    return place_of(each) <= place < each["start"] + len(each["ref"]) and len(each["ref"]) > 1


def copies_fit(rows: Sequence[Row], genotypes: Sequence[Genotype]) -> bool:
    for place in range(20):
        num_lost = sum(sum(alleles) for each, alleles in zip(rows, genotypes, strict=True) if is_lost(each, place))
        changed = [
            sum(alleles)
            for each, alleles in zip(rows, genotypes, strict=True)
            if place_of(each) == place and len(each["ref"]) == 1
        ]
        if num_lost + (max(changed, default=0) if num_lost else 0) > 2:
            return False
    return True


def doubt_of(rows: Sequence[Row], genotypes: Sequence[Genotype]) -> int:
    total = 0
    for at, (each, alleles) in enumerate(zip(rows, genotypes, strict=True)):
        span = {place for place in range(20) if is_lost(each, place)} or {place_of(each)}
        has_deletion_beside = any(
            sum(genotypes[other]) and is_lost(rows[other], place)
            for other in range(len(rows))
            for place in span
            if other != at
        )
        if not (tuple(each["alleles"]) == HOM and alleles == HET and has_deletion_beside):
            total += max(0, each["likelihoods"][sum(alleles)] - each["likelihoods"][sum(each["alleles"])])
    return total


def least_doubt(rows: Sequence[Row]) -> int:
    """The least doubt about genotypes that fit, by trying all of them."""
    choices = [[each for each in (HOM, HET, (0, 0)) if sum(each) <= sum(row["alleles"])] for row in rows]
    return min(doubt_of(rows, genotypes) for genotypes in product(*choices) if copies_fit(rows, genotypes))


@given(overlapping())
def test_the_likeliest_genotypes_that_fit_are_found(rows: list[Row]) -> None:
    shared, counts = share(rows)
    found = {(each["start"], each["ref"], each["alts"][0]): each for each in shared}
    settled = [found.get((each["start"], each["ref"], each["alts"][0])) for each in rows]
    genotypes = [tuple(each["alleles"]) if each else (0, 0) for each in settled]
    assert copies_fit(rows, genotypes)
    assert counts[HALVED] == sum(sum(a) == 1 < sum(each["alleles"]) for a, each in zip(genotypes, rows, strict=True))
    assert share(shared) == (shared, {CONTRADICTED: 0, HALVED: 0}), "what fits stays"
    assert doubt_of(rows, genotypes) == least_doubt(rows)
    for before, after in zip(rows, settled, strict=True):
        if after and after != before:
            assert min(after["likelihoods"]) == 0 == after["likelihoods"][sum(after["alleles"])]
