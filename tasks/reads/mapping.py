"""Reads mapped by minimap2, as lines of SAM."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import mappy

from tasks.reads.sequences import Read

MAX_FRAGMENT_BP = 800
"""Longest template of a proper pair. Source: minimap2(1), --sr: -F800."""

_PAIRED, _PROPER, _UNMAPPED, _MATE_UNMAPPED, _REVERSE, _FIRST, _SECOND = 0x1, 0x2, 0x4, 0x8, 0x10, 0x40, 0x80
_COMPLEMENT = str.maketrans("ACGTUNRYKMSWBDHVacgtunrykmswbdhv", "TGCAANYRMKSWVHDBtgcaanyrmkswvhdb")


class ReadMapper:
    """Maps reads of one read group; safe for threads, which run side by side while minimap2 works.

    Only the primary alignment of a read is written. Mate fields are left to samtools fixmate.
    """

    def __init__(self, aligner: Any, read_group: str) -> None:
        self._aligner = aligner
        self._tag = f"\tRG:Z:{read_group}\n"
        self._local = threading.local()

    def map_pairs(self, pairs: Iterable[tuple[Read, Read]]) -> bytes:
        """Maps pairs; returns two SAM lines each, in the order given."""
        lines: list[str] = []
        for first, second in pairs:
            if first[1] and second[1]:
                hits = list(self._aligner.map(first[1], second[1], buf=self._buffer()))
                hit_1, hit_2, proper = _choose(hits)
            else:
                hit_1, hit_2, proper = self._primary(first), self._primary(second), False
            pair_flag = _PAIRED | (_PROPER if proper else 0)
            flag = pair_flag | _FIRST | (0 if hit_2 else _MATE_UNMAPPED)
            lines += self._line(first, hit_1, flag)
            flag = pair_flag | _SECOND | (0 if hit_1 else _MATE_UNMAPPED)
            lines += self._line(second, hit_2, flag)
        return "".join(lines).encode()

    def map_singles(self, reads: Iterable[Read]) -> bytes:
        """Maps single reads; returns one SAM line each, in the order given."""
        lines: list[str] = []
        for read in reads:
            lines += self._line(read, self._primary(read), 0)
        return "".join(lines).encode()

    def _buffer(self) -> Any:
        """minimap2's scratch memory, one for each thread."""
        if not hasattr(self._local, "buffer"):
            self._local.buffer = mappy.ThreadBuffer()
        return self._local.buffer

    def _primary(self, read: Read) -> Any:
        if not read[1]:
            return None
        hits = self._aligner.map(read[1], buf=self._buffer())
        return next((hit for hit in hits if hit.is_primary), None)

    def _line(self, read: Read, hit: Any, flag: int) -> tuple[str, str]:
        """One line of SAM (SAM v1, section 1.4), in two parts."""
        name, bases, qualities = read
        if hit is None:
            line = f"{name}\t{flag | _UNMAPPED}\t*\t0\t0\t*\t*\t0\t0\t{bases or '*'}\t{qualities or '*'}"
            return line, self._tag
        before, after = hit.q_st, len(bases) - hit.q_en
        if hit.read_num == 2:
            # mappy turns a second mate before it maps it and counts the places on the turned mate. It forgets that when
            # it makes the MD of a clipped one, so no MD is asked for; NM is right.
            before, after = after, before
        if hit.strand < 0:
            flag |= _REVERSE
            before, after = after, before
            bases = bases.translate(_COMPLEMENT)[::-1]
            qualities = qualities[::-1]
        cigar = hit.cigar_str
        if before:
            cigar = f"{before}S{cigar}"
        if after:
            cigar = f"{cigar}{after}S"
        line = (
            f"{name}\t{flag}\t{hit.ctg}\t{hit.r_st + 1}\t{hit.mapq}\t{cigar}\t*\t0\t0\t{bases}\t{qualities}"
            f"\tNM:i:{hit.NM}"
        )
        return line, self._tag


def _choose(hits: list[Any]) -> tuple[Any, Any, bool]:
    """Picks each mate's alignment: of several primary ones (parts of a read) a proper pair, else the first.

    Returns:
        The first and the second mate's alignment (None where it has none), and whether they make a proper pair.
    """
    if len(hits) == 2 and hits[0].read_num == 1 and hits[1].read_num == 2:
        return hits[0], hits[1], _is_proper(hits[0], hits[1])
    first = [hit for hit in hits if hit.is_primary and hit.read_num == 1]
    second = [hit for hit in hits if hit.is_primary and hit.read_num == 2]
    for hit_1 in first:
        for hit_2 in second:
            if _is_proper(hit_1, hit_2):
                return hit_1, hit_2, True
    return (first[0] if first else None), (second[0] if second else None), False


def _is_proper(hit_1: Any, hit_2: Any) -> bool:
    """Whether mates face each other on one contig, on a template of at most `MAX_FRAGMENT_BP`."""
    if hit_1.strand == hit_2.strand or hit_1.ctg != hit_2.ctg:
        return False
    forward, reverse = (hit_1, hit_2) if hit_1.strand > 0 else (hit_2, hit_1)
    return bool(forward.r_st <= reverse.r_st and 0 < reverse.r_en - forward.r_st <= MAX_FRAGMENT_BP)
