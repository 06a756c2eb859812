from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pysam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.calling.aligned_reads import AlignedReads, LocalReference, unpack_reads
from tasks.calling.bam_records import read_records
from tasks.calling.bam_stream import open_alignment
from tasks.calling.clips import MAX_READ_BP
from tasks.calling.depths import count_depth
from tasks.calling.realigning import realign
from tests.tasks.alignment_files import Read, random_bases, tokens_of, write_bam, write_reference
from tests.tasks.test_candidates import alleles, rows_of

GENOME = random_bases(21, 2048)
AT = 1000
READ_BP = 100


def mutated(length_bp: int, inserted: str) -> str:
    """The genome without `length_bp` bases behind `AT`, or with `inserted` there."""
    return GENOME[: AT + 1] + inserted + GENOME[AT + 1 + length_bp :]


def opened(haplotype: str, start: int, length_bp: int, inserted: str) -> Read:
    """A read of the changed haplotype that its aligner opened a gap for."""
    before = AT + 1 - start
    gap = f"{len(inserted)}I" if inserted else f"{length_bp}D"
    after = READ_BP - before - len(inserted)
    return Read(start, f"{before}M{gap}{after}M", haplotype[start : start + READ_BP])


def left_alone(haplotype: str, start: int) -> Read:
    """A read of the changed haplotype laid on the reference from its first base, gap or not."""
    return Read(start, f"{READ_BP}M", haplotype[start : start + READ_BP])


def clipped_in_front(haplotype: str, start: int, change_bp: int) -> Read:
    """A read that begins before the change at `start` of `haplotype`; only what lies behind the change is aligned."""
    before = AT + 1 - start
    clip = before + max(-change_bp, 0)
    return Read(start + clip + change_bp, f"{clip}S{READ_BP - clip}M", haplotype[start : start + READ_BP])


def aligned(folder: Path, reads: list[Read]) -> tuple[AlignedReads, AlignedReads]:
    """The reads as read, and realigned."""
    reference = write_reference(folder, {"chr1": GENOME})
    bam = write_bam(folder / "sample.bam", {"chr1": len(GENOME)}, reads)
    local = LocalReference(0, tokens_of(GENOME))
    with open_alignment(bam, None, reference.fasta_path) as alignment:
        size = len(GENOME)
        records = read_records(alignment, 0, 0, size, wide=(0, size), counted=(0, size), contig_length_bp=size)
    before = unpack_reads(records, local)
    return before, realign(before, local, count_depth(before, 0, size), 0)


def cigar(reads: AlignedReads, row: int) -> str:
    ops = reads.cigar[reads.cigar_offset[row] : reads.cigar_offset[row + 1]]
    return "".join(f"{op >> 4}{'MIDNSHP=X'[op & 15]}" for op in ops.tolist())


def bases(reads: AlignedReads, row: int) -> bytes:
    return reads.tokens[reads.base_offset[row] : reads.base_offset[row + 1]].tobytes()


def test_mismatches_beyond_a_deletion_become_its_support(tmp_path: Path) -> None:
    haplotype = mutated(7, "")
    reads = [opened(haplotype, AT - 50, 7, "")] * 3 + [left_alone(haplotype, AT - 92)] * 3
    reads += [Read(AT - 40, f"{READ_BP}M", GENOME[AT - 40 : AT - 40 + READ_BP])] * 3
    before, after = aligned(tmp_path, reads)
    assert before.num_differences.max() > 1
    assert [cigar(after, row) for row in range(len(reads))] == ["93M7D7M"] * 3 + ["51M7D49M"] * 3 + ["100M"] * 3
    assert after.num_differences.tolist() == [1] * 6 + [0] * 3
    assert alleles(rows_of(tmp_path, GENOME, reads)) == [(AT, GENOME[AT : AT + 8], GENOME[AT])]
    assert rows_of(tmp_path, GENOME, reads).counts.tolist() == [[3, 6, 0]]


