"""Alleles: trimmed, left-aligned, and packed into keys of two 64-bit words.

`locus` is the contig's place in the reference above bit 40 and the 0-based start below, so keys sort in the reference's
order. `code` holds REF and ALT themselves while they are short, else a hash of both:

    bit 63   0: exact, 1: hash (the other 63 bits)
    62..58   length of REF
    57..53   length of ALT
    51..0    the bases of REF, then ALT, 2 bits each, first base highest, left-aligned
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.errors import VariantFileError
from tasks.genome.reference import Reference
from tasks.genome.regions import Regions
from tasks.variants.allele_kernels import OFF_TARGET, SKIP_REASONS, key_block, spell_block

ALLELE_SCHEMA = pa.schema(
    [
        ("locus", pa.uint64()),
        ("code", pa.uint64()),
        ("contig", pa.int32()),
        ("start", pa.int64()),
        ("ref", pa.string()),
        ("alt", pa.string()),
    ]
)
"""Normalised alleles: key, place in the reference's contigs, 0-based start, upper-case bases (VCF's anchor base)."""


class Records(NamedTuple):
    """Where the alleles of `n` records stand in a block of text.

    Attributes:
        ref_begin: int64 [n], first byte of REF.
        ref_end: int64 [n], one past its last.
        alt_begin: int64 [n], first byte of the ALT column.
        alt_end: int64 [n], one past its last.
        contig: int32 [n], places in the reference's contigs; -1 with a reason in `contig_skip`.
        contig_skip: uint8 [n], skip codes, 0 where the contig has its place.
        start: int64 [n], 0-based POS.
        first_allele: int64 [n + 1], where each record's alleles begin among all; a record with ALT ``.`` has none.
    """

    ref_begin: NDArray[np.int64]
    ref_end: NDArray[np.int64]
    alt_begin: NDArray[np.int64]
    alt_end: NDArray[np.int64]
    contig: NDArray[np.int32]
    contig_skip: NDArray[np.uint8]
    start: NDArray[np.int64]
    first_allele: NDArray[np.int64]


class AlleleKeys(NamedTuple):
    """What became of `m` alleles. Where `skip` is not 0, everything below it is 0.

    Attributes:
        record: int64 [m], the record of each.
        alt_begin: int64 [m], where its ALT starts in the text.
        skip: uint8 [m], place in `SKIP_REASONS`.
        locus: uint64 [m], first word of the key.
        code: uint64 [m], second word.
        first: int64 [m], normalised 0-based start.
        ref_len: int64 [m], normalised length of REF in bases.
        alt_len: int64 [m], normalised length of ALT in bases.
    """

    record: NDArray[np.int64]
    alt_begin: NDArray[np.int64]
    skip: NDArray[np.uint8]
    locus: NDArray[np.uint64]
    code: NDArray[np.uint64]
    first: NDArray[np.int64]
    ref_len: NDArray[np.int64]
    alt_len: NDArray[np.int64]


def key_alleles(
    text: NDArray[np.uint8],
    records: Records,
    reference: Reference,
    regions: Regions | None = None,
    *,
    keeps_records: bool = False,
) -> tuple[NDArray[np.uint8], AlleleKeys]:
    """Checks each record's REF beside the reference, and normalises and keys each of its alleles.

    Args:
        text: uint8 [size], the block, writable (one compiled kernel for all callers).
        records: Where to look in it.
        reference: The genome.
        regions: Alleles whose normalised REF does not overlap them are skipped as OFF_TARGET.
        keeps_records: Whether alleles stay as their records write them instead of being normalised.

    Returns:
        uint8 [n] with ``REF_*`` for each record, and the alleles.
    """
    num_alleles = int(records.first_allele[-1])
    ref_state = np.empty(len(records.contig), dtype=np.uint8)
    keys = AlleleKeys(
        record=np.empty(num_alleles, dtype=np.int64),
        alt_begin=np.empty(num_alleles, dtype=np.int64),
        skip=np.empty(num_alleles, dtype=np.uint8),
        locus=np.empty(num_alleles, dtype=np.uint64),
        code=np.empty(num_alleles, dtype=np.uint64),
        first=np.empty(num_alleles, dtype=np.int64),
        ref_len=np.empty(num_alleles, dtype=np.int64),
        alt_len=np.empty(num_alleles, dtype=np.int64),
    )
    key_block(text, records, np.asarray(reference.tokens), reference.offsets, ref_state, keys, keeps_records)
    if regions is not None:
        contig = records.contig[keys.record]
        off = (keys.skip == 0) & ~regions.contains(contig, keys.first, keys.first + keys.ref_len)
        keys.skip[off] = OFF_TARGET
    return ref_state, keys


def allele_table(text: NDArray[np.uint8], records: Records, keys: AlleleKeys, reference: Reference) -> pa.Table:
    """Spells the alleles that are not skipped: `ALLELE_SCHEMA`, in the order of the text.

    Args:
        text: The block that `records` and `keys` came from.
        records: As given to `key_alleles`.
        keys: As returned by it.
        reference: The genome.
    """
    chosen = np.flatnonzero(keys.skip == 0)
    ref_offsets = _offsets(keys.ref_len[chosen])
    alt_offsets = _offsets(keys.alt_len[chosen])
    ref_out = np.empty(ref_offsets[-1], dtype=np.uint8)
    alt_out = np.empty(alt_offsets[-1], dtype=np.uint8)
    spell_block(text, records, keys, chosen, np.asarray(reference.tokens), reference.offsets, ref_out, alt_out)
    return pa.table(
        [
            keys.locus[chosen],
            keys.code[chosen],
            records.contig[keys.record[chosen]],
            keys.first[chosen],
            string_array(ref_out, ref_offsets),
            string_array(alt_out, alt_offsets),
        ],
        schema=ALLELE_SCHEMA,
    )


def make_key(contig: int, start: int, ref: str, alt: str, reference: Reference) -> tuple[int, int]:
    """The key of one allele; for many, use `key_alleles`.

    Args:
        contig: Place in the reference's contigs.
        start: 0-based start.
        ref: Reference bases.
        alt: Alternate bases.
        reference: The genome.

    Raises:
        VariantFileError: The allele is one that is not scored; `reason` says why.
    """
    text = np.frombuffer(f"{ref}\t{alt}".encode(), dtype=np.uint8).copy()
    records = Records(
        ref_begin=np.array([0], dtype=np.int64),
        ref_end=np.array([len(ref)], dtype=np.int64),
        alt_begin=np.array([len(ref) + 1], dtype=np.int64),
        alt_end=np.array([len(text)], dtype=np.int64),
        contig=np.array([contig], dtype=np.int32),
        contig_skip=np.zeros(1, dtype=np.uint8),
        start=np.array([start], dtype=np.int64),
        first_allele=np.array([0, 1], dtype=np.int64),
    )
    _, keys = key_alleles(text, records, reference)
    if keys.skip[0]:
        reason = SKIP_REASONS[keys.skip[0]]
        raise VariantFileError(f"{ref}>{alt} at 0-based {start} is not scored: {reason}", reason=reason)
    return int(keys.locus[0]), int(keys.code[0])


def string_array(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], is_there: NDArray[np.bool_] | None = None
) -> pa.StringArray:
    """An Arrow string array over bytes laid end to end, without copying them.

    Args:
        data: uint8 [offsets[-1]], valid UTF-8.
        offsets: int64 [n + 1]; up to 2 GiB in all.
        is_there: bool [n], False for nulls; None for no nulls.
    """
    valid = None if is_there is None else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    return pa.StringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data)), valid
    )


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64 [n + 1]: where each of `n` strings starts, and where the last ends."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
