"""The genotypes of a whole cohort at the same sites: a matrix, each of whose rows is one person's sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.genome.regions import Regions
from tasks.identity.genotypes import (
    BIN_BP,
    HEMI_ALT,
    HOM_REF,
    MAX_SITES,
    UNKNOWN,
    place_hash,
    read_columns,
    read_genotypes,
)
from tasks.variants.allele_kernels import CONTIG_SHIFT

MAX_MATRIX_BYTES = 256 << 20
MAX_WORK = 10**11
"""Sites times pairs: of a cohort so large that more would be done, fewer sites are taken."""
SPREAD_BP = 1_000_000
"""Sites in one stretch of this size are inherited together: the number of stretches says how much sites tell."""

_START = np.uint64((1 << CONTIG_SHIFT) - 1)


@dataclass(frozen=True, slots=True)
class GenotypeFile:
    """One sample's genotypes.

    Attributes:
        sample: The sheet's sample id.
        path: What `tasks.identity.genotypes.GenotypeCollector` wrote.
        regions: Where the sample was looked at, if a BED says so.
    """

    sample: str
    path: Path
    regions: Regions | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Genotypes of n subjects at m sites.

    Attributes:
        samples: For each row the sheet's sample id.
        columns: For each row the VCF's column.
        values: int8 [n, m], -1 unknown, else the number of ALT alleles of two.
        locus: uint64 [m], rising; contig above bit 40, 0-based start.
        num_sites_found: Sites of the cohort, those that were not taken too.
        num_not_biallelic: Sites left out because two samples have two ALT alleles.
    """

    samples: tuple[str, ...]
    columns: tuple[str, ...]
    values: npt.NDArray[np.int8]
    locus: npt.NDArray[np.uint64]
    num_sites_found: int
    num_not_biallelic: int

    def stretches(self) -> npt.NDArray[np.int64]:
        """The number of each site's stretch of `SPREAD_BP`: int64 [m], from 0."""
        start = self.locus & _START
        return np.unique(self.locus - start % np.uint64(SPREAD_BP), return_inverse=True)[1].astype(np.int64)


def build_matrix(files: Sequence[GenotypeFile], max_sites: int = MAX_SITES) -> Matrix:
    """Lays the samples' genotypes side by side.

    Of all sites those with the smallest hashes are taken, so the choice depends on the sites alone. A site that a
    sample does not have is homozygous for REF where the sample was looked at: inside its BED, or else where it has any
    record within the same `tasks.identity.genotypes.BIN_BP`; elsewhere it is unknown.

    Args:
        files: The samples' genotypes; each column is a row of the matrix.
        max_sites: How many sites are taken at most.
    """
    columns = [read_columns(file.path) for file in files]
    num_rows = sum(map(len, columns))
    max_sites = max(1, min(max_sites, MAX_MATRIX_BYTES // max(num_rows, 1), MAX_WORK // max(num_rows, 1) ** 2))
    locus, code, num_found = _choose(files, max_sites)
    repeated = np.zeros(len(locus), dtype=np.bool_)
    same = locus[1:] == locus[:-1]
    repeated[1:] |= same
    repeated[:-1] |= same
    locus, code = locus[~repeated], code[~repeated]
    values = np.empty((num_rows, len(locus)), dtype=np.int8)
    row = 0
    for file, names in zip(files, columns, strict=True):
        values[row : row + len(names)] = _rows(file, locus, code)
        row += len(names)
    return Matrix(
        samples=tuple(file.sample for file, names in zip(files, columns, strict=True) for _ in names),
        columns=tuple(name for names in columns for name in names),
        values=values,
        locus=locus,
        num_sites_found=num_found,
        num_not_biallelic=int(repeated.sum()) - int(same.sum()),
    )


def _choose(
    files: Sequence[GenotypeFile], max_sites: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], int]:
    """The alleles of the cohort whose places have the smallest hashes, in order; about how many places there are."""
    limit = (1 << 64) - 1
    locus = code = np.empty(0, dtype=np.uint64)
    for file in files:
        # One at a time: those of a thousand genomes would fill the memory.
        each = read_genotypes(file.path)
        limit = min(limit, each.limit)
        locus, code = np.concatenate([locus, each.locus]), np.concatenate([code, each.code])
        order = np.lexsort((code, locus))
        locus, code = locus[order], code[order]
        is_first = np.ones(len(locus), dtype=np.bool_)
        is_first[1:] = (locus[1:] != locus[:-1]) | (code[1:] != code[:-1])
        locus, code = locus[is_first], code[is_first]
        distinct = np.unique(place_hash(locus))
        if len(distinct) > max_sites:
            limit = min(limit, int(distinct[max_sites - 1]))
        kept = place_hash(locus) <= np.uint64(limit)
        locus, code = locus[kept], code[kept]
    # Hashes are evenly spread: the share of them that was let in is the share of places.
    return locus, code, round(len(np.unique(locus)) * 2.0**64 / (limit + 1))


def _rows(file: GenotypeFile, locus: npt.NDArray[np.uint64], code: npt.NDArray[np.uint64]) -> npt.NDArray[np.int8]:
    """One file's rows: int8 [columns, m]."""
    genotypes = read_genotypes(file.path)
    start = locus & _START
    if file.regions is not None:
        contig, at = (locus >> np.uint64(CONTIG_SHIFT)).astype(np.int32), start.astype(np.int64)
        is_looked_at = file.regions.contains(contig, at, at + 1)
    else:
        is_looked_at = np.isin(locus - start % np.uint64(BIN_BP), genotypes.bins)
    rows = np.where(is_looked_at, np.int8(HOM_REF), np.int8(UNKNOWN))
    rows = np.repeat(rows[None, :], len(genotypes.columns), axis=0)
    # Places are alone among the sites, so one that has another allele here is found by its place and is unknown.
    place = np.searchsorted(locus, genotypes.locus)
    inside = place < len(locus)
    place, values = place[inside], genotypes.values[inside].copy()
    is_site = locus[place] == genotypes.locus[inside]
    place, values = place[is_site], values[is_site]
    values[code[place] != genotypes.code[inside][is_site]] = UNKNOWN
    values[values == HEMI_ALT] = UNKNOWN
    rows[:, place] = values.T
    return rows
