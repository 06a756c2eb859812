"""Alleles: one key for every way to write one change, checked beside a plain-Python normalisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import VariantFileError
from tasks.genome.reference import Reference, prepare_reference
from tasks.genome.regions import merge_regions
from tasks.variants.allele_kernels import (
    CONTIG_SHIFT,
    REF_DIFFERS,
    REF_MATCHES,
    REF_PAST_END,
    REF_TELOMERE,
    REF_UNCHECKED,
    SKIP_REASONS,
)
from tasks.variants.alleles import AlleleKeys, Records, allele_table, key_alleles, make_key

SEQUENCES = {
    "one": "GATTACAAAAAACACACACACTGTGTGNNAAAAACGTAGCTAGCTTTTTTTTAGAGAGAGAGCATCATCATCATGGGC" * 2,
    "two": "AAAAAAAAAAGGGGGGGGGGCCCCCCCCCCTTTTTTTTTT",
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("reference")
    fasta = folder / "tiny.fa"
    fasta.write_text("".join(f">{name}\n{sequence}\n" for name, sequence in SEQUENCES.items()))
    return prepare_reference(fasta, folder / "prepared")


def plain_normalise(sequence: str, start: int, ref: str, alt: str) -> tuple[int, str, str]:
    """Tan et al.'s procedure, on strings."""
    while ref[-1] == alt[-1]:
        if min(len(ref), len(alt)) == 1:
            if start == 0 or sequence[start - 1] not in "ACGT":
                break
            start -= 1
            ref, alt = sequence[start] + ref, sequence[start] + alt
        ref, alt = ref[:-1], alt[:-1]
    while len(ref) > 1 and len(alt) > 1 and ref[0] == alt[0]:
        start, ref, alt = start + 1, ref[1:], alt[1:]
    return start, ref, alt


def keyed(
    reference: Reference, rows: list[tuple[int, int, str, str]]
) -> tuple[np.ndarray, AlleleKeys, Records, np.ndarray]:
    """Keys (contig, start, ref, comma-joined alts)."""
    text, begins = "", []
    for _, _, ref, alts in rows:
        begins.append((len(text), len(text) + len(ref), len(text) + len(ref) + 1, len(text) + len(ref) + 1 + len(alts)))
        text += f"{ref}\t{alts}\n"
    at = np.array(begins, dtype=np.int64).T.copy()
    contig = np.array([row[0] for row in rows], dtype=np.int32)
    num = [0 if row[3] == "." else row[3].count(",") + 1 for row in rows]
    records = Records(
        at[0],
        at[1],
        at[2],
        at[3],
        contig,
        np.where(contig < 0, SKIP_REASONS.index("UNKNOWN_CONTIG"), 0).astype(np.uint8),
        np.array([row[1] for row in rows], dtype=np.int64),
        np.concatenate(([0], np.cumsum(num))).astype(np.int64),
    )
    block = np.frombuffer(text.encode(), dtype=np.uint8).copy()
    state, keys = key_alleles(block, records, reference)
    return state, keys, records, block


@st.composite
def alleles(draw: st.DrawFn) -> tuple[int, int, str, str]:
    contig = draw(st.integers(0, 1))
    sequence = list(SEQUENCES.values())[contig]
    start = draw(st.integers(0, len(sequence) - 1))
    ref = sequence[start : start + draw(st.integers(1, 30))]
    alt = draw(st.text("ACGT", min_size=1, max_size=30) | st.just(ref[:1]) | st.just(ref + ref) | st.just(ref[0] + ref))
    return contig, start, ref, alt


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(alleles(), min_size=1, max_size=20))
def test_normalises_like_the_plain_procedure(reference: Reference, rows: list[tuple[int, int, str, str]]) -> None:
    _, keys, records, block = keyed(reference, rows)
    expected = []
    for row, (contig, start, ref, alt) in enumerate(rows):
        if "N" in ref or "N" in alt:
            assert SKIP_REASONS[keys.skip[row]] == "NOT_ACGT"
        elif ref == alt:
            assert SKIP_REASONS[keys.skip[row]] == "NO_CHANGE"
        else:
            sequence = list(SEQUENCES.values())[contig]
            expected.append((contig, *plain_normalise(sequence, start, ref, alt)))
    table = allele_table(block, records, keys, reference)
    assert list(zip(*(table[name].to_pylist() for name in ("contig", "start", "ref", "alt")), strict=True)) == expected
    assert table["locus"].to_pylist() == [contig << CONTIG_SHIFT | start for contig, start, _, _ in expected]


@settings(max_examples=200, deadline=None)
@given(row=alleles(), left=st.integers(0, 12), right=st.integers(0, 12), upper=st.booleans())
def test_padding_and_case_do_not_change_the_key(
    reference: Reference, row: tuple[int, int, str, str], left: int, right: int, upper: bool
) -> None:
    contig, start, ref, alt = row
    sequence = list(SEQUENCES.values())[contig]
    left = min(left, start)
    before = sequence[start - left : start]
    after = sequence[start + len(ref) : start + len(ref) + right]
    if ref == alt or "N" in before + ref + alt + after:
        return
    padded = (before + ref + after, before + alt + after)
    if not upper:
        padded = (padded[0].lower(), padded[1].lower())
    assert make_key(contig, start, ref, alt, reference) == make_key(contig, start - left, *padded, reference)


