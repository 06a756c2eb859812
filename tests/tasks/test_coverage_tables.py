from __future__ import annotations

import gzip
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tasks.calling.calling import Alignment
from tasks.coverage.exons import load_exons, prepare_exons, read_exons
from tasks.coverage.joining import read_callable, summarise_coverage, write_callable, write_target_tables
from tasks.coverage.measuring import measure_stretch, plan_stretches
from tasks.coverage.targets import Targets, read_targets
from tasks.errors import RegionsError
from tasks.genome.reference import Reference
from tasks.genome.regions import read_bed
from tests.tasks.alignment_files import Read, random_bases, write_bam, write_reference
from tests.tasks.coverage_reference import plain_depths, plain_states, stretches

CONTIGS = {
    "chr1": random_bases(1, 700) + "N" * 100 + random_bases(2, 1_200),
    "chr2": random_bases(3, 500),
    "chr3": random_bases(4, 800),
}
BED = """track name=panel
chr1\t100\t300\tGENE1;GENE2
chr1\t250\t420\tGENE1
chr1\t600\t900\tGENE3, GENE1
chr3\t0\t50\t.
chr3\t50\t200\tGENE4|GENE3
chr3\t700\t800
"""
PADDING_BP = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("coverage")


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return write_reference(folder, CONTIGS)


@pytest.fixture(scope="module")
def alignment(folder: Path) -> Alignment:
    """Reads on the first and the last contig, deep in the middle of the first, mapped poorly at its end."""
    rng = np.random.default_rng(11)
    reads = []
    for contig, count in ((0, 700), (2, 60)):
        length_bp = len(list(CONTIGS.values())[contig])
        for number in range(count):
            start = int(np.clip(rng.normal(length_bp * 0.35, length_bp * 0.25), 0, length_bp - 60))
            quality = rng.choice([5, 35], 60, p=[0.1, 0.9]).tolist()
            mapping_quality = int(rng.choice([0, 60], p=[0.7, 0.3] if start > 1_300 else [0.1, 0.9]))
            read = Read(start, "60M", random_bases(number, 60), 0, f"r{contig}-{number}", mapping_quality, quality)
            reads.append(Read(**{**{f: getattr(read, f) for f in read.__dataclass_fields__}, "contig": contig}))
    path = write_bam(folder / "sample.bam", {name: len(bases) for name, bases in CONTIGS.items()}, reads)
    return Alignment(path=str(path), index_path=f"{path}.bai", kind="bam", sample_id="S")


@pytest.fixture(scope="module")
def bed(folder: Path) -> Path:
    path = folder / "panel.bed"
    path.write_text(BED)
    return path


def depths(alignment: Alignment) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    return {name: plain_depths(Path(alignment["path"]), name, len(bases)) for name, bases in CONTIGS.items()}


def cover(
    alignment: Alignment, reference: Reference, folder: Path, stretch_bp: int, bed: Path | None, targets: Targets | None
) -> tuple[dict[str, Any], Path]:
    """A whole sample: its numbers, and the folder of its files."""
    folder.mkdir()
    regions = read_bed(bed, reference, PADDING_BP) if bed else None
    parts, files = [], []
    for begin, end in plan_stretches(reference, regions, stretch_bp):
        files.append(folder / f"{begin}.npz")
        parts.append(
            measure_stretch(
                alignment, reference, begin, end, files[-1], contig_reads={"chr1": 700, "chr3": 60}, regions=regions,
                targets=targets,
            )
        )  # fmt: skip
    summary = summarise_coverage(parts, reference, num_used=700, aligned_bp=42_000, has_targets=targets is not None)
    if targets is not None:
        summary |= write_target_tables(files, reference, targets, folder, "S")
    return summary | write_callable(files, reference, folder / "S.callable.bed"), folder


def read_rows(path: Path) -> list[tuple[str, int, int, str]]:
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [(contig, int(start), int(end), state) for contig, start, end, state in rows]


def test_callable_regions_are_those_of_a_plain_count(
    alignment: Alignment, reference: Reference, tmp_path: Path
) -> None:
    summary, folder = cover(alignment, reference, tmp_path / "whole", 10_000, None, None)
    found = read_callable(folder / "S.callable.bed", reference)
    names = [reference.contigs[contig].name for contig in found.contig]
    rows = zip(names, found.start.tolist(), found.end.tolist(), strict=True)
    assert list(rows) == [row[:3] for row in read_rows(folder / "S.callable.bed") if row[3] == "CALLABLE"]
    expected = []
    for name, (usable, well, poorly) in depths(alignment).items():
        expected += stretches(plain_states(usable, well, poorly, CONTIGS[name]), name)
    assert read_rows(folder / "S.callable.bed") == expected
    assert {row[3] for row in expected} == {"CALLABLE", "LOW_DEPTH", "POOR_MAPPING", "NO_DEPTH", "REFERENCE_N"}
    assert summary["states"]["REFERENCE_N"] == 100
    known = np.concatenate(
        [usable[np.array(list(CONTIGS[name])) != "N"] for name, (usable, _, _) in depths(alignment).items()]
    )
    assert summary["bases"] == known.size == 3_200
    assert summary["mean_depth"] == round(float(known.mean()), 3)
    assert summary["share_20"] == round(float((known >= 20).mean()), 6)
    assert dict(map(tuple, summary["curve"]))[30] == summary["share_30"] == round(float((known >= 30).mean()), 6)