@pytest.mark.parametrize(("length_bp", "inserted"), [(12, ""), (0, "GATTACA")])
def test_clipped_bases_are_laid_beyond_the_change(tmp_path: Path, length_bp: int, inserted: str) -> None:
    haplotype = mutated(length_bp, inserted)
    change_bp = length_bp - len(inserted)
    clipped = clipped_in_front(haplotype, AT - 30, change_bp)
    assert clipped.cigar.split("S")[0] not in ("", "0")
    _, after = aligned(tmp_path, [opened(haplotype, AT - 50, length_bp, inserted)] * 3 + [clipped])
    starts = {int(after.start[row]): cigar(after, row) for row in range(4)}
    gap = f"{len(inserted)}I" if inserted else f"{length_bp}D"
    assert starts[AT - 30] == f"31M{gap}{READ_BP - 31 - len(inserted)}M"
    assert (after.query_end - after.query_start == READ_BP).all()


def test_one_read_alone_persuades_no_other(tmp_path: Path) -> None:
    haplotype = mutated(7, "")
    before, after = aligned(tmp_path, [opened(haplotype, AT - 50, 7, ""), left_alone(haplotype, AT - 92)])
    assert [cigar(after, row) for row in range(2)] == [cigar(before, row) for row in range(2)]


def test_long_reads_stay_as_they_are(tmp_path: Path) -> None:
    haplotype = mutated(7, "")
    long_bp = MAX_READ_BP + 1
    start = AT - long_bp + 8
    long_read = Read(start, f"{long_bp}M", haplotype[start : start + long_bp])
    _, after = aligned(tmp_path, [opened(haplotype, AT - 50, 7, "")] * 3 + [long_read])
    assert cigar(after, int(np.flatnonzero(after.start == start)[0])) == f"{long_bp}M"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    change_bp=st.integers(-30, 30).filter(bool),
    offsets=st.lists(st.integers(1, 98), min_size=1, max_size=12),
    seed=st.integers(0, 1000),
)
def test_reads_keep_their_bases_and_never_fit_worse(change_bp: int, offsets: list[int], seed: int) -> None:
    length_bp = max(change_bp, 0)
    inserted = random_bases(seed, -change_bp) if change_bp < 0 else ""
    haplotype = mutated(length_bp, inserted)
    reads = [opened(haplotype, AT - 50, length_bp, inserted)] * 4
    reads += [left_alone(haplotype, AT - offset) for offset in offsets]
    with tempfile.TemporaryDirectory() as folder:
        before, after = aligned(Path(folder), reads)
    assert sorted(bases(before, row) for row in range(len(reads))) == sorted(
        bases(after, row) for row in range(len(reads))
    )
    assert (np.diff(after.start) >= 0).all()
    assert after.num_differences.sum() <= before.num_differences.sum()
    for row in range(len(reads)):
        record = pysam.AlignedSegment()
        record.cigarstring = cigar(after, row)
        assert record.infer_query_length() == READ_BP
        assert record.reference_length == after.end[row] - after.start[row]


def test_mates_still_find_each_other(tmp_path: Path) -> None:
    haplotype = mutated(12, "")
    clipped = clipped_in_front(haplotype, AT - 30, 12)
    pair = [
        Read(clipped.start, clipped.cigar, clipped.bases, flag=0x1 | 0x40, name="pair"),
        Read(AT - 10, f"{READ_BP}M", GENOME[AT - 10 : AT - 10 + READ_BP], flag=0x1 | 0x80, name="pair"),
    ]
    before, after = aligned(tmp_path, [opened(haplotype, AT - 50, 12, "")] * 3 + pair)
    first, second = (np.flatnonzero(reads.flag & 0x40)[0] for reads in (before, after))
    assert before.start[first] > AT - 10 > after.start[second]
    for reads in (before, after):
        mated = np.flatnonzero(reads.mate >= 0)
        assert len(mated) == 2
        assert reads.mate[reads.mate[mated]].tolist() == mated.tolist()
        assert set(reads.flag[mated].tolist()) == {0x41, 0x81}
