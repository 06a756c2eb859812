"""Simulated families: parents drawn from one population, children of their haplotypes, as VCFs of a small genome."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.genome.reference import Reference, prepare_reference
from tasks.identity.genotypes import GenotypeCollector
from tasks.identity.sites import GenotypeFile
from tasks.simulation.genome import Genome, simulate_genome
from tasks.simulation.texts import write_fasta, write_vcf
from tasks.simulation.variants import Alleles, simulate_alleles
from tasks.variants.scanning import scan_variants

NUM_CONTIGS = 14

Haplotypes = npt.NDArray[np.bool_]


@dataclass
class Population:
    """A genome, its alleles and where files go."""

    folder: Path
    genome: Genome
    alleles: Alleles
    fasta: Path
    reference: Reference
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))

    def person(self) -> Haplotypes:
        """A stranger's haplotypes: bool [alleles, 2]."""
        return self.alleles.draw(self.rng)

    def child(self, father: Haplotypes, mother: Haplotypes) -> Haplotypes:
        """A child's haplotypes: of each parent and contig both, joined at one random place."""
        return np.stack([self._gamete(father), self._gamete(mother)], axis=1)

    def _gamete(self, parent: Haplotypes) -> npt.NDArray[np.bool_]:
        out = np.zeros(len(parent), dtype=np.bool_)
        for contig in range(len(self.genome.tokens)):
            rows = np.flatnonzero(self.alleles.contig == contig)
            cut, first = self.rng.integers(0, len(rows) + 1), self.rng.integers(2)
            out[rows[:cut]], out[rows[cut:]] = parent[rows[:cut], first], parent[rows[cut:], 1 - first]
        return out

    def vcf(self, name: str, persons: dict[str, Haplotypes]) -> Path:
        """Writes persons as one VCF, a column each."""
        path = self.folder / f"{name}.vcf.gz"
        write_vcf(path, self.genome, self.alleles, list(persons), np.stack(list(persons.values()), axis=1))
        return path

    def collect(self, name: str, vcf: Path, *, vcf_sample: str | None = None, max_sites: int = 100_000) -> GenotypeFile:
        """Keeps a VCF's genotypes, as a run does."""
        work = self.folder / f"work-{name}"
        collector = GenotypeCollector(self.reference, vcf_sample=vcf_sample, max_sites=max_sites)
        scan_variants(vcf, self.reference, work, vcf_sample=vcf_sample, observer=collector.observe)
        collector.write(work / "genotypes.parquet")
        return GenotypeFile(name, work / "genotypes.parquet")


def make_population(folder: Path) -> Population:
    """Fourteen contigs of 40 kb, on which a person has about 1,400 heterozygous SNVs."""
    rng = np.random.default_rng(11)
    genome = simulate_genome(rng, (40_000,) * NUM_CONTIGS)
    alleles = simulate_alleles(rng, genome, heterozygosity=2.5e-3)
    fasta = folder / "reference.fa"
    write_fasta(fasta, genome)
    return Population(folder, genome, alleles, fasta, prepare_reference(fasta, folder / "reference"))