@pytest.mark.parametrize("with_targets", [True, False])
def test_where_the_reference_is_cut_changes_nothing(
    alignment: Alignment, reference: Reference, bed: Path, tmp_path: Path, with_targets: bool
) -> None:
    targets = read_targets(bed, reference) if with_targets else None
    found = []
    for stretch_bp in (10_000, 1_000, 137, 50):
        summary, folder = cover(
            alignment, reference, tmp_path / str(stretch_bp), stretch_bp, bed if with_targets else None, targets
        )
        found.append((summary, {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".npz"}))
    assert all(each == found[0] for each in found)
    assert len(found[0][1]) == (4 if with_targets else 1)


def test_targets_and_genes_are_summed_over_their_own_bases(
    alignment: Alignment, reference: Reference, bed: Path, tmp_path: Path
) -> None:
    targets = read_targets(bed, reference)
    summary, folder = cover(alignment, reference, tmp_path / "panel", 333, bed, targets)
    usable = {name: found[0] for name, found in depths(alignment).items()}
    lines = [line.split("\t") for line in BED.splitlines()[1:]]
    rows = pq.read_table(folder / "S.targets.parquet").to_pylist()
    assert len(rows) == len(lines)
    for row, line in zip(rows, lines, strict=True):
        values = usable[line[0]][int(line[1]) : int(line[2])]
        assert (row["contig"], row["start"], row["end"], row["bases"]) == (
            line[0],
            int(line[1]),
            int(line[2]),
            len(values),
        )
        assert row["mean_depth"] == round(float(values.mean()), 3)
        assert row["share_20"] == round(float((values >= 20).mean()), 6)
        assert row["share_30"] == round(float((values >= 30).mean()), 6)
        assert (row["min_depth"], row["gap_bases"]) == (values.min(), (values < 20).sum())
    assert [row["genes"] for row in rows] == ["GENE1;GENE2", "GENE1", "GENE1;GENE3", "", "GENE3;GENE4", ""]
    genes = {row["gene"]: row for row in pq.read_table(folder / "S.genes.parquet").to_pylist()}
    assert list(genes) == ["GENE1", "GENE2", "GENE3", "GENE4"]
    one = usable["chr1"][list(range(100, 420)) + list(range(600, 900))]  # the overlap of two targets counts once
    assert (genes["GENE1"]["bases"], genes["GENE1"]["targets"]) == (620, 3)
    assert genes["GENE1"]["mean_depth"] == round(float(one.mean()), 3)
    assert genes["GENE1"]["min_depth"] == one.min()
    three = np.concatenate((usable["chr1"][600:900], usable["chr3"][50:200]))
    assert genes["GENE3"]["share_20"] == round(float((three >= 20).mean()), 6)
    every = np.concatenate((one, usable["chr3"][:200], usable["chr3"][700:]))
    assert summary["bases"] == every.size
    assert summary["mean_depth"] == round(float(every.mean()), 3)
    assert summary["genes"] == 4


def test_gaps_are_the_target_bases_below_twenty(
    alignment: Alignment, reference: Reference, bed: Path, tmp_path: Path
) -> None:
    targets = read_targets(bed, reference)
    summary, folder = cover(alignment, reference, tmp_path / "panel", 111, bed, targets)
    usable = {name: found[0] for name, found in depths(alignment).items()}
    inside = {name: np.zeros(len(bases), bool) for name, bases in CONTIGS.items()}
    for line in BED.splitlines()[1:]:
        inside[line.split("\t")[0]][slice(*map(int, line.split("\t")[1:3]))] = True
    expected = []
    for name in CONTIGS:
        gap = ["gap" if low else "" for low in inside[name] & (usable[name] < 20)]
        expected += [(c, s, e, str(usable[c][s:e].min())) for c, s, e, value in stretches(gap, name) if value]
    rows = [line.split("\t") for line in gzip.decompress((folder / "S.gaps.bed.gz").read_bytes()).decode().splitlines()]
    assert [(c, int(s), int(e), depth) for c, s, e, _, depth in rows] == expected
    assert summary["gaps"] == len(expected) > 3
    assert rows[-1][3] == "."
    assert rows[0][3].split(";")[0] == "GENE1"


def test_on_target_shares_are_of_all_used_reads(
    alignment: Alignment, reference: Reference, bed: Path, tmp_path: Path
) -> None:
    summary, _ = cover(alignment, reference, tmp_path / "panel", 500, bed, read_targets(bed, reference))
    well = {name: found[1] for name, found in depths(alignment).items()}
    for name, padding in (("on_target", 0), ("near_target", PADDING_BP)):
        regions = read_bed(bed, reference, padding)
        contigs = [reference.contigs[place].name for place in regions.contig]
        bases = sum(
            int(well[contig][start:end].sum())
            for contig, start, end in zip(contigs, regions.start.tolist(), regions.end.tolist(), strict=True)
        )
        assert summary[name]["bases"] == bases
        assert summary[name]["bases_share"] == round(bases / 42_000, 6)
    assert 0 < summary["on_target"]["reads"] < summary["near_target"]["reads"]


