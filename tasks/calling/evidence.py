"""Evidence: what a caller weighs about each candidate allele, as one vector of numbers of order one."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from tasks.calling.aligned_reads import AlignedReads, LocalReference
from tasks.calling.candidates import Candidates
from tasks.calling.indels import DELETION, INSERTION, SNV
from tasks.calling.linkage import Linkage
from tasks.calling.observations import ALTERNATE, OTHER, REFERENCE, Observations

NEIGHBOUR_BP = 64
"""Candidates so near are each other's neighbours: a crowd of them is what a paralogue looks like."""

DEPTH_WINDOW_BP = 512
"""The depth at a candidate is compared with the mean of the covered bases so near on both sides."""

MAX_DEPTH = 120
"""Fragments beyond so many add nothing: deep data looks as the deepest that the caller has learnt from."""

NAMES = (
    "alternate_fraction",
    "other_fraction",
    "log_depth",
    "log_alternate",
    "low_mapping_fraction",
    "low_base_fraction",
    "depth_ratio",
    "wide_depth_ratio",
    "likelihood_reference",
    "likelihood_het",
    "likelihood_homozygous",
    "likelihood_reference_per_read",
    "likelihood_het_per_read",
    "likelihood_homozygous_per_read",
    "alternate_forward",
    "rest_forward",
    "strand_log_odds",
    "alternate_base_quality",
    "rest_base_quality",
    "alternate_mapping_quality",
    "rest_mapping_quality",
    "alternate_end_distance",
    "rest_end_distance",
    "alternate_near_end",
    "rest_near_end",
    "alternate_differences",
    "rest_differences",
    "alternate_clipped",
    "rest_clipped",
    "alternate_indels",
    "rest_indels",
    "alternate_proper",
    "rest_proper",
    "alternate_starts",
    "is_snv",
    "is_insertion",
    "is_deletion",
    "is_transition",
    "log_length",
    "log_tract",
    "homopolymer",
    "strongest_other",
    "num_neighbours",
    "mean_neighbour_fraction",
    "strongest_neighbour",
    "nearest_neighbour",
    "least_linkage_gain",
    "most_linkage_gain",
    "log_linked",
)
"""The vector's columns, in order. `alternate_*` are means over fragments that show the allele, `rest_*` over others."""

_COLUMN = {name: index for index, name in enumerate(NAMES)}
_FIRST_LIKELIHOOD = _COLUMN["likelihood_reference"]
_FIRST_GROUP = _COLUMN["alternate_forward"]
_FIRST_SHAPE = _COLUMN["is_snv"]
_FIRST_OTHER = _COLUMN["strongest_other"]
_FIRST_LINKAGE = _COLUMN["least_linkage_gain"]

_NEAR_END_BP = 8
_MAX_ERROR_PHRED = 45.0
_LEAST_ERROR = 1e-4
_LIKELIHOOD_SCALE = 10.0
_LIKELIHOOD_FLOOR = -40.0
_GROUP_VALUES = 9


def allele_counts(observations: Observations) -> np.ndarray:
    """Counts the fragments of each candidate; returns int32 [num_candidates, 3]: reference, alternate, other."""
    num_candidates = observations.offset.size - 1
    candidate = np.repeat(np.arange(num_candidates), np.diff(observations.offset))
    flat = np.bincount(candidate * 3 + observations.shows, minlength=num_candidates * 3)
    return flat.reshape(num_candidates, 3).astype(np.int32)


def alternate_fractions(counts: np.ndarray) -> np.ndarray:
    """Share of fragments that show the allele, float64 [n]; 0 where none tells."""
    fractions: np.ndarray = counts[:, ALTERNATE] / np.maximum(counts.sum(axis=1), 1)
    return fractions


