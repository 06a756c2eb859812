"""Kinship of simulated families, by files that say nothing of each other; the counts beside a plain computation."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.identity.kinship import (
    FIRST,
    MIN_STRETCHES,
    RELATIONS,
    SAME,
    SECOND,
    TOO_LITTLE,
    UNCLEAR,
    UNRELATED,
    PairBlock,
    compare_pairs,
)
from tasks.identity.sites import GenotypeFile, Matrix, build_matrix
from tests.tasks.families import Population


def compare(matrix: Matrix) -> PairBlock:
    (block,) = compare_pairs(matrix)
    return block


@pytest.fixture(scope="module")
def files(population: Population) -> dict[str, GenotypeFile]:
    father, mother, stranger = population.person(), population.person(), population.person()
    child, sibling = population.child(father, mother), population.child(father, mother)
    persons = {
        "father": father,
        "mother": mother,
        "child": child,
        "sibling": sibling,
        "stranger": stranger,
        "grandchild": population.child(child, stranger),
        "copy": father,
    }
    found = {name: population.collect(name, population.vcf(name, {name: who})) for name, who in persons.items()}
    found["joint"] = population.collect("joint", population.vcf("joint", persons))
    return found


def test_families_are_found(files: dict[str, GenotypeFile]) -> None:
    names = list(files)[:-1]
    block = compare(build_matrix([files[name] for name in names]))
    expected = {
        ("father", "copy"): SAME,
        ("father", "child"): FIRST,
        ("mother", "sibling"): FIRST,
        ("child", "sibling"): FIRST,
        ("father", "grandchild"): SECOND,
        ("father", "mother"): UNRELATED,
        ("stranger", "copy"): UNRELATED,
    }
    found = {pair: RELATIONS[block.relation[names.index(pair[0]), names.index(pair[1])]] for pair in expected}
    assert found == {pair: RELATIONS[code] for pair, code in expected.items()}
    assert (block.relation == block.relation.T).all()
    assert block.ibs0[names.index("father"), names.index("child")] == 0


def test_one_joint_file_tells_the_same_as_one_file_each(files: dict[str, GenotypeFile]) -> None:
    apart = build_matrix([file for name, file in files.items() if name != "joint"])
    joint = build_matrix([files["joint"]])
    assert joint.columns == apart.columns
    np.testing.assert_allclose(compare(joint).kinship, compare(apart).kinship, atol=0.02)


def test_the_order_of_files_does_not_change_a_pair(files: dict[str, GenotypeFile]) -> None:
    names = ["father", "child", "stranger"]
    forth, back = (build_matrix([files[name] for name in order]) for order in (names, names[::-1]))
    assert (forth.locus == back.locus).all()
    assert (forth.values == back.values[::-1]).all()


def test_few_sites_are_a_choice_that_all_samples_share(population: Population, files: dict[str, GenotypeFile]) -> None:
    every = build_matrix([files["father"], files["child"]])
    few = build_matrix([files["father"], files["child"]], max_sites=900)
    assert few.values.shape == (2, 900 - few.num_not_biallelic)
    assert set(few.locus.tolist()) < set(every.locus.tolist())
    assert few.num_sites_found == pytest.approx(every.num_sites_found, rel=0.1)
    assert compare(few).relation[0, 1] == FIRST
    # A file that kept few sites limits the others; the sites are the same as when all were kept.
    vcf = population.folder / "father.vcf.gz"
    short = population.collect("short", vcf, max_sites=300)
    limited = build_matrix([short, files["child"]])
    assert set(limited.locus.tolist()) <= set(every.locus.tolist())
    assert compare(limited).kinship[0, 1] == pytest.approx(0.25, abs=0.08)


def test_an_exome_beside_a_genome_is_not_mistaken(population: Population, files: dict[str, GenotypeFile]) -> None:
    def thinned(name: str) -> GenotypeFile:
        """Every record but one in six left out, as by a kit that sees little of each stretch."""
        lines = gunzip(population.folder / f"{name}.vcf.gz").splitlines(keepends=True)
        path = population.folder / f"{name}.thin.vcf"
        path.write_text("".join(line for at, line in enumerate(lines) if line.startswith("#") or at % 6 == 0))
        return population.collect(f"{name}-thin", path)

    block = compare(build_matrix([files["father"], thinned("father"), thinned("mother")]))
    assert block.relation[0, 1] == SAME
    assert block.relation[0, 2] == UNCLEAR


def gunzip(path: Path) -> str:
    import gzip

    return gzip.decompress(path.read_bytes()).decode()


def test_a_slice_tells_nothing(files: dict[str, GenotypeFile], population: Population) -> None:
    lines = gunzip(population.folder / "father.vcf.gz").splitlines(keepends=True)
    contigs = {f"chr{number}" for number in range(1, MIN_STRETCHES)}
    path = population.folder / "slice.vcf"
    path.write_text("".join(line for line in lines if line.startswith("#") or line.split("\t")[0] in contigs))
    block = compare(build_matrix([files["father"], population.collect("slice", path)]))
    assert block.sites[0, 1] > 1_000
    assert block.stretches[0, 1] == MIN_STRETCHES - 1
    assert block.relation[0, 1] == TOO_LITTLE


def test_no_files_and_no_columns() -> None:
    matrix = build_matrix([])
    assert matrix.values.shape == (0, 0)
    assert list(compare_pairs(matrix)) == []


@given(st.integers(1, 5), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_counts_are_those_of_a_plain_loop(num_rows: int, num_sites: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-1, 3, (num_rows, num_sites)).astype(np.int8)
    names = tuple(map(str, range(num_rows)))
    locus = np.sort(rng.choice(10**7, num_sites, replace=False)).astype(np.uint64)
    block = compare(Matrix(names, names, values, locus, num_sites, 0))
    for one, other in product(range(num_rows), repeat=2):
        pairs = [(a, b) for a, b in zip(values[one].tolist(), values[other].tolist(), strict=True) if min(a, b) >= 0]
        shown = [pair for pair in pairs if max(pair) > 0]
        het_het, ibs0 = pairs.count((1, 1)), pairs.count((0, 2)) + pairs.count((2, 0))
        left, right = sum(a == 1 for a, _ in pairs), sum(b == 1 for _, b in pairs)
        assert block.sites[one, other] == len(shown)
        assert block.identical[one, other] == sum(a == b for a, b in shown)
        assert (block.het_het[one, other], block.ibs0[one, other]) == (het_het, ibs0)
        fewer = min(left, right)
        if fewer:
            # Equation 11 as it is printed: each person's heterozygous sites, and squared differences.
            distance = sum((a - b) ** 2 for a, b in pairs)
            assert block.kinship[one, other] == pytest.approx(0.5 - distance / (4 * fewer))
        else:
            assert np.isnan(block.kinship[one, other])
