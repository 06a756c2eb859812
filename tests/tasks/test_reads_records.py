"""Records of FASTQ files: what is read, what is refused, and where a fault is said to be."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.errors import ReadsError
from tasks.reads import blocks as reads_blocks
from tasks.reads.records import read_records
from tasks.reads.sequences import read_sequences
from tests.tasks.fastq_text import bgzip, record, write

READS = st.lists(
    st.tuples(st.text("ACGTNacgt", max_size=40), st.sampled_from(["", " comment", "/1", "/2 x", "\tRG:Z:1"])),
    min_size=1,
    max_size=30,
)


def tokens_of(path: Path) -> list[list[int]]:
    reads: list[list[int]] = []
    for chunk in read_records(path):
        parts = np.split(chunk.tokens, np.cumsum(chunk.lengths_bp + 1)[:-1])
        reads += [part[:-1].tolist() for part in parts]
    return reads


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(READS, st.sampled_from([7, 64, 4096]), st.booleans(), st.booleans())
def test_blocks_line_ends_and_compression_do_not_matter(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reads: list[tuple[str, str]],
    block_bytes: int,
    crlf: bool,
    end: bool,
) -> None:
    monkeypatch.setattr(reads_blocks, "BLOCK_BYTES", block_bytes)
    text = "".join(record(f"r{i}{comment}", bases) for i, (bases, comment) in enumerate(reads))
    if crlf:
        text = text.replace("\n", "\r\n")
    if not end and reads[-1][0]:
        text = text.rstrip("\r\n")
    content = text.encode()
    half = len(content) // 2
    expected = [["ACGT".find(base) % 5 for base in bases.upper()] for bases, _ in reads]
    for name, data in {
        "plain": content,
        "members": gzip.compress(content[:half]) + gzip.compress(b"") + gzip.compress(content[half:]) + b"\0" * 20,
        "bgzip": bgzip(content),
    }.items():
        path = write(tmp_path / name, data)
        assert tokens_of(path) == expected, name
        assert list(read_sequences(path)) == [
            (f"r{i}", bases, "I" * len(bases)) for i, (bases, _) in enumerate(reads)
        ], name


def test_names_are_compared_without_comment_and_mate(tmp_path: Path) -> None:
    names = ["a", "a/1", "a/2", "a 1:N:0:ACGT", "a\tRG:Z:1", "a/3", "a/1/2", "b"]
    path = write(tmp_path / "reads.fq", "".join(record(name, "ACGT") for name in names))
    (chunk,) = read_records(path)
    same = (chunk.name_hashes == chunk.name_hashes[0]).tolist()
    assert same == [True, True, True, True, True, False, False, False]


def test_qualities_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "reads.fq", record("a", "ACGT", '!"#$') + record("b", "AC", "!~"))
    (chunk,) = read_records(path)
    assert np.flatnonzero(chunk.quality_counts).tolist() == [0, 1, 2, 3, 93]
    assert chunk.quality_counts[0] == 2
    assert chunk.position_sums[:5].tolist() == [0, 94, 2, 3, 0]
    assert chunk.position_counts[:5].tolist() == [2, 2, 1, 1, 0]


GOOD = record("good", "ACGT")
FAULTS = {
    "no at": (f"{GOOD}read\nACGT\n+\nIIII\n", "record 2 .line 5.: begins with 'read', not with @"),
    "no plus": (f"{GOOD}@r\nACGT\nIIII\n@s\n", "record 2 .line 7.: the third line is 'IIII', not [+]"),
    "wrapped": (f"{GOOD}@r\nACGT\nACGT\n+\nIIII\nIIII\n", "record 2 .line 7.*unwrap"),
    "few qualities": (f"{GOOD}@r\nACGT\n+\nIII\n{GOOD}", "record 2 .line 8.: 4 bases but 3 qualities"),
    "many qualities": (f"{GOOD}@r\nACGT\n+\nIIIII\n", "record 2 .line 8.: 4 bases but 5 qualities"),
    "many at the end": (f"{GOOD}@r\nACGT\n+\nIIIII", "record 2 .line 8.: 4 bases but 5 qualities"),
    "few, windows": ("@r\r\nACGT\r\n+\r\nIII\r\n@s\r\nA\r\n+\r\nI\r\n", "record 1 .line 4.: 4 bases but 3 qualities"),
    "space": (f"{GOOD}@r\nAC GT\n+\nIIIII\n", "record 2 .line 6.: column 3 of the sequence is ' ', not a base"),
    "digit": ("@r\nAC1T\n+\nIIII\n", "record 1 .line 2.: column 3 of the sequence is '1'"),
    "quality": (f"{GOOD}@r\nACGT\n+\nII I\n", "record 2 .line 8.: column 3 of the qualities is ' '"),
    "high quality": (b"@r\nACGT\n+\nII\xffI\n", "column 3 of the qualities"),
    "other name": ("@r x\nACGT\n+r y\nIIII\n", "record 1 .line 3.: the third line '[+]r y' names another read"),
    "longer name": ("@r\nACGT\n+rs\nIIII\n", "names another read"),
    "no name": ("@ r\nACGT\n+\nIIII\n", "no usable read name: '@ r'"),
    "at twice": ("@@r\nACGT\n+\nIIII\n", "no usable read name"),
    "nul": (b"@r\0s\nACGT\n+\nIIII\n", "no usable read name"),
    "long name": (f"@{'n' * 255}\nACGT\n+\nIIII\n", "255 bytes; BAM holds 254"),
    "blank line": (f"{GOOD}\n{GOOD}", "record 2 .line 5.: a blank line"),
    "fasta": (">a\nACGT\n", "FASTA"),
    "sam": ("@HD\tVN:1.6\n", "SAM"),
    "vcf": ("##fileformat=VCFv4.2\n", "VCF"),
    "bzip2": (b"BZh91AY", "bzip2"),
    "bam": (gzip.compress(b"BAM\1\0\0\0\0"), "BAM"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("block_bytes", [40, 1 << 22])
def test_a_fault_is_said_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, block_bytes: int
) -> None:
    monkeypatch.setattr(reads_blocks, "BLOCK_BYTES", block_bytes)
    content, message = FAULTS[name]
    path = write(tmp_path / "reads.fq", content)
    with pytest.raises(ReadsError, match=message) as caught:
        list(read_records(path))
    assert str(path) in caught.value.message


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_plain_file_that_ends_inside_a_record(tmp_path: Path, cut: int) -> None:
    content = (GOOD + "@r\nACGT\n+\nIIII")[:-cut]
    with pytest.raises(ReadsError, match="record 2 ") as caught:
        list(read_records(write(tmp_path / "reads.fq", content)))
    assert caught.value.reason == "TRUNCATED"


def test_a_cut_gzip_file_names_the_record_it_ends_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_blocks, "BLOCK_BYTES", 300)
    reads = [record(f"r{i}", "ACGTTGCA" * 9) for i in range(40)]
    whole = gzip.compress("".join(reads[:25]).encode())
    torn = gzip.compress((reads[25] + reads[26][:-5]).encode(), compresslevel=0)
    with pytest.raises(ReadsError, match=r"inside record 27\)"):
        list(read_records(write(tmp_path / "cut.gz", whole + torn[:-8])))


def test_a_gzip_file_that_is_cut_off_or_damaged(tmp_path: Path) -> None:
    content = gzip.compress("".join(record(f"r{i}", "ACGTTGCA" * 9) for i in range(500)).encode())
    for num_bytes in (len(content) // 2, len(content) - 9, len(content) - 1):
        with pytest.raises(ReadsError) as caught:
            list(read_records(write(tmp_path / "cut.gz", content[:num_bytes])))
        assert caught.value.reason == "TRUNCATED"
        assert re.search(r"cut off: .*\(inside record [0-9]+\)", caught.value.message)
    for at in (4, 200, len(content) - 6):
        damaged = bytearray(content)
        damaged[at] ^= 0xFF
        path = write(tmp_path / "damaged.gz", bytes(damaged))
        if at == 4:  # the time of compression: no data
            assert sum(len(chunk.lengths_bp) for chunk in read_records(path)) == 500
            continue
        with pytest.raises(ReadsError):
            list(read_records(path))
    with pytest.raises(ReadsError, match="damaged gzip"):
        list(read_records(write(tmp_path / "rubbish.gz", content + b"rubbish after the end")))


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n\n\n", "\r\n \n", "\n@e\n\n+\n"])
def test_ends_of_files(tmp_path: Path, end: str) -> None:
    path = write(tmp_path / "reads.fq", GOOD.rstrip("\n") + end)
    num_reads = 2 if "@e" in end else 1
    assert sum(len(chunk.lengths_bp) for chunk in read_records(path)) == num_reads
    assert len(list(read_sequences(path))) == num_reads


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ReadsError, match="No such file") as caught:
        list(read_records(tmp_path / "absent.fq"))
    assert caught.value.reason == "UNREADABLE"


def test_a_read_longer_than_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_blocks, "BLOCK_BYTES", 1000)
    path = write(tmp_path / "long.fq", record("long", "ACGT" * 50_000) + GOOD)
    assert [len(chunk.lengths_bp) for chunk in read_records(path)] == [2]