def weigh(
    reads: AlignedReads,
    reference: LocalReference,
    candidates: Candidates,
    observations: Observations,
    counts: np.ndarray,
    depth: np.ndarray,
    low_quality_depth: np.ndarray,
    depth_start: int,
    linkage: Linkage,
) -> np.ndarray:
    """Builds the evidence vectors.

    Args:
        reads: The aligned reads.
        reference: Covers the candidates' tracts.
        candidates: n alleles.
        observations: What the reads say of them.
        counts: int32 [n, 3] of `allele_counts`.
        depth: int32, usable reads over each position from `depth_start` on.
        low_quality_depth: int32, the same of reads below the mapping-quality floor.
        depth_start: Position of the first element of both.
        linkage: What the candidates' neighbours tell of them.

    Returns:
        float32 [n, len(NAMES)], all finite; `wide_depth_ratio` and what `weigh_neighbours` fills are 0.
    """
    evidence = np.zeros((len(candidates), len(NAMES)), np.float32)
    if not len(candidates):
        return evidence
    place = candidates.start - depth_start
    total = counts.sum(axis=1).astype(np.float64)
    low = low_quality_depth[place]
    all_depth = depth + low_quality_depth
    running = np.concatenate((np.zeros(1, np.int64), np.cumsum(all_depth)))
    covered = np.concatenate((np.zeros(1, np.int64), np.cumsum(all_depth > 0)))
    first, last = np.maximum(place - DEPTH_WINDOW_BP, 0), np.minimum(place + DEPTH_WINDOW_BP, depth.size)
    mean_depth = (running[last] - running[first]) / np.maximum(covered[last] - covered[first], 1)
    evidence[:, 0] = alternate_fractions(counts)
    evidence[:, 1] = counts[:, OTHER] / np.maximum(total, 1)
    evidence[:, 2] = np.log1p(np.minimum(total, MAX_DEPTH)) / 4
    evidence[:, 3] = np.log1p(np.minimum(counts[:, ALTERNATE], MAX_DEPTH)) / 4
    evidence[:, 4] = low / np.maximum(low + depth[place], 1)
    evidence[:, 5] = observations.num_low_quality / np.maximum(observations.num_low_quality + total, 1)
    evidence[:, 6] = np.minimum(all_depth[place] / np.maximum(mean_depth, 1), 4) / 2
    evidence[:, _FIRST_LINKAGE : _FIRST_LINKAGE + 2] = linkage.gain / 2
    evidence[:, _FIRST_LINKAGE + 2] = np.log1p(np.minimum(linkage.num_shared, MAX_DEPTH)) / 4
    _weigh_reads(
        reads.flag, reads.start, reads.mapping_quality, reads.query_start, reads.query_end, reads.base_offset,
        reads.num_differences, reads.num_indels, observations.offset, observations.read, observations.shows,
        observations.quality, observations.query, candidates.start, candidates.kind, candidates.length_bp,
        candidates.code, candidates.tract_end, reference.tokens, reference.start, evidence,
    )  # fmt: skip
    return evidence


def weigh_neighbours(evidence: np.ndarray, start: np.ndarray, kind: np.ndarray, fraction: np.ndarray) -> None:
    """Fills the columns that compare a candidate with the others around it.

    Args:
        evidence: float32 [n, len(NAMES)] of all candidates of a stretch, changed in place.
        start: int64 [n], ascending.
        kind: uint8 [n].
        fraction: float64 [n], `alternate_fractions`.
    """
    _weigh_neighbours(start, kind, fraction, evidence)


