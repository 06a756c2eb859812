"""Sex by depth and by genotypes: real BAM files of simulated reads, and the law of the thresholds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pytest

from tasks.alignments.file import check_alignment
from tasks.alignments.windows import WINDOW_BP, window_offsets
from tasks.genome.reference import Reference, prepare_reference
from tasks.genome.regions import read_bed
from tasks.identity.sex import find_sex, sex_differs

LENGTHS_BP = {"1": 500_000, "2": 400_000, "X": 400_000, "Y": 300_000}
READ_BP, DEPTH = 100, 1


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("sex")
    rng = np.random.default_rng(3)
    text = ""
    for name, length_bp in LENGTHS_BP.items():
        letters = np.array(list("ACGT"))[rng.integers(0, 4, length_bp)]
        if name == "Y":
            letters[: length_bp // 2] = "N"  # as much of the real one is not known
        text += f">{name}\n{''.join(letters)}\n"
    (folder / "g.fa").write_text(text)
    return prepare_reference(folder / "g.fa", folder / "reference")


def write_bam(
    path: Path, reference: Reference, copies: dict[str, float], *, inside: Callable[[str, int], bool] | None = None
) -> Path:
    """Reads without errors at even depth, `DEPTH` for two copies."""
    rng = np.random.default_rng(9)
    header = {
        "HD": {"VN": "1.6", "SO": "coordinate"},
        "SQ": [{"SN": contig.name, "LN": contig.length_bp} for contig in reference.contigs],
        "RG": [{"ID": "1", "SM": "S"}],
    }
    with pysam.AlignmentFile(str(path), "wb", header=header) as bam:
        for tid, contig in enumerate(reference.contigs):
            sequence = reference.contig_tokens(tid)
            num_reads = int(contig.length_bp * DEPTH * copies[contig.name] / 2 / READ_BP)
            for at in np.sort(rng.integers(0, contig.length_bp - READ_BP, num_reads)).tolist():
                tokens = sequence[at : at + READ_BP]
                if (inside and not inside(contig.name, at)) or (tokens == 4).any():
                    continue
                read = pysam.AlignedSegment()
                read.query_name, read.reference_id, read.reference_start = f"r{tid}-{at}", tid, at
                read.flag, read.mapping_quality, read.cigartuples = 0, 60, [(0, READ_BP)]
                read.query_sequence = "".join("ACGT"[token] for token in tokens)
                read.query_qualities = pysam.qualitystring_to_array("I" * READ_BP)
                read.set_tag("RG", "1")
                bam.write(read)
    pysam.index(str(path))
    return path


def windows_of(bam: Path, reference: Reference, folder: Path) -> Any:
    return check_alignment([bam], [None], reference, folder)["windows"]


XX, XY = {"1": 2, "2": 2, "X": 2, "Y": 0.01}, {"1": 2, "2": 2, "X": 1, "Y": 1}


@pytest.mark.parametrize(
    ("copies", "verdict"),
    [
        (XX, "XX"),
        (XY, "XY"),
        ({**XX, "Y": 1}, "unclear"),  # XXY, or two persons' reads
        ({**XX, "X": 1, "Y": 0}, "unclear"),  # X0
        ({"1": 2, "2": 2, "X": 0, "Y": 0}, "too little data"),  # a slice of the autosomes
    ],
)
def test_depth_tells_the_sex(tmp_path: Path, reference: Reference, copies: dict[str, float], verdict: str) -> None:
    bam = write_bam(tmp_path / "s.bam", reference, copies)
    windows = windows_of(bam, reference, tmp_path)
    total = sum(windows[1])
    with pysam.AlignmentFile(str(bam)) as reads:
        assert total == sum(read.query_length for read in reads)
    finding = find_sex(reference, windows=windows)
    assert finding.verdict == verdict, finding
    if finding.x_depth is not None:
        assert finding.x_depth == pytest.approx(copies["X"] / 2, abs=0.05)
        assert finding.y_depth == pytest.approx(copies["Y"] / 2, abs=0.05)
        assert f"{finding.x_depth:.2f}" in finding.evidence


def test_a_panel_is_told_by_its_bed(tmp_path: Path, reference: Reference) -> None:
    """Reads on some exons alone, which cover little of the autosomes and most of X's windows."""
    width = {"1": 2_000, "2": 2_000, "X": 20_000, "Y": 5_000}
    starts = {name: range(50_000, length_bp - 40_000, 80_000) for name, length_bp in LENGTHS_BP.items()}
    bed = tmp_path / "panel.bed"
    bed.write_text("".join(f"{name}\t{at}\t{at + width[name]}\n" for name in LENGTHS_BP for at in starts[name]))

    def inside(name: str, at: int) -> bool:
        return any(low <= at < low + width[name] - READ_BP for low in starts[name])

    copies = {name: 15.0 * count for name, count in XY.items()}
    windows = windows_of(write_bam(tmp_path / "p.bam", reference, copies, inside=inside), reference, tmp_path)
    assert find_sex(reference, windows=windows, regions=read_bed(bed, reference)).verdict == "XY"
    assert find_sex(reference, windows=windows).verdict != "XY"


