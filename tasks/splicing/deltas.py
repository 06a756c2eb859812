"""What an allele does to splice sites near it, in the words of SpliceAI 1.3.1.

Source: spliceai 1.3.1, utils.py, get_delta_scores; Jaganathan et al., Cell 2019 (doi:10.1016/j.cell.2018.12.015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ACCEPTOR, DONOR = 1, 2
"""Channels of the output; 0 is neither."""
KINDS = ("AG", "AL", "DG", "DL")
"""Acceptor gain and loss, donor gain and loss."""


@dataclass(frozen=True, slots=True)
class Deltas:
    """The largest changes near an allele, in the order of `KINDS`.

    Attributes:
        scores: Changes of probability; below zero where no place changes in that direction.
        places: Where, counted from the allele's first base.
    """

    scores: tuple[float, ...]
    places: tuple[int, ...]


def align(alternate: NDArray[np.float32], ref_bp: int, alt_bp: int, distance: int) -> NDArray[Any]:
    """Puts the output along the edited sequence beside that along the reference.

    The bases that REF and ALT both have stand side by side. Further bases of REF get zeros; of further bases of ALT the
    largest values are joined with the last shared base's. Where REF or ALT has one base, that is SpliceAI's own rule.

    Args:
        alternate: float32 [2 * distance + 1 - ref_bp + alt_bp, outputs], along the genome.
        ref_bp: Length of REF.
        alt_bp: Length of ALT.
        distance: Positions to either side of the first base.

    Returns:
        [2 * distance + 1, outputs].
    """
    shared = min(ref_bp, alt_bp)
    if ref_bp > alt_bp:
        # In 64 bits, as the published tool comes to be: where two places are all but alike, that decides between them.
        gap = np.zeros((ref_bp - alt_bp, alternate.shape[1]))
        return np.concatenate([alternate[: distance + shared], gap, alternate[distance + shared :]])
    last = distance + shared - 1
    joined = alternate[last : distance + alt_bp].max(axis=0, keepdims=True)
    return np.concatenate([alternate[:last], joined, alternate[distance + alt_bp :]])


def find_deltas(
    reference: NDArray[np.float32], alternate: NDArray[Any], distance: int, nearest_edge: int | None
) -> Deltas:
    """Finds the largest changes.

    Args:
        reference: float32 [2 * distance + 1, outputs].
        alternate: Of `align`.
        distance: Positions to either side of the allele's first base.
        nearest_edge: Where the exon edge nearest to that base lies, counted from it: gains there, and losses anywhere
            else, are set to zero. None: nothing is.
    """
    reference = reference.astype(alternate.dtype)
    scores, places = [], []
    for channel in (ACCEPTOR, DONOR):
        change = alternate[:, channel] - reference[:, channel]
        for is_loss in (False, True):
            directed = reference[:, channel] - alternate[:, channel] if is_loss else change
            at = int(directed.argmax())
            place = at - distance
            is_masked = nearest_edge is not None and (place == nearest_edge) != is_loss
            # Times zero, not zero: the published tool prints -0.00 where a masked change is below zero.
            scores.append(float(directed[at]) * (0 if is_masked else 1))
            places.append(place)
    return Deltas(tuple(scores), tuple(places))


def as_entry(allele: str, gene: str, deltas: Deltas | None) -> str:
    """An entry of INFO ``SpliceAI``, in the order that its header line states; dots without deltas."""
    values = ["."] * 8
    if deltas is not None:
        values = [*(f"{score:.2f}" for score in deltas.scores), *map(str, deltas.places)]
    return "|".join([allele, gene, *values])


def as_written(entries: str, allele: str, shift_bp: int) -> str:
    """Entries of a normalised allele for a record that writes it in another way.

    Args:
        entries: Joined by commas.
        allele: ALT of the record.
        shift_bp: How far the record's POS lies right of the normalised one's.
    """
    told = []
    for entry in entries.split(","):
        _, gene, *values = entry.split("|")
        places = [value if value == "." else str(int(value) - shift_bp) for value in values[4:]]
        told.append("|".join([allele, gene, *values[:4], *places]))
    return ",".join(told)
