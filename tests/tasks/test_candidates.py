from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.calling.bam_stream import open_alignment
from tasks.calling.call_rows import CallRows, collect_rows
from tests.tasks.alignment_files import Read, random_bases, tokens_of, write_bam, write_reference

FLANK = random_bases(3, 300)
CENTRE = 300


def rows_of(folder: Path, genome: str, reads: list[Read], start: int = 0, end: int | None = None) -> CallRows:
    reference = write_reference(folder, {"chr1": genome})
    bam = write_bam(folder / "sample.bam", {"chr1": len(genome)}, reads)
    with open_alignment(bam, None, reference.fasta_path) as alignment:
        rows, _ = collect_rows(alignment, 0, tokens_of(genome), start, len(genome) if end is None else end)
    return rows


def alleles(rows: CallRows) -> list[tuple[int, str, str]]:
    return list(zip(rows.start.tolist(), rows.ref, rows.alt, strict=True))


def read_with(genome: str, at: int, ref: str, alt: str) -> Read:
    """A read of 60 bases on both sides that shows ``ref > alt`` at `at`, written exactly there."""
    start = at - 60
    bases = genome[start:at] + alt + genome[at + len(ref) : at + len(ref) + 60]
    change = len(alt) - len(ref)
    middle = "" if change == 0 else f"{change}I" if change > 0 else f"{-change}D"
    shared = min(len(ref), len(alt))
    cigar = f"{60 + shared}M{middle}60M" if middle else f"{120 + shared}M"
    return Read(start, cigar, bases)


def normalise(genome: str, at: int, ref: str, alt: str) -> tuple[int, str, str]:
    """The plain algorithm. Source: Tan, Abecasis and Kang 2015, Bioinformatics 31:2202."""
    while True:
        if ref and alt and ref[-1] == alt[-1]:
            ref, alt = ref[:-1], alt[:-1]
        elif not ref or not alt:
            at -= 1
            ref, alt = genome[at] + ref, genome[at] + alt
        else:
            break
    while len(ref) > 1 and len(alt) > 1 and ref[0] == alt[0]:
        at, ref, alt = at + 1, ref[1:], alt[1:]
    return at, ref, alt


def test_two_reads_make_a_candidate_and_one_does_where_there_are_few(tmp_path: Path) -> None:
    genome = FLANK + "A" + FLANK
    plain = read_with(genome, CENTRE, "A", "A")
    other = read_with(genome, CENTRE, "A", "G")
    assert alleles(rows_of(tmp_path, genome, [other, plain, plain])) == []
    assert alleles(rows_of(tmp_path, genome, [other, plain])) == [(CENTRE, "A", "G")]
    assert alleles(rows_of(tmp_path, genome, [other])) == [(CENTRE, "A", "G")]
    rows = rows_of(tmp_path, genome, [other, other, plain, plain, plain])
    assert alleles(rows) == [(CENTRE, "A", "G")]
    assert rows.counts.tolist() == [[3, 2, 0]]


def test_a_share_below_the_floor_is_no_candidate(tmp_path: Path) -> None:
    genome = FLANK + "A" + FLANK
    reads = [read_with(genome, CENTRE, "A", "G")] * 2 + [read_with(genome, CENTRE, "A", "A")] * 19
    assert alleles(rows_of(tmp_path, genome, reads)) == []


@pytest.mark.parametrize(("base", "token"), [("n", "N"), ("a", "A")])
def test_lower_case_counts_as_upper_and_unknown_bases_as_nothing(tmp_path: Path, base: str, token: str) -> None:
    genome = FLANK + base + FLANK
    read = read_with(FLANK + "A" + FLANK, CENTRE, "A", "G")
    rows = rows_of(tmp_path, genome.upper().replace(base.upper(), token) if base == "n" else genome.upper(), [read] * 3)
    assert alleles(rows) == ([] if base == "n" else [(CENTRE, "A", "G")])


def test_low_base_qualities_are_no_evidence(tmp_path: Path) -> None:
    genome = FLANK + "A" + FLANK
    good = read_with(genome, CENTRE, "A", "G")
    bad = Read(good.start, good.cigar, good.bases, quality=9)
    assert alleles(rows_of(tmp_path, genome, [bad] * 4 + [good])) == []


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    unit=st.text("ACGT", min_size=1, max_size=3),
    repeats=st.integers(1, 8),
    offset=st.integers(0, 20),
    length=st.integers(1, 6),
    inserted=st.one_of(st.none(), st.text("ACGT", min_size=1, max_size=6)),
)
def test_an_indel_is_trimmed_and_left_aligned_wherever_it_is_written(
    tmp_path: Path, unit: str, repeats: int, offset: int, length: int, inserted: str | None
) -> None:
    genome = FLANK + unit * repeats + FLANK
    at = CENTRE - 4 + offset
    ref = genome[at] if inserted else genome[at : at + 1 + length]
    alt = genome[at] + inserted if inserted else genome[at]
    rows = rows_of(tmp_path, genome, [read_with(genome, at, ref, alt)] * 3)
    assert alleles(rows) == [normalise(genome, at, ref, alt)]
    start, ref, alt = alleles(rows)[0]
    assert genome[start : start + len(ref)] == ref


def test_long_insertions_with_other_bases_are_other_alleles(tmp_path: Path) -> None:
    genome = FLANK + "A" + FLANK
    first, second = random_bases(8, 40), random_bases(9, 40)
    reads = [read_with(genome, CENTRE, "A", "A" + bases) for bases in (first, second, first, second, first)]
    assert sorted(alleles(rows_of(tmp_path, genome, reads))) == sorted(
        normalise(genome, CENTRE, "A", "A" + bases) for bases in (first, second)
    )


def test_an_indel_at_a_reads_end_is_no_evidence(tmp_path: Path) -> None:
    read = Read(100, "50M3I10S", FLANK[100:150] + "ACGTACGTACGTA")
    assert alleles(rows_of(tmp_path, FLANK, [read] * 3)) == []


def test_a_contigs_first_and_last_base_can_be_called(tmp_path: Path) -> None:
    genome = FLANK
    first = Read(0, "50M", ("G" if genome[0] != "G" else "C") + genome[1:50])
    last = Read(250, "50M", genome[250:299] + ("G" if genome[-1] != "G" else "C"))
    assert [start for start, _, _ in alleles(rows_of(tmp_path, genome, [first] * 3 + [last] * 3))] == [0, 299]


def test_no_reads_no_candidates(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, FLANK, [])
    assert len(rows) == 0
    assert rows.pileup.shape[0] == rows.evidence.shape[0] == 0
    assert rows.evidence.dtype == np.float32
