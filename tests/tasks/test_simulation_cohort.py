"""The demonstration cohort: a sheet that reads, files that fit the reference, the same bytes from the same seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pysam
import pytest

from tasks.genome.reference import prepare_reference
from tasks.genome.regions import read_bed
from tasks.sheets.sheet import read_sheet
from tasks.simulation.cohort import simulate_cohort

CONTIGS_BP = (40_000, 20_000)


@pytest.fixture(scope="module")
def sheet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate_cohort(tmp_path_factory.mktemp("cohort"), 1, contigs_bp=CONTIGS_BP)


def test_the_sheet_names_one_sample_of_each_kind(sheet: Path) -> None:
    samples = read_sheet(sheet).samples
    assert [sample.kind for sample in samples] == ["fastq", "bam", "bam", "vcf", "vcf"]
    assert [sample.regions is not None for sample in samples] == [False, False, True, False, False]
    paths = [path for sample in samples for path in (*sample.paths, *(lane.fastq_1 for lane in sample.lanes))]
    assert all(path.stat().st_size > 0 for path in paths)


def test_files_fit_the_reference(sheet: Path, tmp_path: Path) -> None:
    reference = prepare_reference(sheet.parent / "reference.fa.gz", tmp_path)
    assert tuple(contig.length_bp for contig in reference.contigs) == CONTIGS_BP
    for name in ("genes.bed", "targets.bed"):
        assert len(read_bed(sheet.parent / name, reference).start) > 0
    for name in ("single.vcf", "population.vcf.gz"):
        with pysam.VariantFile(str(sheet.parent / name)) as variants:
            records = list(variants)
        assert len(records) > 20
        for record in records:
            tokens = reference.contig_tokens(reference.contig_index(record.contig))
            bases = "".join("ACGTN"[token] for token in tokens[record.start : record.stop])
            assert bases == record.ref


def test_every_alternative_of_the_population_is_carried_by_a_member(sheet: Path) -> None:
    with pysam.VariantFile(str(sheet.parent / "population.vcf.gz")) as variants:
        records = list(variants)
    assert len(records[0].samples) == 24
    for record in records:
        carried = {index for sample in record.samples.values() for index in sample.allele_indices}
        assert set(range(1, len(record.alts) + 1)) <= carried


def test_same_seed_same_bytes(sheet: Path, tmp_path: Path) -> None:
    simulate_cohort(tmp_path, 1, contigs_bp=CONTIGS_BP)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names
    for name in names:
        assert (tmp_path / name).read_bytes() == (sheet.parent / name).read_bytes(), name


def test_the_module_says_how_it_is_called() -> None:
    command = [sys.executable, "-m", "tasks.simulation.cohort", "--help"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "--seed" in answer.stdout