def test_evenness_compares_the_mean_with_what_four_fifths_reach(reference: Reference) -> None:
    part = {"depths": [[10, 20], [40, 80]], "states": {}, "on_target": {"reads": 1, "bases": 1}}
    part["near_target"] = part["on_target"]
    summary = summarise_coverage([part], reference, num_used=2, aligned_bp=4, has_targets=True)
    assert summary["fold_80"] == 34 / 10
    assert summary["on_target"] == {"reads": 1, "bases": 1, "reads_share": 0.5, "bases_share": 0.25}
    bare = summarise_coverage([], reference, num_used=0, aligned_bp=0, has_targets=True)
    assert (bare["fold_80"], bare["mean_depth"], bare["share_20"]) == (None, 0.0, 0.0)


GTF = """#!genome-build test
chr1\thavana\tgene\t50\t500\t.\t+\t.\tgene_id "G1"; gene_name "ALPHA";
chr1\thavana\texon\t81\t120\t.\t+\t.\tgene_id "G1"; gene_name "ALPHA"; exon_number 1;
chr1\thavana\texon\t101\t140\t.\t+\t.\tgene_id "G1"; gene_name "ALPHA"; exon_number 1;
chr1\thavana\texon\t400\t500\t.\t+\t.\tgene_id "G2";
chrUn\thavana\texon\t400\t500\t.\t+\t.\tgene_id "G9";
chr3\thavana\texon\t60\t61\t.\t-\t.\tgene_id "G3"; gene_name "BETA"
"""
GFF3 = """##gff-version 3
chr1\tensembl\tgene\t50\t500\t.\t+\t.\tID=gene:G1;Name=ALPHA
chr1\tensembl\tmRNA\t50\t500\t.\t+\t.\tID=transcript:T1;Parent=gene:G1;Name=ALPHA-201
chr1\tensembl\texon\t81\t140\t.\t+\t.\tParent=transcript:T1;Name=E1
chr1\tensembl\tgene\t400\t500\t.\t+\t.\tID=G2
chr1\tensembl\tmRNA\t400\t500\t.\t+\t.\tID=T2;Parent=G2
chr1\tensembl\texon\t400\t500\t.\t+\t.\tParent=T2
chrUn\tRefSeq\texon\t400\t500\t.\t+\t.\tID=x;gene=G9
chr3\tRefSeq\texon\t60\t61\t.\t-\t.\tID=y;gene=BETA
"""


@pytest.mark.parametrize(("name", "text"), [("genes.gtf", GTF), ("genes.gff3", GFF3)])
def test_genes_come_from_exons_over_the_targets(
    reference: Reference, bed: Path, tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(text.encode()))
    exons = read_exons(path, reference)
    assert exons.names == ("ALPHA", "BETA", "G2")
    assert exons.start.tolist() == [80, 399, 2_500 + 59]
    assert exons.end.tolist() == [140, 500, 2_500 + 61]
    prepare_exons(path, reference, tmp_path / "exons.parquet")
    again = load_exons(tmp_path / "exons.parquet")
    assert (again.names, again.gene.tolist()) == (exons.names, exons.gene.tolist())
    targets = read_targets(bed, reference, again)
    assert targets.genes_of() == ["ALPHA", "G2", "", "", "BETA", ""]


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("chr1\t10\t20\tGENE\n", "BAD_GENES", "line 1"),
        ('chr9\tx\texon\t1\t2\t.\t+\t.\tgene_id "A";\n', "NO_GENES", "chr9"),
        ('chr2\tx\texon\t1\t501\t.\t+\t.\tgene_id "A";\n', "PAST_CONTIG_END", "501"),
        ("", "NO_GENES", "no line of the type exon"),
    ],
)
def test_wrong_genes_are_refused(reference: Reference, tmp_path: Path, text: str, reason: str, words: str) -> None:
    path = tmp_path / "genes.gtf"
    path.write_text(text)
    with pytest.raises(RegionsError, match=words) as caught:
        read_exons(path, reference)
    assert caught.value.reason == reason


def test_stretches_tile_the_reference(reference: Reference, bed: Path) -> None:
    whole = plan_stretches(reference, None, 900)
    assert whole[0][0] == 0
    assert whole[-1][1] == 3_300
    assert all(left[1] == right[0] for left, right in itertools.pairwise(whole))
    # Nothing of the panel lies from 930 to 2,500.
    assert plan_stretches(reference, read_bed(bed, reference, PADDING_BP), 500) == [
        (0, 500), (500, 1_000), (2_500, 3_000), (3_000, 3_300),
    ]  # fmt: skip
