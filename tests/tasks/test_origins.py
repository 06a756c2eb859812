"""Contigs and long reads told apart: what is read, cut, counted and decided."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from monitoring.kmers import add_kmers
from tasks.errors import InputError, ReadsError
from tasks.origins.classifying import CLASSES, FIRST, FIRST_PROBABILITIES, SECOND_PROBABILITIES, classify
from tasks.origins.fragments import FRAGMENT_BP, count_kmers, cut
from tasks.origins.report import write_report
from tasks.origins.sequences import SequenceBlock, read_blocks
from tasks.origins.telling import sample_ids


def test_fasta_and_fastq_are_read_alike(tmp_path: Path) -> None:
    fasta, fastq = tmp_path / "a.fa.gz", tmp_path / "a.fq"
    with gzip.open(fasta, "wt") as file:
        file.write(">r1 first\r\nACGT\r\nnacg\r\n>r2\n\n>r3\nTTT-\n")
    fastq.write_text("@r1 first\nACGTnacg\n+\nIIIIIIII\n@r2\n\n+\n\n@r3\nTTTN\n+\nIIII\n")
    for path in (fasta, fastq):
        (block,) = read_blocks(path)
        assert block.names == ["r1", "r2", "r3"]
        assert block.lengths_bp.tolist() == [8, 0, 4]
        assert block.tokens.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 3, 3, 4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"BAM", "begins neither as FASTA"),
        (b">a\nACGT\n>\nACGT\n", "sequence 2 .without a name.: name it"),
        (b">a\nACGT\n>b\nMKLVFF\n", "sequence 2 .'b'.: holds letters that are no bases"),
        (gzip.compress(b">a\n" + b"ACGT" * 999)[:-9], "cannot be read"),
    ],
)
def test_what_is_no_sequence_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.fa"
    path.write_bytes(content)
    with pytest.raises(ReadsError, match=message):
        list(read_blocks(path))


def test_fragments_are_whole_and_short_sequences_are_one() -> None:
    sequence, first, end = cut(np.array([FRAGMENT_BP - 1, 2 * FRAGMENT_BP + 7, 0, FRAGMENT_BP]))
    assert sequence.tolist() == [0, 1, 1, 2, 3]
    start = FRAGMENT_BP - 1
    assert first.tolist() == [0, start, start + 5000, start + 10_007, start + 10_007]
    assert (end - first).tolist() == [4999, 5000, 5000, 0, 5000]


def test_kmers_are_those_of_the_profiles() -> None:
    tokens = np.random.default_rng(1).integers(0, 5, 400).astype(np.uint8)
    counted = count_kmers(tokens, np.array([0, 150]), np.array([150, 400]), 4)
    for row, part in zip(counted, (tokens[:150], tokens[150:]), strict=True):
        expected = np.zeros(256, dtype=np.int64)
        add_kmers(part, 4, expected)
        assert row.tolist() == expected.tolist()


def test_classes_follow_the_published_rules() -> None:
    """Each sequence is a run of fragments that the networks are made to see as the rows below say."""
    first = {  # organelle, bacteria, unknown, archaea, eukarya
        "bacteria": [[0, 1, 0, 0, 0], [0, 0.4, 0, 0, 0.6]],  # mean 0.7
        "prokarya": [[0, 0.4, 0, 0.3, 0.3]],
        "unknown": [[0, 0.65, 0, 0, 0.35]],  # the cutoff itself is not above it
        "eukarya": [[0, 0, 0, 0.1, 0.9]],
        "mitochondrion": [[0.9, 0.1, 0, 0, 0]],
        "organelle": [[0.8, 0.2, 0, 0, 0]],
    }
    second = [[0.2, 0.1, 0.7], [0.1, 0.9, 0]]  # plastid, unknown, mitochondrion
    lengths = [FRAGMENT_BP * len(rows) for rows in first.values()]
    rng = np.random.default_rng(2)
    block = SequenceBlock([*first, "too_short"], np.array([*lengths, 2999]), rng.integers(0, 4, 99_999, np.uint8))
    asked: list[tuple[str, int]] = []

    def ask(model: str, counts: np.ndarray) -> np.ndarray:
        asked.append((model, len(counts)))
        rows = [row for each in first.values() for row in each] if model == FIRST else second
        return np.array(rows, dtype=np.float32)

    told = classify(block, ask)
    assert [CLASSES[code] for code in told.code] == block.names
    assert asked == [(FIRST, 7), ("tiara-second", 2)]
    assert told.first.shape == (7, len(FIRST_PROBABILITIES))
    assert told.second.shape == (7, len(SECOND_PROBABILITIES))
    assert np.isnan(told.first[-1]).all()
    assert np.isnan(told.second[:4]).all()
    assert told.first[0].round(6).tolist() == [0, 0.7, 0, 0, 0.3]


def test_a_sequence_of_no_bases_is_unknown_and_costs_no_row() -> None:
    block = SequenceBlock(["n"], np.array([4000]), np.full(4000, 4, np.uint8))

    def ask(model: str, counts: np.ndarray) -> np.ndarray:
        raise AssertionError("there is nothing to ask about")

    assert CLASSES[classify(block, ask).code[0]] == "unknown"


def test_samples_are_named_by_their_files(tmp_path: Path) -> None:
    assert list(sample_ids([Path("x/a.b.fa.gz"), Path("c.fastq")])) == ["a.b", "c"]
    with pytest.raises(InputError, match="both be sample 'a'"):
        sample_ids([Path("a.fa"), Path("y/a.fq.gz")])
    with pytest.raises(InputError, match="names of samples"):
        sample_ids([Path("<b>.fa")])


def test_the_page_shows_every_class_that_there_is(tmp_path: Path) -> None:
    counts = {key: dict.fromkeys(CLASSES, 0) for key in ("sequences", "bases")}
    counts["sequences"] |= {"bacteria": 3, "too_short": 2}
    counts["bases"] |= {"bacteria": 12_000, "too_short": 999}
    write_report(tmp_path / "report.html", {"gut": counts}, "1.0.2")
    page = (tmp_path / "report.html").read_text()
    for text in ("<h2>gut</h2>", "3 of 5 sequences", "bacteria", "12,000", "100.0%", "too short to tell"):
        assert text in page
    assert "eukaryotes" not in page