def test_one_key_for_three_ways_to_write_a_change(reference: Reference) -> None:
    # one: GATTACA; the G>A... at 0-based 4 is A: A>C, TA>TC, TTAC>TTCC.
    keys = {
        make_key(0, 4, "A", "C", reference),
        make_key(0, 3, "TA", "TC", reference),
        make_key(0, 2, "TTAC", "TTCC", reference),
    }
    assert len(keys) == 1


def test_an_indel_shifts_through_its_repeat_up_to_n_and_the_contig_start(reference: Reference) -> None:
    run = SEQUENCES["one"].index("NNAAAAA") + 2
    assert {make_key(0, run + shift, "AA", "A", reference) for shift in range(4)} == {
        make_key(0, run, "AA", "A", reference)
    }
    assert {make_key(1, shift, "AAA", "A", reference) for shift in range(8)} == {make_key(1, 0, "AAA", "A", reference)}


def test_different_alleles_have_different_keys(reference: Reference) -> None:
    sequence = SEQUENCES["one"]
    rows = [(0, 5, sequence[5:6], alt * n) for alt in ("G", "T", "GT", "GGT") for n in range(1, 40)]
    _, keys, records, block = keyed(reference, rows)
    table = allele_table(block, records, keys, reference)
    spelled = set(zip(table["ref"].to_pylist(), table["alt"].to_pylist(), strict=True))
    assert len(set(keys.code.tolist())) == len(spelled) == len(rows)
    packed = keys.code >> np.uint64(63) == 0
    assert (packed == (keys.ref_len + keys.alt_len <= 26)).all()


@pytest.mark.parametrize(
    ("contig", "start", "ref", "alts", "state", "reasons"),
    [
        (0, 0, "G", "<DEL>,<*>,<NON_REF>", REF_MATCHES, ["SYMBOLIC"] * 3),
        (0, 0, "G", "G[one:5[,]two:1]G,.G,G.", REF_MATCHES, ["BREAKEND"] * 4),
        (0, 0, "G", "*,.,A", REF_MATCHES, ["SPANNING_DELETION", "MISSING_ALLELE", ""]),
        (0, 0, "G", "A,,C", REF_MATCHES, ["", "MISSING_ALLELE", ""]),
        (0, 0, "G", "g,R,n", REF_MATCHES, ["NO_CHANGE", "NOT_ACGT", "NOT_ACGT"]),
        (0, 0, "R", "A", REF_UNCHECKED, ["NOT_ACGT"]),
        (0, 0, "C", "A,<DEL>", REF_DIFFERS, ["REF_MISMATCH", "SYMBOLIC"]),
        (0, 27, "A", "C", REF_UNCHECKED, ["NO_REFERENCE_SEQUENCE"]),
        (0, -1, "N", "C", REF_TELOMERE, ["BEFORE_CONTIG_START"]),
        (1, 39, "TA", "T", REF_PAST_END, ["PAST_CONTIG_END"]),
        (1, 1 << 50, "T", "C", REF_PAST_END, ["PAST_CONTIG_END"]),
        (-1, 0, "T", "C,*", REF_UNCHECKED, ["UNKNOWN_CONTIG", "SPANNING_DELETION"]),
        (0, 0, "G", ".", REF_MATCHES, []),
    ],
)
def test_says_why_an_allele_is_skipped(
    reference: Reference, contig: int, start: int, ref: str, alts: str, state: int, reasons: list[str]
) -> None:
    states, keys, _, _ = keyed(reference, [(contig, start, ref, alts)])
    assert states.tolist() == [state]
    assert [SKIP_REASONS[code] for code in keys.skip] == reasons


def test_regions_look_at_the_normalised_allele(reference: Reference) -> None:
    regions = merge_regions(np.array([1]), np.array([0]), np.array([3]))
    _, _, records, block = keyed(reference, [(1, 8, "AA", "A"), (1, 8, "A", "C")])
    _, keys = key_alleles(block, records, reference, regions)
    assert [SKIP_REASONS[code] for code in keys.skip] == ["", "OFF_TARGET"]


def test_a_key_of_an_unscorable_allele_is_refused(reference: Reference) -> None:
    with pytest.raises(VariantFileError) as caught:
        make_key(0, 0, "C", "A", reference)
    assert caught.value.reason == "REF_MISMATCH"


def test_the_reference_file_is_not_written(reference: Reference, tmp_path: Path) -> None:
    assert not np.asarray(reference.tokens).flags.writeable


def test_alleles_stay_as_their_records_write_them_where_that_is_asked(reference: Reference) -> None:
    at, ref, alt = 2, "TT", "GT"
    assert SEQUENCES["one"][at : at + 2] == ref
    text = np.frombuffer(f"{ref}\t{alt}".encode(), dtype=np.uint8).copy()
    one = np.array([0], dtype=np.int64)
    records = Records(
        one, one + 2, one + 3, one + 5, one.astype(np.int32), np.zeros(1, np.uint8), one + at, np.array([0, 1])
    )
    for keeps_records, length in ((False, 1), (True, 2)):
        _, keys = key_alleles(text, records, reference, keeps_records=keeps_records)
        assert (keys.skip[0], keys.first[0], keys.ref_len[0], keys.alt_len[0]) == (0, at, length, length)
