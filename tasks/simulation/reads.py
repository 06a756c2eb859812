"""Paired reads of fragments, with the errors that fool a variant caller."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.simulation.fragments import Fragments
from tasks.simulation.genome import Tokens, encode
from tasks.simulation.haplotypes import Molecules
from tasks.simulation.library import Library
from tasks.simulation.qualities import draw_qualities, error_rates
from tasks.simulation.tracts import find_tracts

ADAPTERS = ("AGATCGGAAGAGCACACGTCTGAACTCCAGTCA", "AGATCGGAAGAGCGTCGTGTAGGGAAAGAGTGT")
"""What a read runs into behind a short fragment. Source: Illumina TruSeq adapter sequences."""
_CONTEXT_BP = 9
_STUTTER_AT_6, _STUTTER_BP_PER_TENFOLD, _MOST_STUTTER = 1e-4, 3.2, 0.25
_GAINED_SHARE = 0.35
_SYSTEMATIC_QUALITY_LOSS = 14
_SUBSTITUTES = np.array([[1, 1, 1, 2, 3], [0, 0, 2, 3, 3], [3, 3, 3, 0, 1], [2, 2, 2, 0, 1]], np.uint8)
"""Five draws for each true base: A>C and G>T, T>G are the machine's favourites."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Read pairs as a machine writes them.

    Attributes:
        bases: uint8 [n, 2, read_length_bp] tokens in sequencing order; first mate, second mate.
        qualities: uint8 [n, 2, read_length_bp] Phred values.
        duplicate: bool [n], PCR copies of an earlier pair.
    """

    bases: Tokens
    qualities: npt.NDArray[np.uint8]
    duplicate: npt.NDArray[np.bool_]


class Sequencer:
    """Reads fragments of one haploid set of molecules with a library's machine.

    Systematic errors hang on the bases before a place in read direction, so they come on one strand only, and at the
    same places in every sample that the same `chemistry` seed reads.
    """

    def __init__(self, molecules: Molecules, library: Library, *, chemistry: int = 0) -> None:
        self._tokens = molecules.tokens
        self._library = library
        self._stutter = _stutter_rates(molecules.tokens, library)
        self._misread = _misread_rates(library, chemistry)

    def read(self, rng: np.random.Generator, fragments: Fragments, rows: slice) -> Pairs:
        """Reads both ends of some fragments."""
        start, end, mate_end = (column[rows] for column in (fragments.start, fragments.end, fragments.mate_end))
        flipped = fragments.flipped[rows]
        origin = np.stack([np.where(flipped, mate_end - 1, start), np.where(flipped, start, mate_end - 1)], axis=1)
        step = np.stack([np.where(flipped, -1, 1), np.where(flipped, 1, -1)], axis=1)
        mates = [self._read_mate(rng, mate, origin[:, mate], step[:, mate], end - start) for mate in range(2)]
        bases, qualities = (np.stack(parts, axis=1) for parts in zip(*mates, strict=True))
        number = np.arange(len(fragments.start))[rows]
        return Pairs(bases, qualities, fragments.original[rows] != number)

    def _read_mate(
        self,
        rng: np.random.Generator,
        mate: int,
        origin: npt.NDArray[np.int64],
        step: npt.NDArray[np.int64],
        insert_bp: npt.NDArray[np.int64],
    ) -> tuple[Tokens, npt.NDArray[np.uint8]]:
        length_bp = self._library.read_length_bp
        context = _CONTEXT_BP
        # A few bases before the read are fetched too: its first bases have a context as well.
        cycle = np.arange(-context, length_bp)
        place = origin[:, None] + step[:, None] * cycle
        shift = self._stutter_shifts(rng, place[:, context:], step)
        place[:, context:] += step[:, None] * shift
        np.clip(place, 0, len(self._tokens) - 1, out=place)
        strand = self._tokens[place]
        strand = np.where(step[:, None] < 0, 3 - np.minimum(strand, 3), np.minimum(strand, 3)).astype(np.uint8)
        bases = strand[:, context:].copy()
        quality = draw_qualities(rng, len(bases), mate, self._library)
        self._make_errors(rng, strand, bases, quality)
        adapter = np.resize(encode(ADAPTERS[mate]), length_bp)
        behind = np.arange(length_bp) - insert_bp[:, None]
        return np.where(behind >= 0, adapter[np.maximum(behind, 0)], bases).astype(np.uint8), quality

    def _stutter_shifts(
        self, rng: np.random.Generator, place: npt.NDArray[np.int64], step: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Bases skipped (above 0) or read twice (below 0) up to each cycle, int64 [n, read_length_bp]."""
        shift = np.zeros(place.shape, np.int64)
        inside = np.clip(place, 0, len(self._tokens) - 1)
        backward = (step < 0).astype(np.int64)
        chance = self._stutter.chance[backward[:, None], inside]
        read, cycle = np.nonzero(chance > 0)
        hit = rng.random(len(read)) < chance[read, cycle]
        read, cycle = read[hit], cycle[hit]
        unit_bp = self._stutter.unit_bp[backward[read], inside[read, cycle]] * (1 + (rng.random(len(read)) < 0.12))
        gained = rng.random(len(read)) < _GAINED_SHARE
        # A repeat is read twice only after it was read once.
        cycle = np.minimum(np.where(gained, cycle + unit_bp, cycle), place.shape[1] - 1)
        np.add.at(shift, (read, cycle), np.where(gained, -unit_bp, unit_bp))
        return np.cumsum(shift, axis=1)

    def _make_errors(
        self, rng: np.random.Generator, strand: Tokens, bases: Tokens, quality: npt.NDArray[np.uint8]
    ) -> None:
        """Changes `bases` and `quality` in place."""
        wrong = rng.random(bases.shape, np.float32) < error_rates(rng, quality, self._library)
        substitute = _SUBSTITUTES[bases[wrong], rng.integers(0, 5, int(wrong.sum()))]
        code = np.zeros(bases.shape, np.int64)
        for offset in range(_CONTEXT_BP):
            code = code * 4 + strand[:, offset : offset + bases.shape[1]]
        chance = self._misread[code]
        read, cycle = np.nonzero(chance > 0)
        hit = rng.random(len(read)) < chance[read, cycle]
        read, cycle = read[hit], cycle[hit]
        bases[wrong] = substitute
        # The misread base repeats the one before it (phasing); a third of the time its quality does not tell.
        bases[read, cycle] = strand[read, cycle + _CONTEXT_BP - 1]
        told = rng.random(len(read)) < 0.67
        read, cycle = read[told], cycle[told]
        lowered = quality[read, cycle].astype(np.int64) - _SYSTEMATIC_QUALITY_LOSS
        quality[read, cycle] = np.maximum(lowered, 2) if self._library.quality_steps == "continuous" else 12


