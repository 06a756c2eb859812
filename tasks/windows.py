"""Windows: the fixed-length stretches of tokens that a model sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.genome.reference import Reference

WINDOW_BP = 128
CENTRE = 64
"""Index of the allele's normalised start in its window."""
MAX_ALLELE_BP = 48
"""Longest REF or ALT of which both flanks still stand in the window."""
UNKNOWN_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Bases:
    """Strings of bases laid end to end.

    Attributes:
        tokens: uint8 ``[sum of lengths]``, A0 C1 G2 T3, everything else 4.
        offsets: int64 ``[n + 1]``, where each string starts.
    """

    tokens: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @property
    def lengths_bp(self) -> NDArray[np.int64]:
        """int64 ``[n]``, the length of each string."""
        return np.diff(self.offsets)


_TOKEN_OF_BYTE = np.full(256, UNKNOWN_TOKEN, dtype=np.uint8)
for _token, _letter in enumerate("ACGT"):
    _TOKEN_OF_BYTE[ord(_letter)] = _TOKEN_OF_BYTE[ord(_letter.lower())] = _token


def tokenize(text: bytes) -> NDArray[np.uint8]:
    """Turns ASCII bases into tokens: uint8 ``[len(text)]``."""
    tokens: NDArray[np.uint8] = _TOKEN_OF_BYTE[np.frombuffer(text, dtype=np.uint8)]
    return tokens


def column_bases(column: pa.ChunkedArray | pa.Array) -> Bases:
    """Tokens of an Arrow string column without nulls, taken from its buffers."""
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], pa.string())
    array = array.cast(pa.large_string())
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    if len(array) == 0:
        return Bases(np.empty(0, np.uint8), np.zeros(1, np.int64))
    data = np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    return Bases(_TOKEN_OF_BYTE[data], offsets - offsets[0])


def reference_windows(reference: Reference, contig: NDArray[np.int32], start: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Cuts the reference around each place.

    Args:
        reference: The genome.
        contig: int32 ``[n]``, indices of its contigs.
        start: int64 ``[n]``, 0-based; lands at index `CENTRE` of the window.

    Returns:
        uint8 ``[n, WINDOW_BP]``; token 4 outside the contig.
    """
    windows = np.empty((len(start), WINDOW_BP), dtype=np.uint8)
    _fill_reference(np.asarray(reference.tokens), reference.offsets, contig, start, windows)
    return windows


def windows_on_contig(reference: Reference, contig: NDArray[np.int32], start: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tells which places of the windows that `reference_windows` cuts lie on the contig: bool ``[n, WINDOW_BP]``."""
    place = start[:, None] - CENTRE + np.arange(WINDOW_BP)
    inside: NDArray[np.bool_] = (place >= 0) & (place < np.diff(reference.offsets)[contig][:, None])
    return inside


def alternate_windows(
    reference: Reference, contig: NDArray[np.int32], start: NDArray[np.int64], ref_bp: NDArray[np.int64], alt: Bases
) -> NDArray[np.uint8]:
    """The same windows with each allele put in: left flank, ALT, then the reference after REF.

    Args:
        reference: The genome.
        contig: int32 ``[n]``.
        start: int64 ``[n]``, 0-based start of REF.
        ref_bp: int64 ``[n]``, length of REF.
        alt: The `n` alternate alleles.

    Returns:
        uint8 ``[n, WINDOW_BP]``.
    """
    windows = np.empty((len(start), WINDOW_BP), dtype=np.uint8)
    _fill_alternate(
        np.asarray(reference.tokens), reference.offsets, contig, start, ref_bp, alt.tokens, alt.offsets, windows
    )
    return windows


@njit(cache=True, nogil=True)
def _copy(tokens, first, last, place, windows, row, index):  # type: ignore[no-untyped-def]
    """Copies the reference from `place` on into ``windows[row, index:]``; 4 outside ``[first, last)``."""
    for column in range(index, windows.shape[1]):
        at = place + column - index
        windows[row, column] = tokens[at] if first <= at < last else UNKNOWN_TOKEN


@njit(cache=True, nogil=True)
def _fill_reference(tokens, offsets, contig, start, windows):  # type: ignore[no-untyped-def]
    for row in range(start.size):
        first, last = offsets[contig[row]], offsets[contig[row] + 1]
        _copy(tokens, first, last, first + start[row] - CENTRE, windows, row, 0)


@njit(cache=True, nogil=True)
def _fill_alternate(tokens, offsets, contig, start, ref_bp, alt, alt_offsets, windows):  # type: ignore[no-untyped-def]
    for row in range(start.size):
        first, last = offsets[contig[row]], offsets[contig[row] + 1]
        _copy(tokens, first, last, first + start[row] - CENTRE, windows, row, 0)
        alt_bp = min(alt_offsets[row + 1] - alt_offsets[row], windows.shape[1] - CENTRE)
        for index in range(alt_bp):
            windows[row, CENTRE + index] = alt[alt_offsets[row] + index]
        _copy(tokens, first, last, first + start[row] + ref_bp[row], windows, row, CENTRE + alt_bp)
