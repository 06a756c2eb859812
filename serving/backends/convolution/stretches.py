"""Which rows share one pass over the reference: windows that follow each other and overlap are one stretch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Window:
    """A row: a sequence around an edit.

    Attributes:
        tokens: uint8 [length], places in the alphabet; any other number is no letter.
        position: Where its first place lies on an axis of the sender's.
        start: Place in the window of the first base that is replaced.
        deleted: How many are.
        inserted: uint8 [n], what comes in their place.
    """

    tokens: NDArray[np.uint8]
    position: int
    start: int
    deleted: int
    inserted: NDArray[np.uint8]


@dataclass(slots=True)
class Stretch:
    """Windows that lie in one sequence.

    Attributes:
        tokens: uint8 [length], the sequence.
        rows: The windows' numbers.
        offsets: Where each begins in the sequence.
    """

    tokens: NDArray[np.uint8]
    rows: list[int]
    offsets: list[int]


def find_stretches(windows: Sequence[Window], is_worth: Callable[[int, int, int], bool]) -> list[Stretch]:
    """Joins windows to stretches; each window's tokens are found in its stretch, letter by letter.

    Args:
        windows: Rows; those that shall share a pass follow each other with rising positions.
        is_worth: Asked with a stretch's length, how much longer a window would make it and the window's length: whether
            to do that rather than to begin another stretch.
    """
    stretches: list[Stretch] = []
    pieces: list[NDArray[np.uint8]] = []
    length = begin = 0
    for row, window in enumerate(windows):
        offset = window.position - begin
        more = offset + len(window.tokens) - length
        if stretches and 0 <= offset < length and is_worth(length, max(more, 0), len(window.tokens)):
            shared = min(length - offset, len(window.tokens))
            if np.array_equal(_tail(pieces, length, offset, shared), window.tokens[:shared]):
                if more > 0:
                    pieces.append(window.tokens[shared:])
                    length += more
                stretches[-1].rows.append(row)
                stretches[-1].offsets.append(offset)
                continue
        if stretches:
            stretches[-1].tokens = np.concatenate(pieces)
        stretches.append(Stretch(window.tokens, [row], [0]))
        pieces, length, begin = [window.tokens], len(window.tokens), window.position
    if stretches:
        stretches[-1].tokens = np.concatenate(pieces)
    return stretches


def _tail(pieces: list[NDArray[np.uint8]], length: int, offset: int, count: int) -> NDArray[np.uint8]:
    """`count` tokens from `offset` on, of pieces that lie end to end."""
    taken: list[NDArray[np.uint8]] = []
    end = length
    for piece in reversed(pieces):
        begin = end - len(piece)
        low, high = max(offset, begin), min(offset + count, end)
        if low < high:
            taken.append(piece[low - begin : high - begin])
        if begin <= offset:
            break
        end = begin
    return np.concatenate(taken[::-1])
