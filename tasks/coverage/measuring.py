"""Measuring: one stretch of the reference at a time, from a sample's alignment to a file of partial sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tasks.calling.bam_stream import open_alignment
from tasks.calling.calling import Alignment
from tasks.coverage.depth import Depth, measure_depth
from tasks.coverage.states import OUTSIDE, STATES, find_runs, label_states
from tasks.coverage.targets import Targets, places_of
from tasks.files import whole_file
from tasks.genome.contigs import match_contigs
from tasks.genome.reference import Reference
from tasks.genome.regions import Regions
from tasks.windows import UNKNOWN_TOKEN

DEPTH_FLOORS = (10, 20, 30)
"""Depths whose shares of the bases are told."""
GAP_DEPTH = 20
"""Bases of a target below this depth are a gap."""


def plan_stretches(reference: Reference, regions: Regions | None, stretch_bp: int) -> list[tuple[int, int]]:
    """Cuts the reference into stretches of places, first and one past the last; those without a region are left out.

    A stretch may hold many small contigs. Places are counted along the whole reference.
    """
    total_bp = int(reference.offsets[-1])
    stretches = [(begin, min(begin + stretch_bp, total_bp)) for begin in range(0, total_bp, stretch_bp)]
    if regions is None:
        return stretches
    places = places_of(regions, reference)
    first = np.searchsorted(places[:, 1], [begin for begin, _ in stretches], side="right")
    last = np.searchsorted(places[:, 0], [end for _, end in stretches])
    return [stretch for stretch, low, high in zip(stretches, first, last, strict=True) if low < high]


def measure_stretch(
    alignment: Alignment,
    reference: Reference,
    begin: int,
    end: int,
    output: Path,
    *,
    contig_reads: Mapping[str, int],
    regions: Regions | None = None,
    targets: Targets | None = None,
) -> dict[str, Any]:
    """Measures the places ``[begin, end)`` and writes `output`, whole.

    What is written adds up to the same wherever the reference is cut.

    Args:
        alignment: The sample's reads.
        reference: The genome.
        begin: First place along the whole reference.
        end: One past the last place.
        output: An ``.npz`` to write: ``state_start``, ``state_end`` int64 and ``state`` uint8, the labelled stretches
            in order; ``piece`` int64 with ``piece_sums`` int64 [k, 5] (bases, sum of depths, bases at 20 and at 30,
            lowest depth) of `Targets.pieces` or what of them lies here; ``gap_start``, ``gap_end``, ``gap_depth``
            (the lowest there).
        contig_reads: Mapped records by the reference's contig names; the others' reads are not looked for.
        regions: Keep to these, which hold the targets; everywhere when None.
        targets: The targets, when there are any.

    Returns:
        ``depths``: pairs of depth and number of bases, over the targets, or without targets over the known bases;
        ``states``: bases by state; ``on_target``, ``near_target``: counts of ``reads`` and ``bases``.

    Raises:
        AlignmentError: A record cannot be read.
    """
    names = [contig.name for contig in reference.contigs]
    bounds = np.clip(reference.offsets, begin, end)
    near = None if regions is None else places_of(regions, reference)
    parts: list[dict[str, np.ndarray]] = []
    histogram = np.zeros(0, np.int64)
    states = np.zeros(len(STATES), np.int64)
    on_target = {"reads": 0, "bases": 0}
    near_target = {"reads": 0, "bases": 0}
    with open_alignment(Path(alignment["path"]), Path(alignment["index_path"]), reference.fasta_path) as handle:
        tid_of = {place: tid for place, tid in _tids(handle, reference) if contig_reads.get(names[place])}
        for index in np.flatnonzero(np.diff(bounds)).tolist():
            offset = int(reference.offsets[index])
            low, high = int(bounds[index]) - offset, int(bounds[index + 1]) - offset
            windows = np.array([[low, high]]) if near is None else _clip(near, low + offset, high + offset) - offset
            if not len(windows):
                continue
            tokens = np.array(reference.contig_tokens(index)[low:high])
            depth = _measure(handle, tid_of.get(index), reference, index, (low, high), windows, near, targets)
            labels = label_states(depth, tokens, windows)
            states += np.bincount(labels, minlength=OUTSIDE + 1)[: len(STATES)]
            starts, ends = find_runs(labels)
            keep = labels[starts] != OUTSIDE
            part = {
                "state_start": starts[keep] + low + offset,
                "state_end": ends[keep] + low + offset,
                "state": labels[starts[keep]],
            }
            if targets is None:
                counted = depth.usable[tokens < UNKNOWN_TOKEN]
            else:
                inside = _clip(targets.merged, low + offset, high + offset) - offset - low
                is_inside = _mask(inside, high - low)
                counted = depth.usable[is_inside]
                part |= _sum_pieces(depth.usable, targets, low + offset) | _find_gaps(depth.usable, is_inside)
                part["gap_start"] += low + offset
                part["gap_end"] += low + offset
                on_target["reads"] += depth.num_on_target
                on_target["bases"] += int(depth.well_mapped[is_inside].sum())
                near_target["reads"] += depth.num_near_target
                near_target["bases"] += int(depth.well_mapped[_mask(windows - low, high - low)].sum())
            histogram = _add(histogram, np.bincount(counted))
            parts.append(part)
    with whole_file(output) as aside, open(aside, "wb") as file:
        arrays: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())
        }
        np.savez(file, **arrays)
    depths = np.flatnonzero(histogram)
    return {
        "depths": [[int(depth), int(histogram[depth])] for depth in depths],
        "states": dict(zip(STATES, states.tolist(), strict=True)),
        "on_target": on_target,
        "near_target": near_target,
    }


def _tids(handle: Any, reference: Reference) -> Iterator[tuple[int, int]]:
    """The contigs of the reference that the alignment lists: the reference's index and the header's."""
    lines = handle.header.to_dict().get("SQ", [])
    md5s = [line.get("M5") for line in lines] or [None] * handle.nreferences
    match = match_contigs(list(handle.references), list(handle.lengths), md5s, reference)
    return ((int(place), tid) for tid, place in enumerate(match.index) if place >= 0)


def _measure(
    handle: Any,
    tid: int | None,
    reference: Reference,
    index: int,
    span: tuple[int, int],
    windows: np.ndarray,
    near: np.ndarray | None,
    targets: Targets | None,
) -> Depth:
    """Depths of the positions `span` of a contig; none at all where it has no reads."""
    low, high = span
    if tid is None:
        zeros = np.zeros(high - low, np.int32)
        return Depth(low, zeros, zeros, zeros, 0, 0)
    first, last = reference.offsets[index], reference.offsets[index + 1]
    exact = wide = None
    if targets is not None and near is not None:
        exact, wide = _clip(targets.merged, first, last) - first, _clip(near, first, last) - first
    return measure_depth(
        handle,
        tid,
        low,
        high,
        contig_length_bp=reference.contigs[index].length_bp,
        windows=windows,
        targets=exact,
        padded=wide,
    )


def _clip(intervals: np.ndarray, low: int, high: int) -> np.ndarray:
    """What lies in ``[low, high)`` of disjoint sorted intervals, int64 [n, 2]."""
    first = np.searchsorted(intervals[:, 1], low, side="right")
    last = np.searchsorted(intervals[:, 0], high)
    clipped: np.ndarray = np.clip(intervals[first : max(last, first)], low, high)
    return clipped


def _mask(intervals: np.ndarray, length: int) -> np.ndarray:
    """Which of `length` bases lie in disjoint intervals; bool [length]."""
    change = np.zeros(length + 1, np.int8)
    np.add.at(change, intervals[:, 0], 1)
    np.add.at(change, intervals[:, 1], -1)
    mask: np.ndarray = np.cumsum(change[:-1], dtype=np.int8).astype(np.bool_)
    return mask


def _sum_pieces(usable: np.ndarray, targets: Targets, begin: int) -> dict[str, np.ndarray]:
    """Sums over each piece, or what of it lies among the bases of `usable`, the first of which is the place `begin`."""
    pieces = targets.pieces
    first = int(np.searchsorted(pieces[:, 1], begin, side="right"))
    clipped = _clip(pieces, begin, begin + usable.size) - begin
    sums = np.zeros((len(clipped), 5), np.int64)
    sums[:, 0] = clipped[:, 1] - clipped[:, 0]
    if len(clipped):
        # reduceat takes from each place to the next: those from starts to ends are the pieces. One more base at the
        # end lets the last piece end there.
        places = clipped.reshape(-1)
        padded = np.append(usable, 0).astype(np.int64)
        sums[:, 1] = np.add.reduceat(padded, places)[::2]
        for column, floor in ((2, 20), (3, 30)):
            sums[:, column] = np.add.reduceat((padded >= floor).astype(np.int64), places)[::2]
        sums[:, 4] = np.minimum.reduceat(padded, places)[::2]
    return {"piece": np.arange(first, first + len(clipped)), "piece_sums": sums}


def _find_gaps(usable: np.ndarray, is_inside: np.ndarray) -> dict[str, np.ndarray]:
    """Stretches of target bases below `GAP_DEPTH`, and the lowest depth of each."""
    is_gap = is_inside & (usable < GAP_DEPTH)
    starts, ends = find_runs(is_gap)
    keep = is_gap[starts]
    starts, ends = starts[keep], ends[keep]
    places = np.stack([starts, ends], axis=1).reshape(-1)
    lowest = np.minimum.reduceat(np.append(usable, 0), places)[::2] if starts.size else usable[:0]
    return {"gap_start": starts, "gap_end": ends, "gap_depth": lowest.astype(np.int64)}


def _add(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Adds counts of different lengths."""
    longer, shorter = (one, other) if one.size >= other.size else (other, one)
    total = longer.astype(np.int64)
    total[: shorter.size] += shorter
    return total
