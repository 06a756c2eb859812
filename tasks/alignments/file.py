"""A sample's BAM or CRAM: checked, counted, and made readable by place, before anything is called from it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pysam
from pysam.utils import SamtoolsError

from tasks.alignments.cram import CramContents, explain_decoding, look_into_cram, offer_by_md5
from tasks.alignments.depth import DepthCounter
from tasks.alignments.format import AlignmentHeader, keep_offline, open_alignment, read_header, recognise_kind
from tasks.alignments.index import find_index, make_index
from tasks.alignments.records import raw_chunks
from tasks.alignments.samtools_process import samtools_said
from tasks.alignments.statistics import AlignmentStatistics
from tasks.alignments.windows import window_offsets
from tasks.calling.bam_records import MIN_MAPPING_QUALITY
from tasks.errors import AlignmentError, ReferenceError
from tasks.files import make_folder, whole_file
from tasks.genome.contigs import ContigMatch, match_contigs
from tasks.genome.header_check import check_header_contigs
from tasks.genome.reference import Reference, load_reference
from tasks.genome.regions import Regions, read_bed
from tasks.isolation import report_progress, run_isolated
from tasks.reads.statistics import LONG_READ_BP

MAX_MISMATCH_RATE = 0.2
"""A contig whose used reads differ from the reference at more of their bases was another sequence when they were
aligned. Short reads differ at under 1 %, the noisiest long reads at some 15 %, reads on a random sequence at 75 %."""
MIN_COMPARED_BASES = 2_000
"""Fewer compared bases of a contig prove nothing."""

_SORT_MEMORY = "256M"


def check_alignment(
    paths: Sequence[Path],
    indices: Sequence[Path | None],
    reference: Reference,
    folder: Path,
    *,
    reads: Sequence[Path] = (),
    bed: Path | None = None,
    padding_bp: int = 0,
    use_duplicates: bool = False,
) -> dict[str, Any]:
    """Checks a sample's alignment files in a child process and reads them once.

    Args:
        paths: BAM, CRAM or SAM files of one sample; several are merged in `folder`.
        indices: The index the sheet gives for each; None to look beside the file.
        reference: What the reads should have been aligned to.
        folder: The sample's folder in the run's work: everything made is made there, nothing beside the input.
        reads: The FASTQ files that the alignment was made of in this run: messages name them in its place.
        bed: Where depth is judged; everywhere when None.
        padding_bp: Bases added around each of its intervals.
        use_duplicates: Whether reads marked as duplicates are reads like others (amplicons): the flag is then taken
            from them in a copy.

    Returns:
        What to read (``path``, ``index``, ``kind``: bam or cram), ``contig_reads`` (mapped records by the reference's
        contig name), ``long_reads``, ``skipped`` (records by reason and the file's contig name), ``read_groups``,
        ``warnings``, ``depth_in_regions`` and the numbers of `DepthCounter.to_json` and `AlignmentStatistics.to_json`.

    Raises:
        AlignmentError: The file is not an alignment, is damaged, or holds no aligned reads; `reason` says which.
        ReferenceError: It was made with another reference, by its header or by the reads' bases.
        ParserCrashError: htslib died of the file.
    """
    payload = {
        "paths": [str(path) for path in paths],
        "indices": [str(index) if index else None for index in indices],
        "reference_folder": str(reference.folder),
        "folder": str(folder),
        "reads": [str(path) for path in reads],
        "bed": str(bed) if bed else None,
        "padding_bp": padding_bp,
        "use_duplicates": use_duplicates,
    }
    what = ", ".join(str(path) for path in reads or paths)
    summary: dict[str, Any] = run_isolated("tasks.alignments.file:read_alignment", payload, what=what)
    return summary


def read_alignment(
    paths: list[str],
    indices: list[str | None],
    reference_folder: str,
    folder: str,
    reads: Sequence[str] = (),
    bed: str | None = None,
    padding_bp: int = 0,
    use_duplicates: bool = False,
) -> dict[str, Any]:
    """Does the work of `check_alignment` in this process, on JSON values."""
    keep_offline()
    reference = load_reference(Path(reference_folder))
    work = make_folder(Path(folder))
    what = ", ".join(reads or paths)
    warnings: list[str] = []
    regions = read_bed(Path(bed), reference, padding_bp) if bed else None
    inputs = [Path(path) for path in paths]
    named = _names([Path(path) for path in reads] or inputs)
    files = [_without_sam(path, reference, work / f"input-{place}.bam") for place, path in enumerate(inputs)]
    path = files[0]
    if len(files) > 1:
        path = work / "merged.bam"
        files = [_in_order(file, reference, work / f"ordered-{place}.bam") for place, file in enumerate(files)]
        _run_samtools("merge", files, path, ["-c", "-p", "-f", "-l", "1", "--reference", str(reference.fasta_path)])
    contents = _Contents.read(path, what, reference, work, regions)
    if contents.statistics.is_unsorted:
        warnings.append(f"{_names(inputs)}: not sorted by coordinate; it was sorted in the run's folder")
        path = _sort(path, reference, work / "sorted.bam")
        contents = _Contents.read(path, what, reference, work, regions)
    num_duplicates = contents.statistics.to_json()["counts"]["duplicate"]
    if use_duplicates and num_duplicates:
        warnings.append(f"{num_duplicates:,} reads: marked as duplicates, and used: these are amplicons")
        path = _as_bam(path, contents, reference, work / "unmarked.bam", ["--remove-flags", "DUP"])
        contents = _Contents.read(path, what, reference, work, regions)
    header, statistics = contents.header, contents.statistics
    skipped = _check_reads(what, contents, reference, is_fastq=bool(reads))
    if contents.cram and contents.cram.renamed:
        path = _as_bam(path, contents, reference, work / "renamed.bam", [])
    given = Path(indices[0]) if indices[0] and path == inputs[0] else None
    index = find_index(path, given, header, statistics, reference)
    counts = statistics.to_json()
    return {
        "path": str(path),
        "index": str(index or make_index(path, header, work)),
        "index_made": index is None,
        "kind": recognise_kind(path),
        "contig_reads": contents.contig_reads(reference),
        "skipped": skipped,
        "read_groups": list(header.read_groups),
        "long_reads": header.has_long_platform or counts["read_length_median"] > LONG_READ_BP,
        "warnings": warnings + _warnings(named, counts["counts"]),
        "depth_in_regions": regions is not None,
        **contents.depth.to_json(),
        **counts,
    }


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths)


@dataclass(frozen=True, slots=True, eq=False)
class _Contents:
    """What was read of a file: all records, unless they turned out not to be sorted."""

    header: AlignmentHeader
    match: ContigMatch
    statistics: AlignmentStatistics
    depth: DepthCounter
    cram: CramContents | None

    @classmethod
    def read(cls, path: Path, what: str, reference: Reference, work: Path, regions: Regions | None) -> _Contents:
        with open_alignment(path, None, reference.fasta_path) as alignment:
            header = read_header(path, alignment)
        match = match_contigs(header.names, header.lengths_bp, header.md5s, reference)
        depth = DepthCounter(match.index, MIN_MAPPING_QUALITY, regions)
        statistics = AlignmentStatistics(match.index, MIN_MAPPING_QUALITY, window_offsets(reference))
        cram = look_into_cram(path, header, reference) if recognise_kind(path) == "cram" else None
        index = None
        if cram and cram.renamed:
            offer_by_md5(reference, work / "md5")
        if cram and cram.skipped:
            index = make_index(path, header, work)
            statistics.add_unread(cram.skipped, cram.num_records)
        try:
            with open_alignment(path, index, reference.fasta_path) as alignment:
                for data in raw_chunks(alignment, _records(alignment, header, cram)):
                    statistics.add_records(data, reference)
                    depth.add_records(data)
                    report_progress({"num_records": statistics.num_records})
                    if statistics.is_unsorted:
                        break
        except (OSError, ValueError) as error:
            if cram:
                raise explain_decoding(path, header, cram, error) from error
            raise AlignmentError(
                f"{what}: damaged or cut off after {statistics.num_records:,} records: {error}", reason="TRUNCATED"
            ) from error
        depth.finish()
        return cls(header, match, statistics, depth, cram)

    def contig_reads(self, reference: Reference) -> dict[str, int]:
        """Mapped records by the reference's contig name, in the reference's order; contigs without any are left out."""
        by_place = {
            int(place): int(count)
            for place, (count, _) in zip(self.match.index, self.statistics.contigs[:-1], strict=True)
            if place >= 0 and count
        }
        return {reference.contigs[place].name: by_place[place] for place in sorted(by_place)}


def _records(alignment: Any, header: AlignmentHeader, cram: CramContents | None) -> Iterator[Any]:
    """All records in the file's order; of a CRAM with contigs that cannot be decoded, all others."""
    if cram is None or not cram.skipped:
        return iter(alignment.fetch(until_eof=True))
    return chain.from_iterable(alignment.fetch(name) for name in [*_decodable(header, cram), "*"])


def _decodable(header: AlignmentHeader, cram: CramContents) -> list[str]:
    return [header.names[tid] for tid in np.flatnonzero(cram.num_records) if tid not in cram.skipped]


def _check_reads(what: str, contents: _Contents, reference: Reference, *, is_fastq: bool) -> dict[str, dict[str, int]]:
    """Refuses a file without aligned reads and one of another reference; returns what lies on unknown contigs."""
    header, statistics = contents.header, contents.statistics
    num_mapped = statistics.contigs[:-1, 0]
    if statistics.num_records == 0:
        raise AlignmentError(f"{what}: no reads", reason="NO_READS")
    if not num_mapped.any():
        likely = (
            "or are no plain DNA reads: check the reference, and what the files hold (species, adapters, barcodes)"
            if is_fastq
            else "or were never aligned (then give them as FASTQ: samtools fastq)"
        )
        raise AlignmentError(
            f"{what}: 0 of {statistics.num_records:,} reads (0.0%) are aligned to {reference.path.name}: they are of "
            f"another genome, {likely}",
            reason="UNALIGNED",
        )
    check = check_header_contigs(what, header.names, header.lengths_bp, header.md5s, num_mapped.tolist(), reference)
    compared, different = statistics.compared[:, 0], statistics.compared[:, 1]
    (wrong,) = np.nonzero((compared >= MIN_COMPARED_BASES) & (different > MAX_MISMATCH_RATE * compared))
    if len(wrong):
        advice = (
            "check the reference, and the species of the reads"
            if is_fastq
            else "give the FASTA the reads were aligned to"
        )
        worst = wrong[np.argmax(different[wrong] / compared[wrong])]
        raise ReferenceError(
            f"{what}: wrong reference? On {header.names[worst]} {different[worst] / compared[worst]:.1%} of the reads' "
            f"bases differ from {reference.path.name} (at most {MAX_MISMATCH_RATE:.0%} are expected): {advice}",
            field="reference",
        )
    return check.skipped


def _warnings(names: str, counts: dict[str, int]) -> list[str]:
    if counts["used"]:
        return []
    return [f"{names}: not one of {counts['total']:,} records can be used for calling"]


def _without_sam(path: Path, reference: Reference, output: Path) -> Path:
    """Returns a BAM or CRAM as it is, and SAM as a sorted BAM."""
    if recognise_kind(path) != "sam":
        return path
    with open_alignment(path, None, reference.fasta_path) as alignment:
        read_header(path, alignment)
    return _sort(path, reference, output)


def _in_order(path: Path, reference: Reference, output: Path) -> Path:
    """Returns a file that says it is sorted as it is, and any other sorted: a merge needs it."""
    with open_alignment(path, None, reference.fasta_path) as alignment:
        order = alignment.header.to_dict().get("HD", {}).get("SO")
    return path if order == "coordinate" else _sort(path, reference, output)


def _sort(path: Path, reference: Reference, output: Path) -> Path:
    scratch = output.with_name(f"{output.name}.tmp")
    shutil.rmtree(scratch, ignore_errors=True)  # samtools does not write over what a killed run has left
    make_folder(scratch)
    options = ["-m", _SORT_MEMORY, "-l", "1", "-T", f"{scratch}/", "--reference", str(reference.fasta_path)]
    _run_samtools("sort", [path], output, options)
    shutil.rmtree(scratch)
    return output


def _as_bam(path: Path, contents: _Contents, reference: Reference, output: Path, more: Sequence[str]) -> Path:
    """Writes what can be decoded of a CRAM as BAM, which is read without the reference's names."""
    options = ["-b", "-1", "--reference", str(reference.fasta_path), *more]
    if contents.cram is None or not contents.cram.skipped:
        _run_samtools("view", [path], output, options)
    else:
        index = make_index(path, contents.header, output.parent)
        regions = [*_decodable(contents.header, contents.cram), "*"]
        _run_samtools("view", [path, index], output, [*options, "-X"], regions)
    return output


def _run_samtools(
    command: str, inputs: Sequence[Path], output: Path, options: Sequence[str], regions: Sequence[str] = ()
) -> None:
    """Runs a command that writes one file, whole; without a @PG line, which would carry paths."""
    try:
        with whole_file(output) as aside:
            arguments = ["--no-PG", *options, "-o", str(aside), *map(str, inputs), *regions]
            getattr(pysam, command)(*arguments, catch_stdout=False)  # pysam would add its own -o
    except SamtoolsError as error:
        raise AlignmentError(f"{', '.join(map(str, inputs))}: cannot be read by {samtools_said(error)}") from error
