"""A sample's FASTQ files to one sorted, indexed BAM with duplicates marked."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import mappy
import pysam
from pysam.utils import SamtoolsError

from tasks.alignments.samtools_process import samtools_pipeline, samtools_said
from tasks.errors import AlignmentError
from tasks.files import make_folder, whole_file
from tasks.genome.reference import Reference, load_reference
from tasks.isolation import report_progress
from tasks.reads.fastq import Lane, check_reads
from tasks.reads.index import Preset, index_memory_bytes, open_index
from tasks.reads.mapping import ReadMapper
from tasks.reads.sampling import ReadSampler
from tasks.reads.sequences import Read, read_sequences

__all__ = ["align_reads", "index_memory_bytes"]

_HIFI_ERROR = 0.01
"""Long reads whose qualities promise fewer errors are taken for PacBio HiFi. Source: HiFi reads are Q20 and better."""
_CHUNK_READS = 512
_CHUNK_BASES = 1 << 20
_SORT_MEMORY = "256M"
_MAX_BAI_BP = 1 << 29  # SAM v1, section 5.1.1: what BAI's bins can address


def align_reads(
    lanes: list[dict[str, Any]],
    reference_folder: str,
    output_bam: str,
    work_folder: str,
    sample_id: str,
    threads: int,
    facts: dict[str, str],
    is_amplicon: bool = False,
    num_sampled: int = 0,
    sampled: str | None = None,
) -> dict[str, Any]:
    """Checks, counts and maps a sample's reads; writes the BAM and its index, whole.

    Every read is in the BAM, in one record: its primary alignment, or unmapped. The bytes depend on reads, reference
    and sample id alone. Long reads and amplicons have no duplicates marked.

    Args:
        lanes: ``{"name", "fastq_1", "fastq_2", "interleaved"}`` each; one read group a lane.
        reference_folder: Where the reference was prepared.
        output_bam: The BAM to write; its index lies beside it, named ``.bai`` (``.csi`` past 512 Mb) after it.
        work_folder: For temporary files.
        sample_id: The read groups' sample (SM).
        threads: Threads to map with.
        facts: What made the BAM, for its header: plan, build and so on.
        is_amplicon: Whether all molecules of a place begin and end alike, so that none is a duplicate.
        num_sampled: Reads to sample (`tasks.reads.sampling.ReadSampler`).
        sampled: The file of the sampled reads; None: none are sampled.

    Returns:
        The summary of the reads (`check_reads`), and as ``aligned`` what mapped them and how.

    Raises:
        ReadsError: A FASTQ file is wrong.
        MemoryShortError: minimap2's index does not fit into memory.
    """
    reference = load_reference(Path(reference_folder))
    output, work = Path(output_bam), make_folder(Path(work_folder))
    summary = check_reads(lanes)
    preset: Preset = "sr"
    if summary["long_reads"]:
        preset = "map-hifi" if summary["quality"]["mean_error"] < _HIFI_ERROR else "map-ont"
    with ExitStack() as stack:
        show: Callable[[list[Read]], None] = _overlook
        if sampled is not None:
            tokens = stack.enter_context(whole_file(Path(sampled)))
            show = stack.enter_context(ReadSampler(tokens, num_sampled, summary["by_fit"]["fitting"])).show
        aligner = stack.enter_context(open_index(reference, preset, threads))
        aside = stack.enter_context(whole_file(output))
        mark_duplicates = preset == "sr" and not is_amplicon
        header = _header(reference, _groups(lanes, sample_id), sample_id, facts)
        _write_bam(lanes, aligner, header, sample_id, threads, aside, work, show, mark_duplicates=mark_duplicates)
    suffix = ".csi" if max(contig.length_bp for contig in reference.contigs) > _MAX_BAI_BP else ".bai"
    with whole_file(output.with_name(output.name + suffix)) as aside:
        pysam.index("-c" if suffix == ".csi" else "-b", "-o", str(aside), str(output))
    return {**summary, "aligned": {"aligner": f"minimap2 {mappy.__version__}", "preset": preset}}


def _write_bam(
    lanes: list[dict[str, Any]],
    aligner: Any,
    header: bytes,
    sample_id: str,
    threads: int,
    output: Path,
    work: Path,
    show: Callable[[list[Read]], None],
    *,
    mark_duplicates: bool,
) -> None:
    """Maps every lane through samtools fixmate and sort, then marks duplicates; shows all reads in the files' order."""
    scratch = work / "aligning"
    shutil.rmtree(scratch, ignore_errors=True)  # samtools does not write over what a killed run has left
    make_folder(scratch)
    sort_to = scratch / "sorted.bam" if mark_duplicates else output
    level = "1" if mark_duplicates else "6"
    # Without --no-PG, samtools writes its command lines into the header, and with them paths.
    fixmate = ["fixmate", "--no-PG", "-m", "-u", "-", "-"]
    sort = ["sort", "--no-PG", "-l", level, "-m", _SORT_MEMORY, "-T", f"{scratch}/sort", "-o", str(sort_to), "-"]
    with samtools_pipeline(fixmate, sort, folder=scratch) as sam:
        sam.write(header)
        for group, lane in zip(_groups(lanes, sample_id), lanes, strict=True):
            _map_lane(Lane.from_json(lane), ReadMapper(aligner, group), threads, sam, show)
    if mark_duplicates:
        try:
            pysam.markdup("--no-PG", "-T", f"{scratch}/markdup", str(sort_to), str(output))
        except SamtoolsError as error:
            raise AlignmentError(
                f"samtools markdup failed: {samtools_said(error)}", reason="SAMTOOLS_FAILED"
            ) from error
    shutil.rmtree(scratch)


