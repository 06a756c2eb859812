"""What a simulated allele does to a simulated gene: the labels of the demonstration model.

An allele is *damaging* when it

- loses a consensus base of an intron's beginning (GTAAGT) or end (CAG), or inserts or deletes bases there;
- changes the start codon, or makes the stop codon code;
- turns a codon into a stop;
- inserts or deletes coding bases, not a multiple of three;
- changes the promoter motif.

Everything else is not: intergenic and intronic alleles, untranslated ends, synonymous and missense changes, in-frame
insertions and deletions. These are rules of a simulation, made up to be visible in 128 bases.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tasks.simulation.genes import ACCEPTOR, DONOR, STOPS, Transcript
from tasks.simulation.genome import Genome, Tokens, encode

_START_BP = 3


def damages(
    genome: Genome,
    transcripts: Sequence[Transcript],
    contig: npt.NDArray[np.int32],
    start: npt.NDArray[np.int64],
    ref: Sequence[str],
    alt: Sequence[str],
) -> npt.NDArray[np.bool_]:
    """Labels alleles: bool [n], True for damaging.

    Args:
        genome: The genome that the transcripts were planted in.
        transcripts: In reference order; they do not overlap.
        contig: int32 [n].
        start: int64 [n], 0-based start of `ref`, the anchor base for an indel.
        ref: n trimmed reference alleles.
        alt: n trimmed alternative alleles.
    """
    labels = np.zeros(len(start), np.bool_)
    genes = [_Gene(genome.tokens[transcript.contig], transcript) for transcript in transcripts]
    keys = np.array([transcript.contig << 40 | transcript.span[0] for transcript in transcripts], np.int64)
    nearest = np.searchsorted(keys, contig.astype(np.int64) << 40 | (start + 1), side="right") - 1
    for row in map(int, np.flatnonzero(nearest >= 0)):
        if transcripts[nearest[row]].contig == contig[row]:
            labels[row] = genes[nearest[row]].is_damaged_by(int(start[row]), ref[row], alt[row])
    return labels


class _Gene:
    """A transcript in its own direction: places on the contig, and the bases that stand there."""

    def __init__(self, tokens: Tokens, transcript: Transcript) -> None:
        self._reverse = transcript.reverse
        step = -1 if transcript.reverse else 1
        coding = [
            np.arange(max(first, transcript.coding[0]), min(last, transcript.coding[1]))
            for first, last in transcript.exons
        ]
        self._coding = np.concatenate(coding)[::step]
        self._index = {int(place): index for index, place in enumerate(self._coding)}
        self._codons = self._oriented(tokens[self._coding]).reshape(-1, 3)
        self._signals: set[int] = set()
        for (_, left), (right, _) in zip(transcript.exons[:-1], transcript.exons[1:], strict=True):
            intron = np.arange(left, right)[::step]
            places = np.concatenate([intron[: len(DONOR)], intron[-len(ACCEPTOR) :]])
            kept = self._oriented(tokens[places]) == encode(DONOR + ACCEPTOR)
            self._signals |= {int(place) for place in places[kept]}
        self._motif = range(*transcript.motif)
        self._start = {int(place) for place in self._coding[:_START_BP]}

    def is_damaged_by(self, start: int, ref: str, alt: str) -> bool:
        """Whether a trimmed allele is damaging."""
        if len(ref) == len(alt):
            return any(
                self._substitution(start + offset, int(encode(after)[0]))
                for offset, (before, after) in enumerate(zip(ref, alt, strict=True))
                if before != after
            )
        # An insertion touches the bases on both its sides; a deletion those it takes.
        touched = range(start + 1, start + len(ref)) if len(ref) > len(alt) else range(start, start + 2)
        needed = len(touched) if len(ref) < len(alt) else 1
        if any(
            sum(place in group for place in touched) >= needed for group in (self._signals, self._motif, self._start)
        ):
            return True
        num_coding = sum(place in self._index for place in touched)
        if len(ref) < len(alt):
            return num_coding == len(touched) and (len(alt) - len(ref)) % 3 != 0
        return num_coding > 0 and num_coding % 3 != 0

    def _substitution(self, place: int, token: int) -> bool:
        if place in self._motif or place in self._start or place in self._signals:
            return True
        index = self._index.get(place)
        if index is None:
            return False
        before = self._codons[index // 3]
        after = before.copy()
        after[index % 3] = 3 - token if self._reverse else token
        return (_is_stop(before) and not _is_stop(after)) or (_is_stop(after) and not _is_stop(before))

    def _oriented(self, tokens: Tokens) -> Tokens:
        return 3 - tokens if self._reverse else tokens


def _is_stop(codon: Tokens) -> bool:
    return any(bool((codon == encode(stop)).all()) for stop in STOPS)
