"""Checks depths against samtools depth, and prints both speeds: simulated reads, and the real slice where it is."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from bench_calls import Sample, samples

from tasks.calling.bam_stream import open_alignment
from tasks.coverage.depth import measure_depth
from tasks.genome.reference import prepare_reference
from tasks.intervals import parse_region

_MOST_DIFFERING = 2e-3
"""Of two overlapping mates samtools may keep the one whose base is too poor to count; here either will do."""
_SLOWEST_BESIDE_SAMTOOLS = 1.5


def compare(sample: Sample, folder: Path) -> list[str]:
    """Prints one sample's figures; returns what is wrong."""
    reference = prepare_reference(sample.fasta, folder / "reference")
    interval = parse_region(sample.region, {contig.name: contig.length_bp for contig in reference.contigs})
    contig = reference.contigs[reference.contig_index(interval.contig)]
    with open_alignment(sample.bam, None, reference.fasta_path) as alignment:
        for _ in range(2):  # the first round compiles
            began = time.perf_counter()
            depth = measure_depth(
                alignment, alignment.get_tid(contig.name), interval.start, interval.end,
                contig_length_bp=contig.length_bp, windows=np.array([[interval.start, interval.end]]),
            )  # fmt: skip
            ours_s = time.perf_counter() - began
    reads, _ = _samtools(sample, "-Q 10 -q 0")
    fragments, theirs_s = _samtools(sample, "-Q 10 -q 10 -s")
    differing = depth.usable != fragments
    print(
        f"{sample.name}: mean depth {depth.usable.mean():.3f}, samtools {fragments.mean():.3f}, "
        f"{differing.mean():.2e} of the bases differ; {ours_s:.2f} s, samtools {theirs_s:.2f} s"
    )
    faults = []
    if not np.array_equal(depth.well_mapped, reads):
        faults.append(f"{sample.name}: reads of any base quality are counted otherwise than by samtools")
    if differing.mean() > _MOST_DIFFERING or (depth.usable < fragments).any():
        faults.append(f"{sample.name}: {differing.sum():,} usable depths differ from those of samtools")
    if ours_s > _SLOWEST_BESIDE_SAMTOOLS * theirs_s:
        faults.append(f"{sample.name}: {ours_s:.2f} s, samtools {theirs_s:.2f} s")
    return faults


def _samtools(sample: Sample, options: str) -> tuple[np.ndarray, float]:
    """Depths by samtools over the sample's region, and the seconds they took."""
    began = time.perf_counter()
    command = f"samtools depth -a {options} -r {sample.region} '{sample.bam}' | cut -f3"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True, stdout=subprocess.PIPE, text=True)
    return np.array(done.stdout.split(), np.int64), time.perf_counter() - began


def main() -> None:
    """Exits with a message when depths differ or take too long."""
    faults = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, sample in enumerate(samples(Path(scratch))):
            faults += compare(sample, Path(scratch) / str(number))
    if faults:
        raise SystemExit("\n".join(faults))


if __name__ == "__main__":
    main()
