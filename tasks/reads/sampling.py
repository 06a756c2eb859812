"""A seeded sample of a sample's reads, taken as they stream by on their way to the aligner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from tasks.reads.records import TOKEN_OF
from tasks.reads.sequences import Read

MIN_BP, MAX_BP = 50, 100_000
"""Reads that are shorter or longer are not sampled, but counted."""

_SEED = 20_240_229
_TOKENS = TOKEN_OF.tobytes()
_BATCH_BYTES = 1 << 22
_SCHEMA = pa.schema([pa.field("tokens", pa.large_binary(), nullable=False)])


def count_by_fit(length_counts: Mapping[int, int]) -> dict[str, int]:
    """Counts the reads that fit, and those that are too short or too long.

    Args:
        length_counts: Reads by length in bases.
    """
    too_short = sum(count for length_bp, count in length_counts.items() if length_bp < MIN_BP)
    too_long = sum(count for length_bp, count in length_counts.items() if length_bp > MAX_BP)
    return {"fitting": sum(length_counts.values()) - too_short - too_long, "too_short": too_short, "too_long": too_long}


class ReadSampler:
    """Writes the tokens of some of the reads that it is shown; use it as a context manager.

    Each read of `MIN_BP` to `MAX_BP` bases is as likely as any other, mates among them. Which ones are taken depends on
    their places among the reads that fit alone, so that the same files give the same reads. Memory holds the places and
    a few megabytes of tokens.

    Args:
        path: The Arrow file to write: a column ``tokens`` (a byte a base), in the order in which reads were shown.
        num_reads: Reads to take; all that fit where there are fewer.
        num_fitting: Reads that fit, of all that will be shown (`count_by_fit`).
    """

    def __init__(self, path: Path, num_reads: int, num_fitting: int) -> None:
        rng = np.random.default_rng(_SEED)
        self._places = np.sort(rng.choice(num_fitting, min(num_reads, num_fitting), replace=False, shuffle=False))
        self._path = path
        self._num_seen = 0
        self._num_taken = 0
        self._tokens: list[bytes] = []
        self._num_bytes = 0

    def __enter__(self) -> Self:
        self._writer = pa.ipc.new_file(str(self._path), _SCHEMA)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush()
        self._writer.close()

    def show(self, reads: Sequence[Read]) -> None:
        """Takes the reads that are due among the next ones."""
        lengths_bp = np.fromiter((len(bases) for _, bases, _ in reads), np.int64, len(reads))
        (fitting,) = np.nonzero((lengths_bp >= MIN_BP) & (lengths_bp <= MAX_BP))
        end = int(np.searchsorted(self._places, self._num_seen + len(fitting)))
        for place in fitting[self._places[self._num_taken : end] - self._num_seen]:
            tokens = reads[place][1].encode("latin-1").translate(_TOKENS)
            self._tokens.append(tokens)
            self._num_bytes += len(tokens)
        self._num_seen += len(fitting)
        self._num_taken = end
        if self._num_bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._tokens:
            self._writer.write_batch(pa.record_batch([pa.array(self._tokens, pa.large_binary())], schema=_SCHEMA))
        self._tokens, self._num_bytes = [], 0
