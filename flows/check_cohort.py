"""Everything about a sheet that can be told before work starts."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from flows.parameters import REPOSITORY, check_models, check_regions
from flows.shared_details import SharedDetails
from tasks.annotations.request import parse_requests
from tasks.annotations.source import check_inputs_free, open_source
from tasks.calling.domain import read_domain
from tasks.coverage.exons import read_exons
from tasks.coverage.targets import read_targets
from tasks.errors import TaskError
from tasks.genome.reference import Reference, prepare_reference
from tasks.genome.regions import read_bed
from tasks.precheck import check_sample, unknown_parents
from tasks.run import CALLER
from tasks.sheets.sheet import read_sheet


def check_cohort(
    sheet_path: Path,
    reference_path: Path,
    regions: Path | None,
    genes: Path | None = None,
    annotate: Sequence[str] = (),
    models: Path = REPOSITORY,
) -> tuple[list[str], int]:
    """Checks the sheet, the reference, the regions, the annotations, and every input's header.

    Returns:
        Lines for people, and the number of samples that would fail.

    Raises:
        TaskError: The sheet, the reference, the regions, the genes, an annotation or the models cannot be used at all.
    """
    sheet = read_sheet(sheet_path)
    check_regions(sheet, regions, genes=genes)
    check_models(models)
    num_faults = 0
    details = SharedDetails()
    with tempfile.TemporaryDirectory(prefix="cohortflow-check-") as scratch:
        reference = prepare_reference(reference_path.resolve(), Path(scratch) / "reference")
        domain = read_domain(models, CALLER)
        lines = [_reference_line(reference), *(f"sheet: caution: {warning}" for warning in sheet.warnings)]
        exons = read_exons(genes, reference) if genes else None
        if exons:
            lines.append(f"genes: {len(exons.names):,} with {len(exons.start):,} exons")
        if regions:
            read = read_targets(regions, reference, exons)
            bases = int((read.merged[:, 1] - read.merged[:, 0]).sum())
            lines.append(f"regions: {len(read.merged):,} intervals, {bases:,} bp; {len(read.genes):,} genes")
            lines += [f"regions: caution: {warning}" for warning in read_bed(regions, reference).warnings]
        for request in parse_requests(annotate):
            outputs = [field.output for field in open_source(request, reference, Path(scratch))]
            check_inputs_free([path for s in sheet.samples if s.kind == "vcf" for path in s.paths], outputs)
            lines.append(f"annotation {request.name}: writes INFO {', '.join(output.name for output in outputs)}")
        parents = unknown_parents(sheet.samples)
        for sample in sheet.samples:
            try:
                notes = check_sample(sample, reference, Path(scratch), domain, regions)
                notes += [f"caution: {each.warning}: {each.message}" for each in parents if each.sample == sample.id]
                lines.append(f"ok      {sample.id}: {'; '.join(notes)}")
            except TaskError as error:
                num_faults += 1
                lines.append(f"FAULT   {sample.id}: {error.reason}: {details.add(sample.id, error.message)}")
    lines += details.lines()
    if any(sample.kind == "fastq" for sample in sheet.samples):
        from tasks.reads.index import memory_line

        lines.append(memory_line(reference))
    lines.append(f"{len(sheet.samples)} samples, {num_faults} with faults")
    return lines, num_faults


def _reference_line(reference: Reference) -> str:
    total_bp = sum(contig.length_bp for contig in reference.contigs)
    return f"reference: build {reference.build or 'unknown'}, {len(reference.contigs)} contigs, {total_bp:,} bp"
