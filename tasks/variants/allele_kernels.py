"""Compiled loops over the alleles of a block of text; `tasks.variants.alleles` is what to call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

CONTIG_SHIFT = 40
"""Bits of a locus below the contig's place."""
MAX_EXACT_BP = 26
"""REF and ALT together up to this length are packed, longer ones hashed."""

SKIP_REASONS = (
    "",
    "SYMBOLIC",
    "BREAKEND",
    "SPANNING_DELETION",
    "MISSING_ALLELE",
    "UNKNOWN_CONTIG",
    "CONTIG_LENGTH_DIFFERS",
    "CONTIG_M5_DIFFERS",
    "BEFORE_CONTIG_START",
    "PAST_CONTIG_END",
    "NOT_ACGT",
    "NO_REFERENCE_SEQUENCE",
    "REF_MISMATCH",
    "NO_CHANGE",
    "OFF_TARGET",
)
"""Why an allele is not scored, by its code in arrays; the place in this tuple is also the order of precedence."""

_SYMBOLIC = SKIP_REASONS.index("SYMBOLIC")
_BREAKEND = SKIP_REASONS.index("BREAKEND")
_SPANNING_DELETION = SKIP_REASONS.index("SPANNING_DELETION")
_MISSING_ALLELE = SKIP_REASONS.index("MISSING_ALLELE")
_BEFORE_CONTIG_START = SKIP_REASONS.index("BEFORE_CONTIG_START")
_PAST_CONTIG_END = SKIP_REASONS.index("PAST_CONTIG_END")
_NOT_ACGT = SKIP_REASONS.index("NOT_ACGT")
_NO_REFERENCE_SEQUENCE = SKIP_REASONS.index("NO_REFERENCE_SEQUENCE")
_REF_MISMATCH = SKIP_REASONS.index("REF_MISMATCH")
_NO_CHANGE = SKIP_REASONS.index("NO_CHANGE")
OFF_TARGET = SKIP_REASONS.index("OFF_TARGET")

REF_UNCHECKED, REF_MATCHES, REF_DIFFERS, REF_TELOMERE, REF_PAST_END = 0, 1, 2, 3, 4
"""What became of a record's REF beside the reference; unchecked where either has something else than A, C, G, T."""

_OTHER = 4
_TOKEN_OF = np.full(256, _OTHER, dtype=np.uint8)
for _token, _letters in enumerate(("Aa", "Cc", "Gg", "Tt")):
    for _letter in _letters:
        _TOKEN_OF[ord(_letter)] = _token
_LETTER_OF = np.frombuffer(b"ACGTN", dtype=np.uint8).copy()

_COMMA, _DOT, _STAR, _LESS = ord(","), ord("."), ord("*"), ord("<")
_OPEN, _CLOSE = ord("["), ord("]")
_MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_TOP_BIT = np.uint64(1 << 63)


@njit(cache=True, nogil=True)
def _kind_of_alt(text: Any, begin: int, end: int) -> int:
    """The skip code that an ALT earns by its spelling alone; 0 for one of bases."""
    if end == begin or (end == begin + 1 and text[begin] == _DOT):
        return _MISSING_ALLELE
    if text[begin] == _LESS:
        return _SYMBOLIC
    if end == begin + 1 and text[begin] == _STAR:
        return _SPANNING_DELETION
    if text[begin] == _DOT or text[end - 1] == _DOT:
        return _BREAKEND
    bases = True
    for at in range(begin, end):
        if text[at] == _OPEN or text[at] == _CLOSE:
            return _BREAKEND
        bases = bases and _TOKEN_OF[text[at]] != _OTHER
    return 0 if bases else _NOT_ACGT


