"""Call rows: the candidate alleles of a stretch of a contig with everything the caller is shown of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.calling.aligned_reads import LocalReference, unpack_reads
from tasks.calling.bam_records import MAX_SPAN_BP, TILE_BP, read_records
from tasks.calling.candidates import Candidates, find_candidates, is_candidate
from tasks.calling.depths import WIDE_TILES, count_depth, wide_depth_ratios
from tasks.calling.evidence import (
    DEPTH_WINDOW_BP,
    NAMES,
    NEIGHBOUR_BP,
    allele_counts,
    alternate_fractions,
    weigh,
    weigh_neighbours,
)
from tasks.calling.indels import DELETION, MAX_SHIFT_BP, SNV
from tasks.calling.linkage import REACH_BP as LINKED_BP
from tasks.calling.linkage import REACH_CANDIDATES, link
from tasks.calling.observations import ALTERNATE, observe
from tasks.calling.pileup import pile_up
from tasks.calling.realigning import REACH_BP, realign
from tasks.calling.reference_blocks import count_reference

_BLOCK_CANDIDATES = 512
_BASES = "ACGT"


@dataclass(frozen=True, slots=True)
class CallRows:
    """Rows in order of (start, kind, length, bases).

    Attributes:
        start: int64 [n], 0-based normalised start (the base before an insertion or deletion).
        ref: n upper-case reference alleles.
        alt: n upper-case alternate alleles.
        counts: int32 [n, 3], fragments that show the reference, the allele, something else.
        pileup: uint8 [n, WIDTH_BP, len(CHANNELS)].
        evidence: float32 [n, len(NAMES)].
        next_base: uint8 [n] of `tasks.calling.linkage.Linkage`.
        next_counts: int32 [n, 2] of the same.
        reference_counts: int32 [end - start, 2] of `tasks.calling.reference_blocks.count_reference` over the whole
            stretch, where it was asked for.
    """

    start: np.ndarray
    ref: list[str]
    alt: list[str]
    counts: np.ndarray
    pileup: np.ndarray
    evidence: np.ndarray
    next_base: np.ndarray
    next_counts: np.ndarray
    reference_counts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ref)

    def following(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """By start and allele of a single-base change: the fields of `Call` that tell of one right behind it."""
        has_next = np.flatnonzero(self.next_counts[:, 0])
        return {
            (int(self.start[row]), self.alt[row]): {
                "next_alt": _BASES[self.next_base[row]],
                "together": int(self.next_counts[row, 0]),
                "apart": int(self.next_counts[row, 1]),
            }
            for row in has_next
        }

    def take(self, index: np.ndarray) -> CallRows:
        """The rows at `index`, int64 [k]."""
        return CallRows(
            self.start[index],
            [self.ref[row] for row in index],
            [self.alt[row] for row in index],
            self.counts[index],
            self.pileup[index],
            self.evidence[index],
            self.next_base[index],
            self.next_counts[index],
            self.reference_counts,
        )


def collect_rows(
    alignment: Any, tid: int, contig_tokens: np.ndarray, start: int, end: int, *, with_reference: bool = False
) -> tuple[CallRows, dict[str, int]]:
    """Collects the candidates whose normalised start lies in ``[start, end)``.

    What a row holds depends on the reads within a fixed distance of it, never on where the stretch ends.

    Args:
        alignment: An open, indexed `pysam.AlignmentFile`.
        tid: The contig's index in the alignment's header.
        contig_tokens: uint8, the whole contig.
        start: First position, 0-based.
        end: Past the last position.
        with_reference: Whether to count what the reads say at places without candidates too.

    Returns:
        The rows, and the records that start in ``[start, end)`` by what became of them.
    """
    length_bp = int(contig_tokens.size)
    # Neighbours beyond both borders are candidates too; their reads, depth windows and unshifted places reach further.
    near = max(NEIGHBOUR_BP, LINKED_BP)
    first, last = max(0, start - near), min(length_bp, end + near)
    load_start = max(0, first - max(DEPTH_WINDOW_BP + MAX_SPAN_BP, REACH_BP)) // TILE_BP * TILE_BP
    load_end = -(-(last + MAX_SHIFT_BP + max(DEPTH_WINDOW_BP, MAX_SPAN_BP, REACH_BP)) // TILE_BP) * TILE_BP
    wide = max(0, load_start - WIDE_TILES * TILE_BP), load_end + WIDE_TILES * TILE_BP
    records = read_records(
        alignment, tid, load_start, load_end, wide=wide, counted=(start, end), contig_length_bp=length_bp
    )
    left = max(0, load_start - MAX_SHIFT_BP - TILE_BP)
    reference = LocalReference(
        left, np.array(contig_tokens[left : load_end + MAX_SPAN_BP + MAX_SHIFT_BP + TILE_BP], np.uint8)
    )
    reads = unpack_reads(records, reference)
    depth = count_depth(reads, load_start, load_end)
    reads = realign(reads, reference, depth, load_start)
    candidates = find_candidates(reads, reference, first, last, depth, load_start)
    blocks: list[tuple[np.ndarray, ...]] = []
    # One block even of nothing: it says of what types and shapes the columns are.
    for block_start in range(0, max(len(candidates), 1), _BLOCK_CANDIDATES):
        block_end = min(block_start + _BLOCK_CANDIDATES, len(candidates))
        block = candidates.slice(block_start, block_end)
        # The candidates beyond the block's ends are neighbours of those inside.
        around = max(0, block_start - REACH_CANDIDATES), min(block_end + REACH_CANDIDATES, len(candidates))
        inside = block_start - around[0], block_end - around[0]
        neighbourhood = candidates.slice(*around)
        all_observations = observe(reads, neighbourhood)
        all_counts = allele_counts(all_observations)
        linkage = link(reads, neighbourhood, all_observations, alternate_fractions(all_counts)).slice(*inside)
        observations, counts = all_observations.slice(*inside), all_counts[slice(*inside)]
        evidence = weigh(
            reads, reference, block, observations, counts, depth, records.low_quality_depth, load_start, linkage
        )
        pileup = pile_up(reads, reference, block, observations)
        kept = np.flatnonzero(is_candidate(counts[:, ALTERNATE], counts.sum(axis=1)))
        columns = (counts, pileup, evidence, linkage.next_base, linkage.next_counts)
        blocks.append((kept + block_start, *(column[kept] for column in columns)))
    index, counts, pileup, evidence, next_base, next_counts = map(np.concatenate, zip(*blocks, strict=True))
    ratios = wide_depth_ratios(records.tile_bases, wide[0] // TILE_BP, candidates.start[index])
    evidence[:, NAMES.index("wide_depth_ratio")] = ratios / 2
    weigh_neighbours(evidence, candidates.start[index], candidates.kind[index], alternate_fractions(counts))
    own = np.flatnonzero((candidates.start[index] >= start) & (candidates.start[index] < end))
    alleles = [_spell(candidates, int(row), reference) for row in index[own]]
    rows = CallRows(
        start=candidates.start[index[own]],
        ref=[ref for ref, _ in alleles],
        alt=[alt for _, alt in alleles],
        counts=counts[own],
        pileup=pileup[own],
        evidence=evidence[own],
        next_base=next_base[own],
        next_counts=next_counts[own],
        reference_counts=count_reference(reads, reference, start, end) if with_reference else None,
    )
    return rows, records.counts


def _spell(candidates: Candidates, row: int, reference: LocalReference) -> tuple[str, str]:
    """REF and ALT of a candidate, as in VCF."""
    start, length_bp = int(candidates.start[row]), int(candidates.length_bp[row])
    kind = candidates.kind[row]
    first = _BASES[candidates.reference_token[row]]
    if kind == SNV:
        return first, _BASES[int(candidates.code[row])]
    if kind == DELETION:
        at = start - reference.start
        return "".join(_BASES[token] for token in reference.tokens[at : at + length_bp + 1]), first
    return first, first + "".join(_BASES[token] for token in candidates.inserted[row])
