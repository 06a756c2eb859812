"""Whether an input was made with this reference, by the contigs its header lists and its data lie on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.errors import ReferenceError
from tasks.genome.builds import HeaderContig, plain_name, recognise_build, side_by_side
from tasks.genome.contigs import CONTIG_LENGTH_DIFFERS, CONTIG_M5_DIFFERS, UNKNOWN_CONTIG, ContigMatch, match_contigs
from tasks.genome.reference import Contig, Reference

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True, eq=False)
class HeaderCheck:
    """An input's header that fits the reference.

    Attributes:
        match: Where each of the header's contigs lies on the reference.
        build: The published build the input looks like, or None.
        skipped: By reason, then by the input's contig name: the number of records that lie where the reference has
            no such sequence.
    """

    match: ContigMatch
    build: str | None
    skipped: dict[str, dict[str, int]]


def check_header_contigs(
    what: str,
    names: Sequence[str],
    lengths_bp: Sequence[int | None],
    md5s: Sequence[str | None],
    num_records: Sequence[int | None],
    reference: Reference,
) -> HeaderCheck:
    """Refuses an input that was made with another reference.

    Only contigs that carry data must fit: a header may list more than the reference holds. A mitochondrion of another
    length alone is not another build (b37 and hg19 differ in nothing else that matters): its records are counted.

    Args:
        what: The input, for the message: its file, and its sample where that helps.
        names: The header's contigs (or those the records name, where there is no header).
        lengths_bp: Their lengths in bases; None where not stated.
        md5s: Their M5, hex; None where not stated.
        num_records: Reads or records on each; None where not counted yet, which refuses the input only when not one
            contig fits.
        reference: The reference.

    Raises:
        ReferenceError: A contig that carries data has another length or M5 in the reference, or all data lie on contigs
            it does not have. The message's first line names both builds and the first differences; below it stand both
            contig lists side by side, cut where they are long, and the M5 of the sequences it needs, as far as stated.
    """
    match = match_contigs(names, lengths_bp, md5s, reference)
    contigs = [HeaderContig(*stated) for stated in zip(names, lengths_bp, md5s, strict=True)]
    build = recognise_build(contigs)
    carrying = [row for row, count in enumerate(num_records) if count != 0]
    counted = [row for row in carrying if num_records[row] is not None]
    if carrying and all(match.reason[row] == UNKNOWN_CONTIG for row in carrying):
        problem = f"none of its contigs with data is in the reference: {_some([names[row] for row in carrying])}"
        raise _other_reference(what, problem, contigs, carrying, build, reference)
    # The rCRS fits several builds, so a mitochondrion says nothing unless it is all there is.
    telling = [row for row in carrying if plain_name(names[row]) != "MT"] or carrying
    if any(match.reason[row] is None for row in telling):
        telling = [row for row in telling if num_records[row] is not None]
    for misfit, difference in (
        (CONTIG_LENGTH_DIFFERS, "have another length there"),
        (CONTIG_M5_DIFFERS, "have the same length but other bases (M5) there, as in a masked or patched copy"),
    ):
        at_fault = [
            f"{names[row]} ({_difference(contigs[row], reference.contigs[match.namesake[row]])})"
            for row in telling
            if match.reason[row] == misfit
        ]
        if at_fault:
            problem = f"contigs with data {difference}: {_some(at_fault)}"
            raise _other_reference(what, problem, contigs, carrying, build, reference)
    skipped: dict[str, dict[str, int]] = {}
    for row in counted:
        reason = match.reason[row]
        if reason is not None:
            of_reason = skipped.setdefault(reason, {})
            of_reason[names[row]] = of_reason.get(names[row], 0) + (num_records[row] or 0)
    return HeaderCheck(match, build, skipped)


def _other_reference(
    what: str,
    problem: str,
    contigs: list[HeaderContig],
    carrying: list[int],
    build: str | None,
    reference: Reference,
) -> ReferenceError:
    unknown = "no build known to this program"
    with_data = set(carrying)
    ordered = [contigs[row] for row in carrying] + [c for row, c in enumerate(contigs) if row not in with_data]
    table = side_by_side(
        f"input ({build or unknown})", ordered, f"reference ({reference.build or unknown})", reference.contigs
    )
    name = f"{reference.path.name} ({reference.build})" if reference.build else reference.path.name
    looks = f"its header is {build}'s; " if build and build != reference.build else ""
    advice = (
        f"give the {build} FASTA" if build and build != reference.build else "give the FASTA the input was made with"
    )
    needed = _some([f"{contigs[row].name} {contigs[row].md5}" for row in carrying if contigs[row].md5])
    return ReferenceError(
        f"{what}: made with another reference than {name}: {looks}{problem}; {advice} as --reference, or input made "
        f"with this one\n{table}" + (f"\n    M5 of the sequences it was made with: {needed}" if needed else ""),
        field="reference",
    )


def _difference(contig: HeaderContig, other: Contig) -> str:
    """How a contig differs from the reference's of its name."""
    if contig.length_bp is not None and contig.length_bp != other.length_bp:
        return f"{contig.length_bp:,} bp, there {other.length_bp:,}"
    return f"M5 {(contig.md5 or '')[:8]}…, there {other.md5[:8]}…"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
