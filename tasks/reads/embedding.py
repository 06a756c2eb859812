"""The mean embedding of a sample's reads: the model server reads each of them whole, step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from serving.answer import Answer

Array = npt.NDArray[Any]

_ROWS_AT_ONCE = 256
"""Reads of one request, all of one length."""
_MAX_ROWS_IN_FLIGHT = 1024
_DECIMALS = 6


def embed_reads(sampled: Path, submit: Callable[[dict[str, Array]], Answer]) -> dict[str, Any]:
    """Embeds the reads that `tasks.reads.sampling.ReadSampler` took, and sums the embeddings up.

    Short reads go first. Each embedding depends on its read alone, and they are summed up in the files' order.

    Args:
        sampled: The sampler's file; it is mapped into memory.
        submit: Asks the model: ``tokens`` uint8 [rows, length] to ``embedding`` float32 [rows, size].

    Returns:
        ``num_reads``, and of the embeddings ``mean`` and ``sd`` (standard deviation over the reads), lists of `size`
        numbers; empty ones where there are no reads.

    Raises:
        ServingError: The model failed.
    """
    with pa.memory_map(str(sampled)) as source:
        tokens = pa.ipc.open_file(source).read_all()["tokens"]
        embeddings = _embed(tokens, submit)
    if not len(embeddings):
        return {"num_reads": 0, "mean": [], "sd": []}
    values = embeddings.astype(np.float64)
    return {
        "num_reads": len(values),
        "mean": values.mean(axis=0).round(_DECIMALS).tolist(),
        "sd": values.std(axis=0).round(_DECIMALS).tolist(),
    }


def _embed(tokens: pa.ChunkedArray, submit: Callable[[dict[str, Array]], Answer]) -> npt.NDArray[np.float32]:
    """The embedding of each read, float32 [num_reads, size]."""
    lengths_bp = pc.binary_length(tokens).to_numpy()
    places: list[npt.NDArray[np.int64]] = []
    parts: list[npt.NDArray[np.float32]] = []
    in_flight: deque[tuple[int, Answer]] = deque()
    num_rows = 0
    for rows in _requests(lengths_bp):
        reads = [np.frombuffer(tokens[row].as_buffer(), np.uint8) for row in rows.tolist()]
        in_flight.append((len(rows), submit({"tokens": np.stack(reads)})))
        places.append(rows)
        num_rows += len(rows)
        while num_rows > _MAX_ROWS_IN_FLIGHT:
            count, answer = in_flight.popleft()
            parts.append(answer.result()["embedding"])
            num_rows -= count
    parts += [answer.result()["embedding"] for _, answer in in_flight]
    if not parts:
        return np.empty((0, 0), np.float32)
    embeddings = np.concatenate(parts)
    embeddings[np.concatenate(places)] = embeddings.copy()
    return embeddings


def _requests(lengths_bp: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Places of reads of one length, shortest first, so many at a time as one request has."""
    order = np.argsort(lengths_bp, kind="stable")
    (cuts,) = np.nonzero(np.diff(lengths_bp[order]))
    for same in np.split(order, cuts + 1):
        for at in range(0, len(same), _ROWS_AT_ONCE):
            yield same[at : at + _ROWS_AT_ONCE]
