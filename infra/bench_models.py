"""Speed of pipeline ``spliceai`` beside the published command line: the same variants, the same machine, fp32, cold.

    bench_models.py REFERENCE.fa GENES.txt MODELS [--oracle VENV/bin/spliceai] [--variants 40] [--threads 2]

Two sets of single-base variants of the genes: inside 13 kb of one gene, and at least 10.2 kb apart. A figure is
(time of N - time of 1) / (N - 1), so that neither side's start counts. Beside it: what the matrix products alone would
take at the machine's measured peak. Prints a line a set.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from serving.server import ModelServer
from tasks.genome.reference import Reference, prepare_reference
from tasks.pipelines import Resources, make_pipeline
from tasks.splicing.transcripts import Transcripts, load_transcripts, prepare_transcripts
from tasks.variants.alleles import ALLELE_SCHEMA

_NEAR_BP, _APART_BP = 13_000, 10_250


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=Path)
    parser.add_argument("genes", type=Path)
    parser.add_argument("models", type=Path)
    parser.add_argument("--oracle", type=Path)
    parser.add_argument("--variants", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        reference = prepare_reference(arguments.reference, folder / "reference")
        prepare_transcripts(arguments.genes, reference, folder / "transcripts")
        transcripts = load_transcripts(folder / "transcripts")
        torch.set_num_threads(arguments.threads)
        print(f"matrix products at peak: {_peak() / 1e9:.0f} GFLOP/s on {arguments.threads} threads")
        for name, apart_bp in (("inside one gene", _NEAR_BP // arguments.variants), ("far apart", _APART_BP)):
            alleles = _alleles(reference, transcripts, apart_bp, arguments.variants)
            ours = _per_variant(lambda few: _score(few, reference, transcripts, arguments), alleles)
            line = f"{name}: {alleles.num_rows} variants, {ours:.3f} s a variant"
            if arguments.oracle:
                theirs = _per_variant(lambda few: _run_oracle(few, reference, arguments, folder), alleles)
                line += f", published tool {theirs:.3f} s: {theirs / ours:.1f} times"
            print(line, flush=True)


def _alleles(reference: Reference, transcripts: Transcripts, apart_bp: int, count: int) -> pa.Table:
    """Single-base alleles, one gene each, along the table's genes at steps of `apart_bp`."""
    taken: list[tuple[int, int]] = []
    order = np.argsort(transcripts.start - transcripts.end if apart_bp >= _APART_BP else transcripts.start)
    for number in order:
        contig = int(transcripts.contig[number])
        tokens = reference.contig_tokens(contig)
        for start in range(int(transcripts.start[number]) + 100, int(transcripts.end[number]), apart_bp):
            beside = [at for place, at in taken if place == contig]
            is_free = all(abs(at - start) >= apart_bp for at in beside)
            inside = (transcripts.contig == contig) & (transcripts.start <= start) & (start < transcripts.end)
            if is_free and inside.sum() == 1 and (tokens[start - 5_050 : start + 5_051] < 4).all():
                taken.append((contig, start))
            if len(taken) == count:
                break
        if len(taken) == count:
            break
    taken.sort()
    refs = ["ACGT"[reference.contig_tokens(contig)[start]] for contig, start in taken]
    zeros = np.zeros(len(taken), np.uint64)
    contigs, starts = np.array(taken).T
    columns = [zeros, zeros, contigs.astype(np.int32), starts, refs, ["ACGT"[("ACGT".index(r) + 1) % 4] for r in refs]]
    return pa.table(columns, schema=ALLELE_SCHEMA)


def _per_variant(run, alleles: pa.Table) -> float:  # type: ignore[no-untyped-def]
    """Seconds of a variant without the start: (time of all - time of one) / (all - 1)."""
    seconds = []
    for few in (alleles.slice(0, 1), alleles):
        began = time.perf_counter()
        run(few)
        seconds.append(time.perf_counter() - began)
    return (seconds[1] - seconds[0]) / (alleles.num_rows - 1)


def _score(alleles: pa.Table, reference: Reference, transcripts: Transcripts, arguments: argparse.Namespace) -> None:
    """Scores with a server of its own, so that no row is known."""
    with ModelServer(arguments.models, threads=arguments.threads, models=["spliceai"]) as server:
        pipeline = make_pipeline("spliceai")
        rows = pipeline.expand(alleles, reference, {}, Resources(transcripts=transcripts))
        pipeline.collapse(alleles.num_rows, rows, server.infer("spliceai", rows.inputs))


def _run_oracle(alleles: pa.Table, reference: Reference, arguments: argparse.Namespace, folder: Path) -> None:
    lines = [f"##contig=<ID={contig.name},length={contig.length_bp}>" for contig in reference.contigs]
    lines = ["##fileformat=VCFv4.2", *lines, "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"]
    for row in alleles.to_pylist():
        name = reference.contigs[row["contig"]].name
        lines.append(f"{name}\t{row['start'] + 1}\t.\t{row['ref']}\t{row['alt']}\t.\t.\t.")
    (folder / "in.vcf").write_text("\n".join(lines) + "\n")
    command = [arguments.oracle, "-I", folder / "in.vcf", "-O", folder / "out.vcf", "-R", arguments.reference]
    subprocess.run([*map(str, command), "-A", str(arguments.genes)], check=True, capture_output=True)


def _peak() -> float:
    """Multiplications and additions a second of a large matrix product, the best of five."""
    matrix = torch.randn(2_048, 2_048)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - began)
    return 2 * 2_048**3 / best


if __name__ == "__main__":
    main()
