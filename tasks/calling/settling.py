"""Settling: the calls of a sample's shards become one list in which no two contradict each other.

Calls that overlap share the sample's copies of their bases (`tasks.calling.overlaps`). And neighbouring single-base
changes that the same fragments carry are one change of several bases (MNV): a codon that both lie in sees them
together. Where an insertion lies between them, or a site has several alleles, they stay apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from tasks.calling.overlaps import CONTRADICTED, HALVED, Row, share_copies
from tasks.errors import BalanceError

MIN_TOGETHER = 0.8
"""Neighbouring bases are one change when this share of the fragments that tell of both, and show one, show both."""

JOINED = "calls_joined"


def settle_calls(shards: Sequence[Path], counts: dict[str, int]) -> Iterator[Row]:
    """Yields the calls of shards in the reference's order.

    Args:
        shards: Files of `CALL_SCHEMA`, in order.
        counts: Adds up how many calls there were (``calls_found``), how many of them were left out beside a likelier
            one (``calls_contradicted``), how many of both copies are of one beside another (``calls_halved``), and how
            many became part of the one before (``calls_joined``).

    Raises:
        BalanceError: The calls are not in order.
    """
    counts |= {"calls_found": 0, CONTRADICTED: 0, HALVED: 0, JOINED: 0}
    return _join_neighbours(share_copies(_read(shards, counts), counts), counts)


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
