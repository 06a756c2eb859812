"""What must not change an answer: workers, units of work, order, names, letter case, container, representation."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pyarrow.parquet as pq
import pysam
import pytest

from tests.flows.cohort import Cohort, outputs, records, run_command
from tests.flows.test_score_cohort import manifest_of

Key = tuple[str, str, str, str]


def scores_of(path: Path) -> dict[Key, str]:
    """The score of each record, by contig (without prefix), place and allele, upper-cased."""
    found = {}
    for line in records(path):
        contig, pos, _, ref, alt, _, _, info = line.split("\t")[:8]
        score = next(field for field in info.split(";") if field.startswith("CF_DEMO_EFFECT="))
        found[contig.removeprefix("chr"), pos, ref.upper(), alt.upper()] = score
    return found


def text_of(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def in_lower_case(line: str) -> str:
    """The record with REF and ALT in lower case."""
    fields = line.split("\t")
    return "\t".join([*fields[:3], fields[3].lower(), fields[4].lower(), *fields[5:]])


def padded(cohort: Cohort, line: str) -> str:
    """The same allele with its left neighbour before it and its right neighbour after it."""
    contig, pos, name, ref, alt, *rest = line.split("\t")
    with pysam.FastaFile(str(cohort.reference)) as reference:
        start, end = int(pos) - 1, int(pos) - 1 + len(ref)
        left = reference.fetch(contig, start - 1, start).upper()
        right = reference.fetch(contig, end, end + 1).upper()
    alts = ",".join(left + each + right for each in alt.split(","))
    return "\t".join([contig, str(int(pos) - 1), name, left + ref + right, alts, *rest])


@pytest.fixture(scope="module")
def variants(cohort: Cohort) -> dict[str, Path]:
    """One VCF in many forms."""
    lines = text_of(cohort.vcf)
    head = [line for line in lines if line.startswith("#")]
    body = [line for line in lines if not line.startswith("#")]
    shuffled = random.Random(3).sample(body, len(body))
    forms = {
        "shuffled": [*head, *shuffled],
        "lower": [
            *head,
            *("\t".join(c.lower() if i in (3, 4) else c for i, c in enumerate(x.split("\t"))) for x in body),
        ],
        "bare": [line.replace("ID=chr", "ID=").removeprefix("chr") for line in lines],
        "padded": [*head, *(padded(cohort, line) for line in body)],
    }
    folder = cohort.folder / "forms"
    folder.mkdir()
    paths = {"given": cohort.vcf}
    for name, form in forms.items():
        paths[name] = folder / f"{name}.vcf"
        paths[name].write_text("\n".join(form) + "\n")
    for name, mode in (("bcf", "wb"), ("plain", "w")):
        paths[name] = folder / f"given.{'bcf' if name == 'bcf' else 'vcf'}"
        with pysam.VariantFile(str(cohort.vcf)) as source:
            with pysam.VariantFile(str(paths[name]), mode, header=source.header) as target:
                for record in source:
                    target.write(record)
    return paths


@pytest.fixture(scope="module")
def forms_run(cohort: Cohort, variants: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("forms") / "out"
    sheet = cohort.sheet("forms.csv", [{"sample": name, "vcf": path} for name, path in variants.items()])
    run = run_command("score", sheet, "--reference", cohort.reference, "--output", output)
    assert run.returncode == 0, run.stderr
    return output


@pytest.mark.parametrize("form", ["shuffled", "lower", "bare", "bcf", "plain"])
def test_forms_of_one_vcf_have_one_score(forms_run: Path, form: str) -> None:
    expected = scores_of(forms_run / "samples/given/given.vcf.gz")
    assert scores_of(forms_run / f"samples/{form}/{form}.vcf.gz") == expected
    assert len(expected) > 200


def test_other_representations_have_the_same_score(forms_run: Path) -> None:
    given = scores_of(forms_run / "samples/given/given.vcf.gz")
    found = scores_of(forms_run / "samples/padded/padded.vcf.gz")
    assert list(found.values()) == list(given.values())


def test_copies_and_forms_cost_one(forms_run: Path) -> None:
    manifest = manifest_of(forms_run)
    alleles = pq.read_table(forms_run / "cohort" / "alleles.parquet")
    assert alleles.num_rows == manifest["cohort"]["alleles"] / manifest["cohort"]["samples"]
    num_scored = alleles["reason"].null_count
    assert manifest["models"]["variants"]["rows"] == num_scored
    # Two alleles in copies of one sequence have one pair of windows.
    assert 0.95 * num_scored < manifest["models"]["effect"]["rows_executed"] <= num_scored


def test_an_unsorted_input_keeps_its_order_and_has_no_index(forms_run: Path, variants: dict[str, Path]) -> None:
    before = [line.split("\t")[:5] for line in variants["shuffled"].read_text().splitlines() if line[0] != "#"]
    assert [line.split("\t")[:5] for line in records(forms_run / "samples/shuffled/shuffled.vcf.gz")] == before
    assert not list((forms_run / "samples/shuffled").glob("*.tbi"))
    assert "the annotated VCF has no index" in (forms_run / "report.html").read_text()


def test_workers_and_units_of_work_change_no_byte(cohort: Cohort, tmp_path: Path) -> None:
    sheet = cohort.sheet(
        "units.csv",
        [
            {"sample": "B", "bam": cohort.individual.bam},
            {"sample": "V", "vcf": cohort.vcf},
            {"sample": "F", **dict(zip(("fastq_1", "fastq_2"), cohort.individual.fastq, strict=True))},  # type: ignore[arg-type]
        ],
    )
    found, embeddings = [], []
    for name, options in {
        "one": ["--workers", 1],
        "many": ["--workers", 3, "--shard-bp", 3000, "--shard-alleles", 17],
    }.items():
        output = tmp_path / name / "out"
        options += ["--embed-reads", 3000]
        run = run_command("score", sheet, "--reference", cohort.reference, "--output", output, *options)
        assert run.returncode == 0, run.stderr
        found.append(outputs(output))
        embeddings.append(manifest_of(output)["samples"]["F"]["embedding"])
    assert found[0] == found[1]
    assert embeddings[0] == embeddings[1]
    assert embeddings[0]["num_reads"] == 3000


def test_the_references_letters_and_container_change_no_score(cohort: Cohort, forms_run: Path, tmp_path: Path) -> None:
    lines = cohort.reference.read_text().splitlines()
    lower = [line if line.startswith(">") else line.lower() for line in lines]
    reference = tmp_path / "lower.fa.gz"
    with pysam.BGZFile(str(reference), "w") as handle:
        handle.write(("\n".join(lower) + "\n").encode())
    sheet = cohort.sheet("given.csv", [{"sample": "given", "vcf": cohort.vcf}])
    output = tmp_path / "out"
    run = run_command("score", sheet, "--reference", reference, "--output", output)
    assert run.returncode == 0, run.stderr
    name = "samples/given/given.vcf.gz"
    assert outputs(output)[name] == outputs(forms_run)[name]
