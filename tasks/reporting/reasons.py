"""Reason words in sentences, for people who read a report."""

from __future__ import annotations

_ALLELE_REASONS = {
    "SYMBOLIC": "The allele is a symbol such as <DEL> or <NON_REF>: it names no bases, so there is nothing to score.",
    "BREAKEND": "The allele is a breakend, a junction with another place of the genome.",
    "SPANNING_DELETION": "The allele is '*': a deletion that begins upstream, in its own record, covers this place.",
    "NOT_ACGT": "REF or ALT holds letters other than A, C, G and T.",
    "REF_MISMATCH": "The record's REF is not what the reference genome has at that place.",
    "UNKNOWN_CONTIG": "The reference genome has no contig of that name.",
    "CONTIG_LENGTH_DIFFERS": "The contig has another length in the file's header than in the reference genome.",
    "CONTIG_M5_DIFFERS": "The contig has another checksum (M5) in the file's header than in the reference genome.",
    "BEFORE_CONTIG_START": "POS is 0, the telomere: a place before the first base of its contig.",
    "PAST_CONTIG_END": "The record's REF goes past the last base of its contig.",
    "OFF_TARGET": "The allele lies outside the regions that this run keeps to.",
    "NO_CHANGE": "ALT equals REF: nothing changes.",
    "MISSING_ALLELE": "One of several ALT alleles is '.', a missing value.",
    "TOO_LONG": "The allele is longer than the window that the model sees.",
    "NO_GENE": "No transcript of the genes' table has the allele's first base.",
    "NEAR_CONTIG_END": "The bases around the allele that the model sees go past an end of the contig.",
    "REF_TOO_LONG": "REF is longer than the stretch in which positions are compared (twice the option distance).",
    "NO_REFERENCE_SEQUENCE": "REF, or more than half of the contig's bases in the window, is N in the reference.",
}

_READ_REASONS = {
    "used": "Used for calling.",
    "unmapped": "Left out: has no place on the reference.",
    "secondary": "Left out: another place of a read that is counted at its first.",
    "supplementary": "Left out: a part of a read that is counted at its main place.",
    "qc_failed": "Left out: marked as failed by the instrument or an earlier program.",
    "duplicate": "Left out: marked as a copy of another fragment.",
    "unknown_contig": "Left out: lies on a contig that the reference does not have.",
    "low_mapping_quality": "Left out: its place on the reference is doubtful.",
}


def read_reason_sentence(reason: str) -> str:
    """What calling did with the reads that it counts under a word."""
    return _READ_REASONS.get(reason, "Left out for this reason.")


def reason_sentence(reason: str) -> str:
    """What a reason word of a skipped allele means; pipelines may have words of their own."""
    return _ALLELE_REASONS.get(reason, "The pipeline gives this reason; its documentation says what it means.")
