"""The stages of a sample: units of work on a worker, each of which ends with a marker that holds its counts.

    intake    FASTQ to BAM, BAM and CRAM checked         (reads only)
    embedding mean embedding of a sample of the reads    (FASTQ only)
    measure   depths of one stretch of the genome        (reads only, many units)
    coverage  the stretches summed up                    (reads only)
    call      one stretch of the genome to calls         (reads only, many units)
    calls     the stretches joined to one VCF            (reads only)
    alleles   records checked, alleles normalised
    output    scores joined back, files delivered

A stage whose marker is there is not run again; `begin_sample` removes what belongs to another plan.
"""

from __future__ import annotations

import glob
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.alignments.file import check_alignment
from tasks.annotations.table import AnnotationTable
from tasks.calling.calling import Alignment, call_shard, finish_calls, plan_call_shards
from tasks.calling.domain import read_domain
from tasks.calling.gvcf import finish_gvcf
from tasks.counts import sum_counts
from tasks.coverage.joining import CALLABLE, summarise_coverage, write_callable, write_target_tables
from tasks.coverage.measuring import measure_stretch, plan_stretches
from tasks.errors import BalanceError, ModelDataError, TaskError
from tasks.files import file_sha256, make_folder, read_json, whole_file, write_json
from tasks.folder import RunFolder
from tasks.genome.ploidy import ploidy_note
from tasks.identity.genotypes import GenotypeCollector
from tasks.identity.sex import find_sex, sex_differs
from tasks.isolation import run_isolated
from tasks.model_host import model_host, model_server
from tasks.plan import Plan
from tasks.precheck import check_headers
from tasks.reads.embedding import embed_reads
from tasks.run import CALLER, READ_EMBEDDER, Run, load_run
from tasks.sheets.sheet import Sample
from tasks.variants.annotating import annotate_variants
from tasks.variants.header import REASON_ID
from tasks.variants.scanning import scan_variants
from tasks.variants.score_table import ScoreTable
from tasks.variants.statistics import variant_statistics
from tasks.variants.table import write_variant_table

if TYPE_CHECKING:
    from serving.server import ModelServer

Summary = dict[str, Any]
_SAMPLED = "sampled.arrow"


def begin_sample(folder: RunFolder, plan: Plan, sample_id: str) -> bool:
    """Prepares a sample's folders; returns whether its output is already there.

    What an earlier plan left of this sample is removed, and so is the mark of an earlier failure.
    """
    identity = {"plan": plan.sample_digest(sample_id)}
    mark = folder.summary(sample_id, "identity")
    if not mark.exists() or read_json(mark) != identity:
        folder.remove_sample(sample_id)
        write_json(mark, identity)
    make_folder(folder.sample(sample_id))
    marker, failure = folder.summary(sample_id, "output"), folder.summary(sample_id, "failed")
    is_done = marker.exists()
    last = marker if is_done else failure
    delivered = read_json(last)["digests"] if last.exists() else {}
    failure.unlink(missing_ok=True)
    lost = [name for name, digest in delivered.items() if not _holds(folder.root / name, digest)]
    if lost:
        # Whatever became of a delivered file, it is made again, from the last stage that is whole.
        marker.unlink(missing_ok=True)
        if any(name.endswith(".bam") for name in lost):
            folder.remove_sample(sample_id)
            write_json(mark, identity)
            make_folder(folder.sample(sample_id))
    return is_done and not lost


def fail_sample(folder: RunFolder, sample_id: str, error: TaskError) -> bool:
    """Says why a sample is not done; returns whether it is incomplete.

    A sample whose reads were taken in before the caller refused them is incomplete, not failed: its alignment, the
    quality control of its reads and its coverage are delivered.
    """
    is_incomplete = isinstance(error, ModelDataError) and folder.summary(sample_id, "intake").exists()
    if is_incomplete and folder.summary(sample_id, "coverage").exists():
        _deliver_coverage(load_run(str(folder.root)), sample_id)
    write_json(
        folder.summary(sample_id, "failed"),
        {
            "status": "incomplete" if is_incomplete else "failed",
            "reason": error.reason,
            "message": error.message,
            "blame": error.blame,
            "digests": _digest_delivered(folder, sample_id) if is_incomplete else {},
        },
    )
    return is_incomplete


def _digest_delivered(folder: RunFolder, sample_id: str) -> dict[str, str]:
    """SHA-256 of each of a sample's delivered files, by its path in the run's folder."""
    files = [path for path in folder.sample_files(sample_id) if not path.name.startswith(".")]
    return {str(path.relative_to(folder.root)): file_sha256(path) for path in files}


def _holds(path: Path, digest: str) -> bool:
    """Whether a file is there with the content it was delivered with."""
    return path.is_file() and file_sha256(path) == digest


