from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.calling.evidence import MAX_DEPTH, NAMES
from tasks.calling.pileup import CHANNELS, FLANK_BP
from tests.tasks.alignment_files import Read, random_bases
from tests.tasks.test_candidates import CENTRE, FLANK, alleles, read_with, rows_of

GENOME = FLANK + "A" + FLANK
PAIRED, REVERSE, FIRST, LAST = 0x1, 0x10, 0x40, 0x80


def mates(first: str, second: str, name: str, quality: tuple[int, int] = (35, 35)) -> list[Read]:
    """Two mates that both cover the centre, each with its own base there."""
    reads = [read_with(GENOME, CENTRE, "A", base) for base in (first, second)]
    flags = (PAIRED | FIRST, PAIRED | LAST | REVERSE)
    return [replace(read, name=name, flag=flag, quality=q) for read, flag, q in zip(reads, flags, quality, strict=True)]


def column(name: str) -> int:
    return NAMES.index(name)


def test_overlapping_mates_are_one_fragment(tmp_path: Path) -> None:
    pairs = [read for number in range(4) for read in mates("G", "G", f"alt{number}")]
    pairs += [read for number in range(5) for read in mates("A", "A", f"ref{number}")]
    rows = rows_of(tmp_path, GENOME, pairs)
    assert rows.counts.tolist() == [[5, 4, 0]]


def test_a_single_fragment_seen_twice_is_no_candidate(tmp_path: Path) -> None:
    plain = [read_with(GENOME, CENTRE, "A", "A")] * 2
    assert alleles(rows_of(tmp_path, GENOME, [*mates("G", "G", "one"), *plain])) == []


@pytest.mark.parametrize(
    ("qualities", "counts"),
    [((35, 35), [2, 3, 0]), ((40, 20), [2, 4, 0]), ((20, 40), [3, 3, 0]), ((35, 30), [2, 3, 0])],
)
def test_mates_that_disagree_count_for_the_better_one_or_not_at_all(
    tmp_path: Path, qualities: tuple[int, int], counts: list[int]
) -> None:
    plain = [read_with(GENOME, CENTRE, "A", base) for base in "GGGAA"]
    rows = rows_of(tmp_path, GENOME, [*plain, *mates("G", "A", "pair", qualities)])
    assert rows.counts.tolist() == [counts]


@pytest.mark.parametrize(("quality", "counts"), [(35, [2, 3, 0]), (20, [2, 4, 0])])
def test_mates_that_disagree_about_a_deletion(tmp_path: Path, quality: int, counts: list[int]) -> None:
    genome = FLANK + "GAAAAAAAAC" + FLANK
    deleted, plain = (read_with(genome, CENTRE, "GA", alt) for alt in ("G", "GA"))
    pair = [
        replace(deleted, name="pair", flag=PAIRED | FIRST),
        replace(plain, name="pair", flag=PAIRED | LAST | REVERSE, quality=quality),
    ]
    rows = rows_of(tmp_path, genome, [deleted, deleted, deleted, plain, plain, *pair])
    assert rows.counts.tolist() == [counts]


def test_other_bases_and_gaps_are_neither(tmp_path: Path) -> None:
    deleted = Read(CENTRE - 60, "60M1D60M", GENOME[CENTRE - 60 : CENTRE] + GENOME[CENTRE + 1 : CENTRE + 61])
    reads = [read_with(GENOME, CENTRE, "A", base) for base in "GGGAAC"] + [deleted]
    rows = rows_of(tmp_path, GENOME, reads)
    assert rows.counts[alleles(rows).index((CENTRE, "A", "G"))].tolist() == [2, 3, 2]


def test_a_read_that_ends_inside_a_tract_says_nothing_about_its_length(tmp_path: Path) -> None:
    genome = FLANK + "GAAAAAAAAC" + FLANK
    shorter = read_with(genome, CENTRE, "GA", "G")
    through = read_with(genome, CENTRE, "G", "G")
    inside = Read(CENTRE - 60, "66M", genome[CENTRE - 60 : CENTRE + 6])
    rows = rows_of(tmp_path, genome, [shorter] * 3 + [through] * 2 + [inside] * 4)
    assert alleles(rows) == [(CENTRE, "GA", "G")]
    assert rows.counts.tolist() == [[2, 3, 0]]


def test_another_length_in_the_tract_is_another_allele(tmp_path: Path) -> None:
    genome = FLANK + "GAAAAAAAAC" + FLANK
    reads = [read_with(genome, CENTRE, "GA", "G")] * 3 + [read_with(genome, CENTRE, "GAA", "G")] * 2
    rows = rows_of(tmp_path, genome, reads)
    assert dict(zip(rows.ref, rows.counts.tolist(), strict=True)) == {"GA": [0, 3, 2], "GAA": [0, 2, 3]}
    assert rows.evidence[:, column("strongest_other")].tolist() == pytest.approx([0.4, 0.6])


