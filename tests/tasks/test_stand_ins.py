"""Files that are no data at all are named as what they are, by every reader."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tasks.alignments.format import recognise_kind
from tasks.errors import TaskError
from tasks.genome.fasta_text import is_bgzip
from tasks.reads.fastq import check_reads
from tasks.variants.text import VariantText

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n"
FILES = {
    "twice compressed": (gzip.compress(gzip.compress(b"x" * 100)), "compressed twice"),
    "LFS pointer": (POINTER, "git lfs pull"),
    "zeros": (b"\0" * 4096, "zero bytes"),
    "zeros in gzip": (gzip.compress(b"\0" * 4096), "zero bytes"),
    "web page": (b"<!DOCTYPE html>\n<html><body>404</body></html>", "an HTML page"),
}
READERS = {
    "VCF": VariantText,
    "alignment": recognise_kind,
    "FASTQ": lambda path: check_reads([{"fastq_1": str(path)}]),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("content", FILES)
def test_every_reader_says_what_it_is(tmp_path: Path, reader: str, content: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(FILES[content][0])
    with pytest.raises(TaskError) as caught:
        READERS[reader](path)
    assert FILES[content][1] in caught.value.message
    assert caught.value.reason == f"NOT_{reader.upper()}"


@pytest.mark.parametrize("content", ["LFS pointer", "zeros", "web page"])
def test_the_reference_too(tmp_path: Path, content: str) -> None:
    path = tmp_path / "genome.fa"
    path.write_bytes(FILES[content][0])
    with pytest.raises(TaskError, match=FILES[content][1]):
        is_bgzip(path)


@pytest.mark.parametrize("reader", ["VCF", "FASTQ"])
def test_lines_that_end_in_carriage_returns_alone(tmp_path: Path, reader: str) -> None:
    texts = {"VCF": "##fileformat=VCFv4.2\n#CHROM\n", "FASTQ": "@r\nACGT\n+\nIIII\n"}
    path = tmp_path / "file"
    path.write_bytes(texts[reader].replace("\n", "\r").encode())
    with pytest.raises(TaskError, match="carriage returns alone"):
        READERS[reader](path)
