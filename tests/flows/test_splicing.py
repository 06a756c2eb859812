"""The pipeline ``spliceai`` in a whole run: one haplotype has one score, however its record is written."""

from __future__ import annotations

import numpy as np
import pysam
import pytest

from tests.flows.cohort import run_command
from tests.serving.convolutions import document, write_model

_BASES = "".join(np.random.default_rng(3).choice(list("ACGT"), 24_000))
# From 12,001 on: T, then CA five times, then G.
GENOME = f"{_BASES[:12_000]}TCACACACACAG{_BASES[12_012:]}"
GENES = """\
#NAME\tCHROM\tSTRAND\tTX_START\tTX_END\tEXON_START\tEXON_END
PLUS\t1\t+\t7000\t16000\t7000,9000,15000,\t7500,9400,16000,
"""


def _base(position: int) -> str:
    return GENOME[position - 1]


def _other(position: int) -> str:
    return "ACGT"[("ACGT".index(_base(position)) + 1) % 4]


RECORDS = [
    (6_000, _base(6_000), _other(6_000)),
    (9_001, _base(9_001), _other(9_001)),
    (9_001, _base(9_001) + _base(9_002), _other(9_001) + _base(9_002)),
    (9_002, _base(9_002), f"{_other(9_002)},{_base(9_002)}GT"),
    (12_001, "TCA", "T"),
    (12_008, "CAC", "C"),
    (12_500, _base(12_500).lower(), _other(12_500).lower()),
    (13_000, _base(13_000) + _base(13_001), _other(13_000) + _other(13_001)),
]


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[list[list[str]], str | None]]:
    """For each record the entries of INFO SpliceAI, and CF_REASON."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "genome.fa").write_text(f">chr1\n{GENOME}\n")
    (folder / "genes.txt").write_text(GENES)
    lines = "".join(f"chr1\t{at}\t.\t{ref}\t{alt}\t.\t.\t.\n" for at, ref, alt in RECORDS)
    (folder / "a.vcf").write_text(f"##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n{lines}")
    (folder / "sheet.csv").write_text("sample,vcf\nA,a.vcf\n")
    write_model(folder / "home/models/spliceai", name="spliceai", content=document(1, 2_488))
    command = ("score", folder / "sheet.csv", "--reference", folder / "genome.fa", "--output", folder / "out")
    command += ("--pipeline", "spliceai", "--workers", "1")
    home = {"COHORTFLOW_HOME": str(folder / "home")}
    refused = run_command(*command, environment={"COHORTFLOW_HOME": str(folder)})
    assert refused.returncode == 2
    assert "cohortflow models add spliceai" in refused.stderr
    done = run_command(*command, "--genes", folder / "genes.txt", environment=home)
    assert done.returncode == 0, done.stderr
    with pysam.VariantFile(str(folder / "out/samples/A/A.vcf.gz")) as file:
        return [
            ([entry.split("|") for entry in record.info.get("SpliceAI", ())], record.info.get("CF_REASON"))
            for record in file
        ]


def test_a_record_outside_of_every_gene_has_a_reason_and_no_entry(entries) -> None:
    assert entries[0] == ([], ("NO_GENE",))


def test_a_padded_record_has_the_scores_of_the_trimmed_one(entries) -> None:
    (plain,), (padded,) = entries[1][0], entries[2][0]
    assert plain[1:] == padded[1:]
    assert (plain[0], padded[0]) == (RECORDS[1][2], RECORDS[2][2])
    assert len(plain) == 10


def test_each_alternate_of_a_record_has_its_entry(entries) -> None:
    assert [entry[0] for entry in entries[3][0]] == RECORDS[3][2].split(",")


def test_one_deletion_written_in_two_ways_has_one_score_at_one_place(entries) -> None:
    (left,), (right,) = entries[4][0], entries[5][0]
    assert left[2:6] == right[2:6]
    assert [12_001 + int(place) for place in left[6:]] == [12_008 + int(place) for place in right[6:]]
    assert (left[0], right[0]) == ("T", "C")


def test_lower_case_and_a_delins_are_scored(entries) -> None:
    assert entries[6][0][0][0] == RECORDS[6][2]
    assert "." not in entries[7][0][0]
