"""A tiny simulated cohort for the tests of whole runs, and runs of the command line on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pysam

from tasks.simulation.genome import simulate_genome
from tasks.simulation.individual import Individual, simulate_individual
from tasks.simulation.library import Library
from tasks.simulation.placing import Placer
from tasks.simulation.texts import write_fasta
from tasks.simulation.variants import simulate_alleles

COMMAND = Path(sys.executable).with_name("cohortflow")


@dataclass(frozen=True)
class Cohort:
    """One individual's files in every form, and its reference."""

    folder: Path
    reference: Path
    individual: Individual

    @property
    def vcf(self) -> Path:
        return self.individual.truth

    def sheet(self, name: str, rows: Sequence[dict[str, object]]) -> Path:
        """Writes a sample sheet with these rows."""
        columns = list(dict.fromkeys(column for row in rows for column in row))
        lines = [",".join(columns), *(",".join(str(row.get(column, "")) for column in columns) for row in rows)]
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        return path


def make_cohort(folder: Path) -> Cohort:
    """Simulates the individual: 90 kb of genome, about 300 alleles, 25-fold reads."""
    rng = np.random.default_rng(7)
    genome = simulate_genome(rng, (60_000, 30_000))
    reference = folder / "reference.fa"
    write_fasta(reference, genome)
    alleles = simulate_alleles(rng, genome, heterozygosity=2.5e-3)
    individual = simulate_individual(
        folder, "I1", genome, alleles, rng, Library(depth=25), placer=Placer(reference, genome), fastq=True
    )
    return Cohort(folder, reference, individual)


def run_command(*arguments: object, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs ``cohortflow`` as a user would."""
    return subprocess.run(
        [str(COMMAND), *map(str, arguments)],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def outputs(folder: Path) -> dict[str, bytes]:
    """The bytes of every output, without what may differ: the manifest and the report's timing block."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or name.startswith("work/") or name in (".lock", "manifest.json"):
            continue
        content = path.read_bytes()
        if name == "report.html":
            head, _, rest = content.partition(b'<section id="timing"')
            content = head + rest.partition(b"</section>")[2]
        found[name] = content
    return found


def records(path: Path) -> list[str]:
    """The record lines of a VCF."""
    with pysam.BGZFile(str(path)) as lines:
        return [line.decode() for line in lines if not line.startswith(b"#")]
