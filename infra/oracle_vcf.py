"""Normalised alleles beside `bcftools norm`, on random alleles in a repetitive genome.

    python infra/oracle_vcf.py [--alleles 200000] [--seed 1]

Both normalise the same VCF. Where they differ the allele is printed and the exit code is 1. The genome has no N:
bcftools shifts an indel onto one, this program does not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tasks.genome.reference import prepare_reference
from tasks.variants.allele_runs import distinct_alleles
from tasks.variants.scanning import scan_variants

_CONTIG_BP = 200_000
_SHOWN = 10


def repetitive_sequence(random: np.random.Generator, length_bp: int) -> str:
    """Random bases, most of them in tandem repeats of 1 to 11 bases."""
    parts: list[str] = []
    made = 0
    while made < length_bp:
        unit = "".join("ACGT"[token] for token in random.integers(0, 4, random.integers(1, 12)))
        part = unit * int(random.integers(1, 30)) if random.random() < 0.7 else unit
        parts.append(part)
        made += len(part)
    return "".join(parts)[:length_bp]


def random_allele(random: np.random.Generator, sequence: str) -> tuple[int, str, str]:
    """A 0-based start, REF and ALT, some padded and some shifted within their repeat."""
    start = int(random.integers(0, len(sequence) - 100))
    ref = sequence[start : start + int(random.integers(1, 40))]
    draw = random.random()
    if draw < 0.3:
        alt = ref[: int(random.integers(1, len(ref) + 1))]
    elif draw < 0.6:
        alt = ref[:1] + ref * int(random.integers(1, 3))
    elif draw < 0.8:
        cut = int(random.integers(0, len(ref)))
        alt = ref[:cut] + "ACGT"[random.integers(0, 4)] + ref[cut + 1 :]
    else:
        alt = "".join("ACGT"[token] for token in random.integers(0, 4, random.integers(1, 40)))
    return start, ref, alt


def write_files(folder: Path, num_alleles: int, seed: int) -> tuple[Path, Path]:
    """Writes the genome and the VCF."""
    random = np.random.default_rng(seed)
    sequences = {name: repetitive_sequence(random, _CONTIG_BP) for name in ("1", "2")}
    fasta, vcf = folder / "genome.fa", folder / "alleles.vcf"
    fasta.write_text("".join(f">{name}\n{sequence}\n" for name, sequence in sequences.items()))
    with open(vcf, "w") as handle:
        handle.write("##fileformat=VCFv4.2\n")
        handle.writelines(f"##contig=<ID={name},length={len(sequences[name])}>\n" for name in sequences)
        handle.write("#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n")
        for name, sequence in sequences.items():
            for _ in range(num_alleles // 2):
                start, ref, alt = random_allele(random, sequence)
                if ref != alt:
                    handle.write(f"{name}\t{start + 1}\t.\t{ref}\t{alt}\t.\t.\t.\n")
    return fasta, vcf


def main() -> int:
    """Compares; returns the exit code."""
    parser = argparse.ArgumentParser(description="Normalised alleles beside bcftools norm.")
    parser.add_argument("--alleles", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fasta, vcf = write_files(folder, options.alleles, options.seed)
        command = ["bcftools", "norm", "-f", str(fasta), str(vcf)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        theirs = {
            (fields[0], int(fields[1]), fields[3], fields[4])
            for fields in (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
        }
        reference = prepare_reference(fasta, folder / "prepared")
        scan = scan_variants(vcf, reference, folder / "scan")
        table = distinct_alleles([folder / "scan" / run for run in scan["runs"]], 0, 1 << 63)
    contigs = [contig.name for contig in reference.contigs]
    ours = {
        (contigs[row["contig"]], row["start"] + 1, row["ref"], row["alt"])
        for row in table.select(["contig", "start", "ref", "alt"]).to_pylist()
    }
    print(f"{scan['alleles']:,} alleles; distinct: {len(ours):,} here, {len(theirs):,} by bcftools norm")
    for title, only in (("only here", ours - theirs), ("only by bcftools", theirs - ours)):
        print(f"{title}: {len(only):,}", *sorted(only)[:_SHOWN], sep="\n  " if only else "")
    return int(ours != theirs or not ours)


if __name__ == "__main__":
    sys.exit(main())
