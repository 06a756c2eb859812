"""Reading, checking and writing a VCF with scores, beside `bcftools annotate`: one thread each, bgzip in and out.

    python infra/bench_annotate.py [--records 1000000] [--folder DIR]

Prints the processor time of both, their ratio (above 1: this program is faster) and this program's peak memory. The
Parquet table and the first reading (`scan_variants`), which bcftools has no counterpart of, are timed apart.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.bgzf import BgzfWriter
from tasks.genome.reference import Reference, load_reference, prepare_reference
from tasks.pipelines import OutputField
from tasks.variants.allele_runs import distinct_alleles
from tasks.variants.annotating import annotate_variants
from tasks.variants.scanning import scan_variants
from tasks.variants.score_table import ScoreTable
from tasks.variants.table import write_variant_table

FIELD = OutputField("CF_X", "Float", "A", "A number for the benchmark", decimals=4)
_SPACING_BP = 50
_BASES = np.frombuffer(b"ACGT", dtype=np.uint8)


def make_reference(folder: Path, num_records: int) -> Path:
    """Writes a random genome of two contigs that `num_records` variants fit on."""
    fasta = folder / "genome.fa"
    length_bp = (num_records // 2 + 10) * _SPACING_BP
    random = np.random.default_rng(1)
    with open(fasta, "wb") as handle:
        for name in (b"chr1", b"chr2"):
            letters = _BASES[random.integers(0, 4, length_bp)]
            handle.write(b">" + name + b"\n" + letters.tobytes() + b"\n")
    return fasta


def make_vcf(path: Path, reference: Reference, num_records: int) -> None:
    """Writes a VCF as a germline caller does: one sample, 13 INFO keys, one indel in eight, some multi-allelics."""
    random = np.random.default_rng(2)
    with open(path, "wb") as handle, BgzfWriter(handle) as writer:
        header = ["##fileformat=VCFv4.2", '##FILTER=<ID=PASS,Description="All filters passed">']
        header += [f"##contig=<ID={contig.name},length={contig.length_bp}>" for contig in reference.contigs]
        for number, kind, keys in (
            ("A", "Integer", "AC MLEAC"),
            ("A", "Float", "AF MLEAF"),
            ("1", "Integer", "AN DP"),
            ("1", "Float", "BaseQRankSum ExcessHet FS MQ QD ReadPosRankSum SOR"),
        ):
            header += [f'##INFO=<ID={key},Number={number},Type={kind},Description="{key}">' for key in keys.split()]
        for number, kind, key in (
            ("1", "String", "GT"),
            ("R", "Integer", "AD"),
            ("1", "Integer", "DP GQ"),
            ("G", "Integer", "PL"),
        ):
            header += [f'##FORMAT=<ID={k},Number={number},Type={kind},Description="{k}">' for k in key.split()]
        header.append("#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tNA1")
        writer.write(("\n".join(header) + "\n").encode())
        for index, contig in enumerate(reference.contigs):
            tokens = reference.contig_tokens(index)
            starts = np.arange(num_records // 2) * _SPACING_BP + random.integers(5, 40, num_records // 2)
            lines = [_record(random, contig.name, tokens, int(start)) for start in starts]
            writer.write("".join(lines).encode())


def _record(random: Any, contig: str, tokens: Any, start: int) -> str:
    reference_base = "ACGT"[tokens[start]]
    other = "ACGT"[(tokens[start] + random.integers(1, 4)) % 4]
    ref, alt, num_alts = reference_base, other, 1
    draw = random.random()
    if draw < 0.06:
        alt = reference_base + other * int(random.integers(1, 6))
    elif draw < 0.12:
        ref, alt = "".join("ACGT"[token] for token in tokens[start : start + random.integers(2, 8)]), reference_base
    elif draw < 0.14:
        alt, num_alts = f"{other},{reference_base}A", 2
    depth = int(random.integers(8, 70))
    r = random.random(8)
    each = ",".join(["1"] * num_alts)
    half = ",".join(["0.500"] * num_alts)
    return (
        f"{contig}\t{start + 1}\t.\t{ref}\t{alt}\t{r[0] * 900:.2f}\tPASS\tAC={each};AF={half};AN=2;"
        f"BaseQRankSum={r[1] * 4 - 2:.3f};DP={depth};ExcessHet=3.0103;FS={r[2] * 9:.3f};MLEAC={each};MLEAF={half};"
        f"MQ={58 + r[3] * 2:.2f};QD={r[4] * 30:.2f};ReadPosRankSum={r[5] * 3 - 1:.3f};SOR={r[6]:.3f}\t"
        f"GT:AD:DP:GQ:PL\t0/1:{depth // 2},{depth - depth // 2}:{depth}:99:{int(r[7] * 900)},0,{int(r[1] * 900)}\n"
    )


def make_scores(folder: Path, runs: list[Path], reference: Reference) -> Path:
    """Gives every allele a score; returns the table, as this program and (``scores.tsv.gz``) as bcftools read it."""
    alleles = distinct_alleles(runs, 0, 1 << 63)
    scores = np.round(np.random.default_rng(3).random(alleles.num_rows), 4)
    names = pa.array([contig.name for contig in reference.contigs]).take(alleles["contig"].combine_chunks())
    table = pa.table(
        {
            "locus": alleles["locus"],
            "code": alleles["code"],
            "contig": names,
            "pos": pc.add(alleles["start"], 1),
            "ref": alleles["ref"],
            "alt": alleles["alt"],
            FIELD.name: scores,
            "reason": pa.nulls(alleles.num_rows, pa.string()),
        }
    )
    path = folder / "alleles.parquet"
    pq.write_table(table, path, row_group_size=65_536)
    tsv = folder / "scores.tsv"
    columns = [table[name].to_pylist() for name in ("contig", "pos", "ref", "alt", FIELD.name)]
    tsv.write_text("".join(f"{c}\t{p}\t{r}\t{a}\t{s}\n" for c, p, r, a, s in zip(*columns, strict=True)))
    subprocess.run(["bgzip", "-f", tsv], check=True)
    subprocess.run(["tabix", "-f", "-s1", "-b2", "-e2", f"{tsv}.gz"], check=True)
    (folder / "scores.hdr").write_text(FIELD.header_line + "\n")
    return path


def timed(work: Callable[[], Any]) -> float:
    """Seconds of processor time that `work` took, its children's too: other work on the machine does not count."""

    def spent() -> float:
        usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    started = spent()
    work()
    return spent() - started


