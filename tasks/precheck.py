"""What can be told of a sample before work starts: formats, headers, contigs, indices, the first records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tasks.alignments.file import check_alignment
from tasks.alignments.format import keep_offline, open_alignment, read_header, recognise_kind
from tasks.calling.domain import CallerDomain, refuse_tumour
from tasks.errors import TaskError, VariantFileError
from tasks.genome.contigs import mixed_names
from tasks.genome.header_check import HeaderCheck, check_header_contigs
from tasks.genome.reference import Reference, load_reference
from tasks.genome.regions import read_bed
from tasks.identity.genotypes import GenotypeCollector
from tasks.identity.pedigree import parent_warnings
from tasks.identity.sex import SexFinding, find_sex, sex_differs
from tasks.identity.warnings import IdentityWarning, name_warning
from tasks.isolation import run_isolated
from tasks.pipelines import pipeline_types
from tasks.reads.fastq import Lane, check_mate_numbers
from tasks.reads.records import read_records
from tasks.sheets.sheet import Sample
from tasks.variants.binary import check_end, is_bcf
from tasks.variants.header import REASON_ID, VariantHeader, parse_header
from tasks.variants.scanning import check_sample as check_vcf_sample
from tasks.variants.scanning import scan_variants
from tasks.variants.text import VariantText

_NAMES_SHOWN = 3
MAX_WHOLE_BYTES = 200_000_000
"""Inputs up to this size are read whole, as the run will read them; of larger ones header and first records."""


def check_sample(
    sample: Sample, reference: Reference, scratch: Path, domain: CallerDomain, bed: Path | None = None
) -> list[str]:
    """Checks a sample's inputs: small ones whole, of large ones what header and first records tell.

    Args:
        sample: The sheet's sample.
        reference: The genome.
        scratch: Folder for what the check writes on the way.
        domain: What the caller was made for.
        bed: The regions of samples that have none of their own; None for everywhere.

    Returns:
        What was found, for people.

    Raises:
        TaskError: The sample would fail.
    """
    refuse_tumour(sample.to_json())
    notes = check_headers(sample, reference, domain)
    if sample.kind == "fastq":
        notes += _check_reads(sample)
    if sum(path.stat().st_size for path in sample.files) <= MAX_WHOLE_BYTES:
        notes += _read_whole(sample, reference, scratch / sample.id, domain, sample.regions or bed)
    # Header and records may give one caution twice.
    return list(dict.fromkeys(notes))


def check_headers(sample: Sample, reference: Reference, domain: CallerDomain | None = None) -> list[str]:
    """Compares a sample's own regions and the headers of its inputs with the reference; reads no record.

    Args:
        sample: The sample.
        reference: The genome.
        domain: What read groups must be of; None to leave that to the reading of the records.

    Returns:
        What was found, for people.

    Raises:
        TaskError: The sample would fail.
    """
    notes: list[str] = [sample.kind]
    if sample.regions:
        regions = read_bed(sample.regions, reference)
        notes.append(f"regions: {len(regions.start):,} intervals")
        notes += [f"caution: {warning}" for warning in regions.warnings]
    if sample.kind == "vcf":
        notes += _check_variants(sample, reference)
    elif sample.kind != "fastq":
        for path in sample.paths:
            payload = {"path": str(path), "reference_folder": str(reference.folder)}
            found = run_isolated("tasks.precheck:describe_alignment", payload, what=str(path))
            notes += _check_alignment(path, found, sample, reference)
            if domain:
                domain.check_platforms([group["platform"] for group in found["read_groups"]], f"sample {sample.id}")
    return notes


def _read_whole(
    sample: Sample, reference: Reference, scratch: Path, domain: CallerDomain, bed: Path | None
) -> list[str]:
    """Reads a sample's inputs as the run would; only what the run makes of them is left undone."""
    if sample.kind == "vcf":
        regions = read_bed(sample.regions, reference) if sample.regions else None
        genotypes = GenotypeCollector(reference, vcf_sample=sample.vcf_sample)
        counts = scan_variants(
            sample.paths[0],
            reference,
            scratch,
            regions=regions,
            vcf_sample=sample.vcf_sample,
            what=f"sample {sample.id}",
            observer=genotypes.observe,
        )
        notes = [f"{counts['records_in']:,} records, {counts['rejected']:,} to reject"]
        notes += _mixed_notes(counts["mixed_names"])
        if len(genotypes.x_counts) == 1:
            notes += _sex_notes(sample, find_sex(reference, x_counts=genotypes.x_counts[0]))
        return notes
    if sample.kind == "fastq":
        lanes = sample.to_json()["lanes"]
        found = run_isolated("tasks.reads.fastq:check_reads", {"lanes": lanes}, what=f"sample {sample.id}")
        domain.check_read_length(found["length_bp"]["median"], found["long_reads"], f"sample {sample.id}")
        return [f"{found['num_reads']:,} reads", *(f"caution: {warning}" for warning in found["warnings"])]
    alignment = check_alignment(
        sample.paths,
        sample.index_paths,
        reference,
        scratch,
        bed=bed,
        use_duplicates=sample.is_amplicon,
    )
    notes = domain.check_alignment(alignment, f"sample {sample.id}")
    notes.append(f"{alignment['counts']['total']:,} records, {alignment['mapping_rate']:.1%} mapped")
    regions = read_bed(sample.regions, reference) if sample.regions else None
    return notes + _sex_notes(sample, find_sex(reference, windows=alignment["windows"], regions=regions))


