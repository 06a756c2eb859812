"""A model of classified alleles, from `train-effect` to a run that uses it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pysam
import pytest
from click.testing import CliRunner

from flows.cli import main
from flows.train_effect import train_effect
from serving.server import ModelServer
from tasks.simulation.consequences import damages
from tasks.simulation.genes import plant_genes
from tasks.simulation.genome import UNKNOWN, simulate_genome
from tasks.simulation.texts import write_fasta
from tasks.training.label_figures import HeldOutFigures
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


def train(fasta: Path, vcf: Path, output: Path, seed: int = 1) -> HeldOutFigures:
    figures = train_effect(
        vcf, None, fasta, output, min_stars=1, min_benign_frequency=1e-3, seed=seed, report=lambda line: None
    )
    assert [each.group for each in figures] == ["all", "all, matched by consequence", "protein change"]
    return figures[0]


def told(*arguments: object) -> tuple[int, str]:
    """Exit code and text of a command that starts no service."""
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    return result.exit_code, result.output


def digest(models: Path) -> str:
    with ModelServer(models, models=["variants"]) as server:
        return server.digest("variants")


def test_classes_are_told_apart_where_they_differ_and_used_by_a_run(tmp_path: Path) -> None:
    fasta, vcf = classified(tmp_path, is_shuffled=False)
    models = tmp_path / "models"
    figures = train(fasta, vcf, models)
    assert figures.auroc > 0.8
    assert figures.average_precision > figures.num_pathogenic / (figures.num_pathogenic + figures.num_benign) + 0.2
    assert figures.brier < 0.2
    card = (models / "effect" / "MODEL_CARD.md").read_text()
    assert "| ClinVar: pathogenic |" in card
    assert "| protein change |" in card
    assert hashlib.sha256(vcf.read_bytes()).hexdigest() in card
    assert "frequency is not matched" in card
    train(fasta, vcf, tmp_path / "again")
    name = Path("effect", "1", "model.onnx")
    assert (tmp_path / "again" / name).read_bytes() == (models / name).read_bytes()

    sheet = tmp_path / "sheet.csv"
    sheet.write_text("sample,vcf\nA,clinvar.vcf\n")
    command = ("score", sheet, "--reference", fasta, "--output", tmp_path / "out", "--pipeline", "pathogenicity")
    code, text = told(*command)
    assert code == 2
    assert "pathogenicity needs a model of clinical labels" in text
    done = run_command(*command, "--models", models)
    assert done.returncode == 0, done.stderr
    scores: dict[str, list[float]] = {"Pathogenic": [], "Benign": []}
    with pysam.VariantFile(str(tmp_path / "out" / "samples" / "A" / "A.vcf.gz")) as file:
        for record in file:
            scores[record.info["CLNSIG"][0]].append(record.info["CF_PATHOGENICITY"][0])
    assert np.mean(scores["Pathogenic"]) > np.mean(scores["Benign"]) + 0.3
    code, text = told(*command[:-2], "--models", models)
    assert code == 2
    assert "demo-effect needs a model of simulated labels" in text

    # What a model is, not where it lies, is part of the plan: a copy is the same, another one no way to go on.
    recipe = json.loads((tmp_path / "out" / "manifest.json").read_text())["recipe"]
    assert recipe["models"]["variants"]["digest"] == digest(models) == digest(tmp_path / "again")
    assert str(models) not in (tmp_path / "out" / "plan.json").read_text()
    train(fasta, vcf, tmp_path / "other", seed=2)
    refused = run_command(*command, "--models", tmp_path / "other")
    assert refused.returncode == 2
    assert f"models.variants.digest: was {digest(models)[:12]}" in refused.stderr


def test_shuffled_labels_teach_nothing(tmp_path: Path) -> None:
    fasta, vcf = classified(tmp_path, is_shuffled=True)
    figures = train(fasta, vcf, tmp_path / "models")
    assert abs(figures.auroc - 0.5) < 0.08
    # A model that knows nothing says a half, not something at random.
    assert figures.brier < 0.26
    assert figures.calibration_error < 0.1


def test_what_cannot_be_learnt_from_is_told(tmp_path: Path) -> None:
    fasta, vcf = classified(tmp_path, is_shuffled=False)
    few, bare, moved = tmp_path / "few.vcf", tmp_path / "bare.vcf", tmp_path / "moved.vcf"
    lines = vcf.read_text().splitlines()
    few.write_text("\n".join(lines[:60]) + "\n")
    bare.write_text("\n".join(line for line in lines if "ID=CLNSIG," not in line) + "\n")
    fields = [line.split("\t") for line in lines[len(HEADER) :]]
    shifted = ["\t".join([name, str(int(position) + 7), *rest]) for name, position, *rest in fields]
    moved.write_text("\n".join([*HEADER, *shifted]) + "\n")
    models = tmp_path / "models"

    def refused(labels: Path, *more: object) -> str:
        code, text = told("train-effect", "--clinvar", labels, "--reference", fasta, "--output", models, *more)
        assert code == 2
        return text

    assert "at least" in refused(few)
    assert "no pathogenic allele" in refused(vcf, "--min-stars", 4)
    assert "declares no INFO CLNSIG" in refused(bare)
    assert "wrong reference" in refused(moved)
    assert "--benign, which is not given" in refused(vcf, "--min-benign-frequency", 0.5)
    assert [path.name for path in tmp_path.iterdir() if "models" in path.name] == []
    models.write_text("")
    assert "is there already" in refused(vcf)


@pytest.mark.parametrize("models", ["nowhere", "empty"])
def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path, models: str) -> None:
    (tmp_path / "empty").mkdir()
    fasta = tmp_path / "genome.fa"
    fasta.write_text(">chr1\nACGT\n")
    (tmp_path / "a.vcf").write_text("##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n")
    (tmp_path / "sheet.csv").write_text("sample,vcf\nA,a.vcf\n")
    request = [tmp_path / "sheet.csv", "--reference", fasta, "--models", tmp_path / models]
    for command in (
        ["score", *request, "--output", tmp_path / "out"],
        ["check", *request],
        ["pipelines", *request[3:]],
    ):
        code, text = told(*command)
        assert code == 2
        assert models in text
