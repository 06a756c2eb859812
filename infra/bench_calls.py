"""Prints how well and how fast variants are called, beside bcftools, freebayes and a one-line rule.

The real slice, where its files are (COHORTFLOW_SHARED_DATA), from BAM and from FASTQ, at three depths; simulated
individuals that no model was trained on, stratum by stratum; and how far the qualities of our calls can be believed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from call_calibration import Bin, calibrate, judge, print_calibration, write_picture
from call_samples import (
    DEPTHS,
    individual,
    real_bam,
    real_bed,
    real_fastq,
    shared_data,
    simulated,
    thinned,
)
from call_strata import Strata
from call_tools import BCFTOOLS, FREEBAYES, OURS, RULE, Called, Sample, run_callers
from call_truth import NO_SCORE, Calls, Score, compare, compare_among, inside_bed, read_calls

from tasks.files import make_folder
from tasks.genome.reference import prepare_reference

Scores = dict[str, dict[tuple[str, str], Score]]
"""Caller, then stratum."""
Curves = dict[str, list[Bin]]
"""What was judged, and its bins."""


def samples(folder: Path) -> Iterator[Sample]:
    """A simulated individual, then the real slice where it is."""
    yield simulated(folder)
    data = shared_data()
    if data:
        yield real_bam(data)


def compare_callers(sample: Sample, folder: Path) -> dict[str, tuple[Score, Score, float | None]]:
    """SNV and indel scores and seconds of every caller on a sample."""
    reference = prepare_reference(sample.fasta, folder / "reference")
    truth = read_calls(sample.truth, reference.fasta_path, sample.region)
    found = run_callers(sample, reference, folder, timed=True)
    return {
        name: (compare(each.calls, truth, snv=True), compare(each.calls, truth, snv=False), each.seconds)
        for name, each in found.items()
    }


def print_table(sample: Sample, results: Mapping[str, tuple[Score, Score, float | None]], where: str = "") -> None:
    """Prints a sample's results, one line a caller."""
    print(f"\n{sample.name}, {where or sample.region}")
    head = "".join(f"{kind + ' F1':>10}{'prec.':>8}{'recall':>8}{'GT':>8}" for kind in ("SNV", "indel"))
    print(f"{'':24}{head}{'s':>8}")
    for name, (snv, indel, seconds) in results.items():
        numbers = "".join(
            f"{score.f1:10.3f}{score.precision:8.3f}{score.recall:8.3f}{score.concordance:8.3f}"
            for score in (snv, indel)
        )
        print(f"{name:24}{numbers}{'' if seconds is None else f'{seconds:8.2f}'}")


def bench_real(data: Path, folder: Path) -> Curves:
    """Prints the tables of the real slice; returns how far the qualities of our calls of its BAM can be believed."""
    bed = real_bed(data)
    ours: list[tuple[Calls, Calls]] = []
    for source in (real_bam(data), real_fastq(data, make_folder(folder / "fastq"))):
        scratch = make_folder(folder / ("bam" if "FASTQ" not in source.name else "from_fastq"))
        reference = prepare_reference(source.fasta, scratch / "reference")
        truth = read_calls(source.truth, reference.fasta_path, source.region)
        for sample in thinned(source, scratch):
            found = run_callers(sample, reference, scratch, timed=True)
            print_table(sample, _both_kinds(found, truth))
            inside = {name: Called(inside_bed(each.calls, bed), None) for name, each in found.items()}
            print_table(sample, _both_kinds(inside, inside_bed(truth, bed)), "inside the confident BED")
            if "FASTQ" not in source.name:
                ours.append((found[OURS].calls, truth))
    return _print_curves("NA12878, 52x, 10x and 5x", ours, is_checked=False)


def _both_kinds(found: Mapping[str, Called], truth: Calls) -> dict[str, tuple[Score, Score, float | None]]:
    return {
        name: (compare(each.calls, truth, snv=True), compare(each.calls, truth, snv=False), each.seconds)
        for name, each in found.items()
    }


