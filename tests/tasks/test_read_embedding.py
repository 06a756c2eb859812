"""The sample of a FASTQ's reads and their mean embedding: same files, same bytes; what the whole network gives."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from serving.server import ModelServer
from tasks.genome.reference import Reference
from tasks.reads.aligning import align_reads
from tasks.reads.embedding import embed_reads
from tasks.reads.sampling import MAX_BP, MIN_BP, ReadSampler, count_by_fit
from tasks.reads.sequences import Read, read_sequences
from tasks.reporting.embeddings import Layout, lay_out
from tests.conftest import REPOSITORY
from tests.tasks.alignments import genome, prepared
from tests.tasks.fastq_text import record, write

LENGTHS = {"chr1": 30_000, "chr2": 20_000}
TOKENS = str.maketrans({**dict.fromkeys("NRYKMSWBDHVU.", "4"), "A": "0", "C": "1", "G": "2", "T": "3"})


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(REPOSITORY / "data" / "models", models=["embedder", "read_embedder"]) as server:
        yield server


@pytest.fixture(scope="module")
def sequences() -> dict[str, str]:
    return genome(LENGTHS, seed=3)


@pytest.fixture(scope="module")
def reference(sequences: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return prepared(sequences, tmp_path_factory.mktemp("genome"))


def tokens_of(bases: str) -> bytes:
    return bytes(map(int, bases.upper().translate(TOKENS)))


def reads_of(lengths_bp: list[int], letters: str = "ACGT", seed: int = 5) -> list[Read]:
    rng = np.random.default_rng(seed)
    texts = ("".join(rng.choice(list(letters), length_bp)) for length_bp in lengths_bp)
    return [(f"r{place}", text, "I" * len(text)) for place, text in enumerate(texts)]


def sample(path: Path, reads: list[Read], num_reads: int, step: int = 1000) -> list[bytes]:
    """Shows the reads, so many at a time; what was taken."""
    num_fitting = sum(MIN_BP <= len(bases) <= MAX_BP for _, bases, _ in reads)
    with ReadSampler(path, num_reads, num_fitting) as sampler:
        for at in range(0, len(reads), step):
            sampler.show(reads[at : at + step])
    return taken(path)


def taken(path: Path) -> list[bytes]:
    found: list[bytes] = pa.ipc.open_file(str(path)).read_all()["tokens"].to_pylist()
    return found


def embed(server: ModelServer, path: Path) -> dict[str, object]:
    return embed_reads(path, lambda inputs: server.submit("read_embedder", inputs))


def test_the_bounds_and_what_is_not_a_base(tmp_path: Path) -> None:
    reads = reads_of([49, 50, 0, 100_000, 100_001, 120], "ACGTNacgtnR")
    fitting = [tokens_of(reads[place][1]) for place in (1, 3, 5)]
    assert sample(tmp_path / "all", reads, 10) == fitting
    assert sample(tmp_path / "none", reads[:1], 10) == []
    counts = {49: 2, 50: 7, 100_000: 1, 100_001: 3, 0: 1}
    assert count_by_fit(counts) == {"fitting": 8, "too_short": 3, "too_long": 3}


def test_every_fitting_read_is_as_likely_wherever_it_stands_and_however_it_is_shown(tmp_path: Path) -> None:
    reads = reads_of([(30, 60)[place % 3 > 0] for place in range(6000)])
    fitting = [tokens_of(bases) for _, bases, _ in reads if len(bases) == 60]
    found = sample(tmp_path / "a", reads, 1000)
    assert found == sample(tmp_path / "b", reads, 1000, step=7)
    assert len(found) == 1000
    places = [fitting.index(each) for each in found]
    assert places == sorted(set(places))
    by_tenth = np.bincount(np.array(places) // 400, minlength=10)
    assert ((by_tenth > 65) & (by_tenth < 135)).all()
    assert {place % 2 for place in places} == {0, 1}


def test_reads_are_taken_on_the_way_to_the_aligner(
    tmp_path: Path, sequences: dict[str, str], reference: Reference
) -> None:
    rng = np.random.default_rng(8)
    starts = rng.integers(0, 29_000, 1500).tolist()
    texts = [[sequences["chr1"][start : start + 150], sequences["chr1"][start + 200 : start + 240]] for start in starts]
    for mate in range(2):
        content = "".join(record(f"{place}/{mate + 1}", text[mate]) for place, text in enumerate(texts))
        write(tmp_path / f"a_{mate + 1}.fq.gz", gzip.compress(content.encode()))
    turns = "".join(
        record(f"t{place}", sequences["chr2"][start : start + 90]) * 2 for place, start in enumerate(range(40))
    )
    write(tmp_path / "b.fq", turns)
    lanes = [
        {"name": "a", "fastq_1": str(tmp_path / "a_1.fq.gz"), "fastq_2": str(tmp_path / "a_2.fq.gz")},
        {"name": "b", "fastq_1": str(tmp_path / "b.fq"), "interleaved": True},
    ]
    contents = []
    for threads in (1, 3):
        folder = tmp_path / str(threads)
        summary = align_reads(
            lanes, str(reference.folder), str(folder / "s.bam"), str(folder / "work"), "s", threads, {},
            num_sampled=600, sampled=str(folder / "sampled.arrow"),
        )  # fmt: skip
        # Second mates of the first lane are too short, all reads of the second lane fit.
        assert summary["by_fit"] == {"fitting": 1580, "too_short": 1500, "too_long": 0}
        contents.append((folder / "sampled.arrow").read_bytes())
    assert contents[0] == contents[1]
    found = taken(folder / "sampled.arrow")
    known = {tokens_of(text[0]) for text in texts}
    assert [len(each) for each in found] == sorted((len(each) for each in found), reverse=True)
    assert {len(each) for each in found} == {150, 90}
    assert all(each in known for each in found if len(each) == 150)
    align_reads(lanes, str(reference.folder), str(tmp_path / "s.bam"), str(tmp_path / "work"), "s", 1, {})
    assert (tmp_path / "s.bam").read_bytes() == (folder / "s.bam").read_bytes()
    assert not list(tmp_path.glob("*.arrow"))


def test_the_mean_is_that_of_the_whole_reads_in_any_order(tmp_path: Path, server: ModelServer) -> None:
    lengths_bp = [*np.random.default_rng(2).integers(50, 152, 700).tolist(), 30_000, 5_000, 513, *([151] * 400)]
    reads = reads_of(lengths_bp, "ACGTN")
    sample(tmp_path / "sampled", reads, len(reads))
    found = embed(server, tmp_path / "sampled")
    whole = [
        server.infer(
            "embedder",
            {"tokens": np.frombuffer(tokens_of(bases), np.uint8)[np.newaxis], "state": np.zeros((1, 128), np.float32)},
        )["embedding"][0]
        for _, bases, _ in reads
    ]
    assert found["num_reads"] == len(reads)
    np.testing.assert_allclose(found["mean"], np.mean(whole, axis=0), rtol=0, atol=1e-5)
    np.testing.assert_allclose(found["sd"], np.std(whole, axis=0), rtol=0, atol=1e-5)
    assert found == embed(server, tmp_path / "sampled")
    sample(tmp_path / "nothing", [], 5)
    assert embed(server, tmp_path / "nothing") == {"num_reads": 0, "mean": [], "sd": []}


def compare(found: list[dict[str, object]]) -> Layout:
    return lay_out(*(np.array([each[key] for each in found]) for key in ("mean", "sd", "num_reads")))  # type: ignore[arg-type]


def test_a_sample_of_another_genome_lies_apart(tmp_path: Path, server: ModelServer, sequences: dict[str, str]) -> None:
    rng = np.random.default_rng(4)
    other = "".join(rng.choice(list("ACGT"), 30_000, p=[0.17, 0.33, 0.33, 0.17]))
    found = []
    for place in range(5):
        text = other if place == 3 else sequences["chr1"]
        starts = rng.integers(0, 29_000, 3000).tolist()
        reads = [("r", text[start : start + 150], "") for start in starts]
        sample(tmp_path / "sampled", reads, 2000)
        found.append(embed(server, tmp_path / "sampled"))
    layout = compare(found)
    assert layout.is_apart.tolist() == [False, False, False, True, False]
    assert layout.distances[3] > 0.5
    assert (layout.distances[[0, 1, 2, 4]] < 3 * layout.chance[0]).all()
    assert 0.9 < layout.shares[0] <= 1
    assert not compare([each for place, each in enumerate(found) if place != 3]).is_apart.any()


def test_parts_of_one_real_run_lie_together(tmp_path: Path, server: ModelServer, shared_data: Path) -> None:
    reads = list(read_sequences(shared_data / "na12878" / "NA12878_chr20_10_10p1mb_R1.fastq.gz"))
    found = []
    for part in range(4):
        assert len(sample(tmp_path / "sampled", list(islice(reads, part, None, 4)), 3000)) == 3000
        found.append(embed(server, tmp_path / "sampled"))
    layout = compare(found)
    assert not layout.is_apart.any()
    assert (layout.distances < 2 * layout.chance).all()
