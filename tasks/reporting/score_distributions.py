"""Distributions of scores, read from tables that need not fit in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.reporting.scales import nice_range

NUM_BINS = 40


@dataclass(frozen=True, slots=True)
class Distribution:
    """How many alleles have a score between neighbouring edges.

    Attributes:
        edges: float64 [num_bins + 1], rising.
        counts: int64 [num_bins].
        median: The middle of the bin in which the middle score lies.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def num_scores(self) -> int:
        """Number of alleles that have a score."""
        return int(self.counts.sum())

    @property
    def median(self) -> float:
        """The middle of the bin in which the middle score lies."""
        place = int(np.searchsorted(np.cumsum(self.counts), self.num_scores / 2))
        return float(self.edges[place] + self.edges[place + 1]) / 2


def read_distribution(table: Path, field: str) -> Distribution | None:
    """The distribution of a Float column of a Parquet file; None where it holds no value."""
    file = pq.ParquetFile(table)
    low, high = np.inf, -np.inf
    for batch in file.iter_batches(columns=[field]):
        ends = pc.min_max(batch[field]).as_py()
        if ends["min"] is not None:
            low, high = min(low, ends["min"]), max(high, ends["max"])
    if low > high:
        return None
    edges = np.linspace(*nice_range(low, high), NUM_BINS + 1)
    counts = np.zeros(NUM_BINS, dtype=np.int64)
    for batch in file.iter_batches(columns=[field]):
        counts += np.histogram(batch[field].drop_null().to_numpy(zero_copy_only=False), edges)[0]
    return Distribution(edges, counts)