def bench_simulated(folder: Path, num_individuals: int, length_bp: int, *, is_hard: bool) -> Curves:
    """Prints the strata of simulated individuals and how far the qualities of our calls can be believed."""
    scores: Scores = defaultdict(lambda: defaultdict(lambda: NO_SCORE))
    ours: list[tuple[Calls, Calls]] = []
    for number in range(num_individuals):
        scratch = make_folder(folder / f"{number}-{is_hard}")
        simulated = individual(scratch, number, length_bp, is_hard=is_hard)
        strata = Strata(simulated.genome)
        for depth in DEPTHS:
            for sample in simulated.samples[depth]:
                reference = prepare_reference(sample.fasta, scratch / "reference")
                truth = read_calls(sample.truth, reference.fasta_path, sample.region)
                found = run_callers(sample, reference, scratch, timed=False)
                ours.append((found[OURS].calls, truth))
                for name, each in found.items():
                    _add(scores[name], each.calls, truth, strata, depth)
        shutil.rmtree(scratch)
    title = f"{num_individuals} {'hard' if is_hard else 'usual'} simulated individuals"
    _print_strata(scores, f"{title} of {length_bp:,} bp at {', '.join(map(str, DEPTHS))}x")
    return _print_curves(title, ours, is_checked=not is_hard)


def _print_curves(name: str, pairs: list[tuple[Calls, Calls]], *, is_checked: bool) -> Curves:
    curves = {}
    for quality in ("GQ", "QUAL"):
        title = f"{quality}, {name}"
        curves[title] = calibrate(judge(pairs, quality))
        print_calibration(title, curves[title], is_checked=is_checked)
    return curves


def _add(scores: dict[tuple[str, str], Score], called: Calls, truth: Calls, strata: Strata, depth: int) -> None:
    """Counts each allele in all its strata."""
    members = defaultdict(set)
    for allele in {*called, *truth}:
        for stratum in strata.of(allele):
            members[stratum].add(allele)
            if stratum[1] == "all":
                members[f"{stratum[0]}, depth", f"{depth}x"].add(allele)
    for stratum, alleles in members.items():
        scores[stratum] += compare_among(called, truth, alleles)


def _print_strata(scores: Scores, title: str) -> None:
    """Prints F1 with its 95 % interval of each caller, one line a stratum, and what lies behind ours."""
    callers = [name for name in (OURS, BCFTOOLS, FREEBAYES, RULE) if name in scores]
    print(f"\n{title}: F1")
    print(
        f"{'':36}{'true':>7}" + "".join(f"{name:>22}" for name in callers) + f"{'our prec.':>11}{'recall':>8}{'GT':>8}"
    )
    for stratum in sorted({stratum for each in scores.values() for stratum in each}, key=_order):
        ours = scores[OURS][stratum]
        cells = []
        for name in callers:
            low, high = scores[name][stratum].f1_interval
            cells.append(f"{f'{scores[name][stratum].f1:.3f} ({low:.3f}-{high:.3f})':>22}")
        behind = f"{ours.precision:11.3f}{ours.recall:8.3f}{ours.concordance:8.3f}"
        print(f"{' '.join(stratum):36}{ours.right + ours.missed:7,}{''.join(cells)}{behind}")


def _order(stratum: tuple[str, str]) -> tuple[bool, str, float, str]:
    """SNVs first, then what is told apart by name, its bins by their numbers."""
    digits = "".join(letter if letter.isdigit() else " " for letter in stratum[1]).split()
    number = float(digits[0]) if digits else -1.0
    beyond = 0.5 if stratum[1].startswith(">") else -0.5 if stratum[1].startswith("<") else 0.0
    return not stratum[0].startswith("SNV"), stratum[0], number + beyond, stratum[1]


def main() -> None:
    """Compares on every sample there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--individuals", type=int, default=2, help="simulated individuals of either kind (default 2)")
    parser.add_argument("--length-bp", type=int, default=400_000, help="length of each one's genome (default 400,000)")
    parser.add_argument("--picture", type=Path, help="where to draw the calibration, as SVG")
    parser.add_argument("--simulated-only", action="store_true", help="leave the real slice out")
    arguments = parser.parse_args()
    if shutil.which("bcftools") is None:
        raise SystemExit("bcftools is not installed: `make oracle-tools`")
    with tempfile.TemporaryDirectory() as scratch:
        data = shared_data()
        curves: Curves = {}
        for is_hard in (False, True):
            curves |= bench_simulated(Path(scratch), arguments.individuals, arguments.length_bp, is_hard=is_hard)
        if data and not arguments.simulated_only:
            curves |= bench_real(data, Path(scratch))
    if arguments.picture:
        write_picture(arguments.picture, curves)
        print(f"\n{arguments.picture}")


if __name__ == "__main__":
    main()
