"""Simulated genomes, their repeats and their genes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.simulation.consequences import damages
from tasks.simulation.genes import STOPS, Transcript, bed_lines, plant_genes
from tasks.simulation.genome import Genome, decode, encode, mutate, reverse_complement, simulate_genome
from tasks.simulation.tracts import find_tracts

LENGTHS_BP = (120_000, 60_000)


@pytest.fixture(scope="module")
def planted() -> tuple[Genome, tuple[Transcript, ...]]:
    rng = np.random.default_rng(3)
    return plant_genes(rng, simulate_genome(rng, LENGTHS_BP))


def test_same_seed_same_genome() -> None:
    first, second = (simulate_genome(np.random.default_rng(5), [20_000, 10_000]) for _ in range(2))
    other = simulate_genome(np.random.default_rng(6), [20_000, 10_000])
    assert all(map(np.array_equal, first.tokens, second.tokens))
    assert not np.array_equal(first.tokens[0], other.tokens[0])


def test_genome_has_what_misleads(planted: tuple[Genome, tuple[Transcript, ...]]) -> None:
    genome, _ = planted
    tokens = genome.tokens[0]
    assert tuple(map(len, genome.tokens)) == LENGTHS_BP
    assert genome.num_bases == sum(LENGTHS_BP)
    assert tokens[0] == tokens[-1] == 4
    assert 0.001 < (tokens == 4).mean() < 0.05
    assert 0.05 < genome.soft_masked[0].mean() < 0.5
    share_gc = np.isin(tokens, (1, 2)).mean()
    assert 0.3 < share_gc < 0.5
    tracts = find_tracts(tokens)
    assert tracts.length_bp[tracts.unit_bp == 1].max() > 12
    assert (tracts.unit_bp > 1).sum() > 10
    assert genome.unassembled


def test_some_segments_stand_twice() -> None:
    genome = simulate_genome(np.random.default_rng(1), [200_000], duplicated_share=0.2)
    text = decode(genome.tokens[0])
    both = text + "|" + decode(reverse_complement(genome.tokens[0]))
    repeated = sum(
        both.count(text[at : at + 60]) > 1 for at in range(5_000, 195_000, 500) if "N" not in text[at : at + 60]
    )
    assert repeated > 10


@given(st.text("ACG", max_size=60))
def test_tracts_are_those_of_plain_python(text: str) -> None:
    found = find_tracts(encode(text))
    spelled = {(int(s), int(n)) for s, n, u in zip(found.start, found.length_bp, found.unit_bp, strict=True) if u == 1}
    runs, start = set(), 0
    for end in range(1, len(text) + 1):
        if end == len(text) or text[end] != text[start]:
            if end - start >= 4:
                runs.add((start, end - start))
            start = end
    assert spelled == runs


@pytest.mark.parametrize(
    ("text", "tract"),
    [
        ("GG" + "AC" * 6 + "T", (2, 12, 2)),
        ("T" + "ACG" * 4 + "A" + "T", (1, 13, 3)),
        ("C" + "AATG" * 4 + "C", (1, 16, 4)),
    ],
)
def test_microsatellites_are_found(text: str, tract: tuple[int, int, int]) -> None:
    found = find_tracts(encode(text))
    rows = list(zip(found.start.tolist(), found.length_bp.tolist(), found.unit_bp.tolist(), strict=True))
    assert rows == [tract]


def test_mutate_keeps_its_promise() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 4, 50_000, np.uint8)
    copy = mutate(rng, tokens, 0.02)
    assert abs(len(copy) - len(tokens)) < 200
    assert np.array_equal(mutate(rng, tokens, 0.0), tokens)


def _coding_text(genome: Genome, transcript: Transcript) -> str:
    first, last = transcript.coding
    tokens = genome.tokens[transcript.contig]
    pieces = [tokens[max(a, first) : min(b, last)] for a, b in transcript.exons]
    coding = np.concatenate(pieces)
    return decode(reverse_complement(coding) if transcript.reverse else coding)


def test_genes_have_their_signals(planted: tuple[Genome, tuple[Transcript, ...]]) -> None:
    genome, transcripts = planted
    assert len(transcripts) > 5
    assert {transcript.reverse for transcript in transcripts} == {True, False}
    for transcript in transcripts:
        coding = _coding_text(genome, transcript)
        codons = [coding[at : at + 3] for at in range(0, len(coding), 3)]
        assert codons[0] == "ATG"
        assert [codon in STOPS for codon in codons] == [False] * (len(codons) - 1) + [True]
        for (_, left), (right, _) in zip(transcript.exons[:-1], transcript.exons[1:], strict=True):
            intron = genome.tokens[transcript.contig][left:right]
            text = decode(reverse_complement(intron) if transcript.reverse else intron)
            assert text.startswith("GT")
            assert text.endswith("AG")


def test_genes_do_not_overlap_and_their_bed_is_sound(planted: tuple[Genome, tuple[Transcript, ...]]) -> None:
    genome, transcripts = planted
    for before, after in pairwise(transcripts):
        assert (before.contig, before.span[1]) <= (after.contig, after.span[0]) or before.contig < after.contig
    for line, transcript in zip(bed_lines(genome, transcripts).splitlines(), transcripts, strict=True):
        columns = line.split("\t")
        assert len(columns) == 12
        assert int(columns[9]) == len(transcript.exons)
        ends = [int(at) + int(size) for at, size in zip(columns[11].split(","), columns[10].split(","), strict=True)]
        assert int(columns[1]) + ends[-1] == int(columns[2])


def _labels(
    genome: Genome, transcripts: tuple[Transcript, ...], alleles: list[tuple[int, str, str]], contig: int
) -> list[bool]:
    start = np.array([allele[0] for allele in alleles], np.int64)
    index = np.full(len(alleles), contig, np.int32)
    refs, alts = [allele[1] for allele in alleles], [allele[2] for allele in alleles]
    return damages(genome, transcripts, index, start, refs, alts).tolist()


@pytest.mark.parametrize("reverse", [False, True])
def test_labels_follow_the_rules(planted: tuple[Genome, tuple[Transcript, ...]], reverse: bool) -> None:
    genome, transcripts = planted
    transcript = next(t for t in transcripts if t.reverse == reverse and len(t.exons) > 2)
    tokens = genome.tokens[transcript.contig]

    def snv(place: int) -> tuple[int, str, str]:
        return place, decode(tokens[place : place + 1]), "ACGT"[(int(tokens[place]) + 1) % 4]

    def deletion(place: int, length_bp: int) -> tuple[int, str, str]:
        return place - 1, decode(tokens[place - 1 : place + length_bp]), decode(tokens[place - 1 : place])

    def insertion(place: int, text: str) -> tuple[int, str, str]:
        anchor = decode(tokens[place - 1 : place])
        return place - 1, anchor, anchor + text

    intron = transcript.exons[0][1]
    middle = sum(transcript.exons[1]) // 2
    utr = transcript.coding[0] - 12
    damaging = [snv(intron), snv(intron + 1), snv(transcript.coding[0]), snv(transcript.motif[0]), deletion(middle, 1)]
    damaging += [deletion(middle, 4), insertion(middle, "A"), deletion(intron, 1)]
    harmless = [deletion(middle, 3), insertion(middle, "ACG"), snv(intron + 40), deletion(intron + 30, 2), snv(utr)]
    harmless += [snv(transcript.span[0] - 1), snv(transcript.span[1])]
    assert _labels(genome, transcripts, damaging, transcript.contig) == [True] * len(damaging)
    assert _labels(genome, transcripts, harmless, transcript.contig) == [False] * len(harmless)


def test_a_substitution_in_coding_is_damaging_when_it_makes_a_stop(
    planted: tuple[Genome, tuple[Transcript, ...]],
) -> None:
    genome, transcripts = planted
    transcript = next(t for t in transcripts if not t.reverse)
    first, last = transcript.exons[1]
    before = _coding_text(genome, transcript)
    offset = transcript.exons[0][1] - transcript.coding[0]
    alleles, expected = [], []
    for place in range(first, last):
        index = offset + place - first
        ref = before[index]
        for alt in "ACGT".replace(ref, ""):
            codon = index // 3 * 3
            after = (before[:index] + alt + before[index + 1 :])[codon : codon + 3]
            alleles.append((place, ref, alt))
            expected.append(after in STOPS)
    assert _labels(genome, transcripts, alleles, transcript.contig) == expected
    assert any(expected)