@njit(cache=True, nogil=True)
def _weigh_reads(  # type: ignore[no-untyped-def]
    flag,
    read_start,
    mapping_quality,
    query_start,
    query_end,
    base_offset,
    num_differences,
    num_indels,
    offset,
    read,
    shows,
    quality,
    query,
    start,
    kind,
    length_bp,
    code,
    tract_end,
    reference,
    reference_start,
    evidence,
):
    for c in range(start.size):
        # Length of the run of equal bases that begins after an indel's anchor, or that an SNV stands in.
        at = start[c] - reference_start
        begin = at if kind[c] == SNV else at + 1
        run = 1
        while begin + run < reference.size and run < 40 and reference[begin + run] == reference[begin]:
            run += 1
        if kind[c] == SNV:
            back = begin - 1
            while back >= 0 and run < 40 and reference[back] == reference[begin]:
                run += 1
                back -= 1
        slip = min(0.2, 10.0 ** (-4.5 + 0.25 * run))
        sums = np.zeros((2, _GROUP_VALUES), np.float64)
        size = np.zeros(2, np.int64)
        forward = np.zeros(2, np.int64)
        likelihood = np.zeros(3, np.float64)
        telling = 0
        num_starts = 0
        last_start = -1
        for e in range(offset[c], offset[c + 1]):
            i = read[e]
            group = 0 if shows[e] == ALTERNATE else 1
            size[group] += 1
            is_forward = (flag[i] & 0x10) == 0
            if is_forward:
                forward[group] += 1
            length = max(query_end[i] - query_start[i], 1)
            end_distance = max(0, min(query[e] - query_start[i], query_end[i] - 1 - query[e]))
            own = 0
            if group == 0:
                own = 1
                if read_start[i] != last_start:
                    num_starts += 1
                last_start = read_start[i]
            sums[group, 0] += quality[e] / 40.0
            sums[group, 1] += mapping_quality[i] / 60.0
            sums[group, 2] += 2.0 * end_distance / length
            sums[group, 3] += 1.0 if end_distance < _NEAR_END_BP else 0.0
            sums[group, 4] += min(20.0 * (num_differences[i] - own) / length, 4.0)
            sums[group, 5] += 1.0 if base_offset[i + 1] - base_offset[i] > length else 0.0
            sums[group, 6] += 1.0 if num_indels[i] - (own if kind[c] != SNV else 0) > 0 else 0.0
            sums[group, 7] += 1.0 if (flag[i] & 0x2) != 0 or (flag[i] & 0x1) == 0 else 0.0
            if shows[e] == OTHER:
                continue
            telling += 1
            # What a mapping quality means differs between aligners: it is a column of its own, not an error rate.
            if kind[c] == SNV:
                error = min(0.5, 10.0 ** (-min(float(quality[e]), _MAX_ERROR_PHRED) / 10.0) + _LEAST_ERROR)
                wrong = error / 3.0
            else:
                error = min(0.5, slip + _LEAST_ERROR)
                wrong = error
            right = 1.0 - error
            if shows[e] == REFERENCE:
                likelihood[0] += math.log10(right)
                likelihood[2] += math.log10(wrong)
            else:
                likelihood[0] += math.log10(wrong)
                likelihood[2] += math.log10(right)
            likelihood[1] += math.log10(0.5 * (right + wrong))
        best = likelihood.max()
        for g in range(3):
            relative = likelihood[g] - best
            evidence[c, _FIRST_LIKELIHOOD + g] = max(relative, _LIKELIHOOD_FLOOR) / _LIKELIHOOD_SCALE
            evidence[c, _FIRST_LIKELIHOOD + 3 + g] = relative / max(telling, 1)
        column = _FIRST_GROUP
        alternate_forward = forward[0] / max(size[0], 1)
        evidence[c, column] = alternate_forward if size[0] else 0.5
        evidence[c, column + 1] = forward[1] / size[1] if size[1] else 0.5
        odds = math.log(
            (forward[0] + 0.5) * (size[1] - forward[1] + 0.5) / ((size[0] - forward[0] + 0.5) * (forward[1] + 0.5))
        )
        evidence[c, column + 2] = odds / 4.0
        column += 3
        for value in range(8):
            alternate = sums[0, value] / max(size[0], 1)
            evidence[c, column + 2 * value] = alternate
            # Without other fragments there is nothing to differ from.
            evidence[c, column + 2 * value + 1] = sums[1, value] / size[1] if size[1] else alternate
        evidence[c, column + 16] = num_starts / max(size[0], 1)
        column = _FIRST_SHAPE
        evidence[c, column] = 1.0 if kind[c] == SNV else 0.0
        evidence[c, column + 1] = 1.0 if kind[c] == INSERTION else 0.0
        evidence[c, column + 2] = 1.0 if kind[c] == DELETION else 0.0
        # A0 C1 G2 T3: A and G, C and T differ by two.
        is_transition = kind[c] == SNV and abs(np.int64(code[c]) - np.int64(reference[at])) == 2
        evidence[c, column + 3] = 1.0 if is_transition else 0.0
        evidence[c, column + 4] = math.log1p(float(length_bp[c])) / 3.0
        evidence[c, column + 5] = math.log1p(float(tract_end[c] - start[c] - 1)) / 3.0
        evidence[c, column + 6] = min(run, 40) / 20.0


@njit(cache=True, nogil=True)
def _weigh_neighbours(start, kind, fraction, evidence):  # type: ignore[no-untyped-def]
    low = 0
    for c in range(start.size):
        while start[low] < start[c] - NEIGHBOUR_BP:
            low += 1
        strongest_other = 0.0
        strongest = 0.0
        total = 0.0
        count = 0
        nearest = np.int64(NEIGHBOUR_BP)
        n = low
        while n < start.size and start[n] <= start[c] + NEIGHBOUR_BP:
            if n != c:
                if start[n] == start[c] and (kind[n] == SNV) == (kind[c] == SNV):
                    strongest_other = max(strongest_other, fraction[n])
                else:
                    count += 1
                    total += fraction[n]
                    strongest = max(strongest, fraction[n])
                    nearest = min(nearest, abs(start[n] - start[c]))
            n += 1
        evidence[c, _FIRST_OTHER] = strongest_other
        evidence[c, _FIRST_OTHER + 1] = min(count, 16) / 8.0
        evidence[c, _FIRST_OTHER + 2] = total / max(count, 1)
        evidence[c, _FIRST_OTHER + 3] = strongest
        evidence[c, _FIRST_OTHER + 4] = nearest / NEIGHBOUR_BP
