"""A whole run: its fixed cost with one tiny VCF, and the memory of the process tree with a million records.

    python infra/bench_run.py [--records 1000000] [--folder DIR]

The fixed cost is that of the second run, when compiled kernels and Prefect's database are there. Memory is the sum of
the resident sets of the process tree (shared pages are counted once for each process), looked at five times a second.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from bench_annotate import make_reference, make_vcf

from tasks.genome.reference import prepare_reference

_COMMAND = Path(sys.executable).with_name("cohortflow")
_EVERY_S = 0.2


def tree_bytes(root: psutil.Process) -> int:
    """Summed resident memory of a process and its descendants."""
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def timed_run(vcf: Path, reference: Path, folder: Path) -> tuple[float, int]:
    """Scores one VCF into a new folder; returns seconds and peak bytes of the tree."""
    sheet = folder / "sheet.csv"
    sheet.write_text(f"sample,vcf\nA,{vcf}\n")
    with tempfile.TemporaryDirectory(dir=folder) as output:
        command = [str(_COMMAND), "score", str(sheet), "--reference", str(reference), "--output", f"{output}/out"]
        began, peak = time.monotonic(), 0
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
            root = psutil.Process(run.pid)
            while run.poll() is None:
                peak = max(peak, tree_bytes(root))
                time.sleep(_EVERY_S)
        if run.returncode:
            raise SystemExit(f"the run ended with exit code {run.returncode}")
        return time.monotonic() - began, peak


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        folder = Path(scratch)
        fasta = make_reference(folder, arguments.records)
        reference = prepare_reference(fasta, folder / "prepared")
        tiny, large = folder / "tiny.vcf.gz", folder / "large.vcf.gz"
        make_vcf(tiny, reference, 10)
        make_vcf(large, reference, arguments.records)
        timed_run(tiny, fasta, folder)
        seconds, peak = timed_run(tiny, fasta, folder)
        print(f"10 records, warm: {seconds:.1f} s, {peak / 1e9:.2f} GB")
        seconds, peak = timed_run(large, fasta, folder)
        print(f"{arguments.records:,} records: {seconds:.1f} s, {peak / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
