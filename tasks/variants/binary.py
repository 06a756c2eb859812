"""BCF as VCF text: htslib converts it in a child process, since a damaged file can kill the parser."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.bgzf import EOF_BLOCK, HEADER_BYTES, block_bytes, inflate_block
from tasks.errors import VariantFileError
from tasks.files import FILE_MODE, make_folder
from tasks.isolation import run_isolated

_MAGIC = b"BCF"


def is_bcf(path: Path) -> bool:
    """Tells whether a file is BCF, compressed or not; False also where it cannot be read."""
    try:
        with open(path, "rb") as handle:
            header = handle.read(HEADER_BYTES)
            size = block_bytes(header)
            if size is None:
                return header.startswith(_MAGIC)
            return inflate_block(header + handle.read(size - HEADER_BYTES)).startswith(_MAGIC)
    except (OSError, ValueError):
        return False


@contextmanager
def as_text(path: Path, folder: Path, *, header_only: bool = False) -> Iterator[Path]:
    """Yields the file itself, or for BCF its text, bgzip, in a file of `folder` that is removed in the end.

    Values are kept, as htslib prints them.

    Args:
        path: VCF or BCF.
        folder: Receives the text of a BCF.
        header_only: Whether a BCF's records are left out.

    Raises:
        VariantFileError: The BCF is damaged or truncated.
        ParserCrashError: htslib died on it.
    """
    if not is_bcf(path):
        yield path
        return
    check_end(path)
    make_folder(folder)
    text = folder / f".{path.stem}.{secrets.token_hex(4)}.vcf.gz"
    try:
        text.touch(FILE_MODE)
        payload = {"bcf": str(path), "text": str(text), "header_only": header_only}
        run_isolated("tasks.variants.binary:convert", payload, what=str(path))
        yield text
    finally:
        text.unlink(missing_ok=True)


def convert(bcf: str, text: str, header_only: bool) -> None:
    """Converts a BCF, or its header alone, to bgzip text; run in a child process.

    Raises:
        VariantFileError: htslib refuses the file.
    """
    import pysam.bcftools
    from pysam.utils import SamtoolsError

    from tasks.alignments.samtools_process import samtools_said

    try:
        options = ["--header-only"] if header_only else []
        pysam.bcftools.view("--no-version", "-Oz", *options, "-o", text, bcf, catch_stdout=False)
    except SamtoolsError as error:
        raise VariantFileError(f"{bcf}: not a whole BCF: {samtools_said(error)}", reason="DAMAGED") from error


def check_end(path: Path) -> None:
    """Refuses a compressed BCF without BGZF's last block: htslib would only warn.

    Raises:
        VariantFileError: The block is missing.
    """
    with open(path, "rb") as handle:
        if handle.read(len(_MAGIC)) == _MAGIC:
            return
        handle.seek(-len(EOF_BLOCK), 2)
        if handle.read() != EOF_BLOCK:
            raise VariantFileError(
                f"{path}: truncated: the file ends without the end-of-file block of bgzip; copy the file again",
                reason="TRUNCATED",
            )
