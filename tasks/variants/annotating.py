"""The second reading of a sample's VCF: scores joined back and spliced into its text."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.annotations.source import check_free
from tasks.annotations.table import AnnotationTable
from tasks.bgzf import BgzfWriter
from tasks.errors import BalanceError
from tasks.files import make_folder, whole_file
from tasks.genome.reference import Reference
from tasks.genome.regions import Regions
from tasks.pipelines import OutputField
from tasks.variants.allele_kernels import SKIP_REASONS
from tasks.variants.binary import as_text
from tasks.variants.header import OWN_SOURCE, REASON_ID, REASON_LINE, output_header
from tasks.variants.index import write_index
from tasks.variants.lines import FORMAT
from tasks.variants.records import RecordBlock, RecordReader
from tasks.variants.rejected import RejectedLines
from tasks.variants.scanning import ScanCounts, check_sample
from tasks.variants.score_table import MISSING, ScoreTable
from tasks.variants.splice import Splicer


def annotate_variants(
    path: Path,
    reference: Reference,
    scores: ScoreTable,
    fields: Sequence[OutputField],
    folder: Path,
    sample_id: str,
    *,
    header_lines: Sequence[str],
    annotations: Sequence[AnnotationTable] = (),
    regions: Regions | None = None,
    vcf_sample: str | None = None,
    keeps_records: bool = False,
    as_written: Callable[[str, str, int], str] | None = None,
) -> dict[str, Any]:
    """Writes a sample's ``ID.vcf.gz``, its index, and ``ID.rejected.vcf`` if there is need.

    Args:
        path: The input, plain, gzip, bgzip or BCF.
        reference: The genome.
        scores: The cohort's score table.
        fields: What to take from it.
        folder: Receives the files.
        sample_id: Names them.
        header_lines: ``##cohortflow=`` lines that say what made the output.
        annotations: What annotation files say of the cohort's alleles.
        regions: As given to `tasks.variants.scanning.scan_variants`.
        vcf_sample: The one sample column to keep; None keeps all.
        keeps_records: As given to `tasks.variants.scanning.scan_variants`.
        as_written: `tasks.pipelines.Pipeline.as_written`, asked for the fields of any number of entries; None: what the
            table has is written for every way to write an allele.

    Returns:
        The counts of `tasks.variants.scanning.ScanCounts`; and ``records_out``, ``scored`` alleles, ``skipped``
        alleles by reason (those of the table too), ``annotated`` alleles by annotation, ``contigs`` (records on each),
        ``index`` (``tbi``, ``csi`` or None), ``index_reason`` (why there is none), ``repairs`` by kind, and
        ``warnings``.

    Raises:
        VariantFileError: The file is damaged, or not the one that was scanned.
        AnnotationError: It has a field already that an annotation would write.
        ReferenceError: It was made with another reference.
        BalanceError: An allele that is to be scored is not in the table.
    """
    make_folder(folder)
    output = folder / f"{sample_id}.vcf.gz"
    rejected = folder / f"{sample_id}.rejected.vcf"
    counts = ScanCounts()
    with as_text(path, folder) as text:
        reader = RecordReader(text, reference, regions, keeps_records=keeps_records)
        check_sample(path, reader.header.samples, vcf_sample)
        check_free(str(path), reader.header, [output for table in annotations for output in table.source.outputs])
        join = _Join(reader, scores, fields, annotations, vcf_sample, as_written)
        with whole_file(output) as aside:
            with _body_beside(aside) as body, RejectedLines(rejected) as rejects:
                with BgzfWriter(body) as writer:
                    for block in reader.blocks():
                        counts.add(block)
                        rejects.add(block)
                        writer.write(join.splice(block))
                counts.check(sample_id, path)
                header, repairs = join.header(header_lines, vcf_sample)
                _assemble(aside, header, body)
            longest_bp = max(
                [counts.max_position, *(length or 0 for length in reader.header.contig_lengths_bp.values())]
            )
            index, index_reason = write_index(aside, output, counts.is_sorted, longest_bp)
    skipped = dict(counts.skipped)
    for reason, number in join.reasons.items():
        skipped[reason] = skipped.get(reason, 0) + number
    return {
        **counts.summary(),
        "records_out": counts.records,
        "scored": join.num_scored,
        "skipped": dict(sorted(skipped.items())),
        **({"annotated": join.num_annotated} if annotations else {}),
        "contigs": counts.contigs(reader.contig_names),
        "index": index,
        "index_reason": index_reason,
        "repairs": dict(sorted((reader.repairs | repairs).items())),
        "warnings": [
            f"{path.name}: INFO/{name} of another program was replaced by this program's"
            for name in reader.header.foreign_ids([*(field.name for field in fields), REASON_ID])
        ],
    }


class _Join:
    """Scores and reasons for the alleles of each block.

    Attributes:
        num_scored: Alleles with a score so far.
        reasons: Alleles that the table gives a reason for, by reason.
        num_annotated: Alleles that each annotation has.
    """

    def __init__(
        self,
        reader: RecordReader,
        scores: ScoreTable,
        fields: Sequence[OutputField],
        annotations: Sequence[AnnotationTable],
        vcf_sample: str | None,
        as_written: Callable[[str, str, int], str] | None,
    ) -> None:
        self._as_written = as_written
        self.num_scored = 0
        self.reasons: dict[str, int] = {}
        self.num_annotated = {table.source.name: 0 for table in annotations}
        self._reader = reader
        self._scores = scores
        self._fields = tuple(fields)
        self._annotations = tuple(annotations)
        joined = [output for table in annotations for output in table.source.outputs]
        names = [field.name for field in [*fields, *joined]]
        self._replaced = {*names, REASON_ID, *reader.header.own_ids}
        self._column = -1 if vcf_sample is None else FORMAT + 1 + reader.header.samples.index(vcf_sample)
        self._splicer = Splicer(
            [*names, REASON_ID],
            is_list=[*(field.number != "A" for field in [*fields, *joined]), False],
            is_optional=[*(field.number == "." for field in fields), *[True] * (len(joined) + 1)],
            replaced=self._replaced,
            column=self._column,
        )

    def splice(self, block: RecordBlock) -> memoryview:
        """The block's records with their scores.

        Raises:
            BalanceError: An allele that is to be scored is not in the table.
        """
        keys = block.keys
        scorable = np.flatnonzero(keys.skip == 0)
        found = self._scores.lookup(keys.locus[scorable], keys.code[scorable])
        if len(found.row) and found.row.min() < 0:
            missing = scorable[found.row < 0]
            record = int(keys.record[missing[0]])
            contig = self._reader.contig_names[block.contig_name[record]]
            raise BalanceError(
                f"{self._reader.path}: {len(missing):,} alleles are not in {self._scores.path.name}, the first at "
                f"{contig}:{block.lines.position[record]}"
            )
        texts, rows_of = list(found.texts[:-1]), [found.row] * len(self._fields)
        for place, field in enumerate(self._fields):
            if self._as_written and field.number == ".":
                texts[place], rows_of[place] = self._rewritten(block, scorable, texts[place], found.row)
        for table in self._annotations:
            joined = table.lookup(keys.locus[scorable], keys.code[scorable])
            self.num_annotated[table.source.name] += int(np.count_nonzero(joined.row >= 0))
            texts += joined.texts
            rows_of += [joined.row] * len(joined.texts)
        rows = np.full((len(texts) + 1, len(keys.skip)), -1, dtype=np.int64)
        rows[:, scorable] = [*rows_of, found.row]
        # The reasons of alleles that were never asked for follow those that the table gives.
        reason_texts = pa.concat_arrays([found.texts[-1], pa.array(SKIP_REASONS, pa.string())])
        skipped = keys.skip != 0
        rows[-1, skipped] = len(found.texts[-1]) + keys.skip[skipped].astype(np.int64)
        self._count(found.texts[-1].take(pa.array(found.row)))
        return self._splicer.splice(block, [*texts, reason_texts], rows)

    def _rewritten(
        self, block: RecordBlock, scorable: NDArray[np.int64], texts: pa.StringArray, row: NDArray[np.int64]
    ) -> tuple[pa.StringArray, NDArray[np.int64]]:
        """A field's texts and each allele's place in them, with more texts for alleles that are written otherwise."""
        assert self._as_written is not None
        keys, records = block.keys, block.records
        record = keys.record[scorable]
        shift = records.start[record] - keys.first[scorable]
        begin = keys.alt_begin[scorable]
        own: list[str] = []
        row = row.copy()
        for at in np.flatnonzero(row >= 0).tolist():
            end = int(begin[at])
            last = int(records.alt_end[record[at]])
            alt = block.lines.text[end:last].tobytes().split(b",", 1)[0].decode()
            text = texts[int(row[at])].as_py()
            told = self._as_written(text, alt, int(shift[at])) if text != MISSING else text
            if told != text:
                row[at] = len(texts) + len(own)
                own.append(told)
        return pa.concat_arrays([texts, pa.array(own, pa.string())]), row

    def _count(self, reasons: pa.StringArray) -> None:
        for entry in pc.value_counts(reasons).to_pylist():
            if entry["values"] == MISSING:
                self.num_scored += entry["counts"]
            else:
                self.reasons[entry["values"]] = self.reasons.get(entry["values"], 0) + entry["counts"]

    def header(self, header_lines: Sequence[str], vcf_sample: str | None) -> tuple[bytes, dict[str, int]]:
        """The output's header, and what was mended in it."""
        own = [f'{field.header_line[:-1]},Source="{OWN_SOURCE}">' for field in self._fields]
        own += [line for table in self._annotations for line in table.source.header_lines]
        columns = self._reader.column_line.split(b"\t")
        if vcf_sample is not None:
            columns = [*columns[: FORMAT + 1], columns[self._column]]
        contigs = dict(zip(self._reader.contig_names, self._reader.contig_lengths_bp, strict=True))
        return output_header(
            self._reader.header, [*own, REASON_LINE, *header_lines], self._replaced, contigs, b"\t".join(columns)
        )


@contextmanager
def _body_beside(aside: Path) -> Iterator[IO[bytes]]:
    """A file for the records: the header comes first but is known last, since it names the contigs that were met."""
    body = aside.with_name(f"{aside.name}.body")
    try:
        with open(os.open(body, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "w+b") as handle:
            yield handle
    finally:
        body.unlink(missing_ok=True)


def _assemble(aside: Path, header: bytes, body: IO[bytes]) -> None:
    with open(aside, "wb") as handle:
        with BgzfWriter(handle, end_of_file=False) as writer:
            writer.write(header)
        body.seek(0)
        shutil.copyfileobj(body, handle, 1 << 20)
