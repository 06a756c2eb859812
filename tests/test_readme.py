"""The README holds: its commands, its sheet, its columns."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
from click.testing import CliRunner

from flows.cli import main
from tasks.sheets.sheet import read_sheet
from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for _, block in BLOCKS for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith(("make ", "cohortflow "))]


def test_every_command_exists() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    found = commands()
    assert {words[0] for words in found} == {"make", "cohortflow"}
    for words in found:
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), words
            continue
        names = words[1:3] if isinstance(main.commands[words[1]], click.Group) else words[1:2]
        told = CliRunner().invoke(main, [*names, "--help"])
        assert told.exit_code == 0, words
        for option in (word for word in words if word.startswith("--")):
            assert option in told.output, words


def test_the_example_sheet_is_read(tmp_path: Path) -> None:
    text = next(block for kind, block in BLOCKS if kind == "csv")
    for name in re.findall(r"[a-z]+/[\w.]+", text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(text)
    assert [(sample.id, sample.kind) for sample in read_sheet(sheet).samples] == [
        ("NA1", "vcf"),
        ("NA2", "bam"),
        ("NA3", "fastq"),
    ]


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (REPOSITORY / target).exists(), target


def test_exit_codes_are_those_of_the_help() -> None:
    told = CliRunner().invoke(main, ["score", "--help"]).output
    for code in ("0 all samples done", "3 finished", "2 the sheet", "1 the run failed", "130 cancelled"):
        assert code in " ".join(told.split())
        assert code in " ".join(README.split())