def unknown_parents(samples: Sequence[Sample]) -> list[IdentityWarning]:
    """Warnings about parents whom neither the sheet has nor a VCF of several persons; see `parent_warnings`."""
    rows = {sample.id: sample.to_json() for sample in samples}
    if not parent_warnings(rows):
        return []
    columns: set[str] = set()
    whole_vcfs = (sample for sample in samples if sample.kind == "vcf" and sample.vcf_sample is None)
    for path in {path for sample in whole_vcfs for path in sample.paths}:
        with suppress(TaskError):
            found = _read_header(path).samples
            columns |= set(found) if len(found) > 1 else set()
    return parent_warnings(rows, columns)


def _sex_notes(sample: Sample, finding: SexFinding) -> list[str]:
    if not sex_differs(finding, sample.sex):
        return []
    return [f"caution: SEX_DIFFERS: the sheet says {sample.sex}, the data {finding.verdict} ({finding.evidence})"]


def _name_notes(sample: Sample, found: Sequence[str], where: str) -> list[str]:
    own_names = [sample.id, sample.columns.get("sample", sample.id), sample.patient]
    warning = name_warning(sample.id, own_names, found, where)
    return [f"caution: {warning.warning}: {warning.message}"] if warning else []


def _read_header(path: Path) -> VariantHeader:
    if not is_bcf(path):
        return parse_header(VariantText(path).header)
    check_end(path)
    lines = run_isolated("tasks.precheck:read_bcf_header", {"path": str(path)}, what=str(path))
    return parse_header([line.encode() for line in lines])


def _check_variants(sample: Sample, reference: Reference) -> list[str]:
    path = sample.paths[0]
    header = _read_header(path)
    samples, lengths_bp, md5s = header.samples, header.contig_lengths_bp, header.contig_md5s
    check_vcf_sample(path, samples, sample.vcf_sample)
    notes = [f"{len(samples)} sample columns"]
    if lengths_bp:
        names = list(lengths_bp)
        check = check_header_contigs(
            f"sample {sample.id} ({path.name})",
            names,
            [lengths_bp[name] for name in names],
            [md5s[name] for name in names],
            [None] * len(names),
            reference,
        )
        notes += _contig_notes(check, names) + _mixed_notes(mixed_names(names, reference))
    else:
        notes.append("no ##contig lines: the records tell which contigs there are")
    own_ids = {field.name for kind in pipeline_types().values() for field in kind.fields} | {REASON_ID}
    notes += [f"caution: INFO/{name} of another program would be replaced" for name in header.foreign_ids(own_ids)]
    if sample.vcf_sample is None and len(samples) == 1:
        notes += _name_notes(sample, samples, "the VCF's column names")
    return notes


def _check_alignment(path: Path, found: dict[str, Any], sample: Sample, reference: Reference) -> list[str]:
    names: Sequence[str] = found["names"]
    what = f"sample {sample.id} ({path.name})"
    check = check_header_contigs(what, names, found["lengths_bp"], found["md5s"], [None] * len(names), reference)
    notes = _contig_notes(check, names) + _mixed_notes(mixed_names(names, reference))
    names = [group["sample"] for group in found["read_groups"] if group["sample"]]
    return notes + _name_notes(sample, names, "the read groups (SM) name")


def _contig_notes(check: HeaderCheck, names: Sequence[str]) -> list[str]:
    """Says which build a header looks like and which of its contigs do not fit."""
    notes = [f"build {check.build or 'unknown'}, {len(names)} contigs"]
    misfits: dict[str, list[str]] = {}
    for name, reason in zip(names, check.match.reason, strict=True):
        if reason is not None:
            misfits.setdefault(reason, []).append(name)
    for reason, found in misfits.items():
        more = ", ..." if len(found) > _NAMES_SHOWN else ""
        notes.append(f"{len(found)} contigs {reason}: {', '.join(found[:_NAMES_SHOWN])}{more}")
    return notes


def _mixed_notes(found: str | None) -> list[str]:
    return [f"caution: MIXED_CONTIG_NAMES: {found}"] if found else []


def _check_reads(sample: Sample) -> list[str]:
    paths = [path for lane in sample.lanes for path in (lane.fastq_1, lane.fastq_2) if path]
    for path in paths:
        # The first block alone: whether it is FASTQ at all. The whole is checked when the work begins.
        next(iter(read_records(path)), None)
    lanes = [Lane(lane.fastq_1, lane.fastq_2, lane.interleaved) for lane in sample.lanes]
    warnings = [each for lane in lanes for each in check_mate_numbers(lane)]
    size_mb = sum(path.stat().st_size for path in paths) / 1e6
    notes = [f"{len(sample.lanes)} lanes, {len(paths)} files, {size_mb:,.1f} MB"]
    return notes + [f"caution: {warning}" for warning in warnings]


def describe_alignment(path: str, reference_folder: str) -> dict[str, Any]:
    """Reads a BAM's, CRAM's or SAM's header; run in a child process."""
    keep_offline()
    recognise_kind(Path(path))
    with open_alignment(Path(path), None, load_reference(Path(reference_folder)).fasta_path) as alignment:
        header = read_header(Path(path), alignment)
    return {
        "names": list(header.names),
        "lengths_bp": list(header.lengths_bp),
        "md5s": list(header.md5s),
        "read_groups": list(header.read_groups),
    }


def read_bcf_header(path: str) -> list[str]:
    """Reads a BCF's header lines; run in a child process.

    Raises:
        VariantFileError: htslib refuses the file.
    """
    import pysam

    try:
        with pysam.VariantFile(path) as variants:
            return str(variants.header).splitlines()
    except (OSError, ValueError) as error:
        raise VariantFileError(f"{path}: not a whole BCF: {error}", reason="DAMAGED") from error
