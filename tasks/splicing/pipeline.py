"""The pipeline ``spliceai``: INFO ``SpliceAI`` as the published tool writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from tasks.pipelines import NO_RESOURCES, OutputField, Pipeline, Resources, Rows
from tasks.splicing.deltas import align, as_entry, as_written, find_deltas
from tasks.splicing.transcripts import Transcripts
from tasks.splicing.windows import Pairs, find_pairs, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.genome.reference import Reference

CONTEXT_BP = 5_000
"""Bases to either side that the published networks see."""
# Source: spliceai 1.3.1, __main__.py.
_DESCRIPTION = (
    "SpliceAIv1.3.1 variant annotation. These include delta scores (DS) and delta positions (DP) for acceptor gain "
    "(AG), acceptor loss (AL), donor gain (DG), and donor loss (DL). Format: "
    "ALLELE|SYMBOL|DS_AG|DS_AL|DS_DG|DS_DL|DP_AG|DP_AL|DP_DG|DP_DL"
)


class SpliceAiOptions(BaseModel):
    """Options of the published tool, and how records are read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    distance: int = Field(50, ge=1, lt=5_000, description="positions to either side that are compared (-D)")
    mask: bool = Field(False, description="leave out gains of annotated and losses of unannotated sites (-M 1)")
    strict_compat: bool = Field(
        False, description="score each record exactly as it is written, as the published tool does"
    )


@dataclass(frozen=True, slots=True)
class _Context:
    """What `collapse` needs of the alleles that `expand` saw.

    Attributes:
        start: Their 0-based starts.
        ref: REF of each.
        alt: ALT of each.
        scored: Those with a row, in the rows' order.
        dotted: Those that get dots.
        transcripts: The transcripts.
    """

    start: NDArray[np.int64]
    ref: list[str]
    alt: list[str]
    scored: Pairs
    dotted: Pairs
    transcripts: Transcripts


class SpliceAi(Pipeline):
    """What an allele does to the splice sites near it, for each gene that it lies in."""

    name = "spliceai"
    title = "SpliceAI: gain and loss of splice sites near an allele (needs `cohortflow models add spliceai`)"
    ensemble = "spliceai"
    publication = "spliceai"
    resources = ("transcripts",)
    fields = (OutputField("SpliceAI", "String", ".", _DESCRIPTION),)
    caution = (
        "SpliceAI's weights are for non-commercial use (CC BY-NC 4.0). Its scores depend on how an allele is written: "
        "each allele is scored trimmed and left-aligned, unless strict_compat is set."
    )
    options_type = SpliceAiOptions
    alleles_at_once = 500
    options: SpliceAiOptions

    @property
    def keeps_records(self) -> bool:
        """Whether alleles are told apart as their records write them."""
        return self.options.strict_compat

    def expand(
        self,
        alleles: pa.Table,
        reference: Reference,
        shapes: Mapping[str, tuple[int, ...]],
        resources: Resources = NO_RESOURCES,
    ) -> Rows:
        """A row for each allele and transcript that has its first base."""
        transcripts = resources.transcripts
        assert transcripts is not None, "it is among the resources asked for"
        contig = alleles["contig"].to_numpy().astype(np.int64)
        start = alleles["start"].to_numpy()
        ref, alt = alleles["ref"].to_pylist(), alleles["alt"].to_pylist()
        ref_bp, alt_bp = (np.array([len(bases) for bases in each], np.int64) for each in (ref, alt))
        side = CONTEXT_BP + self.options.distance
        reason = np.full(len(start), None, dtype=object)
        reason[ref_bp > 2 * self.options.distance] = "REF_TOO_LONG"
        reason[(start < side) | (start + side >= np.diff(reference.offsets)[contig])] = "NEAR_CONTIG_END"
        pairs = find_pairs(contig, start, transcripts)
        has_gene = np.zeros(len(start), np.bool_)
        has_gene[pairs.allele] = True
        reason[~has_gene] = "NO_GENE"
        is_answered = reason == None  # noqa: E711 - element by element
        # The published tool has dots for these, and asks nothing of the networks.
        is_dotted = (ref_bp > 1) & (alt_bp > 1) if self.options.strict_compat else np.zeros(len(start), np.bool_)
        scored, dotted = _chosen(pairs, is_answered & ~is_dotted), _chosen(pairs, is_answered & is_dotted)
        inputs = rows_of(scored, contig, start, ref, alt, transcripts, reference, side)
        return Rows(inputs, scored.allele, reason, context=_Context(start, ref, alt, scored, dotted, transcripts))

    def collapse(self, num_alleles: int, rows: Rows, outputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Entries of each allele, in the order of the transcripts."""
        context: _Context = rows.context
        told = [
            (allele, number, as_entry(context.alt[allele], context.transcripts.gene[number], None))
            for allele, number in _each(context.dotted)
        ]
        for row, (allele, number) in enumerate(_each(context.scored)):
            answer = {name: array[row] for name, array in outputs.items()}
            told.append((allele, number, self._entry(context, allele, number, answer)))
        entries: list[list[str]] = [[] for _ in range(num_alleles)]
        for allele, _, entry in sorted(told):
            entries[allele].append(entry)
        return {self.fields[0].name: np.array([",".join(each) or None for each in entries], object)}

    def as_written(self, text: str, alt: str, shift_bp: int) -> str:
        """Entries with the record's ALT, and positions counted from its POS."""
        return as_written(text, alt, shift_bp)

    def _entry(self, context: _Context, allele: int, number: int, answer: Mapping[str, NDArray[np.float32]]) -> str:
        distance, transcripts = self.options.distance, context.transcripts
        ref_bp, alt_bp = len(context.ref[allele]), len(context.alt[allele])
        reference, alternate = answer["reference"], answer["alternate"][: 2 * distance + 1 - ref_bp + alt_bp]
        if transcripts.is_reverse[number]:
            reference, alternate = reference[::-1], alternate[::-1]
        edge = _nearest(transcripts, number, int(context.start[allele])) if self.options.mask else None
        deltas = find_deltas(reference, align(alternate, ref_bp, alt_bp, distance), distance, edge)
        return as_entry(context.alt[allele], transcripts.gene[number], deltas)


def _each(pairs: Pairs) -> Iterator[tuple[int, int]]:
    return zip(pairs.allele.tolist(), pairs.transcript.tolist(), strict=True)


def _chosen(pairs: Pairs, is_chosen: NDArray[np.bool_]) -> Pairs:
    rows = is_chosen[pairs.allele]
    return Pairs(pairs.allele[rows], pairs.transcript[rows])


def _nearest(transcripts: Transcripts, number: int, start: int) -> int:
    """Where the exon edge nearest to a base lies, counted from it; of two equally near the left one."""
    offsets = transcripts.exon_edges[number] - start
    return int(offsets[np.abs(offsets).argmin()])
