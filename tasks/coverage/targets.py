"""The targets of a panel or exome: a BED's intervals, the genes they belong to, and the pieces they share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tasks.coverage.exons import Exons
from tasks.genome.reference import Reference
from tasks.genome.regions import Regions, read_intervals

_BETWEEN_NAMES = re.compile(r"[;,|]")
_NO_NAME = ("", ".", "-")


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets in the reference's order; they may overlap. Places are counted along the whole reference.

    A place is a position on a contig plus `Reference.offsets` of that contig.

    Attributes:
        start: int64 [n], first places, sorted.
        end: int64 [n], one past the last places.
        names: n labels, as in the BED.
        genes: Names of the genes, sorted.
        gene_target: int64 [k], targets that belong to a gene, once for each of their genes.
        gene_of: int64 [k], which gene.
    """

    start: np.ndarray
    end: np.ndarray
    names: tuple[str, ...]
    genes: tuple[str, ...]
    gene_target: np.ndarray
    gene_of: np.ndarray

    @cached_property
    def merged(self) -> np.ndarray:
        """The union of the targets: int64 [m, 2], places, sorted; no two touch."""
        reach = np.maximum.accumulate(self.end)
        is_first = np.append(True, self.start[1:] > reach[:-1])
        return np.stack([self.start[is_first], reach[np.append(is_first[1:], True)]], axis=1)

    @cached_property
    def pieces(self) -> np.ndarray:
        """The union cut wherever a target starts or ends: int64 [p, 2], places, sorted.

        Each target is some neighbouring pieces, each gene a set of them, so that what is summed over pieces once is
        known for every target and gene.
        """
        places = np.unique(np.concatenate((self.start, self.end)))
        num_over = np.searchsorted(self.start, places, side="right") - np.searchsorted(
            np.sort(self.end), places, side="right"
        )
        covered = np.flatnonzero(num_over > 0)
        return np.stack([places[covered], places[covered + 1]], axis=1)

    @cached_property
    def piece_range(self) -> np.ndarray:
        """Each target's pieces: int64 [n, 2], first and one past the last."""
        starts = self.pieces[:, 0]
        return np.stack([np.searchsorted(starts, self.start), np.searchsorted(starts, self.end)], axis=1)

    def gene_pieces(self) -> tuple[np.ndarray, np.ndarray]:
        """The pieces of each gene, each once: int64 [q] genes, sorted, and int64 [q] pieces."""
        first, last = self.piece_range[self.gene_target].T
        count = last - first
        gene = np.repeat(self.gene_of, count)
        piece = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        keys = np.unique(gene * len(self.pieces) + piece)
        return keys // max(len(self.pieces), 1), keys % max(len(self.pieces), 1)

    def genes_of(self) -> list[str]:
        """The genes of each target, joined by ``;``."""
        found: list[list[str]] = [[] for _ in self.names]
        for target, gene in zip(self.gene_target.tolist(), self.gene_of.tolist(), strict=True):
            found[target].append(self.genes[gene])
        return [";".join(sorted(names)) for names in found]


def read_targets(path: Path, reference: Reference, exons: Exons | None = None) -> Targets:
    """Reads the targets of a BED.

    Args:
        path: The BED; without `exons` its fourth column names the genes, several of them between ``;``, ``,`` or ``|``.
        reference: Its contigs.
        exons: Where the genes are; a target belongs to every gene that has an exon over it.

    Raises:
        RegionsError: As `tasks.genome.regions.read_bed`.
    """
    bed = read_intervals(path, reference)
    shift = reference.offsets[bed.contig]
    start, end = bed.start + shift, bed.end + shift
    order = np.lexsort((end, start))
    start, end = start[order], end[order]
    names = tuple(bed.labels[row] for row in order)
    genes, target, gene = _label_genes(names) if exons is None else _exon_genes(start, end, exons)
    return Targets(start, end, names, genes, target, gene)


def _label_genes(labels: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    pairs = {
        (name.strip(), target)
        for target, label in enumerate(labels)
        for name in _BETWEEN_NAMES.split(label)
        if name.strip() not in _NO_NAME
    }
    genes = tuple(sorted({name for name, _ in pairs}))
    number_of = {name: number for number, name in enumerate(genes)}
    found = sorted((target, number_of[name]) for name, target in pairs)
    array = np.array(found, np.int64).reshape(-1, 2)
    return genes, array[:, 0], array[:, 1]


def _exon_genes(start: np.ndarray, end: np.ndarray, exons: Exons) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Pairs of a target and a gene with an exon over it."""
    # Exons of one gene are disjoint, those of different genes may overlap: the reach of all before bounds the search.
    reach = np.maximum.accumulate(exons.end) if exons.end.size else exons.end
    low = np.searchsorted(reach, start, side="right")
    high = np.searchsorted(exons.start, end)
    count = np.maximum(high - low, 0)
    target = np.repeat(np.arange(start.size), count)
    exon = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
    overlaps = exons.end[exon] > start[target]
    pairs = np.unique(np.stack([target[overlaps], exons.gene[exon[overlaps]]], axis=1), axis=0)
    present, gene = np.unique(pairs[:, 1], return_inverse=True)
    return tuple(exons.names[number] for number in present.tolist()), pairs[:, 0], gene.astype(np.int64)


def places_of(regions: Regions, reference: Reference) -> np.ndarray:
    """The regions as places along the whole reference: int64 [n, 2]."""
    shift = reference.offsets[regions.contig]
    return np.stack([regions.start + shift, regions.end + shift], axis=1)
