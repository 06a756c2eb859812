"""Checks the caller against bcftools: on a simulated individual, and on the real slice where its files are."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench_calls import compare_callers, print_table, samples
from call_samples import REAL_REGION
from call_tools import BCFTOOLS, OURS

_LEAST_REAL_F1 = 0.95
_SLOWEST_BESIDE_BCFTOOLS = 2.0


def main() -> None:
    """Exits with a message when a figure is below what is promised."""
    faults = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, sample in enumerate(samples(Path(scratch))):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            results = compare_callers(sample, folder)
            print_table(sample, results)
            snv, indel, shard_s = results[OURS]
            their_snv, their_indel, their_s = results[BCFTOOLS]
            assert shard_s is not None
            assert their_s is not None
            if snv.f1 < their_snv.f1:
                faults.append(f"{sample.name}: SNV F1 {snv.f1:.3f}, bcftools {their_snv.f1:.3f}")
            if indel.f1 < their_indel.f1:
                faults.append(f"{sample.name}: indel F1 {indel.f1:.3f}, bcftools {their_indel.f1:.3f}")
            if sample.region == REAL_REGION and snv.f1 < _LEAST_REAL_F1:
                faults.append(f"{sample.name}: SNV F1 {snv.f1:.3f} is below {_LEAST_REAL_F1}")
            if shard_s > _SLOWEST_BESIDE_BCFTOOLS * their_s:
                faults.append(f"{sample.name}: {shard_s:.2f} s, bcftools {their_s:.2f} s")
    if faults:
        raise SystemExit("\n".join(faults))


if __name__ == "__main__":
    main()
