"""Windows: cut where they should be, N outside the contig, alleles put in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.genome.reference import Reference, prepare_reference
from tasks.windows import CENTRE, WINDOW_BP, alternate_windows, column_bases, reference_windows, tokenize

SEQUENCES = {"one": "acgtTGCAnN" * 30, "two": "GATTACA"}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("reference")
    (folder / "r.fa").write_text("".join(f">{name}\n{bases}\n" for name, bases in SEQUENCES.items()))
    return prepare_reference(folder / "r.fa", folder / "prepared")


def spelled(name: str, start: int, ref: str, alt: str) -> str:
    """The window in plain Python: flank, ALT, the rest, N outside."""
    bases = SEQUENCES[name].upper()
    left = ("N" * CENTRE + bases)[start : start + CENTRE]
    right = bases[start + len(ref) :]
    return (left + alt + right + "N" * WINDOW_BP)[:WINDOW_BP]


def text(windows: np.ndarray) -> list[str]:
    return ["".join("ACGTN"[token] for token in window) for window in windows]


@given(
    alleles=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 6), st.text("ACGT", min_size=1, max_size=70)), min_size=1
    )
)
def test_windows_are_those_of_plain_python(reference: Reference, alleles: list[tuple[int, int, str]]) -> None:
    contig = np.array([a[0] for a in alleles], dtype=np.int32)
    start = np.array([a[1] for a in alleles], dtype=np.int64)
    names = [list(SEQUENCES)[a[0]] for a in alleles]
    refs = [SEQUENCES[name].upper()[a[1]] for name, a in zip(names, alleles, strict=True)]
    alts = column_bases(pa.array([a[2] for a in alleles]))
    ref_bp = np.ones(len(alleles), dtype=np.int64)
    assert text(reference_windows(reference, contig, start)) == [
        spelled(name, a[1], ref, ref) for name, a, ref in zip(names, alleles, refs, strict=True)
    ]
    assert text(alternate_windows(reference, contig, start, ref_bp, alts)) == [
        spelled(name, a[1], ref, a[2][: WINDOW_BP - CENTRE]) for name, a, ref in zip(names, alleles, refs, strict=True)
    ]


def test_a_deletion_brings_what_lies_after_it(reference: Reference) -> None:
    window = alternate_windows(
        reference,
        np.array([0], dtype=np.int32),
        np.array([100], dtype=np.int64),
        np.array([5], dtype=np.int64),
        column_bases(pa.array(["A"])),
    )
    assert text(window) == [spelled("one", 100, "ACGTT", "A")]


def test_column_bases_reads_slices_and_chunks() -> None:
    column = pa.chunked_array([["xx", "ACG", "t"], [], ["N"]], pa.string()).slice(1)
    bases = column_bases(column)
    assert bases.tokens.tolist() == [0, 1, 2, 3, 4]
    assert bases.lengths_bp.tolist() == [3, 1, 1]
    assert column_bases(pa.array([], pa.string())).lengths_bp.tolist() == []
    assert tokenize(b"AcgTn-").tolist() == [0, 1, 2, 3, 4, 4]
