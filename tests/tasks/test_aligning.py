"""FASTQ to BAM: places, flags, tags, read groups, and the same bytes every time."""

from __future__ import annotations

import gzip
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pytest

from tasks.errors import MemoryShortError, ReadsError
from tasks.genome.reference import Reference, prepare_reference
from tasks.isolation import run_isolated
from tasks.reads import index as reads_index
from tasks.reads.aligning import align_reads
from tasks.reads.index import index_memory_bytes, open_index
from tests.tasks.alignments import genome, prepared
from tests.tasks.fastq_text import record, write

LENGTHS = {"chr1": 30_000, "chr2": 20_000}
READ_BP = 120
FACTS = {"Plan": "ab" * 32, "Build": "GRCh38"}
COMPLEMENT = str.maketrans("ACGT", "TGCA")


@pytest.fixture(scope="module")
def sequences() -> dict[str, str]:
    return genome(LENGTHS, seed=3)


@pytest.fixture(scope="module")
def reference(sequences: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return prepared(sequences, tmp_path_factory.mktemp("genome"))


def reverse(bases: str) -> str:
    return bases.translate(COMPLEMENT)[::-1]


def simulate_pairs(sequences: dict[str, str], count: int, seed: int) -> list[tuple[str, str, str]]:
    """Pairs with known places: the name says contig, start, and end of the template, and which mate comes first."""
    random = np.random.default_rng(seed)
    pairs = []
    for place in range(count):
        contig = random.choice(list(sequences))
        size_bp = int(random.integers(200, 500))
        start = int(random.integers(0, len(sequences[contig]) - size_bp))
        template = sequences[contig][start : start + size_bp]
        left, right = template[:READ_BP], reverse(template[-READ_BP:])
        forward = bool(random.integers(2))
        first, second = (left, right) if forward else (right, left)
        pairs.append((f"{place}:{contig}:{start}:{start + size_bp}:{int(forward)}", first, second))
    return pairs


def write_pairs(pairs: list[tuple[str, str, str]], folder: Path, name: str) -> dict[str, Any]:
    first = write(folder / f"{name}_1.fq", "".join(record(f"{pair[0]}/1", pair[1]) for pair in pairs))
    text = "".join(record(f"{pair[0]}/2", pair[2]) for pair in pairs)
    second = write(folder / f"{name}_2.fq.gz", gzip.compress(text.encode()))
    return {"name": name, "fastq_1": str(first), "fastq_2": str(second), "interleaved": False}


def align(lanes: list[dict[str, Any]], reference: Reference, folder: Path, threads: int = 1) -> dict[str, Any]:
    return align_reads(lanes, str(reference.folder), str(folder / "s.bam"), str(folder / "work"), "s", threads, FACTS)


def rows_of(folder: Path) -> list[pysam.AlignedSegment]:
    with pysam.AlignmentFile(str(folder / "s.bam")) as alignment:
        return list(alignment.fetch(until_eof=True))


def test_pairs_lie_where_they_come_from(tmp_path: Path, sequences: dict[str, str], reference: Reference) -> None:
    pairs = simulate_pairs(sequences, 400, seed=1)
    summary = align([write_pairs(pairs, tmp_path, "a")], reference, tmp_path)
    assert (summary["num_reads"], summary["num_pairs"], summary["aligned"]["preset"]) == (800, 400, "sr")
    rows = rows_of(tmp_path)
    assert len(rows) == 800
    for row in rows:
        _, contig, start, end, forward = row.query_name.split(":")
        is_left = row.is_read1 == (forward == "1")
        expected = int(start) if is_left else int(end) - READ_BP
        assert (row.reference_name, row.reference_start, row.is_reverse) == (contig, expected, not is_left)
        size_bp = int(end) - int(start)
        assert (row.template_length, row.next_reference_start) == (
            (size_bp, int(end) - READ_BP) if is_left else (-size_bp, int(start))
        )
        assert row.is_proper_pair
        assert row.mate_is_reverse is not row.is_reverse
        assert (row.get_tag("NM"), row.get_tag("RG"), row.cigarstring) == (0, "s", f"{READ_BP}M")


def num_differences(row: pysam.AlignedSegment, reference: Reference) -> int:
    """NM in plain Python: mismatches, inserted and deleted bases."""
    tokens = reference.contig_tokens(reference.contig_index(row.reference_name))
    return sum(
        query is None or place is None or row.query_sequence[query] != "ACGTN"[tokens[place]]
        for query, place in row.get_aligned_pairs()
        if query is None or row.query_alignment_start <= query < row.query_alignment_end
    )


def test_mates_are_clipped_where_they_differ(tmp_path: Path, sequences: dict[str, str], reference: Reference) -> None:
    adapter = genome({"x": 40}, 99)["x"]
    pairs = []
    for name, left, right in simulate_pairs(sequences, 60, seed=4):
        pairs.append((name, left[:-40] + adapter, right[:-40] + adapter))
    align([write_pairs(pairs, tmp_path, "a")], reference, tmp_path)
    ends = {(row.is_read1, row.is_reverse): [] for row in rows_of(tmp_path)}
    for row in rows_of(tmp_path):
        operation, length_bp = row.cigartuples[0 if row.is_reverse else -1]
        ends[row.is_read1, row.is_reverse].append(length_bp if operation == pysam.CSOFT_CLIP else 0)
        assert num_differences(row, reference) == row.get_tag("NM") <= 4
    assert len(ends) == 4
    assert all(36 <= length_bp <= 40 for lengths in ends.values() for length_bp in lengths)


def test_tags_and_clips_say_how_a_read_differs(tmp_path: Path, sequences: dict[str, str], reference: Reference) -> None:
    ref = sequences["chr1"]
    swapped = {"A": "C", "C": "A", "G": "T", "T": "G"}
    cut = next(place for place in range(1085, 1100) if ref[place - 1] != ref[place + 2])  # not the same further left
    changed = ref[1000:1060] + swapped[ref[1060]] + ref[1061:cut] + ref[cut + 3 : 1150]
    clipped = "".join(swapped[base] for base in ref[1970:2000]) + ref[2000:2120]
    reads = {"changed": changed, "clipped": reverse(clipped), "empty": "", "foreign": genome({"x": 150}, 77)["x"]}
    qualities = {name: "".join(chr(40 + i % 30) for i in range(len(bases))) for name, bases in reads.items()}
    text = "".join(record(name, bases, qualities[name]) for name, bases in reads.items())
    lane = {"name": "1", "fastq_1": str(write(tmp_path / "a.fq", text))}
    align([lane], reference, tmp_path)
    rows = {row.query_name: row for row in rows_of(tmp_path)}
    assert list(rows) == ["changed", "clipped", "empty", "foreign"]
    assert (rows["changed"].cigarstring, rows["changed"].get_tag("NM")) == (f"{cut - 1000}M3D{1147 - cut}M", 4)
    assert rows["clipped"].reference_start == 2000
    assert (rows["clipped"].cigarstring, rows["clipped"].is_reverse) == ("30S120M", True)
    assert rows["clipped"].query_sequence == clipped
    assert rows["clipped"].qual == qualities["clipped"][::-1]
    for name in ("empty", "foreign"):
        assert rows[name].is_unmapped
    assert rows["foreign"].query_sequence == reads["foreign"]
    assert not any(row.is_paired for row in rows.values())


def test_mates_of_which_one_is_foreign_or_empty(
    tmp_path: Path, sequences: dict[str, str], reference: Reference
) -> None:
    good, foreign = sequences["chr2"][500:650], genome({"x": 150}, 78)["x"]
    lane = write_pairs([("half", good, foreign), ("empty", "", reverse(good)), ("far", good, sequences["chr1"][:150])],
                       tmp_path, "a")  # fmt: skip
    align([lane], reference, tmp_path)
    rows = {(row.query_name, row.is_read1): row for row in rows_of(tmp_path)}
    assert rows["half", True].mate_is_unmapped
    assert rows["half", False].is_unmapped
    assert rows["half", False].reference_start == 500  # beside its mate
    assert rows["empty", True].is_unmapped
    assert rows["empty", False].is_reverse
    assert not any(row.is_proper_pair for row in rows.values())
    assert rows["far", True].next_reference_name == "chr1"


def test_duplicates_are_marked(tmp_path: Path, sequences: dict[str, str], reference: Reference) -> None:
    pairs = simulate_pairs(sequences, 50, seed=4)
    copies = [(f"copy:{name}", first, second) for name, first, second in pairs[:7]]
    align([write_pairs(pairs + copies, tmp_path, "a")], reference, tmp_path)
    assert sum(row.is_duplicate for row in rows_of(tmp_path)) == 14


def test_lanes_are_read_groups_of_one_sample(tmp_path: Path, sequences: dict[str, str], reference: Reference) -> None:
    paired = write_pairs(simulate_pairs(sequences, 30, seed=5), tmp_path, "L1")
    mixed = simulate_pairs(sequences, 20, seed=6)
    text = "".join(record(name, first) + record(name, second) for name, first, second in mixed)
    interleaved = {"name": "L2", "fastq_1": str(write(tmp_path / "b.fq", text)), "interleaved": True}
    single = {"name": "L3", "fastq_1": str(write(tmp_path / "c.fq", record("one", sequences["chr1"][:150])))}
    summary = align([paired, interleaved, single], reference, tmp_path)
    assert (summary["num_pairs"], summary["num_reads"]) == (50, 101)
    rows = rows_of(tmp_path)
    by_group = {name: sum(row.get_tag("RG") == name for row in rows) for name in ("s.L1", "s.L2", "s.L3")}
    assert by_group == {"s.L1": 60, "s.L2": 40, "s.L3": 1}
    assert sum(row.is_proper_pair for row in rows) == 100
    with pysam.AlignmentFile(str(tmp_path / "s.bam")) as alignment:
        header = alignment.header.to_dict()
    assert [group["SM"] for group in header["RG"]] == ["s", "s", "s"]
    assert header["HD"]["SO"] == "coordinate"
    assert [contig["M5"] for contig in header["SQ"]] == [contig.md5 for contig in reference.contigs]
    assert header["CO"] == [f"cohortflow Plan={'ab' * 32} Build=GRCh38"]


def test_the_same_bytes_for_any_threads_and_folder(
    tmp_path: Path, sequences: dict[str, str], reference: Reference
) -> None:
    pairs = simulate_pairs(sequences, 1500, seed=7)
    contents = []
    for threads, name in ((1, "one"), (3, "a longer name")):
        folder = tmp_path / name
        folder.mkdir()
        align([write_pairs(pairs, folder, "a")], reference, folder, threads)
        contents.append([(folder / f"s.bam{suffix}").read_bytes() for suffix in ("", ".bai")])
        assert not list((folder / "work").iterdir())
    assert contents[0] == contents[1]
    with gzip.open(tmp_path / "one" / "s.bam") as bam:
        assert str(tmp_path).encode() not in bam.read()


@pytest.mark.parametrize(("quality", "preset"), [("+", "map-ont"), ("I", "map-hifi")])
def test_long_reads(tmp_path: Path, sequences: dict[str, str], reference: Reference, quality: str, preset: str) -> None:
    starts = range(0, 20_000, 2_500)
    texts = [sequences["chr1"][start : start + 4_000] for start in starts]
    reads = [record(f"r{start}", text, quality * len(text)) for start, text in zip(starts, texts, strict=True)]
    lane = {"name": "1", "fastq_1": str(write(tmp_path / "a.fq", "".join(reads) + reads[0].replace("r0", "again")))}
    summary = align([lane], reference, tmp_path)
    assert (summary["long_reads"], summary["aligned"]["preset"]) == (True, preset)
    rows = rows_of(tmp_path)
    assert {row.query_name: row.reference_start for row in rows} == {
        "again": 0,
        **{f"r{start}": start for start in starts},
    }
    assert not any(row.is_duplicate for row in rows)


def test_the_index_is_built_once(tmp_path: Path, sequences: dict[str, str]) -> None:
    reference = prepared(sequences, tmp_path)
    with open_index(reference, "sr", 1):
        (built,) = reference.folder.glob("*.mmi")
        before = built.stat()
        with open_index(reference, "sr", 1) as aligner:  # another's index is no obstacle while there is memory
            assert [hit.r_st for hit in aligner.map(sequences["chr1"][700:850])] == [700]
    assert built.stat().st_mtime_ns == before.st_mtime_ns


def test_who_does_not_fit_beside_another_waits(
    tmp_path: Path, sequences: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = prepared(sequences, tmp_path)
    order: list[str] = []
    monkeypatch.setattr(reads_index, "available_memory_bytes", lambda: 0 if order == ["first in"] else 1 << 50)

    def second() -> None:
        with open_index(reference, "sr", 1):
            order.append("second in")

    waiting = threading.Thread(target=second)
    with open_index(reference, "sr", 1):
        order.append("first in")
        waiting.start()
        waiting.join(timeout=0.5)
        assert order == ["first in"]
        order.append("first out")
    waiting.join(timeout=20)
    assert order == ["first in", "first out", "second in"]


def test_too_little_memory_is_said_before_work(
    tmp_path: Path, sequences: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = prepared(sequences, tmp_path)
    monkeypatch.setattr(reads_index, "_FIXED_BYTES", 10**15)
    lane = write_pairs(simulate_pairs(sequences, 2, seed=8), tmp_path, "a")
    with pytest.raises(MemoryShortError, match=r"needs about 1000000\.0 GB of memory, [0-9.]+ GB are free") as caught:
        align([lane], reference, tmp_path)
    assert caught.value.reason == "OUT_OF_MEMORY"
    assert not list(reference.folder.glob("*.mmi"))
    assert not (tmp_path / "s.bam").exists()


def test_memory_grows_with_bases_that_are_not_n(tmp_path: Path) -> None:
    few = prepared({"chr1": "ACGT" * 1000 + "N" * 100_000}, tmp_path, "few")
    many = prepared({"chr1": "ACGT" * 25_000}, tmp_path, "many")
    assert index_memory_bytes(many) - index_memory_bytes(few) == int(6.5 * 100_000) - int(6.5 * 4_000)
    assert index_memory_bytes(many, built=True) < index_memory_bytes(many)


def test_a_wrong_file_leaves_no_bam(tmp_path: Path, sequences: dict[str, str], reference: Reference) -> None:
    lane = write_pairs(simulate_pairs(sequences, 20, seed=9), tmp_path, "a")
    content = Path(lane["fastq_2"]).read_bytes()
    Path(lane["fastq_2"]).write_bytes(content[:-20])
    with pytest.raises(ReadsError) as caught:
        align([lane], reference, tmp_path)
    assert caught.value.reason == "TRUNCATED"
    assert not [path for path in tmp_path.iterdir() if "bam" in path.name]


def test_the_real_pair_lies_where_bwa_put_it(tmp_path: Path, shared_data: Path) -> None:
    real = shared_data / "na12878"
    reference = prepare_reference(real / "ucsc.hg19.chr20.unittest.fasta.gz", tmp_path / "reference")
    paths = [real / f"NA12878_chr20_10_10p1mb_R{mate}.fastq.gz" for mate in (1, 2)]
    payload = {
        "lanes": [{"name": "1", "fastq_1": str(paths[0]), "fastq_2": str(paths[1]), "interleaved": False}],
        "reference_folder": str(reference.folder),
        "output_bam": str(tmp_path / "s.bam"),
        "work_folder": str(tmp_path / "work"),
        "sample_id": "s",
        "threads": 2,
        "facts": FACTS,
    }
    run_isolated("tasks.reads.aligning:align_reads", payload, what="the real pair")
    places: dict[tuple[str, bool], int] = {}
    with pysam.AlignmentFile(str(real / "NA12878_S1.chr20.10_10p1mb.bam")) as alignment:
        for row in alignment.fetch(until_eof=True):
            if not row.is_unmapped and row.mapping_quality >= 20:
                places[row.query_name, row.is_read1] = row.reference_start - row.query_alignment_start
    rows = rows_of(tmp_path)
    assert len(rows) == 51_678
    with pysam.AlignmentFile(str(tmp_path / "s.bam")) as alignment:
        assert [contig["AS"] for contig in alignment.header.to_dict()["SQ"]] == [reference.build] == ["GRCh37"]
    same = [
        abs(places[row.query_name, row.is_read1] - (row.reference_start - row.query_alignment_start)) <= 5
        for row in rows
        if row.mapping_quality >= 20 and (row.query_name, row.is_read1) in places
    ]
    assert len(same) > 50_000
    assert np.mean(same) > 0.98
    assert 200 < sum(row.is_duplicate for row in rows) < 400
    for row in rows[:2000]:
        if not row.is_unmapped:
            assert num_differences(row, reference) == row.get_tag("NM")
