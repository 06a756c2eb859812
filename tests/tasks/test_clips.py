from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.calling.aligned_reads import AlignedReads, LocalReference, unpack_reads
from tasks.calling.bam_records import read_records
from tasks.calling.bam_stream import open_alignment
from tasks.calling.clips import LEAST_CLIP_BP, MAX_GAP_BP, open_clips
from tests.tasks.alignment_files import Read, random_bases, tokens_of, write_bam, write_reference
from tests.tasks.test_realigning import bases, cigar

GENOME = random_bases(31, 2048)
AT = 1000
READ_BP = 100


def opened(folder: Path, reads: list[Read]) -> AlignedReads:
    reference = write_reference(folder, {"chr1": GENOME})
    bam = write_bam(folder / "sample.bam", {"chr1": len(GENOME)}, reads)
    size = len(GENOME)
    with open_alignment(bam, None, reference.fasta_path) as alignment:
        records = read_records(alignment, 0, 0, size, wide=(0, size), counted=(0, size), contig_length_bp=size)
    local = LocalReference(0, tokens_of(GENOME))
    return open_clips(unpack_reads(records, local), local)


def clipped(haplotype: str, before_bp: int, *, behind: bool, change_bp: int) -> Read:
    """A read of a haplotype changed behind `AT`, clipped there: `behind` says that its end is, else its beginning."""
    start = AT + 1 - before_bp
    read = haplotype[start : start + READ_BP]
    if behind:
        return Read(start, f"{before_bp}M{READ_BP - before_bp}S", read)
    front = before_bp + max(-change_bp, 0)
    return Read(AT + 1 + max(change_bp, 0), f"{front}S{READ_BP - front}M", read)


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize(("deleted_bp", "inserted"), [(36, ""), (MAX_GAP_BP, ""), (0, "GATTACAGATTACAGG")])
def test_a_clip_is_aligned_behind_the_gap(tmp_path: Path, behind: bool, deleted_bp: int, inserted: str) -> None:
    haplotype = GENOME[: AT + 1] + inserted + GENOME[AT + 1 + deleted_bp :]
    reads = opened(tmp_path, [clipped(haplotype, 50, behind=behind, change_bp=deleted_bp - len(inserted))])
    gap = f"{len(inserted)}I" if inserted else f"{deleted_bp}D"
    assert cigar(reads, 0) == f"50M{gap}{50 - len(inserted)}M"
    assert (reads.start[0], reads.end[0]) == (AT - 49, AT - 49 + READ_BP + deleted_bp - len(inserted))
    assert (reads.num_differences[0], reads.num_indels[0]) == (1, 1)


def test_what_lies_behind_the_fitting_part_stays_clipped(tmp_path: Path) -> None:
    haplotype = GENOME[: AT + 1] + GENOME[AT + 21 : AT + 46] + random_bases(5, 100)
    reads = opened(tmp_path, [clipped(haplotype, 50, behind=True, change_bp=20)])
    assert cigar(reads, 0).startswith("50M20D2")
    assert cigar(reads, 0).endswith("S")


def test_strange_and_short_clips_stay_clips(tmp_path: Path) -> None:
    strange = Read(AT, "50M50S", GENOME[AT : AT + 50] + random_bases(6, 50))
    haplotype = GENOME[: AT + 1] + GENOME[AT + 21 :]
    short = clipped(haplotype, READ_BP - LEAST_CLIP_BP + 1, behind=True, change_bp=20)
    assert sorted(cigar(reads, row) for reads in [opened(tmp_path, [strange, short])] for row in range(2)) == [
        "50M50S",
        short.cigar,
    ]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    clips=st.lists(st.tuples(st.integers(0, 45), st.integers(0, 45)), min_size=1, max_size=8),
    shift=st.integers(-80, 80),
)
def test_no_base_is_lost_whatever_is_clipped(clips: list[tuple[int, int]], shift: int) -> None:
    reads = []
    for front, back in clips:
        middle = GENOME[AT : AT + READ_BP - front - back]
        before, after = GENOME[AT + shift - front : AT + shift], GENOME[AT + 100 + shift : AT + 100 + shift + back]
        text = "".join(f"{size}{op}" for size, op in ((front, "S"), (len(middle), "M"), (back, "S")) if size)
        reads.append(Read(AT, text, before + middle + after))
    with tempfile.TemporaryDirectory() as folder:
        after_opening = opened(Path(folder), reads)
    rows = range(len(reads))
    assert sorted(bases(after_opening, row) for row in rows) == sorted(tokens_of(r.bases).tobytes() for r in reads)
    assert (np.diff(after_opening.start) >= 0).all()
    ops, size = after_opening.cigar & 15, after_opening.cigar >> 4
    assert (size > 0).all()
    for row in rows:
        mine = slice(after_opening.cigar_offset[row], after_opening.cigar_offset[row + 1])
        assert size[mine][np.isin(ops[mine], (0, 1, 4))].sum() == READ_BP
