"""VCF text: the same lines from every container, and a reason for every file that is not whole."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.bgzf import EOF_BLOCK, BgzfWriter, block_bytes, inflate_block
from tasks.errors import VariantFileError
from tasks.variants import text as vcf_text
from tasks.variants.text import VariantText
from tests.tasks.variant_files import COLUMNS, write_bgzip

HEADER = f"##fileformat=VCFv4.2\n{COLUMNS}\n".encode()
BODY = b"".join(b"chr1\t%d\t.\tA\tC\t.\t.\tX=%s\n" % (n, b"y" * (n % 97)) for n in range(1, 3000))


def read(path: Path) -> tuple[tuple[bytes, ...], bytes, list[tuple[int, int]]]:
    text = VariantText(path)
    body, numbers = b"", []
    for block in text.blocks():
        body += block.text.tobytes()
        numbers.append((block.first_line, block.num_lines))
        assert block.text.tobytes().count(b"\n") == block.num_lines
        assert block.text.flags.writeable
    return text.header, body, numbers


@pytest.mark.parametrize("container", ["plain", "bgzip", "gzip", "gzip members", "bgzip then gzip zeros"])
def test_every_container_gives_the_same_lines(container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vcf_text, "BLOCK_BYTES", 5000)
    path = tmp_path / "x.vcf"
    text = HEADER + BODY
    if container == "plain":
        path.write_bytes(text)
    elif container == "bgzip":
        write_bgzip(path, text)
    elif container == "gzip":
        path.write_bytes(gzip.compress(text))
    elif container == "gzip members":
        path.write_bytes(b"".join(gzip.compress(text[at : at + 777]) for at in range(0, len(text), 777)))
    else:
        path.write_bytes(gzip.compress(text) + bytes(512))
    header, body, numbers = read(path)
    assert header == tuple(HEADER.splitlines())
    assert body == BODY
    line = 3
    for first, number in numbers:
        assert first == line
        line += number
    assert line == 3 + BODY.count(b"\n")


@pytest.mark.parametrize("block_bytes_", [1, 100, 10_000_000])
def test_a_line_longer_than_a_block_stays_whole(
    block_bytes_: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vcf_text, "BLOCK_BYTES", block_bytes_)
    monkeypatch.setattr(vcf_text, "_READ_BYTES", 1000)
    body = b"a\n" + b"b" * 50_000 + b"\nc\n"
    (tmp_path / "x.vcf").write_bytes(HEADER + body)
    assert read(tmp_path / "x.vcf")[1] == body


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vcf_text, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(vcf_text, "MAX_LINE_BYTES", 5_000_000)
    path = write_bgzip(tmp_path / "x.vcf.gz", HEADER + b"A" * 50_000_000)
    with pytest.raises(VariantFileError) as caught:
        read(path)
    assert caught.value.reason == "LINE_TOO_LONG"


def test_mends_line_ends_and_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "x.vcf"
    path.write_bytes(b"\xef\xbb\xbf" + HEADER.replace(b"\n", b"\r\n") + b"a\r\nb")
    text = VariantText(path)
    assert text.header == tuple(HEADER.splitlines())
    assert b"".join(block.text.tobytes() for block in text.blocks()) == b"a\r\nb\n"
    assert text.repairs == {"byte_order_mark": 1, "carriage_returns": 2, "final_newline": 1}


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_header_alone_is_a_vcf_without_records(end: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.vcf").write_bytes(HEADER.rstrip(b"\n") + end)
    assert read(tmp_path / "x.vcf") == (tuple(HEADER.splitlines()), b"", [])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "EMPTY_FILE"),
        (gzip.compress(b""), "EMPTY_FILE"),
        (EOF_BLOCK, "EMPTY_FILE"),
        (b"hello\n", "NOT_VCF"),
        (b"\x1b[31mred\x00 \xfe" + b"x" * 200 + b"\n", "NOT_VCF"),
        (b"\x89PNG\r\n\x1a\n\0\0", "NOT_VCF"),
        (gzip.compress(b"BAM\x01\0\0"), "NOT_VCF"),
        ("##fileformat".encode("utf-16"), "NOT_VCF"),
        (b"##fileformat=VCFv4.2\n", "NO_HEADER"),
        (b"##fileformat=VCFv4.2\nchr1\t1\t.\tA\tC\t.\t.\t.\n", "NO_HEADER"),
        (b"chr1\t1\t.\tA\tC\t.\t.\t.\n", "NO_HEADER"),
        (b"##fileformat=VCFv4.2\n#CHROM POS ID REF ALT QUAL FILTER INFO\n", "BAD_HEADER"),
        (b"##fileformat=VCFv4.2\n" + COLUMNS.encode() + b"\tFORMAT\tA\tB\tA\n", "DUPLICATE_SAMPLE"),
        (b"##fileformat=VCFv4.2\n" + COLUMNS.encode() + b"\tFORMAT\tA\t\n", "BAD_HEADER"),
        (b"##fileformat=VCFv4.2\n" + COLUMNS.encode() + b"\tS1\n", "BAD_HEADER"),
    ],
)
def test_says_why_a_file_is_not_a_vcf(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(VariantFileError) as caught:
        VariantText(tmp_path / "x")
    assert caught.value.reason == reason
    assert "x: " in caught.value.message
    assert caught.value.message.isprintable()
    assert "b'" not in caught.value.message
    assert len(caught.value.message) < len(str(tmp_path)) + 200


def test_a_missing_file_and_a_folder_have_their_reasons(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "NO_SUCH_FILE"), (tmp_path, "UNREADABLE")):
        with pytest.raises(VariantFileError) as caught:
            VariantText(path)
        assert caught.value.reason == reason


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(1, 10_000), compress=st.sampled_from(["bgzip", "gzip"]))
def test_a_truncated_file_is_never_taken_for_whole(
    cut: int, compress: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "x"
    if compress == "gzip":
        path.write_bytes(gzip.compress(HEADER + BODY))
    else:
        write_bgzip(path, HEADER + BODY)
    whole = path.read_bytes()
    path.write_bytes(whole[: -min(cut, len(whole) - 20)])
    with pytest.raises(VariantFileError) as caught:
        read(path)
    assert caught.value.reason == "TRUNCATED"


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 100_000), bit=st.integers(0, 7), compress=st.sampled_from(["bgzip", "gzip"]))
def test_a_flipped_bit_is_found_or_harmless(
    at: int, bit: int, compress: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("flip") / "x"
    if compress == "gzip":
        path.write_bytes(gzip.compress(HEADER + BODY))
    else:
        write_bgzip(path, HEADER + BODY)
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 1 << bit
    path.write_bytes(content)
    try:
        header, body, _ = read(path)
    except VariantFileError:
        return
    # Bits of gzip's header that carry no text: time, system, flags of the compressor.
    assert (header, body) == (tuple(HEADER.splitlines()), BODY)


@settings(max_examples=30, deadline=None)
@given(text=st.binary(max_size=300_000), cuts=st.lists(st.integers(1, 100_000), max_size=5), noisy=st.booleans())
def test_bgzf_is_gzip_and_does_not_depend_on_how_it_is_written(text: bytes, cuts: list[int], noisy: bool) -> None:
    text = np.random.default_rng(len(text)).bytes(200_000) + text if noisy else text * 3
    at_once, in_pieces = io.BytesIO(), io.BytesIO()
    with BgzfWriter(at_once) as writer:
        writer.write(text)
    with BgzfWriter(in_pieces) as writer:
        at = 0
        for cut in [*cuts, len(text)]:
            writer.write(memoryview(text)[at : at + cut])
            at += cut
    content = at_once.getvalue()
    assert content == in_pieces.getvalue()
    assert gzip.decompress(content) == text
    assert content.endswith(EOF_BLOCK)
    unpacked = b""
    while content:
        size = block_bytes(content[:18])
        assert size is not None
        unpacked += inflate_block(content[:size])
        content = content[size:]
    assert unpacked == text
