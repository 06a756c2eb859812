"""Which of the reference's contigs an input's contig is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.genome.builds import plain_name
from tasks.genome.reference import Contig, Reference

UNKNOWN_CONTIG = "UNKNOWN_CONTIG"
CONTIG_LENGTH_DIFFERS = "CONTIG_LENGTH_DIFFERS"
CONTIG_M5_DIFFERS = "CONTIG_M5_DIFFERS"
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True, eq=False)
class ContigMatch:
    """An input's contigs placed on the reference.

    Attributes:
        index: int32 [n], each contig's place in the reference's contigs, -1 where there is a reason.
        reason: Per contig None, or why it has no place: UNKNOWN_CONTIG (no such name), CONTIG_LENGTH_DIFFERS or
            CONTIG_M5_DIFFERS (the name is there, the sequence is another one).
        namesake: int32 [n], the reference contig of the same name (or alias), also where it does not fit; -1 if none.
    """

    index: np.ndarray
    reason: list[str | None]
    namesake: np.ndarray


def match_contigs(
    names: Sequence[str], lengths_bp: Sequence[int | None], md5s: Sequence[str | None], reference: Reference
) -> ContigMatch:
    """Finds an input's contigs among the reference's.

    A name matches exactly, or as the other spelling of one chromosome (``chr1`` and ``1``; ``chrM``, ``chrMT``, ``M``
    and ``MT``). Lengths and M5 must agree where the input states them, so hg19's chrM (16,571 bases) is not an rCRS
    ``MT`` (16,569 bases).

    Args:
        names: Contig names of the input.
        lengths_bp: Their lengths in bases; None where the input does not say.
        md5s: Their M5 (MD5 of the upper-cased sequence, hex of any case); None where the input does not say.
        reference: The reference.

    Returns:
        One place or reason for each name, in the order given.
    """
    namesakes_of: dict[str, list[int]] = {}
    for index, contig in enumerate(reference.contigs):
        namesakes_of.setdefault(plain_name(contig.name), []).append(index)
    places = np.full(len(names), -1, dtype=np.int32)
    namesakes = np.full(len(names), -1, dtype=np.int32)
    reasons: list[str | None] = []
    for row, (name, length_bp, md5) in enumerate(zip(names, lengths_bp, md5s, strict=True)):
        # UCSC's patched hg19 has chrM and chrMT: the exact name is asked first, then whichever namesake fits.
        candidates = sorted(
            namesakes_of.get(plain_name(name), ()), key=lambda index: reference.contigs[index].name != name
        )
        misfits = [_misfit(reference.contigs[index], length_bp, md5) for index in candidates]
        chosen = misfits.index(None) if None in misfits else 0
        if candidates:
            namesakes[row] = candidates[chosen]
        reasons.append(misfits[chosen] if candidates else UNKNOWN_CONTIG)
        if reasons[-1] is None:
            places[row] = candidates[chosen]
    return ContigMatch(places, reasons, namesakes)


def mixed_names(names: Sequence[str], reference: Reference) -> str | None:
    """Tells of an input that names contigs in two ways, as files made of several do.

    Args:
        names: Contigs of the input.
        reference: The reference.

    Returns:
        A sentence for people; None where all are named as the reference does, or none is.
    """
    unstated = [None] * len(names)
    places = match_contigs(names, unstated, unstated, reference).index.tolist()
    of_place: dict[bool, dict[int, str]] = {True: {}, False: {}}
    for name, place in zip(names, places, strict=True):
        if place >= 0:
            of_place[reference.contigs[place].name == name].setdefault(place, name)
    same, other = of_place[True], of_place[False]
    if not same or not other:
        return None
    twice = [f"{same[place]} and {name}" for place, name in other.items() if place in same]
    text = (
        f"contigs are named in two ways, {_some(same)} beside {_some(other)}: was it put together from several files?"
    )
    if twice:
        more = ", ..." * (len(twice) > _NAMES_SHOWN)
        text += f" Both names of one contig: {', '.join(twice[:_NAMES_SHOWN])}{more}"
    return text


def _some(names: dict[int, str]) -> str:
    return ", ".join(list(names.values())[:_NAMES_SHOWN]) + ", ..." * (len(names) > _NAMES_SHOWN)


def _misfit(contig: Contig, length_bp: int | None, md5: str | None) -> str | None:
    if length_bp is not None and length_bp != contig.length_bp:
        return CONTIG_LENGTH_DIFFERS
    if md5 is not None and md5.lower() != contig.md5:
        return CONTIG_M5_DIFFERS
    return None
