"""The index of an output: which kind, and the record at fault where there can be none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.variants.index import write_index
from tests.tasks.variant_files import vcf_text, write_bgzip

FAR = "further than an index can hold"


def index(folder: Path, records: list[str], longest_bp: int = 2000) -> tuple[str | None, str | None]:
    output = write_bgzip(folder / "S.vcf.gz", vcf_text(records).encode())
    found = write_index(output, output, True, longest_bp)
    # Nothing made on the way is left.
    assert {path.name for path in folder.iterdir()} == {"S.vcf.gz", *([f"S.vcf.gz.{found[0]}"] if found[0] else [])}
    return found


def test_the_telomere_is_indexed(tmp_path: Path) -> None:
    assert index(tmp_path, ["chr1 0 . N <DEL> . . .", "chr1 5 . A C . . ."]) == ("tbi", None)


def test_what_a_tbi_cannot_hold_gets_a_csi(tmp_path: Path) -> None:
    assert index(tmp_path, ["chr1 5 . A <DEL> . . END=3000000000"]) == ("csi", None)
    assert index(tmp_path, ["chr1 3000000000 . A C . . ."], 3_000_000_000) == ("csi", None)


@pytest.mark.parametrize(
    ("record", "end"),
    [
        ("2:x 7 . A <DEL> . . END=9999999999999", "9,999,999,999,999"),
        ("2:x 7 . A <DEL> . . SVLEN=-99999999999", "100,000,000,005"),
        ("2:x 5000000000 . A C . . .", "5,000,000,000"),
    ],
)
def test_the_record_at_fault_is_named(tmp_path: Path, record: str, end: str) -> None:
    place = record.split()[1]
    kind, reason = index(tmp_path, ["chr1 5 . A C . . .", "chr1 7 . A C . . .", record])
    assert kind is None
    said = f"NOT_INDEXABLE: record 3, at {int(place):,} of contig '2:x', reaches to {end} by its POS and REF, END"
    assert reason is not None
    assert reason.startswith(said)
    assert reason.endswith(FAR)
