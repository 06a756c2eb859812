"""Pileup tensors: the reads around a candidate allele, those that show it apart from the others."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.calling.aligned_reads import MIN_BASE_QUALITY, AlignedReads, LocalReference
from tasks.calling.candidates import Candidates
from tasks.calling.observations import ALTERNATE, Observations

FLANK_BP = 16
WIDTH_BP = 2 * FLANK_BP + 1
"""Positions of a pileup; the candidate's start is in the middle."""

CHANNELS = (
    "reference_a",
    "reference_c",
    "reference_g",
    "reference_t",
    "alternate_covered",
    "alternate_mismatch",
    "alternate_deleted",
    "alternate_inserted",
    "alternate_low_quality",
    "rest_covered",
    "rest_mismatch",
    "rest_deleted",
    "rest_inserted",
    "rest_low_quality",
)
"""`alternate_*`: share of the fragments that show the allele; `rest_*`: share of the others; 0-255."""

_FIRST_GROUP = 4
_GROUP_CHANNELS = 5


def pile_up(
    reads: AlignedReads, reference: LocalReference, candidates: Candidates, observations: Observations
) -> np.ndarray:
    """Builds the pileup of each candidate.

    Returns:
        uint8 [n, WIDTH_BP, len(CHANNELS)], shares scaled to 0-255 and rounded to nearest.
    """
    piled: np.ndarray = _pile_up(
        reads.start, reads.cigar, reads.cigar_offset, reads.tokens, reads.quality, reads.base_offset,
        observations.offset, observations.read, observations.shows, candidates.start, reference.tokens,
        reference.start,
    )  # fmt: skip
    return piled


@njit(cache=True, nogil=True)
def _pile_up(  # type: ignore[no-untyped-def]
    read_start,
    cigar,
    cigar_offset,
    tokens,
    quality,
    base_offset,
    offset,
    read,
    shows,
    start,
    reference,
    reference_start,
):
    piled = np.zeros((start.size, WIDTH_BP, len(CHANNELS)), np.uint8)
    count = np.zeros((WIDTH_BP, 2, _GROUP_CHANNELS), np.int32)
    for c in range(start.size):
        count[:] = 0
        size = np.zeros(2, np.int64)
        first = start[c] - FLANK_BP
        for e in range(offset[c], offset[c + 1]):
            i = read[e]
            group = 0 if shows[e] == ALTERNATE else 1
            size[group] += 1
            query = base_offset[i]
            place = read_start[i] - first
            for k in range(cigar_offset[i], cigar_offset[i + 1]):
                op = cigar[k] & np.uint32(15)
                length = np.int64(cigar[k] >> np.uint32(4))
                if op == 0 or op == 7 or op == 8:
                    for j in range(max(0, -place), min(length, WIDTH_BP - place)):
                        token = tokens[query + j]
                        base = reference[first + place + j - reference_start]
                        count[place + j, group, 0] += 1
                        if quality[query + j] < MIN_BASE_QUALITY:
                            count[place + j, group, 4] += 1
                        elif token != base and token < 4 and base < 4:
                            count[place + j, group, 1] += 1
                    query += length
                    place += length
                elif op == 2:
                    for j in range(max(0, -place), min(length, WIDTH_BP - place)):
                        count[place + j, group, 2] += 1
                    place += length
                elif op == 1:
                    # As in VCF, an insertion is written at the base before it.
                    if 0 < place <= WIDTH_BP:
                        count[place - 1, group, 3] += 1
                    query += length
                elif op == 4:
                    query += length
                elif op == 3:
                    place += length
                if place >= WIDTH_BP:
                    break
        for x in range(WIDTH_BP):
            at = first + x - reference_start
            if 0 <= at < reference.size and reference[at] < 4:
                piled[c, x, reference[at]] = 255
            for group in range(2):
                for channel in range(_GROUP_CHANNELS):
                    share = (510 * count[x, group, channel] + size[group]) // (2 * max(size[group], 1))
                    piled[c, x, _FIRST_GROUP + group * _GROUP_CHANNELS + channel] = min(share, 255)
    return piled