def _overlook(reads: list[Read]) -> None:
    """Takes no reads."""


def _groups(lanes: list[dict[str, Any]], sample_id: str) -> list[str]:
    """For each lane the id of its read group."""
    return [sample_id] if len(lanes) == 1 else [f"{sample_id}.{lane['name']}" for lane in lanes]


def _header(reference: Reference, groups: list[str], sample_id: str, facts: dict[str, str]) -> bytes:
    """The SAM header; no paths, times or command lines."""
    build = f"\tAS:{reference.build}" if reference.build else ""
    lines = ["@HD\tVN:1.6\tSO:unsorted\tGO:query"]
    lines += [f"@SQ\tSN:{contig.name}\tLN:{contig.length_bp}\tM5:{contig.md5}{build}" for contig in reference.contigs]
    lines += [f"@RG\tID:{group}\tSM:{sample_id}" for group in groups]
    lines.append(f"@PG\tID:minimap2\tPN:minimap2\tVN:{mappy.__version__}")
    lines.append(f"@CO\tcohortflow {' '.join(f'{key}={value}' for key, value in facts.items())}")
    return "".join(f"{line}\n" for line in lines).encode()


def _map_lane(
    lane: Lane, mapper: ReadMapper, threads: int, output: IO[bytes], show: Callable[[list[Read]], None]
) -> None:
    """Maps a lane's reads and writes them as SAM in the files' order, whatever thread is done first."""
    work: Callable[[Any], bytes] = mapper.map_singles if lane.layout == "single" else mapper.map_pairs
    waiting: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="minimap2") as pool:
        try:
            for chunk in _chunks(lane, show):
                waiting.append(pool.submit(work, chunk))
                if len(waiting) > 2 * threads:
                    output.write(waiting.popleft().result())
            while waiting:
                output.write(waiting.popleft().result())
        finally:
            pool.shutdown(cancel_futures=True)


def _chunks(lane: Lane, show: Callable[[list[Read]], None]) -> Iterator[list[Any]]:
    """Cuts a lane's reads, or its pairs of reads, into lists to map at once; shows each read."""
    chunk: list[Any] = []
    reads: list[Read] = []
    num_bases = 0
    for mates in _mates(lane):
        chunk.append(mates if len(mates) > 1 else mates[0])
        reads += mates
        num_bases += sum(len(read[1]) for read in mates)
        if len(chunk) == _CHUNK_READS or num_bases > _CHUNK_BASES:
            report_progress({"num_aligned": len(reads)})
            show(reads)
            yield chunk
            chunk, reads, num_bases = [], [], 0
    if chunk:
        show(reads)
        yield chunk


def _mates(lane: Lane) -> Iterator[tuple[Read, ...]]:
    """Yields the two reads of each pair, or each single read."""
    reads = read_sequences(lane.fastq_1)
    if lane.fastq_2 is not None:
        return zip(reads, read_sequences(lane.fastq_2), strict=True)
    return zip(reads, reads, strict=True) if lane.interleaved else zip(reads)