@dataclass(frozen=True, slots=True)
class _Stutter:
    """Indel errors, both [2, num_bases]: by strand read (0 forward, 1 backward) and base where a tract is entered."""

    chance: npt.NDArray[np.float32]
    unit_bp: npt.NDArray[np.uint8]


def _stutter_rates(tokens: Tokens, library: Library) -> _Stutter:
    tracts = find_tracts(tokens)
    # Two units of a microsatellite slip about as often as three bases of a homopolymer.
    size = np.where(tracts.unit_bp == 1, tracts.length_bp, 1.3 * tracts.length_bp / tracts.unit_bp)
    rate = library.stutter_scale * _STUTTER_AT_6 * 10 ** ((size - 6) / _STUTTER_BP_PER_TENFOLD)
    rate = np.minimum(rate, _MOST_STUTTER)
    chance, unit_bp = np.zeros((2, len(tokens)), np.float32), np.zeros((2, len(tokens)), np.uint8)
    for backward, entered in enumerate((tracts.start, tracts.start + tracts.length_bp - 1)):
        chance[backward, entered] = rate
        unit_bp[backward, entered] = tracts.unit_bp
    return _Stutter(chance, unit_bp)


def _misread_rates(library: Library, chemistry: int) -> npt.NDArray[np.float32]:
    """Chance of a systematic error, float32 [4 ** 9], by the nine bases before a place; mostly where they end in GG."""
    rng = np.random.default_rng(chemistry)
    draw = rng.random(4**_CONTEXT_BP)
    strength = rng.beta(0.8, 3.0, 4**_CONTEXT_BP)
    after_gg = np.arange(4**_CONTEXT_BP) % 16 == 10
    return np.where(draw < library.systematic_share * np.where(after_gg, 8.0, 0.5), strength, 0).astype(np.float32)
