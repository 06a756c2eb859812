"""Tiara's two stages: each sequence's class, from the mean of what two networks say of its fragments.

Source: Tiara 1.0.2, prediction.predict_with_threshold, classification.Classification.classify. Differences: case is
ignored (Tiara counts no k-mers of lower-case bases).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.origins.fragments import Ints, count_kmers, cut
from tasks.origins.sequences import SequenceBlock

MIN_BP = 3000
"""Shorter sequences are too short to tell. Source: Tiara 1.0.2, main.py, minimum_sequence_length."""
CUTOFF = 0.65
"""Mean probability above which a class is believed. Source: Tiara 1.0.2, main.py, default_prob_cutoff."""
FIRST, SECOND = "tiara-first", "tiara-second"
FIRST_K, SECOND_K = 6, 7
CLASSES = (
    "archaea",
    "bacteria",
    "prokarya",
    "eukarya",
    "mitochondrion",
    "plastid",
    "organelle",
    "unknown",
    "too_short",
)
"""``prokarya``: archaea or bacteria; ``organelle``: mitochondrion or plastid; which of the two is not known."""
FIRST_PROBABILITIES = ("organelle", "bacteria", "unknown", "archaea", "eukarya")
"""What the numbers of the first network stand for."""
SECOND_PROBABILITIES = ("plastid", "unknown", "mitochondrion")

_CODE = {name: code for code, name in enumerate(CLASSES)}
_ROWS = 512

Floats = npt.NDArray[np.float32]
Ask = Callable[[str, Floats], Floats]
"""Asks a model: its name, and counts of k-mers, float32 [n, 4**k]; the answer is float32 [n, number of classes]."""


@dataclass(frozen=True, slots=True, eq=False)
class Classified:
    """The classes of some sequences.

    Attributes:
        code: int8 [num_sequences], the place of the class in `CLASSES`.
        first: float64 [num_sequences, 5], means of the first network; NaN where it was not asked.
        second: float64 [num_sequences, 3], means of the second, which is asked of organelles only.
    """

    code: npt.NDArray[np.int8]
    first: npt.NDArray[np.float64]
    second: npt.NDArray[np.float64]


def classify(block: SequenceBlock, ask: Ask) -> Classified:
    """Tells the class of every sequence of a block."""
    num_sequences = len(block.lengths_bp)
    code = np.full(num_sequences, _CODE["too_short"], dtype=np.int8)
    first = np.full((num_sequences, len(FIRST_PROBABILITIES)), np.nan)
    second = np.full((num_sequences, len(SECOND_PROBABILITIES)), np.nan)
    starts = np.cumsum(block.lengths_bp) - block.lengths_bp
    told = np.flatnonzero(block.lengths_bp >= MIN_BP)
    first[told] = _means(block, starts, told, FIRST, FIRST_K, ask)
    code[told] = _first_codes(first[told])
    organelles = np.flatnonzero(code == _CODE["organelle"])
    second[organelles] = _means(block, starts, organelles, SECOND, SECOND_K, ask)
    code[organelles] = _second_codes(second[organelles])
    return Classified(code, first, second)


def _means(block: SequenceBlock, starts: Ints, chosen: Ints, model: str, k: int, ask: Ask) -> npt.NDArray[np.float64]:
    """The means of a model's answers over the fragments of the chosen sequences, float64 [num_chosen, num_classes].

    NaN where a fragment has no k-mer at all, as in the original.
    """
    lengths_bp = block.lengths_bp[chosen]
    sequence, first, _ = cut(lengths_bp)
    shift = (starts[chosen] - (np.cumsum(lengths_bp) - lengths_bp))[sequence]
    first = first + shift
    end = cut(lengths_bp)[2] + shift
    num_classes = len(FIRST_PROBABILITIES if model == FIRST else SECOND_PROBABILITIES)
    answers = np.full((len(sequence), num_classes), np.nan)
    for at in range(0, len(sequence), _ROWS):
        counts = count_kmers(block.tokens, first[at : at + _ROWS], end[at : at + _ROWS], k)
        rows = np.flatnonzero(counts.any(axis=1))
        if len(rows):
            answers[at + rows] = ask(model, counts[rows])
    sums = np.zeros((len(chosen), num_classes))
    np.add.at(sums, sequence, answers)
    return sums / np.bincount(sequence, minlength=len(chosen))[:, None] if len(chosen) else sums


def _first_codes(means: npt.NDArray[np.float64]) -> npt.NDArray[np.int8]:
    best = means.argmax(axis=1) if len(means) else np.zeros(0, dtype=np.int64)
    codes = np.array([_CODE[name] for name in FIRST_PROBABILITIES], dtype=np.int8)[best]
    bacteria, archaea = FIRST_PROBABILITIES.index("bacteria"), FIRST_PROBABILITIES.index("archaea")
    is_sure = means.max(axis=1, initial=-1.0) > CUTOFF
    is_prokaryote = means[:, bacteria] + means[:, archaea] > CUTOFF
    doubtful = np.where(is_prokaryote, _CODE["prokarya"], _CODE["unknown"])
    return np.where(is_sure, codes, doubtful).astype(np.int8)


def _second_codes(means: npt.NDArray[np.float64]) -> npt.NDArray[np.int8]:
    best = means.argmax(axis=1) if len(means) else np.zeros(0, dtype=np.int64)
    names = ["organelle" if name == "unknown" else name for name in SECOND_PROBABILITIES]
    codes = np.array([_CODE[name] for name in names], dtype=np.int8)[best]
    return np.where(means.max(axis=1, initial=-1.0) > CUTOFF, codes, _CODE["organelle"]).astype(np.int8)