def peak_mb() -> float:
    """This process's peak memory; getrusage would count that of the parent from before the start as well."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measure_own(folder: Path) -> dict[str, float]:
    """Times this program's steps in a process of their own, compiled kernels warm; memory of the last two steps."""
    reference = load_reference(folder / "reference")
    vcf, output = folder / "input.vcf.gz", folder / "output"

    def annotate() -> None:
        with ScoreTable(folder / "alleles.parquet", [FIELD]) as scores:
            annotate_variants(vcf, reference, scores, [FIELD], output, "NA1", header_lines=[])

    times = {"annotate_s": timed(annotate)}
    times["annotate_peak_mb"] = peak_mb()
    times["scan_s"] = timed(lambda: scan_variants(vcf, reference, folder / "scan"))
    times["table_s"] = timed(
        lambda: write_variant_table(output / "NA1.vcf.gz", output / "NA1.parquet", [FIELD.name], {})
    )
    times["peak_mb"] = peak_mb()
    return times


def main() -> None:
    """Makes the files, runs both programs, prints what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the files go; kept, and used again")
    parser.add_argument("--measure-own", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="bench-annotate-"))
    if options.measure_own:
        print(json.dumps(measure_own(folder)))
        return
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "scores.tsv.gz.tbi").exists():
        reference = prepare_reference(make_reference(folder, options.records), folder / "reference")
        make_vcf(folder / "input.vcf.gz", reference, options.records)
        scan = scan_variants(folder / "input.vcf.gz", reference, folder / "scan")
        make_scores(folder, [folder / "scan" / name for name in scan["runs"]], reference)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
    own: dict[str, float] = {}
    bcftools_s = float("inf")
    command = [
        "bcftools",
        "annotate",
        "-a",
        "scores.tsv.gz",
        "-c",
        "CHROM,POS,REF,ALT,INFO/CF_X",
        "-h",
        "scores.hdr",
        "-Oz",
        "-o",
        "bcf.vcf.gz",
        "input.vcf.gz",
    ]
    for _ in range(2):
        run = [sys.executable, __file__, "--measure-own", "--folder", str(folder)]
        answer = json.loads(subprocess.run(run, check=True, capture_output=True, text=True, env=environment).stdout)
        own = answer if not own else {key: min(value, own[key]) for key, value in answer.items()}
        bcftools_s = min(
            bcftools_s, timed(lambda: subprocess.run(command, check=True, stderr=subprocess.DEVNULL, cwd=folder))
        )
    sizes = {
        name: (folder / path).stat().st_size
        for name, path in (("own", "output/NA1.vcf.gz"), ("bcftools", "bcf.vcf.gz"))
    }
    print(
        json.dumps(
            {
                "records": options.records,
                **{key: round(value, 2) for key, value in own.items()},
                "bcftools_annotate_s": round(bcftools_s, 2),
                "speed_beside_bcftools": round(bcftools_s / own["annotate_s"], 2),
                "output_mb": {name: round(size / 1e6, 1) for name, size in sizes.items()},
            },
            indent=2,
        )
    )
    if options.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
