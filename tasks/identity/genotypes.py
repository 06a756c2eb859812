"""A sample's genotypes at single-base sites, few enough to lay every sample of a cohort beside the others.

Which sites are kept is decided by a hash of the place alone, so all samples keep the same ones (a bottom-k sketch): the
`MAX_SITES` places with the smallest hashes, and the largest hash up to which nothing was left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit

from tasks.files import whole_file
from tasks.genome.ploidy import SexChromosomes, sex_chromosomes
from tasks.genome.reference import Reference
from tasks.variants.allele_kernels import CONTIG_SHIFT
from tasks.variants.lines import FILTER, FORMAT
from tasks.variants.records import RecordBlock, RecordReader

MAX_SITES = 100_000
"""Sites that are kept of a file with few columns; of one with many, so many that it holds `MAX_GENOTYPES` in all."""
MAX_GENOTYPES = 64 << 20
MIN_GENOTYPE_QUALITY = 20
"""A genotype with a lower GQ is unknown: one in a hundred of them is wrong."""
BIN_BP = 10_000
"""Where no BED says what was looked at, a sample's record vouches for so many bases around it."""
UNKNOWN, HOM_REF, HET, HOM_ALT, HEMI_ALT = -1, 0, 1, 2, 3
"""Genotypes in arrays; `HEMI_ALT` is one ALT allele alone, one REF allele alone is `HOM_REF`."""

_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_TAB, _COLON, _SLASH, _BAR, _DOT = (ord(letter) for letter in "\t:/|.")
_ZERO, _NINE, _G, _Q, _T = (ord(letter) for letter in "09GQT")


@dataclass(frozen=True, slots=True, eq=False)
class Genotypes:
    """Genotypes of one file's columns.

    Attributes:
        columns: The columns' names.
        locus: uint64 [n], rising; first word of the allele's key.
        code: uint64 [n], second word.
        values: int8 [n, columns], `UNKNOWN`, `HOM_REF`, `HET`, `HOM_ALT` or `HEMI_ALT`.
        bins: uint64 [k], rising; contig above bit 40 and start of each stretch of `BIN_BP` that has any record.
        limit: Every site whose place has a hash up to this is here.
    """

    columns: tuple[str, ...]
    locus: npt.NDArray[np.uint64]
    code: npt.NDArray[np.uint64]
    values: npt.NDArray[np.int8]
    bins: npt.NDArray[np.uint64]
    limit: int


