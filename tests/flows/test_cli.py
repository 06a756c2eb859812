"""The command line: its help is instant, its answers complete, each wrong request ends with 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flows.cli import main
from tasks.folder import locked_folder
from tasks.plan import Plan
from tests.conftest import REPOSITORY
from tests.tasks.variant_files import make_genome, vcf_text


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    """A sheet of one small VCF; its reference lies beside it."""
    make_genome(tmp_path)
    (tmp_path / "a.vcf").write_text(vcf_text([]))
    path = tmp_path / "sheet.csv"
    path.write_text("sample,vcf\nA,a.vcf\n")
    return path


def invoke(command: str, sheet: Path, *arguments: object) -> Result:
    """Runs a command of a sheet in this process: whatever it refuses, it refuses before it starts a service."""
    request = [command, sheet, "--reference", sheet.parent / "genome.fa", *arguments]
    return CliRunner().invoke(main, [str(each) for each in request])


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from flows.cli import main;"
        "assert CliRunner().invoke(main, ['score', '--help']).exit_code == 0;"
        "print(sorted({'prefect', 'distributed', 'numpy', 'pyarrow', 'pydantic', 'torch'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_pipelines_tell_models_resources_options_and_outputs() -> None:
    told = CliRunner().invoke(main, ["pipelines"])
    assert told.exit_code == 0, told.output
    for text in (
        "demo-effect\n",
        "unit: allele",
        "model variants, version 1:",
        "step embedder, version 1:",
        "step effect, version 1:",
        "resources: the reference",
        "options: none",
        "writes INFO/CF_DEMO_EFFECT (Number=A, Float)",
        "model reads, version 1:",
        "step caller, version 1:",
        "writes INFO/CF_REASON (Number=A, String)",
        "samples/ID/ID.vcf.gz",
        "cohort/alleles.parquet",
        "no clinical meaning",
    ):
        assert text in told.output
    cards = [Path(line.split(": ", 1)[1]) for line in told.output.splitlines() if line.endswith("MODEL_CARD.md")]
    assert len(cards) == 9
    assert all(card.is_file() for card in cards)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pipeline", "nope"), "no pipeline 'nope'; there is: demo-effect"),
        (("--option", "depth=3"), "depth"),
        (("--option", "depth"), "must be NAME=VALUE"),
        (("--workers", 0), "--workers"),
        (("--shard-bp", 5), "--shard-bp"),
        (("--regions", "none.bed"), "does not exist"),
        (("--scheduler", "http://h:1"), "must be tcp://host:port"),
    ],
)
def test_wrong_flags_end_with_2(sheet: Path, arguments: tuple[object, ...], said: str) -> None:
    told = invoke("score", sheet, "--output", sheet.parent / "out", *arguments)
    assert told.exit_code == 2, told.output
    assert said in told.output
    assert not (sheet.parent / "out" / "plan.json").exists()


def test_a_wrong_sheet_and_folder_end_with_2(sheet: Path) -> None:
    output = sheet.parent / "out"
    (sheet.parent / "wrong.csv").write_text("sample,vcf\nA/B,a.vcf\nC,none.vcf\n")
    told = invoke("score", sheet.with_name("wrong.csv"), "--output", output)
    assert told.exit_code == 2
    assert "line 2" in told.output
    assert "line 3" in told.output
    told = invoke("score", sheet, "--output", sheet)
    assert (told.exit_code, "is a file" in told.output) == (2, True)
    (sheet.parent / "mine").mkdir()
    (sheet.parent / "mine" / "work").touch()
    told = invoke("score", sheet, "--output", sheet.parent / "mine", "--overwrite")
    assert (told.exit_code, "no run of ours wrote" in told.output) == (2, True)
    with locked_folder(output) as folder:
        Plan({}, {}).write(folder.plan)
        told = invoke("score", sheet, "--output", output)
    assert (told.exit_code, "another run" in told.output) == (2, True)


def test_check_tells_every_sample_and_ends_with_2_at_a_fault(sheet: Path) -> None:
    told = invoke("check", sheet)
    assert told.exit_code == 0, told.output
    assert told.output.startswith("reference: build unknown, 2 contigs, 4,000 bp\nok      A: vcf;")
    assert told.output.endswith("1 samples, 0 with faults\n")
    (sheet.parent / "b.vcf").write_text("no VCF\n")
    (sheet.parent / "c.fq").write_text(f"@r\n{'ACGT' * 25}\n+\n{'I' * 100}\n")
    sheet.write_text("sample,vcf,fastq_1\nA,a.vcf,\nB,b.vcf,\nC,,c.fq\n")
    told = invoke("check", sheet)
    assert told.exit_code == 2
    assert "FAULT   B: NOT_VCF" in told.output
    assert "alignment: minimap2's index needs about" in told.output
    assert "3 samples, 1 with faults" in told.output


def test_models_are_listed_and_told_of_without_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COHORTFLOW_HOME", str(tmp_path))
    listed = CliRunner().invoke(main, ["models", "list"])
    assert listed.exit_code == 0
    assert listed.output.count(": not added\n") == 5
    shown = CliRunner().invoke(main, ["models", "show", "spliceai"])
    for text in ("SHA-256 63c633b8de68", "CC BY-NC 4.0. Academic", "cohortflow models add spliceai --accept-licence"):
        assert text in shown.output
    for command in (["show", "x"], ["remove", "tiara"], ["add", "x"], ["add", "spliceai"]):
        refused = CliRunner().invoke(main, ["models", *command])
        assert refused.exit_code == 2, refused.output
    assert "give --accept-licence" in refused.output
