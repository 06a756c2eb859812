"""Joining: the measured stretches of a sample become its numbers, its tables and its callable regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from tasks.bgzf import BgzfWriter
from tasks.coverage.measuring import DEPTH_FLOORS, GAP_DEPTH
from tasks.coverage.states import STATES, join_runs
from tasks.coverage.targets import Targets
from tasks.errors import BalanceError
from tasks.files import whole_file
from tasks.genome.reference import Reference
from tasks.genome.regions import Regions, merge_regions

TARGETS, GENES, GAPS, CALLABLE = ".targets.parquet", ".genes.parquet", ".gaps.bed.gz", ".callable.bed"
"""How the names of the outputs end."""

_CURVE = (1, 2, 5, *range(10, 101, 5), 120, 150, 200, 250, 300, 400, 500, 750, 1_000)
_FOLD_80 = 0.2

Summary = dict[str, Any]


def summarise_coverage(
    parts: Sequence[Mapping[str, Any]], reference: Reference, *, num_used: int, aligned_bp: int, has_targets: bool
) -> Summary:
    """Adds up what `tasks.coverage.measuring.measure_stretch` counted of a sample's stretches.

    Args:
        parts: Its summaries.
        reference: The genome.
        num_used: Reads of the whole file that pass the filters, on target or off.
        aligned_bp: Their aligned bases.
        has_targets: Whether the depths are those of targets.

    Returns:
        ``bases``, ``mean_depth``, ``share_10`` and so on, ``curve`` (share of the bases at each depth or above),
        ``states`` (bases), ``callable_share`` (of the measured bases that the reference knows); with targets also
        ``fold_80`` (mean depth divided by the depth that 80 % of the bases reach; None where that is 0),
        ``on_target`` and ``near_target`` (reads, bases and their shares of all).
    """
    counts: Counter[int] = Counter()
    states: Counter[str] = Counter()
    for part in parts:
        counts.update(dict(part["depths"]))
        states.update(part["states"])
    depths = np.array(sorted(counts), np.int64)
    bases = np.array([counts[depth] for depth in depths.tolist()], np.int64)
    total = int(bases.sum())
    # Bases below each depth, by binary search in the running sum.
    running = np.concatenate(([0], np.cumsum(bases)))

    def share_from(depth: int) -> float:
        return _share(total - int(running[np.searchsorted(depths, depth)]), total)

    mean = round(int(depths @ bases) / total, 3) if total else 0.0
    known = sum(states.values()) - states["REFERENCE_N"]
    summary: Summary = {
        "bases": total,
        "mean_depth": mean,
        **{f"share_{floor}": share_from(floor) for floor in DEPTH_FLOORS},
        "curve": [[depth, share_from(depth)] for depth in _CURVE],
        "states": {state: states[state] for state in STATES},
        "callable_share": _share(states["CALLABLE"], known),
    }
    if has_targets:
        low = int(depths[np.searchsorted(running[1:], _FOLD_80 * total)]) if total else 0
        summary["fold_80"] = round(mean / low, 3) if low else None
        for name in ("on_target", "near_target"):
            reads, near = (sum(part[name][what] for part in parts) for what in ("reads", "bases"))
            summary[name] = {
                "reads": reads,
                "bases": near,
                "reads_share": _share(reads, num_used),
                "bases_share": _share(near, aligned_bp),
            }
    return summary


def write_target_tables(
    parts: Sequence[Path], reference: Reference, targets: Targets, folder: Path, sample_id: str
) -> Summary:
    """Writes a sample's tables of targets and genes, and its gaps.

    Args:
        parts: Files of `measure_stretch`, in order.
        reference: The genome.
        targets: The targets.
        folder: Where to write ``ID.targets.parquet``, ``ID.genes.parquet`` (where there are genes) and
            ``ID.gaps.bed.gz``: contig, start, end, genes or names of the targets there, lowest depth.
        sample_id: The sample.

    Returns:
        ``targets``, ``genes`` (their numbers), ``targets_complete``, ``genes_complete`` (every base at `GAP_DEPTH`),
        ``gaps``, ``gap_bases``.

    Raises:
        BalanceError: Bases of a target were measured twice or not at all.
    """
    sums = np.zeros((len(targets.pieces), 5), np.int64)
    lowest = np.full(len(targets.pieces), np.iinfo(np.int64).max)
    gaps = []
    for part in _load(parts, ("piece", "piece_sums", "gap_start", "gap_end", "gap_depth")):
        np.add.at(sums, part["piece"], part["piece_sums"])
        np.minimum.at(lowest, part["piece"], part["piece_sums"][:, 4])
        gaps.append(np.stack([part["gap_start"], part["gap_end"], part["gap_depth"]], axis=1))
    sums[:, 4] = lowest
    if not np.array_equal(sums[:, 0], targets.pieces[:, 1] - targets.pieces[:, 0]):
        raise BalanceError(f"sample {sample_id}: bases of targets were measured twice or not at all")
    of_targets = _sum_rows(sums, *targets.piece_range.T)
    contig, shift = _contigs(reference, targets.start)
    genes_of = targets.genes_of()
    table = {
        "contig": contig,
        "start": targets.start - shift,
        "end": targets.end - shift,
        "name": pa.array(targets.names),
        "genes": pa.array(genes_of),
        **_columns(of_targets),
    }
    _write_table(table, folder / f"{sample_id}{TARGETS}")
    complete = of_targets[:, 2] == of_targets[:, 0]
    summary = {"targets": len(targets.start), "targets_complete": int(complete.sum()), "genes": len(targets.genes)}
    if targets.genes:
        gene, piece = targets.gene_pieces()
        first = np.searchsorted(gene, np.arange(len(targets.genes)))
        of_genes = _sum_rows(sums[piece], first, np.append(first[1:], gene.size))
        table = {
            "gene": pa.array(targets.genes),
            "targets": np.bincount(targets.gene_of, minlength=len(targets.genes)),
            **_columns(of_genes),
        }
        _write_table(table, folder / f"{sample_id}{GENES}")
        summary["genes_complete"] = int((of_genes[:, 2] == of_genes[:, 0]).sum())
    found = np.concatenate([np.zeros((0, 3), np.int64), *gaps])
    summary |= _write_gaps(found, reference, targets, genes_of, folder / f"{sample_id}{GAPS}")
    return summary


def write_callable(parts: Sequence[Path], reference: Reference, output: Path) -> Summary:
    """Joins the labelled stretches into a BED: contig, start, end, state; sorted, equal neighbours as one.

    Args:
        parts: Files of `measure_stretch`, in order.
        reference: The genome.
        output: File to write, whole. The same reads give the same bytes, wherever the reference was cut.

    Returns:
        Number of ``stretches``.
    """
    num_stretches = 0
    states = pa.array(STATES)
    with whole_file(output) as aside, open(aside, "wb") as bed:
        for start, end, state in _joined_states(parts, reference.offsets[1:-1]):
            contig, shift = _contigs(reference, start)
            text = [pc.cast(pa.array(column), pa.string()) for column in (start - shift, end - shift)]
            lines = pc.binary_join_element_wise(
                contig.cast(pa.string()), *text, states.take(pa.array(state)), "\t"
            ).to_pylist()
            bed.write("".join(f"{line}\n" for line in lines).encode())
            num_stretches += start.size
    return {"stretches": num_stretches}


def read_callable(bed: Path, reference: Reference) -> Regions:
    """The places that `write_callable` labels CALLABLE."""
    options = pcsv.ReadOptions(column_names=["contig", "start", "end", "state"])
    types = {"contig": pa.string(), "start": pa.int64(), "end": pa.int64(), "state": pa.string()}
    if not bed.stat().st_size:
        return merge_regions(*(np.zeros(0, np.int64) for _ in range(3)))
    table = pcsv.read_csv(
        bed,
        read_options=options,
        parse_options=pcsv.ParseOptions(delimiter="\t"),
        convert_options=pcsv.ConvertOptions(column_types=types),
    )
    table = table.filter(pc.equal(table["state"], "CALLABLE"))
    names = pa.array([contig.name for contig in reference.contigs], pa.string())
    contig = pc.index_in(table["contig"], names).to_numpy()
    return merge_regions(contig, table["start"].to_numpy(), table["end"].to_numpy())


def _joined_states(parts: Sequence[Path], borders: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The labelled stretches, a part at a time; the last of each waits for the next, which may go on with it."""
    none = np.zeros(0, np.int64)
    held = (none, none, np.zeros(0, np.uint8))
    for part in _load(parts, ("state_start", "state_end", "state")):
        start = np.concatenate((held[0], part["state_start"]))
        end = np.concatenate((held[1], part["state_end"]))
        state = np.concatenate((held[2], part["state"]))
        start, end, first = join_runs(start, end, state, borders)
        state = state[first]
        yield start[:-1], end[:-1], state[:-1]
        held = (start[-1:], end[-1:], state[-1:])
    yield held


