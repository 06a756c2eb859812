"""Compares the k-mer profile of reads with jellyfish's counts; exits with 1 where they differ."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np

from monitoring.kmers import KmerProfile, canonical_kmers
from tasks.reads.fastq import check_reads
from tasks.simulation.genome import simulate_genome
from tasks.simulation.individual import simulate_individual
from tasks.simulation.library import Library
from tasks.simulation.variants import simulate_alleles

_SEED = 20_261_130
_LENGTH_BP = 100_000


def main() -> None:
    """Exits with a message when a count differs."""
    with tempfile.TemporaryDirectory() as scratch:
        rng = np.random.default_rng(_SEED)
        genome = simulate_genome(rng, [_LENGTH_BP])
        alleles = simulate_alleles(rng, genome)
        files = simulate_individual(Path(scratch), "reads", genome, alleles, rng, Library(depth=20), fastq=True)
        assert files.fastq is not None
        first, second = files.fastq
        lane = {"name": "1", "fastq_1": str(first), "fastq_2": str(second), "interleaved": False}
        profile = KmerProfile.from_json(check_reads([lane])["kmers"])
        ours = dict(zip(canonical_kmers(profile.k), profile.counts.tolist(), strict=True))
        theirs = count_by_jellyfish([first, second], profile.k, Path(scratch))
    differing = {kmer for kmer in ours.keys() | theirs.keys() if ours.get(kmer, 0) != theirs.get(kmer, 0)}
    print(
        f"{sum(ours.values()):,} k-mers of {profile.k} bases, {len(ours):,} kinds; {len(differing)} unlike jellyfish's"
    )
    if differing:
        kmer = min(differing)
        raise SystemExit(f"{kmer}: {ours.get(kmer, 0):,} here, {theirs.get(kmer, 0):,} by jellyfish")


def count_by_jellyfish(paths: list[Path], k: int, folder: Path) -> dict[str, int]:
    """Counts canonical k-mers of gzip FASTQ files with ``jellyfish count -C``."""
    inputs = " ".join(f"<(zcat '{path}')" for path in paths)
    counts = folder / "counts.jf"
    command = f"jellyfish count -C -m {k} -s 1M -o '{counts}' {inputs} && jellyfish dump -c '{counts}'"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True, stdout=subprocess.PIPE, text=True)
    return {kmer: int(count) for kmer, count in (line.split() for line in done.stdout.splitlines())}


if __name__ == "__main__":
    main()
