"""Simulated variation: normalised alleles, natural ratios, and haplotypes that hold them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tasks.simulation.genome import Genome, decode, simulate_genome
from tasks.simulation.haplotypes import build_haplotypes
from tasks.simulation.structure import draw_structure
from tasks.simulation.texts import write_vcf
from tasks.simulation.variants import Alleles, atomise, simulate_alleles


@pytest.fixture(scope="module")
def genome() -> Genome:
    return simulate_genome(np.random.default_rng(11), [300_000, 100_000])


@pytest.fixture(scope="module")
def alleles(genome: Genome) -> Alleles:
    return simulate_alleles(np.random.default_rng(12), genome, heterozygosity=2e-3)


def left_aligned(text: str, start: int, ref: str, alt: str) -> tuple[int, str, str]:
    """Trims and left-aligns as the paper of Tan et al. 2015 says."""
    while True:
        if ref and alt and ref[-1] == alt[-1] and (len(ref) > 1 or len(alt) > 1):
            ref, alt = ref[:-1], alt[:-1]
        elif not ref or not alt:
            start -= 1
            ref, alt = text[start] + ref, text[start] + alt
        else:
            break
    while len(ref) > 1 and len(alt) > 1 and ref[0] == alt[0]:
        start, ref, alt = start + 1, ref[1:], alt[1:]
    return start, ref, alt


def test_alleles_are_of_the_reference_and_normalised(genome: Genome, alleles: Alleles) -> None:
    texts = [decode(tokens) for tokens in genome.tokens]
    assert len(alleles) > 4000
    for contig, start, ref, alt in zip(alleles.contig, alleles.start.tolist(), alleles.ref, alleles.alt, strict=True):
        text = texts[contig]
        assert text[start : start + len(ref)] == ref
        assert set(ref + alt) <= set("ACGT")
        assert ref != alt
        assert left_aligned(text, start, ref, alt) == (start, ref, alt)
    keys = list(zip(alleles.contig.tolist(), alleles.start.tolist(), strict=True))
    assert keys == sorted(keys)
    assert len(set(zip(keys, alleles.ref, alleles.alt, strict=True))) == len(keys)


def test_ratios_are_natural(alleles: Alleles) -> None:
    carried = alleles.draw(np.random.default_rng(1))
    copies = carried.sum(axis=1)
    assert 1.5 < (copies == 1).sum() / (copies == 2).sum() < 2.6
    snv = np.array([len(ref) == len(alt) == 1 for ref, alt in zip(alleles.ref, alleles.alt, strict=True)])
    transition = np.array(
        [{ref, alt} in ({"A", "G"}, {"C", "T"}) for ref, alt in zip(alleles.ref, alleles.alt, strict=True)]
    )
    assert 1.7 < (snv & transition).sum() / (snv & ~transition).sum() < 2.6
    length_bp = np.array([abs(len(ref) - len(alt)) for ref, alt in zip(alleles.ref, alleles.alt, strict=True)])
    assert 0.08 < (length_bp > 0).mean() < 0.2
    assert (length_bp == 1).sum() > (length_bp == 2).sum() > (length_bp > 20).sum() > 0
    _, counts = np.unique(alleles.site, return_counts=True)
    assert 0 < (counts > 1).mean() < 0.05


def test_no_haplotype_carries_two_alleles_of_a_site(alleles: Alleles) -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        carried = alleles.draw(rng)
        for haplotype in range(2):
            sites = alleles.site[carried[:, haplotype]]
            assert len(set(sites.tolist())) == len(sites)


def test_haplotypes_are_the_reference_with_the_alleles_put_in(genome: Genome, alleles: Alleles) -> None:
    carried = alleles.draw(np.random.default_rng(3))
    for haplotype, molecules in enumerate(build_haplotypes(genome, alleles, carried)):
        for contig, tokens in enumerate(genome.tokens):
            text = decode(tokens)
            for row in np.flatnonzero(carried[:, haplotype] & (alleles.contig == contig))[::-1]:
                start = int(alleles.start[row])
                text = text[:start] + alleles.alt[row] + text[start + len(alleles.ref[row]) :]
            assert decode(molecules.tokens[molecules.bounds[contig] : molecules.bounds[contig + 1]]) == text
        assert len(molecules.bounds) == 1 + len(genome.tokens) + len(genome.unassembled)


def test_large_changes_are_written_into_haplotypes_and_remove_the_alleles_that_they_touch(
    genome: Genome, alleles: Alleles
) -> None:
    drawn = alleles.draw(np.random.default_rng(3))
    structure, carried = draw_structure(np.random.default_rng(4), genome, alleles, drawn, 2e-4)
    assert 0 < (drawn & ~carried).sum() < 0.3 * drawn.sum()
    assert not (carried & ~drawn).any()
    plain = build_haplotypes(genome, alleles, carried)
    changed = build_haplotypes(genome, alleles, carried, structure)
    for haplotype, changes in enumerate(structure):
        assert {len(change.tokens) > 0 for change in changes} == {False, True}
        growth = sum(len(change.tokens) - (change.end - change.start) for change in changes)
        assert len(changed[haplotype].tokens) - len(plain[haplotype].tokens) == growth
        for change in changes:
            if len(change.tokens):
                assert decode(change.tokens) in decode(changed[haplotype].tokens)
    alone, _ = draw_structure(np.random.default_rng(4), genome, alleles, drawn, 0.0)
    assert alone == ((), ())


def test_atomising_gives_the_same_haplotypes(genome: Genome, alleles: Alleles) -> None:
    carried = alleles.draw(np.random.default_rng(4))
    split, split_carried = atomise(alleles, carried)
    assert not any(len(ref) == len(alt) > 1 for ref, alt in zip(split.ref, split.alt, strict=True))
    for before, after in zip(
        build_haplotypes(genome, alleles, carried), build_haplotypes(genome, split, split_carried), strict=True
    ):
        assert np.array_equal(before.tokens, after.tokens)


def test_joined_records_hold_the_same_genotypes(genome: Genome, alleles: Alleles, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    carried = np.stack([alleles.draw(rng) for _ in range(6)], axis=1)
    names = [f"s{number}" for number in range(6)]
    num_lines: list[int] = []
    copies: list[dict[tuple[str, str, str, str], list[int]]] = []
    for joined in (False, True):
        path = tmp_path / f"{joined}.vcf.gz"
        write_vcf(path, genome, alleles, names, carried, joined=joined)
        found: dict[tuple[str, str, str, str], list[int]] = {}
        num_records = 0
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            if line.startswith("#"):
                continue
            contig, position, _, ref, alts, _, _, _, _, *genotypes = line.split("\t")
            num_records += 1
            for number, alt in enumerate(alts.split(","), 1):
                found[contig, position, ref, alt] = [genotype.split("|").count(str(number)) for genotype in genotypes]
        copies.append(found)
        num_lines.append(num_records)
    assert copies[0] == copies[1]
    assert num_lines[0] == len(copies[0]) == int(carried.any(axis=(1, 2)).sum())
    assert num_lines[1] < num_lines[0]