@njit(cache=True, nogil=True)
def _check_ref(text: Any, begin: int, end: int, tokens: Any, low: int, high: int, start: int) -> tuple[int, int]:
    """Compares a record's REF with the reference.

    Returns:
        What became of it (``REF_*``) and the skip code that its alleles earn by it.
    """
    length = end - begin
    if start < 0:  # VCF 4.3, section 1.6.1: POS 0 and N+1 are the telomeres, places without a base
        return REF_TELOMERE, _BEFORE_CONTIG_START
    if start + length > high - low:
        return (REF_TELOMERE if start == high - low else REF_PAST_END), _PAST_CONTIG_END
    known = True
    matches = True
    for offset in range(length):
        token = _TOKEN_OF[text[begin + offset]]
        if token == _OTHER:
            return REF_UNCHECKED, _NOT_ACGT
        reference_token = tokens[low + start + offset]
        known = known and reference_token < _OTHER
        matches = matches and token == reference_token
    if not known:
        return REF_UNCHECKED, _NO_REFERENCE_SEQUENCE
    if not matches:
        return REF_DIFFERS, _REF_MISMATCH
    return REF_MATCHES, 0


@njit(cache=True, nogil=True)
def _alt_token(text: Any, begin: int, tokens: Any, low: int, start: int, offset: int) -> int:
    """Token of ALT at `offset` from the record's start; left of it the reference continues the allele."""
    if offset < 0:
        return int(tokens[low + start + offset])
    return int(_TOKEN_OF[text[begin + offset]])


@njit(cache=True, nogil=True)
def _normalise(
    text: Any, ref_len: int, alt_begin: int, alt_len: int, tokens: Any, low: int, start: int
) -> tuple[int, int, int]:
    """Trims and left-aligns an allele whose REF is the reference.

    Common last bases are cut off; where an allele would become empty it is first extended by the base before, which
    shifts an indel to the left. Then common first bases are cut off while both alleles keep one. An indel is shifted
    neither onto a base that is not A, C, G or T nor past the contig's start: every way to write it ends at one place.

    Returns:
        Normalised start (0-based), length of REF, length of ALT.

    Source: Tan, Abecasis and Kang, Bioinformatics 2015 (doi:10.1093/bioinformatics/btv112); `bcftools norm`.
    """
    extended = 0
    ref_end, alt_end = ref_len, alt_len
    while tokens[low + start + ref_end - 1] == _alt_token(text, alt_begin, tokens, low, start, alt_end - 1):
        if min(ref_end, alt_end) + extended == 1:
            before = start - extended - 1
            if before < 0 or tokens[low + before] >= _OTHER:
                break
            extended += 1
        ref_end -= 1
        alt_end -= 1
    ref_end += extended
    alt_end += extended
    first = start - extended
    while (
        ref_end > 1
        and alt_end > 1
        and tokens[low + first] == _alt_token(text, alt_begin, tokens, low, start, first - start)
    ):
        first += 1
        ref_end -= 1
        alt_end -= 1
    return first, ref_end, alt_end


@njit(cache=True, nogil=True)
def _code(text: Any, alt_begin: int, tokens: Any, low: int, start: int, first: int, ref_len: int, alt_len: int) -> Any:
    """The second word of a normalised allele's key."""
    if ref_len + alt_len <= MAX_EXACT_BP:
        packed = np.uint64(0)
        for offset in range(ref_len):
            packed = (packed << np.uint64(2)) | np.uint64(tokens[low + first + offset])
        for offset in range(alt_len):
            token = _alt_token(text, alt_begin, tokens, low, start, first - start + offset)
            packed = (packed << np.uint64(2)) | np.uint64(token)
        packed <<= np.uint64(2 * (MAX_EXACT_BP - ref_len - alt_len))
        return (np.uint64(ref_len) << np.uint64(58)) | (np.uint64(alt_len) << np.uint64(53)) | packed
    mixed = np.uint64(ref_len) * _MIX_1 ^ np.uint64(alt_len)
    for offset in range(ref_len):
        mixed = (mixed ^ np.uint64(tokens[low + first + offset] + 1)) * _MIX_2
        mixed ^= mixed >> np.uint64(32)
    for offset in range(alt_len):
        token = _alt_token(text, alt_begin, tokens, low, start, first - start + offset)
        mixed = (mixed ^ np.uint64(token + 1)) * _MIX_2
        mixed ^= mixed >> np.uint64(32)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX_1
    return (mixed ^ (mixed >> np.uint64(32))) | _TOP_BIT


