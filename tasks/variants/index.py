"""The index beside a bgzip VCF."""

from __future__ import annotations

import os
from pathlib import Path

from tasks.files import whole_file

_TBI_MAX_BP = 1 << 29
"""Positions that a .tbi can hold. Source: the Tabix format, bins of 2^29 bases."""


def write_index(written: Path, output: Path, is_sorted: bool, longest_bp: int) -> tuple[str | None, str | None]:
    """Indexes a VCF that is about to get its name; an older index of that name is removed.

    Args:
        written: The bgzip VCF.
        output: The name it will get; the index lies beside it.
        is_sorted: Whether it can be indexed at all.
        longest_bp: The largest position or contig length; past 512 Mb a ``.csi`` is written instead of a ``.tbi``.

    Returns:
        ``tbi``, ``csi`` or None; and why there is none.
    """
    import pysam

    for kind in ("tbi", "csi"):
        Path(f"{output}.{kind}").unlink(missing_ok=True)
    if not is_sorted:
        return None, "UNSORTED"
    fault = ""
    verbosity = pysam.set_verbosity(0)
    try:
        # A symbolic allele's END may lie past what a .tbi holds: that shows only when it is tried.
        for kind in ("tbi", "csi") if longest_bp <= _TBI_MAX_BP else ("csi",):
            try:
                with whole_file(Path(f"{output}.{kind}")) as aside:
                    pysam.tabix_index(
                        os.fspath(written),
                        preset="vcf",
                        csi=kind == "csi",
                        index=os.fspath(aside),
                        force=True,
                        keep_original=True,
                    )
                return kind, None
            except OSError as error:
                fault = str(error).replace(os.fspath(written), output.name)
    finally:
        pysam.set_verbosity(verbosity)
    return None, f"NOT_INDEXABLE: {fault}"
