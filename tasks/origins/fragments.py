"""Sequences cut into fragments, and the k-mers of each fragment counted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, prange

FRAGMENT_BP = 5000
"""Length of a fragment. Source: Tiara 1.0.2, main.py, fragment_len."""

Ints = npt.NDArray[np.int64]


def cut(lengths_bp: Ints) -> tuple[Ints, Ints, Ints]:
    """Cuts sequences that lie one behind the other; what is left at the end of one is dropped.

    Source: Tiara 1.0.2, utilities.chop.

    Args:
        lengths_bp: int64 [num_sequences].

    Returns:
        Of each fragment its sequence, its first and its end token, each int64 [num_fragments]. A sequence shorter than
        a fragment is one by itself.
    """
    starts = np.cumsum(lengths_bp) - lengths_bp
    num_fragments = np.maximum(lengths_bp // FRAGMENT_BP, 1)
    sequence = np.repeat(np.arange(len(lengths_bp)), num_fragments)
    place = np.arange(len(sequence)) - np.repeat(np.cumsum(num_fragments) - num_fragments, num_fragments)
    first = starts[sequence] + place * FRAGMENT_BP
    return sequence, first, first + np.minimum(lengths_bp[sequence], FRAGMENT_BP)


@njit(cache=True, nogil=True, parallel=True)
def count_kmers(tokens: npt.NDArray[np.uint8], first: Ints, end: Ints, k: int) -> npt.NDArray[np.float32]:
    """Counts the k-mers of stretches, each on the strand it is read from.

    Args:
        tokens: uint8 [num_tokens]: A0 C1 G2 T3, everything else breaks a k-mer.
        first: int64 [n], each stretch's first token.
        end: int64 [n], the token behind its last.
        k: Length of a k-mer, in bases.

    Returns:
        float32 [n, 4**k], by code: two bits a base, the first base highest.
    """
    counts = np.zeros((len(first), 4**k), dtype=np.float32)
    mask = (1 << (2 * k)) - 1
    for row in prange(len(first)):
        code = 0
        num_bases = 0
        for index in range(first[row], end[row]):
            token = tokens[index]
            if token > 3:
                num_bases = 0
                continue
            code = ((code << 2) | token) & mask
            num_bases += 1
            if num_bases >= k:
                counts[row, code] += 1
    return counts
