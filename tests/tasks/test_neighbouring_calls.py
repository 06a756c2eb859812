"""Calls next to, and over, each other: from hand-made reads of known haplotypes to files that others read."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cyvcf2
import numpy as np
import pysam
import pytest

from serving.server import ModelServer
from tasks.calling.calling import call_shard, finish_calls
from tasks.calling.gvcf import finish_gvcf
from tasks.genome.regions import merge_regions
from tasks.intervals import Interval
from tests.conftest import REPOSITORY
from tests.tasks.alignment_files import Read, random_bases, write_bam, write_reference
from tests.tasks.test_calling import STATE_SIZE, alignment_of

CENTRE, READ_BP, NUM_READS = 2000, 121, 40
GENOME = random_bases(6, CENTRE) + "ACGTCA" + random_bases(7, 2000)

Edit = tuple[int, str, str]
Haplotype = Sequence[Edit]
"""Changes by their place behind `CENTRE`."""

FIRST, SECOND, THIRD, FOURTH = (0, "A", "G"), (1, "C", "T"), (2, "G", "A"), (3, "T", "C")
DELETION = (0, "ACGTC", "A")
SHORTER_DELETION = (0, "ACGT", "A")
LATER_DELETION = (2, "GTCA", "G")
PLAIN: Haplotype = ()


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(REPOSITORY / "data" / "models", models=["reads"]) as running:
        yield running


def read_of(haplotype: Haplotype, number: int) -> Read:
    """A read that covers the changes, aligned as it was made."""
    start = CENTRE - 100 + 2 * number % 90
    position, bases, operations = start, "", ""
    for at, ref, alt in sorted(haplotype):
        bases += GENOME[position : CENTRE + at] + alt
        shared = min(len(ref), len(alt))
        operations += "M" * (CENTRE + at - position + shared)
        operations += "I" * (len(alt) - shared) + "D" * (len(ref) - shared)
        position = CENTRE + at + len(ref)
    rest = READ_BP - len(bases)
    operations += "M" * rest
    runs: list[list[Any]] = []
    for operation in operations:
        if runs and runs[-1][1] == operation:
            runs[-1][0] += 1
        else:
            runs.append([1, operation])
    cigar = "".join(f"{length}{operation}" for length, operation in runs)
    return Read(start, cigar, bases + GENOME[position : position + rest], flag=16 * (number % 2))


def call_haplotypes(
    folder: Path,
    server: ModelServer,
    haplotypes: Sequence[Haplotype],
    *,
    contig: str = "chr1",
    borders: Sequence[int] = (),
    **more: Any,
) -> list[tuple[int, str, str, str]]:
    """Place behind `CENTRE`, REF, ALT and GT of what is called in as many reads of each haplotype; VCF and gVCF lie in
    the folder."""
    folder.mkdir(exist_ok=True)
    reference = write_reference(folder, {contig: GENOME})
    number_of = len(haplotypes)
    reads = [read_of(haplotypes[n % number_of], n // number_of + 17 * (n % number_of)) for n in range(NUM_READS)]
    bam = write_bam(folder / "s.bam", {contig: len(GENOME)}, reads)
    edges = [0, *borders, len(GENOME)]
    calls, blocks = ([folder / f"{n}.{kind}.parquet" for n in range(len(edges) - 1)] for kind in ("calls", "blocks"))
    for first, last, call, block in zip(edges[:-1], edges[1:], calls, blocks, strict=True):
        shard = Interval(contig, first, last)
        call_shard(alignment_of(bam), reference, shard, server.infer, call, state_size=STATE_SIZE, blocks=block, **more)
    summary = finish_calls(calls, reference, folder / "s.vcf.gz", "s")
    finish_gvcf(calls, blocks, reference, folder / "s.g.vcf.gz", "s")
    lines = [line.split("\t") for line in text(folder / "s.vcf.gz").splitlines() if not line.startswith("#")]
    assert summary["calls"] == len(lines)
    return [(int(line[1]) - 1 - CENTRE, line[3], line[4], line[9].split(":")[0]) for line in lines]


def text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


@pytest.mark.parametrize(
    ("haplotypes", "expected"),
    [
        ([(FIRST, SECOND), PLAIN], [(0, "AC", "GT", "0/1")]),
        ([(FIRST, SECOND)], [(0, "AC", "GT", "1/1")]),
        ([(FIRST,), (SECOND,)], [(0, "A", "G", "0/1"), (1, "C", "T", "0/1")]),
        ([(FIRST, SECOND), (FIRST,)], [(0, "A", "G", "1/1"), (1, "C", "T", "0/1")]),
        ([(FIRST, SECOND), (FIRST,), (SECOND,), PLAIN], [(0, "A", "G", "0/1"), (1, "C", "T", "0/1")]),
        ([(FIRST, SECOND, THIRD), PLAIN], [(0, "ACG", "GTA", "0/1")]),
        ([(FIRST, SECOND), (THIRD,)], [(0, "AC", "GT", "0/1"), (2, "G", "A", "0/1")]),
        ([(FIRST, THIRD), PLAIN], [(0, "A", "G", "0/1"), (2, "G", "A", "0/1")]),
    ],
    ids=["cis", "both copies", "trans", "one and both", "unlinked", "three", "two and one", "not adjacent"],
)
def test_neighbours_are_one_record_where_one_haplotype_has_them(
    server: ModelServer, tmp_path: Path, haplotypes: list[Haplotype], expected: list[tuple[int, str, str, str]]
) -> None:
    assert call_haplotypes(tmp_path, server, haplotypes) == expected


@pytest.mark.parametrize(
    ("haplotypes", "expected"),
    [
        ([(DELETION,), (THIRD,)], [(0, "ACGTC", "A", "0/1"), (2, "G", "A", "0/1")]),
        ([(DELETION,), (THIRD, FOURTH)], [(0, "ACGTC", "A", "0/1"), (2, "GT", "AC", "0/1")]),
        ([(SHORTER_DELETION,), (LATER_DELETION,)], [(0, "ACGT", "A", "0/1"), (2, "GTCA", "G", "0/1")]),
        ([(DELETION,)], [(0, "ACGTC", "A", "1/1")]),
    ],
    ids=["a base", "two bases", "another deletion", "nothing"],
)
def test_what_lies_over_a_deletion_is_on_the_other_copy(
    server: ModelServer, tmp_path: Path, haplotypes: list[Haplotype], expected: list[tuple[int, str, str, str]]
) -> None:
    assert call_haplotypes(tmp_path, server, haplotypes) == expected


def test_one_copy_has_one_of_what_contradicts_itself(server: ModelServer, tmp_path: Path) -> None:
    assert call_haplotypes(tmp_path, server, [(FIRST, SECOND)], contig="chrY", sex="XY") == [(0, "AC", "GT", "1")]
    called = call_haplotypes(tmp_path, server, [(DELETION,), (THIRD,)], contig="chrY", sex="XY")
    assert called == [(2, "G", "A", "1")]


def test_on_the_mitochondrion_molecules_with_both_are_counted(server: ModelServer, tmp_path: Path) -> None:
    assert call_haplotypes(tmp_path, server, [(FIRST, SECOND), PLAIN], contig="chrM") == [(0, "AC", "GT", ".")]
    assert text(tmp_path / "s.vcf.gz").endswith("\tGT:DP:AD:AF\t.:40:20,20:0.5000\n")
    apart = call_haplotypes(tmp_path, server, [(FIRST, SECOND), (FIRST,)], contig="chrM")
    assert apart == [(0, "A", "G", "."), (1, "C", "T", ".")]


@pytest.mark.parametrize(
    "haplotypes",
    [[(FIRST, SECOND, THIRD), PLAIN], [(DELETION,), (THIRD, FOURTH)], [(DELETION,), (LATER_DELETION,)]],
    ids=["three", "deletion and two", "deletions"],
)
def test_borders_of_shards_decide_nothing(server: ModelServer, tmp_path: Path, haplotypes: list[Haplotype]) -> None:
    whole = call_haplotypes(tmp_path / "whole", server, haplotypes)
    cut = call_haplotypes(tmp_path / "cut", server, haplotypes, borders=[CENTRE + at for at in range(-1, 6)])
    assert cut == whole
    for name in ("s.vcf.gz", "s.g.vcf.gz"):
        assert text(tmp_path / "cut" / name) == text(tmp_path / "whole" / name)


def test_a_target_that_ends_between_neighbours_has_the_one_inside(server: ModelServer, tmp_path: Path) -> None:
    for start, end, expected in (
        (CENTRE - 9, CENTRE + 1, [(0, "A", "G", "0/1")]),
        (CENTRE + 1, CENTRE + 9, [(1, "C", "T", "0/1")]),
        (CENTRE, CENTRE + 2, [(0, "AC", "GT", "0/1")]),
    ):
        regions = merge_regions(np.array([0]), np.array([start]), np.array([end]))
        assert call_haplotypes(tmp_path, server, [(FIRST, SECOND), PLAIN], regions=regions) == expected


@pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed (make oracle-tools)")
@pytest.mark.parametrize(
    "haplotypes",
    [[(FIRST, SECOND, THIRD), PLAIN], [(DELETION,), (THIRD, FOURTH)]],
    ids=["three", "deletion and two"],
)
def test_other_programs_read_and_split_the_records(
    server: ModelServer, tmp_path: Path, haplotypes: list[Haplotype]
) -> None:
    called = call_haplotypes(tmp_path, server, haplotypes)
    fasta = tmp_path / "reference.fa"
    for path, num_alts in ((tmp_path / "s.vcf.gz", 1), (tmp_path / "s.g.vcf.gz", 2)):
        for command in (["view"], ["stats"], ["norm", "--check-ref", "e", "-f", str(fasta)]):
            done = subprocess.run(["bcftools", *command, str(path)], capture_output=True, text=True, check=True)
            assert "[E" not in done.stderr
            assert "rror" not in done.stderr
        with pysam.VariantFile(str(path)) as file:
            places = [(r.start - CENTRE, r.ref, (r.alts or ("",))[0]) for r in file if len(r.alts or ()) == num_alts]
        assert places == [each[:3] for each in called]
        assert sum(1 for _ in cyvcf2.VCF(str(path))) >= len(called)
    split = subprocess.run(
        ["bcftools", "norm", "--atomize", "-f", str(fasta), str(tmp_path / "s.vcf.gz")],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = {
        (int(line.split("\t")[1]) - 1 - CENTRE, *line.split("\t")[3:5]) for line in split.splitlines() if line[0] != "#"
    }
    assert found == {change for haplotype in haplotypes for change in haplotype}
