from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cyvcf2
import pytest

from tasks.calling.calling import finish_calls, write_calls
from tasks.calling.genotypes import Call
from tasks.calling.settling import settle_calls
from tests.tasks.alignment_files import random_bases, write_reference

HOM, HET = (1, 1), (0, 1)
BOTH = (1, 2)
LIKELIHOODS = {HOM: (60, 30, 0), HET: (40, 0, 50), (1,): (45, 0), BOTH: (90, 40, 90, 40, 0, 90)}


def call(start: int, ref: str, alt: str, alleles: tuple[int, ...] = HOM, **more: Any) -> Call:
    made = Call(
        start=start,
        ref=ref,
        alts=(alt,),
        qual=33.0,
        alleles=alleles,
        genotype_quality=30,
        depth=20,
        allele_depths=(3, 17),
        likelihoods=LIKELIHOODS[alleles],
    )
    return replace(made, **more)


def settle(folder: Path, *shards: Sequence[Call]) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    paths = [folder / f"{number}.parquet" for number in range(len(shards))]
    for path, calls in zip(paths, shards, strict=True):
        write_calls(path, 0, calls)
    counts: dict[str, int] = {}
    rows = list(settle_calls(paths, counts))
    assert counts["calls_found"] == len(rows) + counts["calls_contradicted"] + counts["calls_joined"]
    return [(row["start"], row["ref"], *row["alts"], tuple(row["alleles"])) for row in rows], counts


def test_neighbouring_bases_of_one_haplotype_are_one_change(tmp_path: Path) -> None:
    calls = [
        call(10, "A", "C", HET, next_alt="G", together=9, apart=1, qual=40.0),
        call(11, "T", "G", HET, next_alt="A", together=7, apart=0, genotype_quality=12, likelihoods=(30, 0, 12)),
        call(12, "C", "A", HET, allele_depths=(5, 12)),
        call(13, "C", "A", HET),
    ]
    expected = [(10, "ATC", "CGA", HET), (13, "C", "A", HET)]
    for cut in range(5):
        found, counts = settle(tmp_path, calls[:cut], calls[cut:])
        assert found == expected
        assert counts["calls_joined"] == 2
    write_calls(tmp_path / "all.parquet", 0, calls)
    row = next(settle_calls([tmp_path / "all.parquet"], {}))
    assert (row["qual"], row["genotype_quality"], row["likelihoods"]) == (33.0, 12, [30, 0, 12])
    assert row["allele_depths"] == [3, 7]


@pytest.mark.parametrize(
    "following",
    [
        call(11, "T", "G", HOM),
        call(11, "T", "C", HET),
        call(12, "T", "G", HET),
        call(11, "TA", "T", HET),
        call(11, "T", "G", HET, qual=1.0),
        call(11, "T", "G", BOTH, alts=("G", "C"), allele_depths=(0, 9, 9)),
    ],
    ids=["another genotype", "another base", "not next to it", "a deletion", "another filter", "two alleles"],
)
def test_other_neighbours_stay_apart(tmp_path: Path, following: Call) -> None:
    calls = [call(10, "A", "C", HET, next_alt="G", together=9, apart=1), following]
    assert len(settle(tmp_path, calls)[0]) == 2


def test_neighbours_with_an_insertion_between_them_stay_apart(tmp_path: Path) -> None:
    first, second = call(10, "A", "C", HET, next_alt="G", together=9, apart=0), call(11, "T", "G", HET)
    assert len(settle(tmp_path, [first, call(10, "A", "AT", HET), second])[0]) == 3
    assert settle(tmp_path, [call(9, "A", "AT", HET), first, second])[0][1:] == [(10, "AT", "CG", HET)]


@pytest.mark.parametrize(("together", "apart"), [(0, 8), (7, 2), (1, 1)])
def test_bases_of_different_haplotypes_stay_apart(tmp_path: Path, together: int, apart: int) -> None:
    calls = [call(10, "A", "C", HET, next_alt="G", together=together, apart=apart), call(11, "T", "G", HET)]
    assert len(settle(tmp_path, calls)[0]) == 2


def test_the_file_holds_what_was_settled(tmp_path: Path) -> None:
    genome = random_bases(1, 40)
    reference = write_reference(tmp_path, {"chr1": genome})
    other = {"A": "C", "C": "A", "G": "T", "T": "G"}
    first, second = other[genome[10]], other[genome[11]]
    write_calls(
        tmp_path / "calls.parquet",
        0,
        [
            call(10, genome[10], first, HET, next_alt=second, together=9, apart=0),
            call(11, genome[11], second, HET),
            call(20, genome[20:25], genome[20], likelihoods=(99, 70, 0)),
            call(22, genome[22], other[genome[22]], HET),
        ],
    )
    vcf = tmp_path / "calls.vcf.gz"
    summary = finish_calls([tmp_path / "calls.parquet"], reference, vcf, "s")
    assert summary == {
        "calls": 2,
        "snv_calls": 0,
        "low_quality": 0,
        "calls_found": 4,
        "calls_contradicted": 1,
        "calls_halved": 0,
        "calls_joined": 1,
    }
    assert [(v.POS, v.REF, v.ALT) for v in cyvcf2.VCF(str(vcf))] == [
        (11, genome[10:12], [first + second]),
        (21, genome[20:25], [genome[20]]),
    ]
    assert gzip.decompress(vcf.read_bytes()).count(b"\t0/1:30:20:3,9:40,0,50\n") == 1
