from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tasks.calling.bam_records import (
    MAX_SPAN_BP,
    MAX_TILE_READS,
    MIN_MAPPING_QUALITY,
    TILE_BP,
    RawRecords,
    read_records,
)
from tasks.calling.bam_stream import open_alignment
from tasks.errors import AlignmentError
from tests.tasks.alignment_files import Read, random_bases, write_bam, write_reference

LENGTH_BP = 8 * TILE_BP
GENOME = random_bases(1, LENGTH_BP)


def read_at(start: int, length: int = 50, **more: object) -> Read:
    return Read(start, f"{length}M", GENOME[start : start + length], **more)  # type: ignore[arg-type]


def records(folder: Path, reads: list[Read], start: int = 0, end: int = LENGTH_BP) -> RawRecords:
    reference = write_reference(folder, {"chr1": GENOME})
    bam = write_bam(folder / "sample.bam", {"chr1": LENGTH_BP}, reads)
    with open_alignment(bam, None, reference.fasta_path) as alignment:
        return read_records(
            alignment, 0, start, end, wide=(start, end), counted=(start, end), contig_length_bp=LENGTH_BP
        )


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (read_at(100), "usable"),
        (read_at(100, flag=0x4), "unmapped"),
        (read_at(100, flag=0x100), "secondary"),
        (read_at(100, flag=0x800), "supplementary"),
        (read_at(100, flag=0x200), "qc_failed"),
        (read_at(100, flag=0x400), "duplicate"),
        (Read(100, "50M", ""), "no_sequence"),
        (read_at(100, mapping_quality=MIN_MAPPING_QUALITY - 1), "low_mapping_quality"),
        (Read(100, f"25M{MAX_SPAN_BP}N25M", GENOME[100:150]), "too_long"),
        (Read(LENGTH_BP - 20, "50M", "A" * 50), "past_contig_end"),
    ],
)
def test_every_record_is_kept_or_counted_with_its_reason(tmp_path: Path, read: Read, reason: str) -> None:
    found = records(tmp_path, [read_at(90), read, read_at(110)])
    assert sum(found.counts.values()) == 3
    assert found.counts[reason] == (3 if reason == "usable" else 1)
    assert found.offset.size == found.counts["usable"]


def test_reads_below_the_mapping_floor_only_add_to_the_low_quality_depth(tmp_path: Path) -> None:
    found = records(tmp_path, [read_at(100, mapping_quality=0), read_at(120, mapping_quality=5), read_at(130)])
    assert found.low_quality_depth[[99, 100, 119, 120, 149, 150, 169, 170]].tolist() == [0, 1, 1, 2, 2, 1, 1, 0]


def test_a_record_is_counted_where_it_starts(tmp_path: Path) -> None:
    reads = [read_at(start) for start in (TILE_BP - 30, TILE_BP - 1, TILE_BP, TILE_BP + 5)]
    reference = write_reference(tmp_path, {"chr1": GENOME})
    bam = write_bam(tmp_path / "sample.bam", {"chr1": LENGTH_BP}, reads)
    with open_alignment(bam, None, reference.fasta_path) as alignment:
        left, right = (
            read_records(alignment, 0, 0, LENGTH_BP, wide=(0, LENGTH_BP), counted=counted, contig_length_bp=LENGTH_BP)
            for counted in ((0, TILE_BP), (TILE_BP, LENGTH_BP))
        )
    assert (left.counts["usable"], right.counts["usable"]) == (2, 2)
    assert left.data.tobytes() == right.data.tobytes()


def test_a_deep_tile_is_thinned_to_the_same_reads_wherever_reading_starts(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    starts = np.sort(rng.integers(TILE_BP, 2 * TILE_BP, 2 * MAX_TILE_READS + 100)).tolist()
    reads = [read_at(start, 20) for start in [*starts, *range(2 * TILE_BP, 2 * TILE_BP + 200)]]
    whole = records(tmp_path, reads)
    assert whole.offset.size == MAX_TILE_READS + 200
    assert whole.counts["thinned"] == len(starts) - MAX_TILE_READS
    part = records(tmp_path, reads, TILE_BP, 3 * TILE_BP)
    assert part.name_hash.tolist() == whole.name_hash.tolist()
    assert part.data.tobytes() == whole.data.tobytes()


def test_more_records_than_one_chunk_holds_come_in_order(tmp_path: Path) -> None:
    reads = [read_at(100 * (number // 700), 20) for number in range(17_000)]
    found = records(tmp_path, reads)
    starts = [int.from_bytes(found.data[at + 8 : at + 12].tobytes(), "little") for at in found.offset]
    assert len(starts) == 17_000 - found.counts["thinned"]
    assert starts == sorted(starts)


def test_a_file_that_is_no_alignment_is_named(tmp_path: Path) -> None:
    file = tmp_path / "notes.bam"
    file.write_text("not a BAM")
    with pytest.raises(AlignmentError, match=r"notes\.bam"):
        open_alignment(file, None, tmp_path / "reference.fa")
