"""The index of the reference that minimap2 maps reads with: built once a run, when there is memory for it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import mappy
import numpy as np
import psutil

from tasks.errors import MemoryShortError, ReferenceError
from tasks.files import whole_file
from tasks.genome.reference import Reference

Preset = Literal["sr", "map-ont", "map-hifi"]
"""minimap2's names: short reads, Nanopore (and other noisy long) reads, PacBio HiFi (and other exact long) reads."""

# Bytes a base (N not counted) and a fixed part, while the index is built and once it is loaded. Measured with minimap2
# 2.31: random genomes of 30 and 80 Mb need more a base than this, which the fixed part covers; a human genome needs
# fewer, because k-mers recur (12 to 19 GB to build).
_FIXED_BYTES = 500_000_000
_BUILD_BYTES = {"sr": 6.5, "map-ont": 4.0, "map-hifi": 3.5}
_LOAD_BYTES = {"sr": 4.0, "map-ont": 2.6, "map-hifi": 2.2}
_TOKENS_AT_ONCE = 1 << 24
_CGROUP = Path("/sys/fs/cgroup")


def index_memory_bytes(reference: Reference, preset: Preset = "sr", *, built: bool = False) -> int:
    """Estimates the memory that minimap2 needs for its index of a reference, in bytes.

    Args:
        reference: The reference; only its bases that are not N count.
        preset: The kind of reads.
        built: Whether the index is already there and only loaded.
    """
    num_bases = 0
    for at in range(0, len(reference.tokens), _TOKENS_AT_ONCE):
        num_bases += int(np.count_nonzero(reference.tokens[at : at + _TOKENS_AT_ONCE] < 4))
    per_base = (_LOAD_BYTES if built else _BUILD_BYTES)[preset]
    return int(_FIXED_BYTES + per_base * num_bases)


def available_memory_bytes() -> int:
    """Memory that can be had now without swapping: the machine's, or what the container's limit leaves."""
    available = int(psutil.virtual_memory().available)
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return available
    return available if limit == "max" else min(available, max(int(limit) - used, 0))


def memory_line(reference: Reference) -> str:
    """Says before any alignment what memory it needs, what is free, and whether that is enough."""
    need, free = index_memory_bytes(reference), available_memory_bytes()
    verdict = "fits" if need < free else "DOES NOT FIT"
    return f"alignment: minimap2's index needs about {need / 1e9:.1f} GB, {free / 1e9:.1f} GB are free: {verdict}"


@contextmanager
def open_index(reference: Reference, preset: Preset, threads: int) -> Iterator[Any]:
    """Yields a `mappy.Aligner`; the index is built into the reference's folder by the first who needs it.

    One process at a time builds or loads. Where another's index leaves too little memory, this one waits until it is
    the only one of the run on this machine.

    Raises:
        MemoryShortError: The index does not fit even then; the message has both numbers.
        ReferenceError: minimap2 cannot index the FASTA.
    """
    path = reference.folder / f"minimap2-{mappy.__version__}-{preset}.mmi"
    with (
        open(reference.folder / "minimap2.gate", "wb") as gate,
        open(reference.folder / "minimap2.users", "wb") as users,
    ):
        fcntl.flock(gate, fcntl.LOCK_EX)
        need = index_memory_bytes(reference, preset, built=path.exists())
        if need > available_memory_bytes():
            fcntl.flock(users, fcntl.LOCK_EX)  # waits for the others to end
        available = available_memory_bytes()
        if need > available:
            raise MemoryShortError(
                f"{reference.path.name}: minimap2's index for {preset} needs about {need / 1e9:.1f} GB of memory, "
                f"{available / 1e9:.1f} GB are free; use a machine with more, or give BAM or CRAM instead of FASTQ"
            )
        fcntl.flock(users, fcntl.LOCK_SH)
        if not path.exists():
            _build(reference, preset, path, threads)
        aligner = _aligner(path, preset, threads, None)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield aligner


def _build(reference: Reference, preset: Preset, path: Path, threads: int) -> None:
    with whole_file(path) as aside:
        _aligner(reference.fasta_path, preset, threads, aside)


def _aligner(source: Path, preset: Preset, threads: int, output: Path | None) -> Any:
    aligner = mappy.Aligner(
        os.fspath(source), preset=preset, n_threads=threads, fn_idx_out=os.fspath(output) if output else None
    )
    if not aligner:
        raise ReferenceError(f"{source}: minimap2 finds no sequence in it")
    return aligner
