"""The mean embedding of a FASTQ's reads: its share of a run, and how many reads a second the model server embeds.

    python infra/bench_embedding.py [--reads 200000] [--pair R1.fastq.gz R2.fastq.gz --reference REF.fa.gz] [--rounds 3]

A FASTQ pair (simulated, or the one given) is scored with `--embed-reads 0` and with the default, in turns; the best of
each counts, and the ratio is theirs. Reads a second are those of one server of one thread, whole reads asked for as a
run asks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pysam

from serving.server import ModelServer
from tasks.reads.embedding import embed_reads
from tasks.reads.sampling import ReadSampler

_COMMAND = Path(sys.executable).with_name("cohortflow")
_MODELS = Path(__file__).resolve().parent.parent / "data" / "models"
_GENOME_BP, _READ_BP, _INSERT_BP = 1_000_000, 150, 400
_COMPLEMENT = bytes.maketrans(b"ACGT", b"TGCA")


def make_pair(folder: Path, num_reads: int) -> tuple[Path, list[Path]]:
    """Writes a random genome and reads of it without errors, in pairs; returns the genome and the two files."""
    rng = np.random.default_rng(1)
    genome = np.frombuffer(b"ACGT", np.uint8)[rng.integers(0, 4, _GENOME_BP)].tobytes()
    reference = folder / "genome.fa"
    reference.write_bytes(b">chr1\n" + genome + b"\n")
    paths = [folder / f"reads_R{mate}.fastq.gz" for mate in (1, 2)]
    starts = rng.integers(0, _GENOME_BP - _INSERT_BP, num_reads // 2).tolist()
    with pysam.BGZFile(str(paths[0]), "w") as first, pysam.BGZFile(str(paths[1]), "w") as second:
        for number, start in enumerate(starts):
            insert = genome[start : start + _INSERT_BP]
            mates = insert[:_READ_BP], insert[-_READ_BP:].translate(_COMPLEMENT)[::-1]
            for file, bases in zip((first, second), mates, strict=True):
                file.write(b"@%d\n%s\n+\n%s\n" % (number, bases, b"I" * _READ_BP))
    return reference, paths


def timed_run(reference: Path, pair: list[Path], folder: Path, num_reads: int) -> tuple[float, float]:
    """Scores the pair into a new folder; returns seconds in all, and of the stage that embeds."""
    sheet = folder / "sheet.csv"
    sheet.write_text(f"sample,fastq_1,fastq_2\nA,{pair[0]},{pair[1]}\n")
    with tempfile.TemporaryDirectory(dir=folder) as output:
        command = [_COMMAND, "score", sheet, "--reference", reference, "--output", f"{output}/out", "--quiet"]
        began = time.monotonic()
        subprocess.run([*map(str, command), "--embed-reads", str(num_reads)], stdout=subprocess.DEVNULL, check=True)
        seconds = time.monotonic() - began
        stages = json.loads(Path(output, "out", "manifest.json").read_text())["seconds"]
        return seconds, stages.get("embed reads", 0.0)


def print_speed(server: ModelServer, folder: Path, what: str, lengths_bp: np.ndarray) -> None:
    """Embeds random reads of these lengths."""
    rng = np.random.default_rng(2)
    reads = [("", "".join(np.array(list("ACGT"))[rng.integers(0, 4, length_bp)]), "") for length_bp in lengths_bp]
    with ReadSampler(folder / "sampled", len(reads), len(reads)) as sampler:
        sampler.show(reads)
    before = server.statistics()["read_embedder"]
    began = time.monotonic()
    embed_reads(folder / "sampled", lambda inputs: server.submit("read_embedder", inputs))
    seconds = time.monotonic() - began
    after = server.statistics()["read_embedder"]
    slots, used = (after[name] - before[name] for name in ("slot_steps", "slot_steps_used"))
    print(
        f"{what}: {len(reads) / seconds:,.0f} reads/s, {lengths_bp.sum() / seconds / 1e6:.1f} Mb/s; "
        f"slots in use while reads wait {used / max(slots, 1):.1%}"
    )


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=200_000)
    parser.add_argument("--pair", type=Path, nargs=2)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as scratch, ModelServer(_MODELS, models=["read_embedder"]) as server:
        folder = Path(scratch)
        print_speed(server, folder, "10,000 reads of 150 bases", np.full(10_000, 150))
        print_speed(server, folder, "10,000 reads of 50 to 150 bases", rng.integers(50, 151, 10_000))
        long_bp = np.clip(rng.gamma(1.5, 8_000, 2_000), 50, 100_000).astype(int)
        print_speed(server, folder, f"2,000 long reads, {long_bp.mean():,.0f} bases on average", long_bp)
        reference, pair = (
            (arguments.reference, arguments.pair) if arguments.pair else make_pair(folder, arguments.reads)
        )
        timed_run(reference, pair, folder, 10_000)
        runs = [[timed_run(reference, pair, folder, number) for number in (0, 10_000)] for _ in range(arguments.rounds)]
    off, on = (min(run[place][0] for run in runs) for place in (0, 1))
    stage = min(run[1][1] for run in runs)
    print(f"a run: off {off:.1f} s, on {on:.1f} s, ratio {on / off:.3f}; the stage itself {stage:.2f} s")


if __name__ == "__main__":
    main()