def _stage(name: str, root: str, sample_id: str, work: Callable[[], Summary]) -> Summary:
    """Runs `work` unless its marker is there; writes the marker last."""
    marker = RunFolder(Path(root)).summary(sample_id, name)
    if marker.exists():
        found: Summary = read_json(marker)
        return found
    summary = work()
    write_json(marker, summary)
    return summary


def compare_headers(root: str, sample_id: str) -> None:
    """Compares a sample's own regions and the headers of its inputs with the reference, before any work on it.

    Raises:
        TaskError: They do not fit, or cannot be read.
    """
    run = load_run(root)
    check_headers(Sample.from_json(run.sample(sample_id)), run.reference)


def take_in(root: str, sample_id: str, threads: int) -> Summary:
    """Brings a sample's reads to a sorted, indexed, checked BAM or CRAM.

    Returns:
        ``alignment`` (path, index, kind, counts) and, for FASTQ, ``reads`` (their quality control).
    """

    def work() -> Summary:
        run = load_run(root)
        sample = run.sample(sample_id)
        folder = run.folder.sample_work(sample_id)
        summary: Summary = {}
        paths, indices = sample["paths"], sample["index_paths"]
        if sample["kind"] == "fastq":
            bam = run.folder.sample(sample_id) / f"{sample_id}.bam"
            summary["reads"] = run_isolated(
                "tasks.reads.aligning:align_reads",
                {
                    "lanes": sample["lanes"],
                    "reference_folder": str(run.folder.reference),
                    "output_bam": str(bam),
                    "work_folder": str(folder),
                    "sample_id": sample_id,
                    "threads": threads,
                    "is_amplicon": sample["is_amplicon"],
                    "num_sampled": run.num_embedded(sample_id),
                    "sampled": str(folder / _SAMPLED) if run.num_embedded(sample_id) else None,
                    "facts": run.facts(sample_id),
                },
                what=f"sample {sample_id}",
            )
            paths, indices = [str(bam)], [None]
        summary["alignment"] = check_alignment(
            [Path(path) for path in paths],
            [Path(index) if index else None for index in indices],
            run.reference,
            folder,
            reads=[Path(lane[column]) for lane in sample["lanes"] for column in ("fastq_1", "fastq_2") if lane[column]],
            bed=run.bed(sample_id),
            padding_bp=run.plan.recipe["padding_bp"],
            use_duplicates=sample["is_amplicon"],
        )
        return summary

    return _stage("intake", root, sample_id, work)


def embed_sampled(root: str, sample_id: str) -> Summary:
    """Embeds the reads that the intake sampled.

    Returns:
        What `tasks.reads.embedding.embed_reads` tells, and how many reads of all were too short or too long
        (``num_too_short``, ``num_too_long``).
    """
    run = load_run(root)
    sampled = run.folder.sample_work(sample_id) / _SAMPLED

    def work() -> Summary:
        model = run.plan.sample_models(sample_id)[READ_EMBEDDER]
        server, version = model_server({READ_EMBEDDER: model["digest"]}), model["version"]
        by_fit = read_json(run.folder.summary(sample_id, "intake"))["reads"]["by_fit"]
        embedded = embed_reads(
            sampled, lambda inputs: server.submit(READ_EMBEDDER, inputs, version, outputs=["embedding"])
        )
        return {**embedded, "num_too_short": by_fit["too_short"], "num_too_long": by_fit["too_long"]}

    summary = _stage("embedding", root, sample_id, work)
    sampled.unlink(missing_ok=True)
    return summary


def plan_coverage(root: str, sample_id: str, stretch_bp: int) -> list[tuple[int, int]]:
    """Cuts the genome into stretches to measure: places along the whole reference."""
    run = load_run(root)
    return plan_stretches(run.reference, run.regions(sample_id), stretch_bp)


def measure(root: str, sample_id: str, begin: int, end: int) -> Summary:
    """Measures the depths of one stretch of the genome."""
    name = f"coverage/{begin}-{end}"

    def work() -> Summary:
        run = load_run(root)
        found = read_json(run.folder.summary(sample_id, "intake"))["alignment"]
        return measure_stretch(
            _alignment(found, sample_id),
            run.reference,
            begin,
            end,
            run.folder.sample_work(sample_id) / f"{name}.npz",
            contig_reads=found["contig_reads"],
            regions=run.regions(sample_id),
            targets=run.targets(sample_id),
        )

    return _stage(name, root, sample_id, work)


