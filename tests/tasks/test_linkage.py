from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tasks.calling.call_rows import CallRows
from tasks.calling.evidence import NAMES
from tasks.calling.linkage import REACH_BP
from tests.tasks.alignment_files import Read, random_bases
from tests.tasks.test_candidates import rows_of

GENOME = random_bases(5, 1400)
FIRST = 400
LEAST, MOST, LINKED = (NAMES.index(name) for name in ("least_linkage_gain", "most_linkage_gain", "log_linked"))


def other(base: str) -> str:
    return "ACGT"["GTAC".index(base)]


def read_of(changed: list[int], start: int = 340, length: int = 150) -> Read:
    bases = list(GENOME[start : start + length])
    for at in changed:
        bases[at - start] = other(GENOME[at])
    return Read(start, f"{length}M", "".join(bases))


def gains(rows: CallRows) -> dict[int, tuple[float, float]]:
    return {
        int(start): (round(float(values[LEAST]), 2), round(float(values[MOST]), 2))
        for start, values in zip(rows.start, rows.evidence, strict=True)
    }


def test_alleles_of_one_haplotype_and_of_either_confirm_each_other(tmp_path: Path) -> None:
    second = FIRST + 30
    for changes in ([[FIRST, second], []], [[FIRST], [second]]):
        found = gains(rows_of(tmp_path, GENOME, [read_of(changed) for changed in changes for _ in range(8)]))
        assert list(found) == [FIRST, second]
        assert all(least == 0 and most == 2 for least, most in found.values())


def test_what_lies_on_both_haplotypes_of_a_neighbour_is_no_heterozygous_allele(tmp_path: Path) -> None:
    second = FIRST + 30
    changes = [[FIRST, second], [FIRST], [FIRST, second], [FIRST], [FIRST, second], [FIRST]]
    found = gains(rows_of(tmp_path, GENOME, [read_of(changed) for changed in changes]))
    # Three fragments contradict the haplotype, whichever it is.
    assert found[FIRST][0] == pytest.approx(3 * np.log10(0.97 / 0.5) / 2 + 3 * np.log10(0.03 / 0.5) / 2, abs=0.01)
    assert found[second] == (0, 0), "a homozygous neighbour has no haplotypes to tell apart"


def test_reads_of_one_haplotype_leave_the_other_open(tmp_path: Path) -> None:
    second = FIRST + 30
    reads = [read_of([FIRST, second])] * 4
    beyond = Read(second - 10, "60M", GENOME[second - 10 : second + 50])
    found = gains(rows_of(tmp_path, GENOME, [*reads, beyond, beyond]))
    assert found[FIRST][1] == pytest.approx((4 * np.log10(0.97 / 0.5) + np.log10(0.5)) / 2, abs=0.01)


def test_mates_are_one_fragment(tmp_path: Path) -> None:
    second = FIRST + 300
    reads = []
    for number in range(6):
        has = number % 2 == 0
        left, right = read_of([FIRST] if has else []), read_of([second] if has else [], start=640)
        reads += [
            Read(left.start, left.cigar, left.bases, flag=99, name=f"pair{number}"),
            Read(right.start, right.cigar, right.bases, flag=147, name=f"pair{number}"),
        ]
    rows = rows_of(tmp_path, GENOME, reads)
    assert np.rint(np.expm1(4 * rows.evidence[:, LINKED])).tolist() == [6, 6]
    assert all(most > 0.5 for _, most in gains(rows).values())


def test_far_candidates_are_not_looked_at(tmp_path: Path) -> None:
    second = FIRST + REACH_BP + 1
    reads = [read_of([FIRST, second] if number % 2 else [], length=620) for number in range(8)]
    assert set(gains(rows_of(tmp_path, GENOME, reads)).values()) == {(0.0, 0.0)}


def test_rows_do_not_depend_on_where_the_stretch_begins(tmp_path: Path) -> None:
    places = [FIRST + 9 * number for number in range(12)]
    reads = [read_of([at for at in places if (at + number) % 3], start=380, length=200) for number in range(12)]
    whole = rows_of(tmp_path, GENOME, reads)
    borders = (0, places[5], places[6], len(GENOME))
    cut = [rows_of(tmp_path, GENOME, reads, *part) for part in pairwise(borders)]
    assert len(whole) == 12
    assert np.concatenate([rows.evidence for rows in cut]).tobytes() == whole.evidence.tobytes()
    assert np.concatenate([rows.next_counts for rows in cut]).tolist() == whole.next_counts.tolist()


def test_the_base_behind_is_counted(tmp_path: Path) -> None:
    reads = [read_of([FIRST, FIRST + 1])] * 5 + [read_of([FIRST])] * 2 + [read_of([])] * 4
    rows = rows_of(tmp_path, GENOME, reads)
    following = rows.following()
    assert following == {
        (FIRST, other(GENOME[FIRST])): {"next_alt": other(GENOME[FIRST + 1]), "together": 5, "apart": 2}
    }
