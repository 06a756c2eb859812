"""Published genome builds, recognised by their contigs' lengths and M5."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

_HUMAN = (*(str(number) for number in range(1, 23)), "X", "Y")
_MOUSE = (*(str(number) for number in range(1, 20)), "X", "Y")


def _lengths(names: tuple[str, ...], lengths_bp: str) -> dict[str, int]:
    return dict(zip(names, map(int, lengths_bp.split()), strict=True))


# Source: the assembly reports of GCF_000001405.12, .13, .26, GCF_009914755.1, GCF_000001635.20 and .27 (NCBI).
_LENGTHS_BP = {
    "NCBI36": _lengths(
        _HUMAN,
        "247249719 242951149 199501827 191273063 180857866 170899992 158821424 146274826 140273252 135374737 134452384 "
        "132349534 114142980 106368585 100338915 88827254 78774742 76117153 63811651 62435964 46944323 49691432 "
        "154913754 57772954",
    ),
    "GRCh37": _lengths(
        _HUMAN,
        "249250621 243199373 198022430 191154276 180915260 171115067 159138663 146364022 141213431 135534747 135006516 "
        "133851895 115169878 107349540 102531392 90354753 81195210 78077248 59128983 63025520 48129895 51304566 "
        "155270560 59373566",
    ),
    "GRCh38": _lengths(
        _HUMAN,
        "248956422 242193529 198295559 190214555 181538259 170805979 159345973 145138636 138394717 133797422 135086622 "
        "133275309 114364328 107043718 101991189 90338345 83257441 80373285 58617616 64444167 46709983 50818468 "
        "156040895 57227415",
    ),
    "T2T-CHM13v2.0": _lengths(
        _HUMAN,
        "248387328 242696752 201105948 193574945 182045439 172126628 160567428 146259331 150617247 134758134 135127769 "
        "133324548 113566686 101161492 99753195 96330374 84276897 80542538 61707364 66210255 45090682 51324926 "
        "154259566 62460029",
    ),
    "GRCm38": _lengths(
        _MOUSE,
        "195471971 182113224 160039680 156508116 151834684 149736546 145441459 129401213 124595110 130694993 122082543 "
        "120129022 120421639 124902244 104043685 98207768 94987271 90702639 61431566 171031299 91744698",
    ),
    "GRCm39": _lengths(
        _MOUSE,
        "195154279 181755017 159745316 156860686 151758149 149588044 144995196 130127694 124359700 130530862 121973369 "
        "120092757 120883175 125139656 104073951 98008968 95294699 90720763 61420004 169476592 91455967",
    ),
}
_BUILD_OF = {(name, length_bp): build for build, lengths in _LENGTHS_BP.items() for name, length_bp in lengths.items()}
# UCSC's hg19 carries NC_001807 as chrM; every later human FASTA, and GRCh37 as the 1000 Genomes gave it out, the rCRS.
_HG19_MITOCHONDRION_BP = 16_571
_MITOCHONDRIA = frozenset({"M", "MT"})
_ROWS_SHOWN = 30


def plain_name(name: str) -> str:
    """A contig's name without its ``chr`` prefix; the mitochondrion is ``MT`` in every spelling."""
    plain = name[3:] if name[:3].lower() == "chr" and len(name) > 3 else name
    return "MT" if plain.upper() in _MITOCHONDRIA else plain


def recognise_build(names: Sequence[str], lengths_bp: Sequence[int | None]) -> str | None:
    """Names the published build that contigs belong to.

    Args:
        names: Contig names, with or without ``chr``.
        lengths_bp: Their lengths in bases; None where not known.

    Returns:
        ``GRCh37`` (``hg19`` where its chrM of 16,571 bases is there), ``GRCh38``, ``T2T-CHM13v2.0``, ``NCBI36``,
        ``GRCm38``, ``GRCm39``, or None: no contig fits one, or contigs of several builds are mixed.
    """
    votes: Counter[str] = Counter()
    is_hg19 = False
    for name, length_bp in zip(names, lengths_bp, strict=True):
        plain = plain_name(name)
        build = _BUILD_OF.get((plain.upper(), length_bp or -1))
        if build is not None:
            votes[build] += 1
        is_hg19 |= plain == "MT" and length_bp == _HG19_MITOCHONDRION_BP
    if len(votes) != 1:
        return None
    (build,) = votes
    return "hg19" if build == "GRCh37" and is_hg19 else build


def side_by_side(
    title: str,
    contigs: Sequence[tuple[str, int | None]],
    other_title: str,
    other_contigs: Sequence[tuple[str, int | None]],
) -> str:
    """Draws two contig lists beside each other, one contig a line, the same chromosomes on the same line.

    Args:
        title: Head of the left list.
        contigs: Names and lengths in bases (None where not known), the left list.
        other_title: Head of the right list.
        other_contigs: The right list.

    Returns:
        A text table; lines whose lengths differ are marked with ``!``. Long lists are cut, and the cut is said.
    """
    others = {plain_name(name): (name, length_bp) for name, length_bp in reversed(other_contigs)}
    paired = [(contig, others.pop(plain_name(contig[0]), None)) for contig in contigs]
    # What has a partner, or could need one, says more than 3,000 decoys.
    rows: list[tuple[tuple[str, int | None] | None, tuple[str, int | None] | None]] = []
    rows += [(left, right) for left, right in paired if right is not None]
    left_alone = [left for left, right in paired if right is None]
    right_alone = [contig for contig in other_contigs if others.get(plain_name(contig[0])) == contig]
    rows += zip_longest(left_alone, right_alone)
    cells = [(_cell(left), _cell(right)) for left, right in rows[:_ROWS_SHOWN]]
    width = max([len(title), *(len(left) for left, _ in cells)])
    lines = [f"    {title:<{width}}   {other_title}"]
    for (left, right), (left_cell, right_cell) in zip(rows, cells, strict=False):
        differ = left is not None and right is not None and None not in (left[1], right[1]) and left[1] != right[1]
        lines.append(f"  {'!' if differ else ' '} {left_cell:<{width}}   {right_cell}".rstrip())
    if len(rows) > _ROWS_SHOWN:
        lines.append(f"    ... and {len(rows) - _ROWS_SHOWN:,} lines more")
    return "\n".join(lines)


def _cell(contig: tuple[str, int | None] | None) -> str:
    if contig is None:
        return "-"
    name, length_bp = contig
    return f"{name}  {'unknown length' if length_bp is None else f'{length_bp:,} bp'}"