def join_coverage(root: str, sample_id: str, stretches: list[tuple[int, int]]) -> Summary:
    """Sums up a sample's measured stretches; its tables of targets and genes wait in the work folder."""

    def work() -> Summary:
        run = load_run(root)
        folder = run.folder.sample_work(sample_id)
        found = read_json(run.folder.summary(sample_id, "intake"))["alignment"]
        targets = run.targets(sample_id)
        summary = summarise_coverage(
            [read_json(run.folder.summary(sample_id, f"coverage/{begin}-{end}")) for begin, end in stretches],
            run.reference,
            num_used=found["counts"]["used"],
            aligned_bp=found["aligned_bp"],
            has_targets=targets is not None,
        )
        parts = [f"{begin}-{end}.npz" for begin, end in stretches]
        if targets is not None:
            files = [folder / "coverage" / part for part in parts]
            tables = make_folder(folder / "tables")
            summary |= write_target_tables(files, run.reference, targets, tables, sample_id)
        return {**summary, "parts": parts}

    return _stage("coverage", root, sample_id, work)


def _deliver_coverage(run: Run, sample_id: str) -> None:
    """Puts the callable regions, and what waits in the work folder, among a sample's outputs."""
    work, output = run.folder.sample_work(sample_id), run.folder.sample(sample_id)
    parts = [work / "coverage" / part for part in read_json(run.folder.summary(sample_id, "coverage"))["parts"]]
    write_callable(parts, run.reference, output / f"{sample_id}{CALLABLE}")
    for path in sorted((work / "tables").glob(f"{glob.escape(sample_id)}.*")):
        with whole_file(output / path.name) as aside:
            shutil.copyfile(path, aside)


def _alignment(found: Summary, sample_id: str) -> Alignment:
    """What the intake found, as those who read alignments take it."""
    return Alignment(path=found["path"], index_path=found["index"], kind=found["kind"], sample_id=sample_id)


def plan_calls(root: str, sample_id: str, shard_bp: int) -> list[tuple[str, int, int]]:
    """Cuts the genome into stretches that carry reads: ``(contig, start, end)`` each.

    Raises:
        ModelDataError: The reads are not of the kind that the caller was trained for.
    """
    run = load_run(root)
    _check_domain(run, sample_id)
    alignment = read_json(run.folder.summary(sample_id, "intake"))["alignment"]
    intervals = plan_call_shards(run.reference, alignment["contig_reads"], run.regions(sample_id), shard_bp)
    return [(interval.contig, interval.start, interval.end) for interval in intervals]


def _check_domain(run: Run, sample_id: str) -> list[str]:
    """Refuses reads that the caller was not made for; returns what a reader of its calls should know."""
    alignment = read_json(run.folder.summary(sample_id, "intake"))["alignment"]
    domain = read_domain(Path(model_host().settings.repository), CALLER)
    return domain.check_alignment(alignment, f"sample {sample_id}")


def call(root: str, sample_id: str, contig: str, start: int, end: int) -> Summary:
    """Calls the variants of one stretch of the genome."""
    from tasks.intervals import Interval

    name = f"calls/{contig}-{start}-{end}".replace(":", "_")

    def work() -> Summary:
        run = load_run(root)
        found = read_json(run.folder.summary(sample_id, "intake"))["alignment"]
        model = run.plan.sample_models(sample_id)[CALLER]
        server, version = model_server({CALLER: model["digest"]}), model["version"]
        return call_shard(
            _alignment(found, sample_id),
            run.reference,
            Interval(contig, start, end),
            lambda model, inputs: server.infer(model, inputs, version=version),
            run.folder.sample_work(sample_id) / f"{name}.parquet",
            regions=run.regions(sample_id),
            sex=run.sample(sample_id)["sex"],
            state_size=_state_size(server, version),
            blocks=run.folder.sample_work(sample_id) / f"{name}.blocks.parquet" if run.with_gvcf else None,
        )

    return _stage(name, root, sample_id, work)


def _state_size(server: ModelServer, version: int) -> int:
    """Length of the embedder's state, which the caller's ensemble takes in."""
    return next(spec.dims[0] for spec in server.metadata(CALLER, version).inputs if spec.name == "state")


def join_calls(root: str, sample_id: str, shards: list[tuple[str, int, int]]) -> Summary:
    """Joins a sample's called stretches into one VCF, which then goes the way of every VCF."""

    def work() -> Summary:
        run = load_run(root)
        folder = run.folder.sample_work(sample_id)
        names = [f"calls/{contig}-{start}-{end}".replace(":", "_") for contig, start, end in shards]
        note = ploidy_note(run.reference, run.sample(sample_id)["sex"])
        notes = [f"##ploidy={note}"] if note else []
        calls = [folder / f"{name}.parquet" for name in names]
        summary = finish_calls(calls, run.reference, folder / "calls.vcf.gz", sample_id, header_lines=notes)
        if run.with_gvcf:
            summary |= finish_gvcf(
                calls,
                [folder / f"{name}.blocks.parquet" for name in names],
                run.reference,
                make_folder(folder / "tables") / f"{sample_id}.g.vcf.gz",
                sample_id,
                header_lines=[*run.header_lines(sample_id), *notes],
            )
        counts = [read_json(run.folder.summary(sample_id, name)) for name in names]
        counted = sum_counts(counts)
        return {**summary, "shards": len(shards), "counts": counted, "warnings": _check_domain(run, sample_id)}

    return _stage("calls", root, sample_id, work)