def _load(parts: Sequence[Path], names: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
    for path in parts:
        with np.load(path, allow_pickle=False) as arrays:
            if arrays.files:
                yield {name: arrays[name] for name in names}


def _sum_rows(sums: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Adds up rows ``[first, last)`` of each range, none empty; of the last column the least."""
    running = np.concatenate((np.zeros((1, 5), np.int64), np.cumsum(sums, axis=0)))
    total: np.ndarray = running[last] - running[first]
    places = np.stack([first, last], axis=1).reshape(-1)
    if len(total):
        total[:, 4] = np.minimum.reduceat(np.append(sums[:, 4], 0), places)[::2]
    return total


def _columns(sums: np.ndarray) -> dict[str, np.ndarray]:
    bases = sums[:, 0]
    return {
        "bases": bases,
        "mean_depth": np.round(sums[:, 1] / bases, 3),
        "share_20": np.round(sums[:, 2] / bases, 6),
        "share_30": np.round(sums[:, 3] / bases, 6),
        "min_depth": sums[:, 4],
        "gap_bases": bases - sums[:, 2],
    }


def _contigs(reference: Reference, places: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The contigs' names and starts along the whole reference of places."""
    # Of contigs without a base the last has the place.
    index = np.searchsorted(reference.offsets, places, side="right") - 1
    names = pa.array([contig.name for contig in reference.contigs], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), names), reference.offsets[index]


def _write_table(columns: dict[str, Any], path: Path) -> None:
    table = pa.table(columns)
    if "contig" in columns:
        table = table.set_column(0, "contig", table["contig"].cast(pa.string()))
    with whole_file(path) as aside:
        pq.write_table(table, aside)


def _write_gaps(
    gaps: np.ndarray, reference: Reference, targets: Targets, genes_of: Sequence[str], path: Path
) -> dict[str, int]:
    """Writes the gaps, int64 [k, 3] (start, end, lowest depth), joined across the borders of stretches."""
    start, end, first = join_runs(gaps[:, 0], gaps[:, 1], np.zeros(len(gaps)), reference.offsets[1:-1])
    lowest = np.minimum.reduceat(gaps[:, 2], first) if first.size else gaps[:, 2]
    contig, shift = _contigs(reference, start)
    rows = zip(
        contig.to_pylist(), (start - shift).tolist(), (end - shift).tolist(), start.tolist(), lowest.tolist(),
        strict=True,
    )  # fmt: skip
    # The first targets that may lie over a gap: those before it end before it begins.
    reach = np.maximum.accumulate(targets.end)
    low, high = np.searchsorted(reach, start, side="right"), np.searchsorted(targets.start, end)
    with whole_file(path) as aside, open(aside, "wb") as handle, BgzfWriter(handle) as bed:
        for row, (name, begin, stop, place, depth) in enumerate(rows):
            over = [
                genes_of[target] or targets.names[target] or "."
                for target in range(int(low[row]), int(high[row]))
                if targets.end[target] > place
            ]
            label = ";".join(dict.fromkeys(part for names in over for part in names.split(";")))
            bed.write(f"{name}\t{begin}\t{stop}\t{label}\t{depth}\n".encode())
    return {"gaps": int(start.size), "gap_bases": int((end - start).sum()), "gap_depth": GAP_DEPTH}


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