def test_the_pileup_shows_both_groups_of_reads(tmp_path: Path) -> None:
    alternate = read_with(GENOME, CENTRE, "A", "G")
    marked = replace(
        alternate, bases=alternate.bases[:50] + "ACGT"["CGTA".index(alternate.bases[50])] + alternate.bases[51:]
    )
    rows = rows_of(
        tmp_path, GENOME, [marked, alternate, alternate, alternate, *[read_with(GENOME, CENTRE, "A", "A")] * 3]
    )
    assert alleles(rows)[0] == (CENTRE, "A", "G")
    pileup = dict(zip(CHANNELS, rows.pileup[0].T, strict=True))
    assert pileup["reference_a"][FLANK_BP] == 255
    assert np.count_nonzero(pileup["alternate_mismatch"]) == 2
    assert pileup["alternate_mismatch"][FLANK_BP] == 255
    assert pileup["alternate_mismatch"][FLANK_BP - 10] == 64
    assert not pileup["rest_mismatch"].any()
    assert (pileup["rest_covered"] == 255).all()


def test_the_evidence_tells_strands_ends_and_differences_apart(tmp_path: Path) -> None:
    forward = read_with(GENOME, CENTRE, "A", "G")
    reverse = replace(read_with(GENOME, CENTRE, "A", "A"), flag=REVERSE)
    evidence = rows_of(tmp_path, GENOME, [forward] * 4 + [reverse] * 4).evidence[0]
    assert evidence[column("alternate_fraction")] == 0.5
    assert evidence[column("alternate_forward")] == 1
    assert evidence[column("rest_forward")] == 0
    assert evidence[column("strand_log_odds")] > 0.5
    assert evidence[column("alternate_differences")] == 0
    assert evidence[column("is_transition")] == 1
    best = np.argmax(evidence[column("likelihood_reference") : column("likelihood_reference") + 3])
    assert best == 1


def test_likelihoods_follow_the_share(tmp_path: Path) -> None:
    first = column("likelihood_reference")
    alternate, plain = (read_with(GENOME, CENTRE, "A", base) for base in "GA")
    for number, expected in ((20, 2), (10, 1), (2, 0)):
        evidence = rows_of(tmp_path, GENOME, [alternate] * number + [plain] * (20 - number) * (number < 20)).evidence[0]
        if expected:
            assert np.argmax(evidence[first : first + 3]) == expected
        assert np.isfinite(evidence).all()


def test_bare_surroundings_do_not_make_a_target_look_too_deep(tmp_path: Path) -> None:
    reads = [read_with(GENOME, CENTRE, "A", base) for base in "GGGGAAAA"]
    assert rows_of(tmp_path, GENOME, reads).evidence[0][column("depth_ratio")] == pytest.approx(0.5)


def test_depth_beyond_the_deepest_training_data_adds_nothing(tmp_path: Path) -> None:
    reads = [read_with(GENOME, CENTRE, "A", base) for base in "GA" * 300]
    evidence = rows_of(tmp_path, GENOME, reads).evidence[0]
    assert evidence[column("log_depth")] == evidence[column("log_alternate")] == np.float32(np.log1p(MAX_DEPTH) / 4)
    assert evidence[column("alternate_fraction")] == 0.5


def test_the_wide_depth_tells_a_doubled_place(tmp_path: Path) -> None:
    genome = random_bases(7, 40_000)
    spread = [Read(start, "100M", genome[start : start + 100]) for start in range(0, 39_900, 10)]
    again = [Read(start, "100M", genome[start : start + 100]) for start in range(19_000, 21_400, 10)]
    shown = [read_with(genome, 20_200, genome[20_200], "ACGT"["CGTA".index(genome[20_200])]) for _ in range(3)]
    plain = rows_of(tmp_path, genome, spread + shown).evidence[0]
    doubled = rows_of(tmp_path, genome, spread + again + shown).evidence[0]
    assert plain[column("wide_depth_ratio")] == pytest.approx(0.5, abs=0.05)
    assert doubled[column("wide_depth_ratio")] == pytest.approx(1.0, abs=0.1)


def test_the_usual_depth_of_captured_targets_is_that_of_the_targets(tmp_path: Path) -> None:
    genome = random_bases(7, 40_000)
    targets = [
        Read(start + shift, "100M", genome[start + shift : start + shift + 100])
        for start in range(2_048, 38_000, 4_096)
        for shift in range(0, 400, 5)
    ]
    strays = [Read(start, "100M", genome[start : start + 100]) for start in range(0, 39_900, 400)]
    at = 2_048 + 4_096 * 4 + 200
    shown = [read_with(genome, at, genome[at], "ACGT"["CGTA".index(genome[at])]) for _ in range(3)]
    rows = rows_of(tmp_path, genome, targets + strays + shown)
    assert rows.evidence[0][column("wide_depth_ratio")] < 0.6
