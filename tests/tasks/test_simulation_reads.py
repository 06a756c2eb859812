"""Simulated reads: what they are copies of, their errors, and the files of an individual."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pysam
import pytest

from tasks.simulation.fragments import Fragments, draw_fragments
from tasks.simulation.genome import Genome, decode, encode, reverse_complement, simulate_genome
from tasks.simulation.haplotypes import Molecules
from tasks.simulation.individual import Individual, sequence_individual, simulate_individual
from tasks.simulation.library import Library, draw_library
from tasks.simulation.placing import Placer
from tasks.simulation.qualities import draw_qualities, error_rates
from tasks.simulation.reads import ADAPTERS, Pairs, Sequencer
from tasks.simulation.texts import write_fasta
from tasks.simulation.variants import simulate_alleles

QUIET = Library(
    error_scale=0.0, overconfident_share=0, systematic_share=0, stutter_scale=0, duplicate_share=0, chimera_share=0
)
DEPTH = 20


def random_molecules(num_bases: int, seed: int = 0) -> Molecules:
    tokens = np.random.default_rng(seed).integers(0, 4, num_bases, np.uint8)
    return Molecules(tokens, np.array([0, num_bases]))


def read(molecules: Molecules, library: Library, num_pairs: int = 4000, seed: int = 1) -> tuple[Fragments, Pairs]:
    rng = np.random.default_rng(seed)
    fragments = draw_fragments(rng, molecules, num_pairs, library)
    return fragments, Sequencer(molecules, library).read(rng, fragments, slice(None))


def true_bases(molecules: Molecules, fragments: Fragments, row: int, mate: int, length_bp: int) -> np.ndarray:
    forward = mate == int(fragments.flipped[row])
    fragment = molecules.tokens[fragments.start[row] : fragments.end[row]]
    return (fragment if forward else reverse_complement(fragment))[:length_bp]


def test_mates_are_the_fragments_ends_and_face_each_other() -> None:
    molecules = random_molecules(50_000)
    library = replace(QUIET, insert_mean_bp=250, insert_sd_bp=60)
    fragments, pairs = read(molecules, library)
    wrong = total = 0
    for row in range(len(pairs.bases)):
        for mate in range(2):
            truth = true_bases(molecules, fragments, row, mate, library.read_length_bp)
            wrong += int((pairs.bases[row, mate, : len(truth)] != truth).sum())
            total += len(truth)
    assert wrong / total < 4e-4  # What no quality knows of.
    assert abs((fragments.end - fragments.start).mean() - 250) < 5
    assert abs(fragments.flipped.mean() - 0.5) < 0.05


def test_a_short_fragment_ends_in_the_adapter() -> None:
    molecules = random_molecules(50_000)
    fragments, pairs = read(molecules, replace(QUIET, insert_mean_bp=110, insert_sd_bp=10))
    row = int(np.argmin(fragments.end - fragments.start))
    insert_bp = int(fragments.end[row] - fragments.start[row])
    for mate in range(2):
        assert decode(pairs.bases[row, mate, insert_bp : insert_bp + 20]) == ADAPTERS[mate][:20]


@pytest.mark.parametrize("steps", ["continuous", "binned"])
def test_errors_follow_qualities(steps: str) -> None:
    molecules = random_molecules(50_000)
    library = replace(QUIET, error_scale=1.0, quality_steps=steps, insert_mean_bp=500, insert_sd_bp=20)
    fragments, pairs = read(molecules, library)
    truth = np.stack(
        [
            [true_bases(molecules, fragments, row, mate, library.read_length_bp) for mate in range(2)]
            for row in range(len(pairs.bases))
        ]
    )
    wrong = pairs.bases != truth
    rates = [wrong[(pairs.qualities >= low) & (pairs.qualities < low + 10)].mean() for low in (2, 10, 20, 30)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.05
    assert rates[-1] < 1.5e-3
    # Qualities fall towards the end of a read, and sooner in second mates.
    mean = pairs.qualities.mean(axis=0)
    assert mean[0, 20:40].mean() > mean[0, -20:].mean() > mean[1, -20:].mean()
    assert set(np.unique(pairs.qualities)) <= ({2, 12, 23, 37} if steps == "binned" else set(range(2, 42)))


def test_overconfident_reads_hold_more_errors_than_they_claim() -> None:
    rng = np.random.default_rng(0)
    quality = draw_qualities(rng, 2000, 0, QUIET)
    honest = error_rates(np.random.default_rng(1), quality, replace(QUIET, error_scale=1.0)).mean()
    boasting = error_rates(np.random.default_rng(1), quality, replace(QUIET, error_scale=1.0, overconfident_share=1.0))
    assert boasting.mean() > 4 * honest


def test_systematic_errors_come_on_one_strand() -> None:
    molecules = random_molecules(4000)
    library = replace(QUIET, systematic_share=0.004, insert_mean_bp=400, insert_sd_bp=30)
    fragments, pairs = read(molecules, library, num_pairs=6000)
    wrong, seen = np.zeros((2, 4000)), np.zeros((2, 4000))
    for row in range(len(pairs.bases)):
        for mate in range(2):
            forward = mate == int(fragments.flipped[row])
            truth = true_bases(molecules, fragments, row, mate, library.read_length_bp)
            cycle = np.arange(len(truth))
            place = fragments.start[row] + cycle if forward else fragments.end[row] - 1 - cycle
            np.add.at(wrong[int(forward)], place, pairs.bases[row, mate] != truth)
            np.add.at(seen[int(forward)], place, 1)
    share = wrong / np.maximum(seen, 1)
    often = (share.max(axis=0) > 0.1) & (seen.min(axis=0) > 50)
    assert often.sum() >= 5
    assert (share.min(axis=0)[often] < 0.05).mean() > 0.9


def test_homopolymers_lose_and_gain_bases() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.integers(1, 3, (2, 300), np.uint8)
    molecules = Molecules(np.concatenate([left, np.zeros(16, np.uint8), right]), np.array([0, 616]))
    library = replace(QUIET, stutter_scale=1.0, insert_mean_bp=600, insert_sd_bp=0.1, read_length_bp=500, gc_bias=0)
    _, pairs = read(molecules, library, num_pairs=2000)
    # C and G alone around the tract: A, or T from the other strand, is the tract.
    runs = np.isin(pairs.bases[:, 0], (0, 3)).sum(axis=1)
    assert 0.02 < (runs < 16).mean() < 0.4
    assert 0.01 < (runs > 16).mean() < 0.3
    assert (runs == 16).mean() > 0.5


def test_duplicates_are_of_one_fragment_and_depth_is_as_asked() -> None:
    molecules = random_molecules(30_000)
    fragments = draw_fragments(np.random.default_rng(0), molecules, 3000, replace(QUIET, duplicate_share=0.2))
    copies = fragments.original != np.arange(3000)
    assert 0.15 < copies.mean() < 0.25
    assert np.array_equal(fragments.start[copies], fragments.start[fragments.original[copies]])
    assert len(fragments.start) == 3000


def test_fragments_that_cannot_be_drawn_are_an_error() -> None:
    with pytest.raises(ValueError, match="no fragment of 380 bp"):
        draw_fragments(np.random.default_rng(0), random_molecules(100), 10, replace(QUIET, insert_sd_bp=20))


def test_depth_depends_on_gc() -> None:
    rng = np.random.default_rng(0)
    rich, poor = rng.choice(np.array([1, 2], np.uint8), 20_000), rng.choice(4, 20_000, p=(0.3, 0.2, 0.2, 0.3))
    molecules = Molecules(np.concatenate([rich, poor]).astype(np.uint8), np.array([0, 20_000, 40_000]))
    for bias, most in ((0.0, 1.3), (2.0, 0.1)):
        fragments = draw_fragments(rng, molecules, 4000, replace(QUIET, gc_bias=bias))
        ratio = (fragments.end <= 20_000).sum() / (fragments.start >= 20_000).sum()
        assert ratio < most
        assert bias > 0 or ratio > 0.75


def test_contamination_brings_reads_of_another_individual() -> None:
    rng = np.random.default_rng(0)
    genome = simulate_genome(rng, [40_000], unassembled_share=0)
    alleles = simulate_alleles(rng, genome, heterozygosity=3e-3)
    nobody = np.zeros((len(alleles), 2), np.bool_)
    texts = []
    for share in (0.0, 0.5):
        library = replace(QUIET, contamination_share=share, depth=6, insert_mean_bp=300, insert_sd_bp=20)
        batches = sequence_individual(genome, alleles, nobody, np.random.default_rng(1), library)
        reads = [pairs.bases.reshape(-1, library.read_length_bp) for pairs in batches]
        texts.append([decode(row) for row in np.concatenate(reads)])
    both = decode(genome.tokens[0]) + "|" + decode(reverse_complement(genome.tokens[0]))
    strange = [np.mean([text not in both for text in part[:: len(part) // 400]]) for part in texts]
    assert strange[0] < 0.1
    assert strange[1] > strange[0] + 0.1


def test_drawn_libraries_are_sound() -> None:
    rng = np.random.default_rng(0)
    libraries = [draw_library(rng) for _ in range(200)]
    assert all(5 <= library.depth <= 100 for library in libraries)
    assert {library.quality_steps for library in libraries} == {"continuous", "binned"}


@pytest.fixture(scope="module")
def sequenced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Genome, Individual]:
    return _sequenced(tmp_path_factory.mktemp("individual"))


def _sequenced(folder: Path) -> tuple[Genome, Individual]:
    rng = np.random.default_rng(7)
    genome = simulate_genome(rng, [30_000, 20_000])
    alleles = simulate_alleles(rng, genome)
    fasta = folder / "genome.fa.gz"
    write_fasta(fasta, genome)
    library = Library(depth=DEPTH, duplicate_share=0.1)
    placer = Placer(fasta, genome, num_threads=2)
    return genome, simulate_individual(folder, "p1", genome, alleles, rng, library, placer=placer, fastq=True)


def test_the_fasta_is_the_genome_with_repeats_in_lower_case(sequenced: tuple[Genome, Individual]) -> None:
    genome, individual = sequenced
    with pysam.FastaFile(str(individual.truth.parent / "genome.fa.gz")) as fasta:
        assert tuple(fasta.references) == genome.names
        for name, tokens, soft_masked in zip(genome.names, genome.tokens, genome.soft_masked, strict=True):
            text = fasta.fetch(name)
            assert np.array_equal(encode(text.upper()), tokens)
            lower = np.frombuffer(text.encode(), np.uint8) >= ord("a")
            assert np.array_equal(lower, soft_masked & (tokens < 4))


def test_placed_reads_fit_the_reference_and_their_mates(sequenced: tuple[Genome, Individual]) -> None:
    genome, individual = sequenced
    tokens = dict(zip(genome.names, genome.tokens, strict=True))
    wrong = total = placed = duplicates = 0
    mates: dict[str, list[pysam.AlignedSegment]] = {}
    with pysam.AlignmentFile(str(individual.bam)) as bam:
        assert bam.header["HD"]["SO"] == "coordinate"
        assert bam.has_index()
        for read_ in bam.fetch(until_eof=True):
            mates.setdefault(read_.query_name, []).append(read_)
            duplicates += read_.is_duplicate
            if read_.is_unmapped:
                continue
            placed += 1
            at = np.array(read_.get_aligned_pairs(matches_only=True))
            bases = encode(read_.query_sequence)[at[:, 0]]
            known = tokens[read_.reference_name][at[:, 1]]
            wrong += int((bases != known).sum())
            total += len(at)
    num_reads = 2 * len(mates)
    assert placed / num_reads > 0.97
    assert 0.0005 < wrong / total < 0.01
    assert abs(total / genome.num_bases - DEPTH) < 0.15 * DEPTH
    assert 0.06 < duplicates / num_reads < 0.14
    for first, second in mates.values():
        assert {first.is_read1, second.is_read1} == {True, False}
        assert first.mate_is_unmapped == second.is_unmapped
        assert first.template_length == -second.template_length
        if not first.is_unmapped and not second.is_unmapped:
            assert (first.next_reference_start, first.mate_is_reverse) == (second.reference_start, second.is_reverse)


def test_fastq_holds_the_reads_of_the_bam(sequenced: tuple[Genome, Individual]) -> None:
    _, individual = sequenced
    assert individual.fastq is not None
    of_bam = {}
    with pysam.AlignmentFile(str(individual.bam)) as bam:
        for read_ in bam.fetch(until_eof=True):
            mate = 1 if read_.is_read1 else 2
            of_bam[f"{read_.query_name}/{mate}"] = (read_.get_forward_sequence(), bytes(read_.get_forward_qualities()))
    of_fastq = {}
    for path in individual.fastq:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        for name, bases, qualities in zip(lines[0::4], lines[1::4], lines[3::4], strict=True):
            of_fastq[name[1:]] = (bases, bytes(ord(letter) - 33 for letter in qualities))
    assert of_bam == of_fastq


def test_same_seed_same_bytes(sequenced: tuple[Genome, Individual], tmp_path: Path) -> None:
    _, first = sequenced
    _sequenced(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        assert path.read_bytes() == (first.truth.parent / path.name).read_bytes(), path.name
