"""Sequences that checks of published models are made on: drawn from a hash, so that they are the same everywhere."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.uint8]

ACCEPTOR, DONOR = "TTTTTTCTTTTCTTTCTTTTCAG", "CAGGTAAGTATC"


def drawn(seed: bytes, num_bases: int) -> Tokens:
    """Bases by SHAKE-256 of a seed, two bits a byte: uint8 [num_bases], A0 C1 G2 T3."""
    return np.frombuffer(hashlib.shake_256(seed).digest(num_bases), dtype=np.uint8) & np.uint8(3)


def letters(text: str) -> Tokens:
    """The tokens of A, C, G and T."""
    return np.array(["ACGT".index(letter) for letter in text], dtype=np.uint8)


def exon() -> Tokens:
    """An exon of 120 drawn bases between sites as the spliceosome likes them, with the sites: uint8 [155]."""
    return np.concatenate([letters(ACCEPTOR), drawn(b"exon", 120), letters(DONOR)])