def place_hash(locus: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A hash of each place: uint64 [n], the same everywhere.

    Source: the finaliser of SplitMix64, Steele et al. 2014, OOPSLA, "Fast splittable pseudorandom number generators".
    """
    mixed = locus + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def read_genotypes(path: Path) -> Genotypes:
    """Reads what `GenotypeCollector.write` wrote."""
    table = pq.read_table(path)
    facts = json.loads(table.schema.metadata[b"identity"])
    columns = tuple(facts["columns"])
    flat = table["values"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return Genotypes(
        columns=columns,
        locus=table["locus"].to_numpy(),
        code=table["code"].to_numpy(),
        values=flat.reshape(table.num_rows, len(columns)),
        bins=pq.read_table(_bins_path(path))["bin"].to_numpy(),
        limit=facts["limit"],
    )


def read_columns(path: Path) -> tuple[str, ...]:
    """Reads the names of the columns alone."""
    return tuple(json.loads(pq.read_schema(path).metadata[b"identity"])["columns"])


def _write(path: Path, genotypes: Genotypes) -> None:
    num_columns = len(genotypes.columns)
    flat = pa.array(genotypes.values.ravel())
    values = (
        pa.FixedSizeListArray.from_arrays(flat, num_columns)
        if num_columns
        else pa.array([[]] * len(genotypes.locus), pa.list_(pa.int8(), 0))
    )
    table = pa.table({"locus": genotypes.locus, "code": genotypes.code, "values": values})
    facts = {"columns": genotypes.columns, "limit": genotypes.limit}
    with whole_file(_bins_path(path)) as aside:
        pq.write_table(pa.table({"bin": genotypes.bins}), aside, compression="zstd")
    with whole_file(path) as aside:
        pq.write_table(table.replace_schema_metadata({"identity": json.dumps(facts)}), aside, compression="zstd")


def _bins_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}-bins.parquet")


class GenotypeCollector:
    """Keeps a VCF's genotypes at SNVs while `tasks.variants.scanning.scan_variants` reads it.

    An allele counts by its normalised key. A genotype is unknown where FILTER is neither ``PASS`` nor ``.``, GQ is
    under `MIN_GENOTYPE_QUALITY`, an allele is missing, or one is neither REF nor this ALT.
    """

    def __init__(self, reference: Reference, *, vcf_sample: str | None = None, max_sites: int = MAX_SITES) -> None:
        """Starts with nothing.

        Args:
            reference: The genome.
            vcf_sample: The one column to read; None reads all.
            max_sites: Sites that are kept.
        """
        self._chromosomes: SexChromosomes = sex_chromosomes(reference)
        self._is_autosome = np.array([kind == "autosome" for kind in self._chromosomes.kind], dtype=np.bool_)
        self._vcf_sample = vcf_sample
        self._max_sites = max_sites
        self._columns: tuple[str, ...] = ()
        self._first = 0
        self._num_sites = 0
        self._on_x = self._on_autosomes = np.zeros((0, 4), dtype=np.int64)
        self._limit = _ALL
        self._held: list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.int8]]] = []
        self._num_held = 0
        self._bins = np.empty(0, dtype=np.uint64)

    def observe(self, reader: RecordReader) -> Callable[[RecordBlock], None]:
        """Takes in a file's header; returns what takes in its blocks."""
        names = reader.header.samples
        self._columns = names if self._vcf_sample is None else (self._vcf_sample,)
        self._first = 0 if self._vcf_sample is None else names.index(self._vcf_sample)
        self._on_x = np.zeros((len(self._columns), 4), dtype=np.int64)
        self._on_autosomes = np.zeros((len(self._columns), 4), dtype=np.int64)
        self._max_sites = max(1, min(self._max_sites, MAX_GENOTYPES // max(len(self._columns), 1)))
        return self._add

    def write(self, output: Path) -> dict[str, Any]:
        """Writes the genotypes of the autosomes that are kept; `read_genotypes` reads them.

        Args:
            output: The Parquet file.

        Returns:
            ``columns`` (names), ``sites`` (SNV alleles of the autosomes), ``kept``, and for each column the counts of
            its SNVs: ``x`` (on X outside of the PAR) and ``autosomes``, with ``het``, ``hom`` and ``hemi`` in each.
        """
        genotypes = self.genotypes()
        _write(output, genotypes)
        return {
            "columns": list(self._columns),
            "sites": self._num_sites,
            "kept": len(genotypes.locus),
            "x": _named(self._on_x),
            "autosomes": _named(self._on_autosomes),
        }

    @property
    def x_counts(self) -> list[dict[str, int]]:
        """For each column ``het``, ``hom`` and ``hemi``: its SNVs on X outside of the PAR."""
        return _named(self._on_x)

    def _add(self, block: RecordBlock) -> None:
        """Takes in a block's SNVs."""
        keys, lines, records = block.keys, block.lines, block.records
        placed = records.contig >= 0
        at = _locus(records.contig[placed].astype(np.int64), lines.position[placed] - 1)
        self._bins = np.union1d(self._bins, _bin_of(at))
        is_snv = (keys.skip == 0) & (keys.ref_len == 1) & (keys.alt_len == 1)
        chosen = np.flatnonzero(is_snv)
        if not len(chosen) or not self._columns:
            return
        record = keys.record[chosen]
        values = np.empty((len(chosen), len(self._columns)), dtype=np.int8)
        _read_genotypes(
            lines.text,
            lines.field[record, FORMAT],
            lines.record_end[record],
            chosen - records.first_allele[record] + 1,
            _passes(lines.text, lines.begin_of(FILTER)[record], lines.end_of(FILTER)[record]),
            self._first,
            values,
        )
        contig = records.contig[record]
        autosomal = self._is_autosome[contig]
        self._on_autosomes += _count(values[autosomal])
        for x in self._chromosomes.indices("X"):
            here = contig == x
            here[here] = ~self._chromosomes.is_in_par(x, keys.first[chosen[here]])
            self._on_x += _count(values[here])
        self._num_sites += int(autosomal.sum())
        self._hold(keys.locus[chosen[autosomal]], keys.code[chosen[autosomal]], values[autosomal])

    def _hold(self, locus: npt.NDArray[np.uint64], code: npt.NDArray[np.uint64], values: npt.NDArray[np.int8]) -> None:
        kept = place_hash(locus) <= self._limit
        if not kept.any():
            return
        self._held.append((locus[kept], code[kept], values[kept]))
        self._num_held += int(kept.sum())
        if self._num_held >= 2 * self._max_sites:
            self._compact()

    def _compact(self) -> None:
        """Merges what is held into one part without repeated alleles, and leaves out what has too large a hash."""
        locus, code, values = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
        order = np.lexsort((code, locus))
        locus, code, values = locus[order], code[order], values[order]
        is_first = np.ones(len(locus), dtype=np.bool_)
        is_first[1:] = (locus[1:] != locus[:-1]) | (code[1:] != code[:-1])
        firsts = np.flatnonzero(is_first)
        # Records of one allele that disagree tell nothing.
        low, high = np.minimum.reduceat(values, firsts, axis=0), np.maximum.reduceat(values, firsts, axis=0)
        locus, code, values = locus[firsts], code[firsts], np.where(low == high, low, np.int8(UNKNOWN))
        ranks = place_hash(locus)
        distinct = np.unique(ranks)
        if len(distinct) > self._max_sites:
            self._limit = distinct[self._max_sites - 1]
            kept = ranks <= self._limit
            locus, code, values = locus[kept], code[kept], values[kept]
        self._held, self._num_held = [(locus, code, values)], len(locus)

    def genotypes(self) -> Genotypes:
        """What is kept of the file."""
        if self._held:
            self._compact()
            locus, code, values = self._held[0]
        else:
            locus = code = np.empty(0, dtype=np.uint64)
            values = np.empty((0, len(self._columns)), dtype=np.int8)
        return Genotypes(self._columns, locus, code, values, self._bins, int(self._limit))


def _named(counts: npt.NDArray[np.int64]) -> list[dict[str, int]]:
    return [{"het": int(row[HET]), "hom": int(row[HOM_ALT]), "hemi": int(row[HEMI_ALT])} for row in counts]


def _locus(contig: npt.NDArray[np.int64], start: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    return (contig.astype(np.uint64) << np.uint64(CONTIG_SHIFT)) | start.astype(np.uint64)


def _bin_of(locus: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The stretch of `BIN_BP` that each place lies in."""
    start = locus & np.uint64((1 << CONTIG_SHIFT) - 1)
    return np.unique(locus - start % np.uint64(BIN_BP))


def _count(values: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    kinds = (HOM_REF, HET, HOM_ALT, HEMI_ALT)
    return np.stack([(values == kind).sum(axis=0) for kind in kinds], axis=1).astype(np.int64)


def _passes(
    text: npt.NDArray[np.uint8], begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Whether each FILTER is ``PASS`` or ``.``."""
    is_dot: npt.NDArray[np.bool_] = (end == begin + 1) & (text[begin] == _DOT)
    is_pass = end == begin + 4
    for offset, letter in enumerate(b"PASS"):
        is_pass &= text[np.minimum(begin + offset, len(text) - 1)] == letter
    is_dot |= is_pass
    return is_dot


@njit(cache=True, nogil=True)
def _read_genotypes(
    text: Any, format_begin: Any, record_end: Any, allele: Any, is_usable: Any, first: int, values: Any
) -> None:
    """Reads GT (and GQ) of each record's columns.

    Args:
        text: uint8 [size].
        format_begin: int64 [n], where FORMAT begins.
        record_end: int64 [n], where the record ends.
        allele: int64 [n], the number of the ALT allele that counts.
        is_usable: bool [n]; the others are unknown.
        first: The first column that is read.
        values: Out, int8 [n, columns].
    """
    for row in range(values.shape[0]):
        values[row, :] = UNKNOWN
        at, end = format_begin[row], record_end[row]
        # GT must be first where it is there at all. Source: VCF 4.3, section 1.6.2.
        if not is_usable[row] or at + 1 >= end or text[at] != _G or text[at + 1] != _T:
            continue
        quality_place, place = -1, 0
        while at < end and text[at] != _TAB:
            if text[at] == _COLON:
                place += 1
                is_quality = at + 2 < end and text[at + 1] == _G and text[at + 2] == _Q
                if is_quality and (at + 3 >= end or text[at + 3] == _COLON or text[at + 3] == _TAB):
                    quality_place = place
            at += 1
        for _ in range(first):
            at += 1
            while at < end and text[at] != _TAB:
                at += 1
        for column in range(values.shape[1]):
            at += 1
            num_alt, num_alleles, is_known, number, has_digit = 0, 0, True, 0, False
            while at <= end:
                byte = text[at] if at < end else _TAB
                if _ZERO <= byte <= _NINE:
                    number = number * 10 + (byte - _ZERO)
                    has_digit = True
                else:
                    num_alleles += 1
                    is_known = is_known and has_digit and (number == 0 or number == allele[row])
                    num_alt += number != 0
                    number, has_digit = 0, False
                    if byte == _DOT:  # "." is followed by a separator, which ends the same allele
                        num_alleles -= 1
                        is_known = False
                    elif byte != _SLASH and byte != _BAR:
                        break
                at += 1
            place = 0
            quality, has_quality = 0, False
            while at < end and text[at] != _TAB:
                if text[at] == _COLON:
                    place += 1
                elif place == quality_place:
                    if _ZERO <= text[at] <= _NINE:
                        quality = quality * 10 + (text[at] - _ZERO)
                        has_quality = True
                    elif has_quality:  # 45.7: the whole part is enough
                        place += 1_000_000
                at += 1
            if has_quality and quality < MIN_GENOTYPE_QUALITY:
                is_known = False
            if is_known and num_alleles == 2:
                values[row, column] = num_alt
            elif is_known and num_alleles == 1:
                values[row, column] = HEMI_ALT if num_alt else HOM_REF
