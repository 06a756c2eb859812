"""Observations: what each fragment says about each candidate allele, overlapping mates counted once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from tasks.calling.aligned_reads import MIN_BASE_QUALITY, AlignedReads
from tasks.calling.candidates import Candidates
from tasks.calling.indels import SNV

REFERENCE, ALTERNATE, OTHER = 0, 1, 2
"""A fragment shows the reference, the candidate, or something else at its place."""

_NOTHING = 255


@dataclass(frozen=True, slots=True)
class Observations:
    """One entry per candidate and fragment, grouped by candidate, in file order of the reads.

    Attributes:
        offset: int64 [num_candidates + 1], each candidate's entries.
        read: int32 [num_entries], the read that speaks for the fragment.
        shows: uint8 [num_entries], `REFERENCE`, `ALTERNATE` or `OTHER`.
        quality: uint8 [num_entries], base quality (Phred); of two mates that disagree, the difference.
        query: int32 [num_entries], index in the read of the base at the candidate's start.
        num_low_quality: int32 [num_candidates], reads below `MIN_BASE_QUALITY` there.
    """

    offset: np.ndarray
    read: np.ndarray
    shows: np.ndarray
    quality: np.ndarray
    query: np.ndarray
    num_low_quality: np.ndarray

    def slice(self, first: int, last: int) -> Observations:
        """Those of the candidates ``[first, last)``."""
        entries = slice(self.offset[first], self.offset[last])
        return Observations(
            self.offset[first : last + 1] - self.offset[first],
            self.read[entries],
            self.shows[entries],
            self.quality[entries],
            self.query[entries],
            self.num_low_quality[first:last],
        )


def observe(reads: AlignedReads, candidates: Candidates) -> Observations:
    """Looks each candidate up in every read that covers it.

    A read tells an insertion or deletion from the reference only when it is aligned through the whole tract in which
    the change could be written; a read that ends inside says nothing.
    """
    return Observations(*_observe(
        reads.start, reads.end, reads.mate, reads.cigar, reads.cigar_offset, reads.tokens, reads.quality,
        reads.base_offset, reads.max_span_bp, candidates.start, candidates.kind, candidates.code,
        candidates.reference_token, candidates.tract_end,
        candidates.event_offset, candidates.event_read,
    ))  # fmt: skip


@njit(cache=True, nogil=True)
def _observe(  # type: ignore[no-untyped-def]
    read_start,
    read_end,
    mate,
    cigar,
    cigar_offset,
    tokens,
    quality,
    base_offset,
    max_span_bp,
    start,
    kind,
    code,
    reference_token,
    tract_end,
    event_offset,
    event_read,
):
    num_candidates = start.size
    lows = np.searchsorted(read_start, start - max_span_bp, side="right")
    highs = np.searchsorted(read_start, start, side="right")
    size = 0
    for c in range(num_candidates):
        for i in range(lows[c], highs[c]):
            if read_end[i] > start[c]:
                size += 1
    offset = np.zeros(num_candidates + 1, np.int64)
    out_read = np.empty(size, np.int32)
    out_shows = np.empty(size, np.uint8)
    out_quality = np.empty(size, np.uint8)
    out_query = np.empty(size, np.int32)
    num_low_quality = np.zeros(num_candidates, np.int32)
    supports = np.full(read_start.size, -1, np.int64)
    entry_of = np.zeros(read_start.size, np.int64)
    entered = np.full(read_start.size, -1, np.int64)
    n = 0
    for c in range(num_candidates):
        for e in range(event_offset[c], event_offset[c + 1]):
            supports[event_read[e]] = c
        begin = n
        for i in range(lows[c], highs[c]):
            if read_end[i] <= start[c]:
                continue
            # The base at the candidate's start, and whether an insertion or deletion touches the tract.
            query = np.int64(0)
            position = read_start[i]
            found = np.int64(-1)
            is_gap = False
            touches = False
            for k in range(cigar_offset[i], cigar_offset[i + 1]):
                op = cigar[k] & np.uint32(15)
                length = np.int64(cigar[k] >> np.uint32(4))
                if op == 0 or op == 7 or op == 8:
                    if position <= start[c] < position + length:
                        found = query + start[c] - position
                    query += length
                    position += length
                elif op == 4:
                    query += length
                elif op == 1:
                    if start[c] < position <= tract_end[c]:
                        touches = True
                    query += length
                elif op == 2:
                    if position <= start[c] < position + length:
                        found = query - 1
                        is_gap = True
                    if position <= tract_end[c] and position + length > start[c] + 1:
                        touches = True
                    position += length
                elif op == 3:
                    position += length
            if found < 0:
                continue
            here = np.int64(quality[base_offset[i] + found])
            if kind[c] == SNV:
                if is_gap:
                    shows = OTHER
                else:
                    token = tokens[base_offset[i] + found]
                    if token == 4:
                        continue
                    if here < MIN_BASE_QUALITY:
                        num_low_quality[c] += 1
                        continue
                    if token == code[c]:
                        shows = ALTERNATE
                    elif token == reference_token[c]:
                        shows = REFERENCE
                    else:
                        shows = OTHER
            else:
                if supports[i] == c:
                    shows = ALTERNATE
                elif touches or is_gap:
                    shows = OTHER
                elif read_end[i] > tract_end[c]:
                    shows = REFERENCE
                else:
                    continue
                after = base_offset[i] + found + 1
                if after < base_offset[i + 1]:
                    here = min(here, np.int64(quality[after]))
            other = entry_of[mate[i]] if mate[i] >= 0 and entered[mate[i]] == c else -1
            if other < 0:
                out_read[n] = i
                out_shows[n] = shows
                out_quality[n] = here
                out_query[n] = found
                entry_of[i] = n
                entered[i] = c
                n += 1
            elif shows == out_shows[other]:
                if here > out_quality[other]:
                    out_read[other] = i
                    out_quality[other] = here
                    out_query[other] = found
            else:
                difference = here - np.int64(out_quality[other])
                if difference > 0:
                    out_read[other] = i
                    out_shows[other] = shows
                    out_query[other] = found
                out_quality[other] = abs(difference)
                # Mates that contradict each other about equally well say nothing.
                if abs(difference) < MIN_BASE_QUALITY:
                    out_shows[other] = _NOTHING
        kept = begin
        for e in range(begin, n):
            if out_shows[e] != _NOTHING:
                out_read[kept] = out_read[e]
                out_shows[kept] = out_shows[e]
                out_quality[kept] = out_quality[e]
                out_query[kept] = out_query[e]
                kept += 1
        n = kept
        offset[c + 1] = n
    return offset, out_read[:n], out_shows[:n], out_quality[:n], out_query[:n], num_low_quality