@njit(cache=True, nogil=True)
def _is_ref(text: Any, begin: int, end: int, alt_begin: int, alt_end: int) -> bool:
    """Whether ALT spells REF, in whatever case."""
    if end - begin != alt_end - alt_begin:
        return False
    offset = 0
    while offset < end - begin and _TOKEN_OF[text[begin + offset]] == _TOKEN_OF[text[alt_begin + offset]]:
        offset += 1
    return offset == end - begin


@njit(cache=True, nogil=True)
def key_block(
    text: Any, records: Any, tokens: Any, offsets: Any, ref_state: Any, keys: Any, keeps_records: bool
) -> None:
    """Fills in `ref_state` and `keys` for a block of records; see `tasks.variants.alleles.key_alleles`."""
    for record in range(len(records.contig)):
        place = records.contig[record]
        start = records.start[record]
        begin, end = records.ref_begin[record], records.ref_end[record]
        low, ref_skip = 0, 0
        ref_state[record] = REF_UNCHECKED
        if place >= 0:
            low = offsets[place]
            ref_state[record], ref_skip = _check_ref(text, begin, end, tokens, low, offsets[place + 1], start)
        alt_begin = records.alt_begin[record]
        for allele in range(records.first_allele[record], records.first_allele[record + 1]):
            alt_end = alt_begin
            while alt_end < records.alt_end[record] and text[alt_end] != _COMMA:
                alt_end += 1
            reason: Any = _kind_of_alt(text, alt_begin, alt_end)
            for other in (np.int64(records.contig_skip[record]), np.int64(ref_skip)):
                if other != 0 and (reason == 0 or other < reason):
                    reason = other
            if reason == 0 and _is_ref(text, begin, end, alt_begin, alt_end):
                reason = _NO_CHANGE
            keys.record[allele] = record
            keys.alt_begin[allele] = alt_begin
            keys.skip[allele] = reason
            keys.locus[allele], keys.code[allele] = 0, 0
            keys.first[allele], keys.ref_len[allele], keys.alt_len[allele] = 0, 0, 0
            if reason == 0:
                first, ref_len, alt_len = start, end - begin, alt_end - alt_begin
                if not keeps_records:
                    first, ref_len, alt_len = _normalise(text, ref_len, alt_begin, alt_len, tokens, low, start)
                keys.first[allele], keys.ref_len[allele], keys.alt_len[allele] = first, ref_len, alt_len
                keys.locus[allele] = (np.uint64(place) << np.uint64(CONTIG_SHIFT)) | np.uint64(first)
                keys.code[allele] = _code(text, alt_begin, tokens, low, start, first, ref_len, alt_len)
            alt_begin = alt_end + 1


@njit(cache=True, nogil=True)
def spell_block(
    text: Any, records: Any, keys: Any, chosen: Any, tokens: Any, offsets: Any, ref_out: Any, alt_out: Any
) -> None:
    """Writes the bases of the chosen alleles, upper-case and end to end; see `tasks.variants.alleles.allele_table`."""
    ref_at, alt_at = 0, 0
    for allele in chosen:
        record = keys.record[allele]
        low = offsets[records.contig[record]]
        start, first = records.start[record], keys.first[allele]
        for offset in range(keys.ref_len[allele]):
            ref_out[ref_at] = _LETTER_OF[tokens[low + first + offset]]
            ref_at += 1
        for offset in range(keys.alt_len[allele]):
            token = _alt_token(text, keys.alt_begin[allele], tokens, low, start, first - start + offset)
            alt_out[alt_at] = _LETTER_OF[token]
            alt_at += 1
