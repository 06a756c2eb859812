"""Alleles in transcripts as rows of a convolutional model: the bases around, and the edit, along the transcript."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.genome.reference import Reference
from tasks.splicing.transcripts import Transcripts
from tasks.windows import UNKNOWN_TOKEN, tokenize

_NO_BASE = 255


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Alleles and the transcripts they lie in, in an order in which neighbours share a pass of the model.

    Attributes:
        allele: int64 [n].
        transcript: int64 [n].
    """

    allele: NDArray[np.int64]
    transcript: NDArray[np.int64]


def find_pairs(contig: NDArray[np.int64], start: NDArray[np.int64], transcripts: Transcripts) -> Pairs:
    """Pairs alleles with every transcript that has their first base, transcript by transcript along its strand.

    Args:
        contig: int64 [n], places in the reference's contigs.
        start: int64 [n], 0-based, rising on each contig.
        transcripts: Where to look.
    """
    alleles: list[NDArray[np.int64]] = []
    numbers: list[int] = []
    for place in np.unique(contig):
        on_contig = np.flatnonzero(contig == place)
        order = on_contig[np.argsort(start[on_contig], kind="stable")]
        starts = start[order]
        for number in np.flatnonzero(transcripts.contig == place).tolist():
            low, high = np.searchsorted(starts, (transcripts.start[number], transcripts.end[number]))
            if low < high:
                inside = order[low:high]
                alleles.append(inside[::-1] if transcripts.is_reverse[number] else inside)
                numbers.append(number)
    counts = [len(each) for each in alleles]
    return Pairs(
        np.concatenate([np.zeros(0, np.int64), *alleles]),
        np.repeat(np.array(numbers, np.int64), np.array(counts, np.int64)),
    )


def rows_of(
    pairs: Pairs,
    contig: NDArray[np.int64],
    start: NDArray[np.int64],
    ref: Sequence[str],
    alt: Sequence[str],
    transcripts: Transcripts,
    reference: Reference,
    side: int,
) -> dict[str, NDArray[Any]]:
    """Inputs of the backend ``convolution``: windows with the allele's first base in their middle.

    What lies outside of the transcript is no base. Windows of the minus strand are reverse complements.

    Args:
        pairs: Of `find_pairs`; windows lie on their contigs.
        contig: int64 [alleles].
        start: int64 [alleles], 0-based.
        ref: REF of each allele.
        alt: ALT of each allele.
        transcripts: The transcripts.
        reference: The genome.
        side: Bases to either side of the first base.

    Returns:
        Arrays by the inputs' names, a row for each pair.
    """
    num, length = len(pairs.allele), 2 * side + 1
    sequence = np.empty((num, length), np.uint8)
    position, first, deleted = (np.empty((num, 1), kind) for kind in (np.int64, np.int32, np.int32))
    inserts: list[NDArray[np.uint8]] = []
    for row, (allele, number) in enumerate(zip(pairs.allele.tolist(), pairs.transcript.tolist(), strict=True)):
        begin = int(start[allele]) - side
        tokens = np.array(reference.contig_tokens(int(contig[allele]))[begin : begin + length])
        tokens[: max(int(transcripts.start[number]) - begin, 0)] = UNKNOWN_TOKEN
        tokens[max(int(transcripts.end[number]) - begin, 0) :] = UNKNOWN_TOKEN
        # An anchor base is no part of the edit.
        anchor = int(ref[allele][0] == alt[allele][0])
        inserted = tokenize(alt[allele][anchor:].encode())
        deleted[row] = len(ref[allele]) - anchor
        if transcripts.is_reverse[number]:
            sequence[row], inserted = _reverse(tokens), _reverse(inserted)
            first[row] = side + 1 - len(ref[allele])
            position[row] = int(transcripts.end[number]) - begin - length
        else:
            sequence[row] = tokens
            first[row] = side + anchor
            position[row] = begin - int(transcripts.start[number])
        inserts.append(inserted)
    widest = max((len(each) for each in inserts), default=0)
    inserted_rows = np.full((num, widest), _NO_BASE, np.uint8)
    for bases, inserted in zip(inserted_rows, inserts, strict=True):
        bases[: len(inserted)] = inserted
    return {"sequence": sequence, "position": position, "start": first, "deleted": deleted, "inserted": inserted_rows}


def _reverse(tokens: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The reverse complement."""
    return np.where(tokens < UNKNOWN_TOKEN, UNKNOWN_TOKEN - 1 - tokens, tokens)[::-1].astype(np.uint8)