def test_a_handful_of_reads_is_too_little(reference: Reference) -> None:
    offsets = window_offsets(reference)
    finding = find_sex(reference, windows=[[0, int(offsets[2])], [5_000, 2_500]])
    assert finding.verdict == "too little data"
    assert "5,000 bases on autosomes" in finding.evidence


@pytest.mark.parametrize(
    ("counts", "is_called", "verdict"),
    [
        ({"het": 600, "hom": 400, "hemi": 0}, False, "XX"),
        ({"het": 20, "hom": 980, "hemi": 0}, False, "XY"),
        ({"het": 0, "hom": 0, "hemi": 700}, False, "XY"),
        ({"het": 0, "hom": 0, "hemi": 700}, True, "too little data"),
        ({"het": 200, "hom": 800, "hemi": 0}, False, "unclear"),
        ({"het": 30, "hom": 19, "hemi": 0}, False, "too little data"),
        ({"het": 0, "hom": 0, "hemi": 0}, False, "too little data"),
    ],
)
def test_genotypes_on_x_tell_the_sex(
    reference: Reference, counts: dict[str, int], is_called: bool, verdict: str
) -> None:
    assert find_sex(reference, x_counts=counts, is_called=is_called).verdict == verdict


def test_evidence_that_contradicts_itself_is_unclear(reference: Reference) -> None:
    known = np.count_nonzero(np.asarray(reference.tokens) < 4)
    assert known > 0
    even = [
        min(WINDOW_BP, contig.length_bp - low) * (20 if contig.name != "Y" else 0)
        for contig in reference.contigs
        for low in range(0, contig.length_bp, WINDOW_BP)
    ]
    windows = [list(range(len(even))), even]
    assert find_sex(reference, windows=windows).verdict == "XX"
    one_copy = {"het": 5, "hom": 500, "hemi": 0}
    assert find_sex(reference, windows=windows, x_counts=one_copy).verdict == "unclear"
    told = find_sex(reference, windows=windows, x_counts={"het": 0, "hom": 0, "hemi": 500}, is_called=True)
    assert told.verdict == "XX"
    assert sex_differs(told, "XY")
    assert not sex_differs(told, "XX")
    assert not sex_differs(told, "NA")
    assert not sex_differs(told, None)


def test_nothing_to_go_by(reference: Reference, tmp_path: Path) -> None:
    assert find_sex(reference).verdict == "too little data"
    (tmp_path / "a.fa").write_text(">1\n" + "ACGT" * 100 + "\n")
    no_x = prepare_reference(tmp_path / "a.fa", tmp_path / "reference")
    finding = find_sex(no_x, windows=[[0], [400]])
    assert (finding.verdict, "no contig that is X" in finding.evidence) == ("too little data", True)
