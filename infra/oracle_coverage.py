"""Checks depths against samtools depth, and prints both speeds: simulated reads, and the real slice where it is."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from bench_calls import Sample, samples

from tasks.calling.bam_stream import open_alignment
from tasks.coverage.depth import Depth, measure_depth
from tasks.genome.reference import Reference, prepare_reference
from tasks.intervals import Interval, parse_region

_MOST_DIFFERING = 0.03
"""Of two overlapping mates samtools may keep the one whose base is too poor to count; here either will do, and then one
more fragment is counted. Without second mates no base may differ."""
_SLOWEST_BESIDE_SAMTOOLS = 6.0


def compare(sample: Sample, folder: Path) -> list[str]:
    """Prints one sample's figures; returns what is wrong."""
    reference = prepare_reference(sample.fasta, folder / "reference")
    interval = parse_region(sample.region, {contig.name: contig.length_bp for contig in reference.contigs})
    ours, ours_s = _measure(sample.bam, reference, interval)
    reads, _ = _samtools(sample.bam, sample.region, "-Q 10 -q 0")
    bases, _ = _samtools(sample.bam, sample.region, "-Q 10 -q 10")
    fragments, theirs_s = _samtools(sample.bam, sample.region, "-Q 10 -q 10 -s")
    single = folder / "single.bam"
    subprocess.run(
        ["samtools", "view", "-b", "-F", "0x80", "--write-index", "-o", str(single), str(sample.bam)], check=True
    )
    single_depth, _ = _measure(single, reference, interval)
    single_bases, _ = _samtools(single, sample.region, "-Q 10 -q 10")
    differing = float((ours.usable != fragments).mean())
    print(
        f"{sample.name}: mean depth {ours.usable.mean():.3f}, samtools {fragments.mean():.3f}, "
        f"{differing:.2e} of the bases differ; {ours_s:.2f} s of one core, samtools {theirs_s:.2f} s"
    )
    faults = []
    if not np.array_equal(ours.well_mapped, reads):
        faults.append(f"{sample.name}: reads of any base quality are counted otherwise than by samtools")
    if not np.array_equal(single_depth.usable, single_bases):
        faults.append(f"{sample.name}: bases of good quality are counted otherwise than by samtools")
    if differing > _MOST_DIFFERING or (ours.usable < fragments).any() or (ours.usable > bases).any():
        faults.append(f"{sample.name}: overlapping mates are counted otherwise than by samtools ({differing:.2%})")
    if ours_s > _SLOWEST_BESIDE_SAMTOOLS * theirs_s:
        faults.append(f"{sample.name}: {ours_s:.2f} s, samtools {theirs_s:.2f} s")
    return faults


def _measure(bam: Path, reference: Reference, interval: Interval) -> tuple[Depth, float]:
    """Our depths and the processor time they took."""
    length_bp = reference.contigs[reference.contig_index(interval.contig)].length_bp
    with open_alignment(bam, None, reference.fasta_path) as alignment:
        for _ in range(2):  # the first round compiles
            began = time.process_time()
            depth = measure_depth(
                alignment,
                alignment.get_tid(interval.contig),
                interval.start,
                interval.end,
                contig_length_bp=length_bp,
                windows=np.array([[interval.start, interval.end]]),
            )
            seconds = time.process_time() - began
    return depth, seconds


def _samtools(bam: Path, region: str, options: str) -> tuple[np.ndarray, float]:
    """Depths by samtools over a region, and the processor time they took."""
    before = os.times()
    command = f"samtools depth -a {options} -r {region} '{bam}' | cut -f3"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True, stdout=subprocess.PIPE, text=True)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return np.array(done.stdout.split(), np.int64), seconds


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
