"""The index beside a bgzip VCF."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

from tasks.bgzf import BgzfWriter
from tasks.errors import TaskError, VariantFileError
from tasks.files import whole_file
from tasks.isolation import run_isolated
from tasks.quoting import quoted

_TBI_MAX_BP = 1 << 29
"""Positions that a .tbi can hold. Source: the Tabix format, bins of 2^29 bases."""
_REGION = re.compile(r"Region (\d+)\.\.(\d+) cannot be stored")
"""How htslib refuses a record: 0-based start, and end. Source: htslib, hts_idx_check_range."""


def write_index(written: Path, output: Path, is_sorted: bool, longest_bp: int) -> tuple[str | None, str | None]:
    """Indexes a VCF that is about to get its name; an older index of that name is removed.

    Args:
        written: The bgzip VCF.
        output: The name it will get; the index lies beside it.
        is_sorted: Whether it can be indexed at all.
        longest_bp: The largest position or contig length; past 512 Mb a ``.csi`` is written instead of a ``.tbi``.

    Returns:
        ``tbi``, ``csi`` or None; and why there is none: UNSORTED, or NOT_INDEXABLE with the record that is at fault.
    """
    import pysam

    for kind in ("tbi", "csi"):
        Path(f"{output}.{kind}").unlink(missing_ok=True)
    if not is_sorted:
        return None, "UNSORTED"
    verbosity = pysam.set_verbosity(0)
    try:
        # A symbolic allele's END may lie past what a .tbi holds: that shows only when it is tried.
        for kind in ("tbi", "csi") if longest_bp <= _TBI_MAX_BP else ("csi",):
            try:
                with whole_file(Path(f"{output}.{kind}")) as aside:
                    _index(written, aside, kind)
                return kind, None
            except OSError:
                continue
        return None, f"NOT_INDEXABLE: {_fault(written, output)}"
    finally:
        pysam.set_verbosity(verbosity)


def _index(path: Path, index: Path, kind: str) -> None:
    """Lets htslib index a VCF; raises OSError without a cause, which htslib prints."""
    import pysam

    pysam.tabix_index(
        os.fspath(path),
        preset="vcf",
        csi=kind == "csi",
        index=os.fspath(index),
        force=True,
        keep_original=True,
    )


def explain_index(path: str, index: str) -> None:
    """Tries again to write a ``.csi``, in a child process: what htslib prints there becomes the error's end.

    Raises:
        VariantFileError: It cannot be written.
    """
    try:
        _index(Path(path), Path(index), "csi")
    except OSError as error:
        raise VariantFileError("no index can be written") from error


def _fault(written: Path, output: Path) -> str:
    """Why a VCF cannot be indexed, with the record at fault where htslib tells its place."""
    scratch = written.with_name(f"{written.name}.csi")
    try:
        run_isolated(
            "tasks.variants.index:explain_index", {"path": str(written), "index": str(scratch)}, what=output.name
        )
        return "htslib gives no cause"
    except TaskError as error:
        said = error.message.replace(os.fspath(written), output.name)
    finally:
        scratch.unlink(missing_ok=True)
    region = _REGION.search(said)
    if region is None:
        return said
    begin, end = int(region[1]), int(region[2])
    header: list[bytes] = []
    num_records = 0
    with gzip.open(written) as lines:
        for line in lines:
            if line.startswith(b"#"):
                header.append(line)
                continue
            num_records += 1
            contig, position = line.split(b"\t", 2)[:2]
            # Another contig may have a record at that place too.
            if int(position) == begin + 1 and not _is_indexable(b"".join([*header, line]), scratch):
                return (
                    f"record {num_records:,}, at {begin + 1:,} of contig {quoted(contig)}, reaches to {end:,} by its "
                    "POS and REF, END, SVLEN or LEN: further than an index can hold"
                )
    return said


def _is_indexable(text: bytes, scratch: Path) -> bool:
    """Whether htslib can index a VCF of this text."""
    vcf = scratch.with_suffix(".one.vcf.gz")
    try:
        with open(vcf, "xb") as handle, BgzfWriter(handle) as writer:
            writer.write(text)
        _index(vcf, scratch, "csi")
        return True
    except OSError:
        return False
    finally:
        vcf.unlink(missing_ok=True)
        scratch.unlink(missing_ok=True)
