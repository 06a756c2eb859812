"""Compares pipeline ``spliceai`` with the published command line, string by string.

    oracle_spliceai.py REFERENCE.fa GENES.txt MODELS VARIANTS.vcf --oracle VENV/bin/spliceai [-D 50] [-M 0] [--strict]

The command line is spliceai 1.3.1 with tensorflow and numpy<2.3, in a virtual environment of its own. Without --strict
the records have to be trimmed and left-aligned, and one of several bases in REF and ALT is left out of the comparison.
Exit code 1 when a string differs.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from serving.server import ModelServer
from tasks.genome.reference import prepare_reference
from tasks.pipelines import Resources, make_pipeline
from tasks.splicing.transcripts import load_transcripts, prepare_transcripts
from tasks.variants.alleles import ALLELE_SCHEMA


def main() -> None:
    """Runs both and prints what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("reference", "genes", "models", "variants"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("-D", type=int, default=50, dest="distance")
    parser.add_argument("-M", type=int, default=0, dest="mask")
    parser.add_argument("--strict", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        told = _published(arguments, Path(scratch) / "out.vcf")
        found = _own(arguments, list(told), Path(scratch))
    compared = [key for key in told if arguments.strict or min(len(key[2]), len(key[3])) == 1]
    differ = [(key, told[key], found[key]) for key in compared if told[key] != found[key]]
    for key, theirs, ours in differ:
        print(*key, f"published {theirs or 'nothing'}, own {ours or 'nothing'}")
    print(f"{len(compared)} records compared, {len(differ)} differ")
    raise SystemExit(bool(differ))


def _published(arguments: argparse.Namespace, output: Path) -> dict[tuple[str, int, str, str], str]:
    """The tool's entries of each record by contig, POS, REF and ALT; records have one ALT."""
    command = [arguments.oracle, "-I", arguments.variants, "-O", output, "-R", arguments.reference]
    command += ["-A", arguments.genes, "-D", arguments.distance, "-M", arguments.mask]
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    told = {}
    for line in output.read_text().splitlines():
        if line and not line.startswith("#"):
            contig, position, _, ref, alt, _, _, info = line.split("\t")[:8]
            entries = [each for each in info.split(";") if each.startswith("SpliceAI=")]
            told[contig, int(position), ref, alt] = entries[0].removeprefix("SpliceAI=") if entries else ""
    return told


def _own(
    arguments: argparse.Namespace, keys: list[tuple[str, int, str, str]], folder: Path
) -> dict[tuple[str, int, str, str], str]:
    reference = prepare_reference(arguments.reference, folder / "reference")
    prepare_transcripts(arguments.genes, reference, folder / "transcripts")
    options = {"distance": arguments.distance, "mask": bool(arguments.mask), "strict_compat": arguments.strict}
    pipeline = make_pipeline("spliceai", options)
    zeros = np.zeros(len(keys), np.uint64)
    contig = np.array([reference.contig_index(name) for name, *_ in keys], np.int32)
    start = np.array([position - 1 for _, position, *_ in keys])
    columns = [zeros, zeros, contig, start, [ref for *_, ref, _ in keys], [alt for *_, alt in keys]]
    alleles = pa.table(columns, schema=ALLELE_SCHEMA)
    resources = Resources(transcripts=load_transcripts(folder / "transcripts"))
    with ModelServer(arguments.models, threads=2, models=["spliceai"]) as server:
        rows = pipeline.expand(alleles, reference, {}, resources)
        texts = pipeline.collapse(len(keys), rows, server.infer("spliceai", rows.inputs))["SpliceAI"]
    return {key: text or "" for key, text in zip(keys, texts, strict=True)}


if __name__ == "__main__":
    main()