def collect_alleles(root: str, sample_id: str) -> Summary:
    """Checks every record of the sample's VCF and writes its distinct normalised alleles."""

    def work() -> Summary:
        run = load_run(root)
        vcf_sample = run.sample(sample_id)["vcf_sample"]
        genotypes = GenotypeCollector(run.reference, vcf_sample=vcf_sample)
        summary = scan_variants(
            _variants(root, sample_id),
            run.reference,
            run.folder.sample_work(sample_id),
            regions=run.regions(sample_id),
            vcf_sample=vcf_sample,
            what=f"sample {sample_id}",
            observer=genotypes.observe,
            # Also where the sample fails by them: so a user finds the lines.
            rejected=run.folder.sample(sample_id) / f"{sample_id}.rejected.vcf",
            keeps_records=run.pipeline.keeps_records,
        )
        summary["genotypes"] = genotypes.write(run.folder.genotypes(sample_id))
        summary["sex"] = _sex(run, sample_id, genotypes.x_counts)
        return summary

    return _stage("alleles", root, sample_id, work)


def _sex(run: Run, sample_id: str, x_counts: list[dict[str, int]]) -> Summary | None:
    """What the data say of a sample's sex, beside the sheet; None for a VCF of several persons."""
    sample, intake = run.sample(sample_id), run.folder.summary(sample_id, "intake")
    if len(x_counts) > 1:
        return None
    finding = find_sex(
        run.reference,
        windows=read_json(intake)["alignment"]["windows"] if intake.exists() else None,
        regions=run.regions(sample_id),
        x_counts=x_counts[0] if x_counts else None,
        is_called=sample["kind"] != "vcf",
    )
    return {**finding.to_json(), "sheet": sample["sex"], "differs": sex_differs(finding, sample["sex"])}


def deliver(root: str, sample_id: str) -> Summary:
    """Joins the scores back: the sample's annotated VCF, index, table and rejected lines.

    Raises:
        BalanceError: Records or alleles were lost or made up on the way.
    """

    def work() -> Summary:
        run = load_run(root)
        with ExitStack() as stack:
            scores = stack.enter_context(ScoreTable(run.folder.alleles, run.pipeline.fields))
            annotations = [
                stack.enter_context(AnnotationTable(run.folder.annotations / f"{source.name}.parquet", source))
                for source in run.annotations
            ]
            summary = annotate_variants(
                _variants(root, sample_id),
                run.reference,
                scores,
                run.pipeline.fields,
                run.folder.sample(sample_id),
                sample_id,
                header_lines=run.header_lines(sample_id),
                annotations=annotations,
                regions=run.regions(sample_id),
                vcf_sample=run.sample(sample_id)["vcf_sample"],
                keeps_records=run.pipeline.keeps_records,
                as_written=run.pipeline.as_written,
            )
        _check_balance(sample_id, summary)
        vcf, table = (run.folder.sample(sample_id) / f"{sample_id}{ending}" for ending in (".vcf.gz", ".parquet"))
        joined = [output.name for source in run.annotations for output in source.outputs]
        own_ids = [*(field.name for field in run.pipeline.fields), *joined, REASON_ID]
        summary |= write_variant_table(vcf, table, own_ids, run.facts(sample_id))
        summary["variants"] = variant_statistics(table, run.pipeline.fields)
        if run.sample(sample_id)["kind"] != "vcf":
            _deliver_coverage(run, sample_id)
        summary["digests"] = _digest_delivered(run.folder, sample_id)
        return summary

    return _stage("output", root, sample_id, work)


def _check_balance(sample_id: str, summary: Summary) -> None:
    records_out = summary["records_out"] + summary["rejected"]
    if summary["records_in"] != records_out:
        raise BalanceError(f"sample {sample_id}: {summary['records_in']} records in, {records_out} out and rejected")
    accounted = summary["scored"] + sum(summary["skipped"].values())
    if summary["alleles"] != accounted:
        raise BalanceError(f"sample {sample_id}: {summary['alleles']} alleles, {accounted} scored or skipped")


def _variants(root: str, sample_id: str) -> Path:
    """The VCF to annotate: the user's, or the one that was called."""
    run = load_run(root)
    sample = run.sample(sample_id)
    if sample["kind"] == "vcf":
        return Path(sample["paths"][0])
    return run.folder.sample_work(sample_id) / "calls.vcf.gz"
