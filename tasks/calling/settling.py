"""Settling: the calls of a sample's shards become one list in which no two contradict each other.

Where every copy of a place has lost bases, nothing else can be called among them. And neighbouring single-base changes
that the same fragments carry are one change of several bases (MNV): a codon that both lie in sees them together.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tasks.errors import BalanceError

Row = dict[str, Any]
"""A row of `tasks.calling.calling.CALL_SCHEMA`."""

MIN_TOGETHER = 0.8
"""Neighbouring bases are one change when this share of the fragments that tell of both, and show one, show both."""

CONTRADICTED, JOINED = "calls_contradicted", "calls_joined"


def settle_calls(shards: Sequence[Path], counts: dict[str, int]) -> Iterator[Row]:
    """Yields the calls of shards in the reference's order.

    Args:
        shards: Files of `CALL_SCHEMA`, in order.
        counts: Adds up how many calls there were (``calls_found``), how many of them were left out beside a likelier
            one (``calls_contradicted``), and how many became part of the one before (``calls_joined``).

    Raises:
        BalanceError: The calls are not in order.
    """
    counts |= {"calls_found": 0, CONTRADICTED: 0, JOINED: 0}
    return _join_neighbours(_leave_out_contradicted(_read(shards, counts), counts), counts)


def _read(shards: Sequence[Path], counts: dict[str, int]) -> Iterator[Row]:
    last = (-1, -1)
    for shard in shards:
        for batch in pq.ParquetFile(shard).iter_batches():
            for row in batch.to_pylist():
                place = (row["contig"], row["start"])
                if place < last:
                    raise BalanceError(f"{shard}: calls are not in the reference's order at {place} after {last}")
                last = place
                counts["calls_found"] += 1
                yield row


def _leave_out_contradicted(rows: Iterator[Row], counts: dict[str, int]) -> Iterator[Row]:
    """Weighs each deletion of every copy against the calls within it; the side that is likelier all in all stays.

    When the calls within stay, one copy of two is deleted and they lie on the other.
    """
    ahead: deque[Row] = deque()
    while (row := _next(ahead, rows)) is not None:
        end = _lost_end(row)
        if end is None:
            yield row
            continue
        within: list[Row] = []
        while (other := _next(ahead, rows)) is not None:
            if not _is_within(other, row["contig"], end):
                ahead.appendleft(other)
                break
            within.append(other)
        cost, less = _without_loss(row)
        if cost < sum(other["likelihoods"][0] for other in within):
            ahead.extendleft(reversed(within))
            if less is None:
                counts[CONTRADICTED] += 1
            else:
                yield less
        else:
            counts[CONTRADICTED] += len(within)
            yield row


def _next(ahead: deque[Row], rows: Iterator[Row]) -> Row | None:
    if ahead:
        return ahead.popleft()
    return next(rows, None)


def _lost_end(row: Row) -> int | None:
    """The last place that no copy has any more; None where a copy has them all."""
    lost = [len(row["ref"]) - len(row["alts"][allele - 1]) if allele else 0 for allele in row["alleles"]]
    return row["start"] + min(lost) if lost and min(lost) > 0 else None


def _is_within(row: Row, contig: int, end: int) -> bool:
    """Whether a call behind a deletion changes a base up to `end`; an insertion or deletion begins after its start."""
    is_substitution = all(len(alt) == len(row["ref"]) for alt in row["alts"])
    last: int = row["start"] if is_substitution else row["start"] + 1
    return bool(row["contig"] == contig and last <= end)


def _without_loss(row: Row) -> tuple[float, Row | None]:
    """How much less likely it is (Phred-scaled) that a copy has what `row` deletes from all, and the call of that.

    None where the only copy then has it. Two deletions of different lengths are not doubted.
    """
    if len(row["alts"]) > 1:
        return math.inf, None
    if len(row["alleles"]) == 1:
        return row["likelihoods"][0], None
    return row["likelihoods"][1], row | {"alleles": [0, 1], "genotype_quality": 0}


def _join_neighbours(rows: Iterator[Row], counts: dict[str, int]) -> Iterator[Row]:
    held: Row | None = None
    for row in rows:
        if held is not None and _goes_on(held, row):
            counts[JOINED] += 1
            held = _joined(held, row)
            continue
        if held is not None:
            yield held
        held = row
    if held is not None:
        yield held


def _goes_on(row: Row, following: Row) -> bool:
    """Whether the next call is the single-base change that the fragments of this one show right behind it."""
    return bool(
        row["next_alt"]
        and following["alts"] == [row["next_alt"]]
        and len(following["ref"]) == 1
        and (following["contig"], following["start"]) == (row["contig"], row["start"] + len(row["ref"]))
        and all(row[name] == following[name] for name in ("alleles", "filter"))
        and row["together"] >= MIN_TOGETHER * (row["together"] + row["apart"])
    )


def _joined(row: Row, following: Row) -> Row:
    """One record of two: its qualities and depths are the lesser ones, its likelihoods those of the less sure one."""
    unsure = min(row, following, key=lambda each: (each["genotype_quality"] or 0, each["qual"]))
    depths = [min(pair) for pair in zip(row["allele_depths"], following["allele_depths"], strict=True)]
    return following | {
        "start": row["start"],
        "ref": row["ref"] + following["ref"],
        "alts": [row["alts"][0] + following["alts"][0]],
        "qual": min(row["qual"], following["qual"]),
        "genotype_quality": unsure["genotype_quality"],
        "likelihoods": unsure["likelihoods"],
        "depth": min(row["depth"], following["depth"]),
        "allele_depths": [depths[0], min(depths[1], row["together"])],
    }
