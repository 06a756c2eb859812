"""A model of classified alleles, from `train-effect` to a run that uses it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pysam
import pytest
from click.testing import CliRunner

from flows.cli import main
from flows.train_effect import train_effect
from tasks.simulation.consequences import damages
from tasks.simulation.genes import plant_genes
from tasks.simulation.genome import UNKNOWN, simulate_genome
from tasks.simulation.texts import write_fasta
from tests.flows.cohort import run_command

CONTIG_BP, NUM_CONTIGS, ALLELES_PER_CONTIG = 120_000, 8, 1_500
HEADER = (
    "##fileformat=VCFv4.1",
    '##INFO=<ID=CLNSIG,Number=.,Type=String,Description="Aggregate classification">',
    '##INFO=<ID=CLNREVSTAT,Number=.,Type=String,Description="Review status">',
    '##INFO=<ID=MC,Number=.,Type=String,Description="Molecular consequence">',
    "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO",
)
STARS = "criteria_provided,_single_submitter"


def classified(folder: Path, *, is_shuffled: bool) -> tuple[Path, Path]:
    """A genome with genes, and alleles near their signals, classified by whether they damage them."""
    rng = np.random.default_rng(3)
    genome, transcripts = plant_genes(rng, simulate_genome(rng, [CONTIG_BP] * NUM_CONTIGS))
    alleles = set()
    for transcript in transcripts:
        edges = [*transcript.coding, *(edge for exon in transcript.exons for edge in exon)]
        places = rng.choice(edges, ALLELES_PER_CONTIG // 8) + rng.integers(-8, 8, ALLELES_PER_CONTIG // 8)
        tokens = genome.tokens[transcript.contig]
        for place in places[(places > 100) & (places < len(tokens) - 100)].tolist():
            if tokens[place] != UNKNOWN:
                alleles.add((transcript.contig, place, int(tokens[place]), int(tokens[place] + rng.integers(1, 4)) % 4))
    rows = sorted(alleles)
    contig, start, ref, alt = (np.array(column) for column in zip(*rows, strict=True))
    bases = np.array(list("ACGT"))
    label = damages(genome, transcripts, contig, start, bases[ref].tolist(), bases[alt].tolist())
    if is_shuffled:
        label = rng.permutation(label)
    lines = [
        f"{genome.names[c]}\t{s + 1}\t.\t{bases[r]}\t{bases[a]}\t.\t.\t"
        f"CLNSIG={'Pathogenic' if bad else 'Benign'};CLNREVSTAT={STARS};MC=SO:0001583|missense_variant"
        for c, s, r, a, bad in zip(contig, start, ref, alt, label, strict=True)
    ]
    fasta, vcf = folder / "genome.fa", folder / "clinvar.vcf"
    write_fasta(fasta, genome)
    vcf.write_text("\n".join([*HEADER, *lines]) + "\n")
    return fasta, vcf


def train(fasta: Path, vcf: Path, output: Path) -> float:
    figures = train_effect(
        vcf, None, fasta, output, min_stars=1, min_benign_frequency=1e-3, seed=1, report=lambda line: None
    )
    assert [each.group for each in figures] == ["all", "protein change"]
    return figures[0].auroc


def test_classes_are_told_apart_where_they_differ_and_used_by_a_run(tmp_path: Path) -> None:
    fasta, vcf = classified(tmp_path, is_shuffled=False)
    models = tmp_path / "models"
    assert train(fasta, vcf, models) > 0.8
    card = (models / "effect" / "MODEL_CARD.md").read_text()
    assert "| ClinVar: pathogenic |" in card
    assert "| protein change |" in card
    train(fasta, vcf, tmp_path / "again")
    name = Path("effect", "1", "model.onnx")
    assert (tmp_path / "again" / name).read_bytes() == (models / name).read_bytes()

    sheet = tmp_path / "sheet.csv"
    sheet.write_text("sample,vcf\nA,clinvar.vcf\n")
    command = ("score", sheet, "--reference", fasta, "--output", tmp_path / "out", "--pipeline", "pathogenicity")
    refused = run_command(*command)
    assert refused.returncode == 2
    assert "pathogenicity needs a model of clinical labels" in refused.stderr
    done = run_command(*command, "--models", models)
    assert done.returncode == 0, done.stderr
    scores: dict[str, list[float]] = {"Pathogenic": [], "Benign": []}
    with pysam.VariantFile(str(tmp_path / "out" / "samples" / "A" / "A.vcf.gz")) as file:
        for record in file:
            scores[record.info["CLNSIG"][0]].append(record.info["CF_PATHOGENICITY"][0])
    assert np.mean(scores["Pathogenic"]) > np.mean(scores["Benign"]) + 0.3
    assert "variants" in json.loads((tmp_path / "out" / "manifest.json").read_text())["recipe"]["models"]
    other = run_command(*command[:-2], "--models", models)
    assert other.returncode == 2
    assert "demo-effect needs a model of simulated labels" in other.stderr


def test_shuffled_labels_teach_nothing(tmp_path: Path) -> None:
    fasta, vcf = classified(tmp_path, is_shuffled=True)
    assert abs(train(fasta, vcf, tmp_path / "models") - 0.5) < 0.08


def test_what_cannot_be_learnt_from_is_told(tmp_path: Path) -> None:
    fasta, vcf = classified(tmp_path, is_shuffled=False)
    few = tmp_path / "few.vcf"
    few.write_text("\n".join(vcf.read_text().splitlines()[:60]) + "\n")

    def told(*more: object) -> str:
        command = ["train-effect", "--clinvar", few, "--reference", fasta, "--output", tmp_path / "models", *more]
        result = CliRunner().invoke(main, [str(each) for each in command])
        assert result.exit_code == 2
        assert not (tmp_path / "models").exists()
        return result.output

    assert "at least" in told()
    assert "no pathogenic allele" in told("--min-stars", 4)
    (tmp_path / "models").write_text("")
    assert (
        CliRunner()
        .invoke(
            main,
            ["train-effect", "--clinvar", str(vcf), "--reference", str(fasta), "--output", str(tmp_path / "models")],
        )
        .exit_code
        == 2
    )


@pytest.mark.parametrize("models", ["nowhere", "empty"])
def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path, models: str) -> None:
    (tmp_path / "empty").mkdir()
    fasta = tmp_path / "genome.fa"
    fasta.write_text(">chr1\nACGT\n")
    (tmp_path / "a.vcf").write_text("##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n")
    (tmp_path / "sheet.csv").write_text("sample,vcf\nA,a.vcf\n")
    request = ["score", tmp_path / "sheet.csv", "--reference", fasta, "--output", tmp_path / "out", "--models"]
    result = CliRunner().invoke(main, [str(each) for each in [*request, tmp_path / models]])
    assert result.exit_code == 2
    assert models in result.output
