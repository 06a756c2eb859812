"""Published genome builds, recognised by their contigs' lengths and M5."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple, Protocol

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
# Source: the dictionaries of Homo_sapiens_assembly19 and ucsc.hg19 (chr3 and Y are masked otherwise), of
# Homo_sapiens_assembly38, and of chm13v2.0. The rCRS is no evidence: several builds carry it.
_M5 = {
    "GRCh37": "1b22b98cdeb4a9304cb5d48026a85128 a0d9851da00400dec1098a9255ac712e fdfd811849cc2fadebc929bb925902e5 "
    "641e4338fa8d52a5b781bd2a2c08d3c3 23dccd106897542ad87d2765d28a19a1 0740173db9ffd264d728f32784845cd7 "
    "1d3a93a248d92a729ee764823acbbc6b 618366e953d6aaad97dbe4777c29375e 96f514a9929e410c6651697bded59aec "
    "3e273117f15e0a400f01055d9f393768 988c28e000e84c26d552359af1ea2e1d 98c59049a2df285c76ffb1c6db8f8b96 "
    "51851ac0e1a115847ad36449b0015864 283f8d7892baa81b510a015719ca7b0b 98f3cae32b2a2e9524bc19813927542e "
    "e5645a794a8238215b2cd77acb95a078 fc9b1a7b42b97a864f56b348b06095e6 351f64d4f4f9ddd45b35336ad97aa6de "
    "b15d4b2d29dde9d3e4f93d1d0f2cbc9c 1aacd71f30db8e561810913e0b72636d 0dec9660ec1efaaf33281c0d5ea2560f "
    "2979a6085bfe28e3ad6f552f361ed74d a718acaa6135fdca8357d5bfe94211dd 7e0e2e580297b7764e31dbc80c2540dd "
    "1fa3474750af0948bdf97d5a0ee52e51 1e86411d73e6f00a10590f976be01623",
    "GRCh38": "6aef897c3d6ff0c78aff06ac189178dd f98db672eb0993dcfdabafe2a882905c 76635a41ea913a405ded820447d067b0 "
    "3210fecf1eb92d5489da4346b3fddc6e a811b3dc9fe66af729dc0dddf7fa4f13 5691468a67c7e7a7b5f2a3a683792c29 "
    "cc044cc2256a1141212660fb07b6171e c67955b5f7815a9a1edfaa15893d3616 6c198acf68b5af7b9d676dfdd531b5de "
    "c0eeee7acfdaf31b770a509bdaa6e51a 1511375dc2dd1b633af8cf439ae90cec 96e414eace405d8c27a6d35ba19df56f "
    "a5437debe2ef9c9ef8f3ea2874ae1d82 e0f0eecc3bcab6178c62b6211565c807 f036bd11158407596ca6bf3581454706 "
    "db2d37c8b7d019caaf2dd64ba3a6f33a f9a0fb01553adb183568e3eb9d8626db 11eeaa801f6b0e2e36a1138616b8ee9a "
    "85f9f4fc152c58cb7913c06d6b98573a b18e6c531b0bd70e949a7fc20859cb01 974dc7aec0b755b19f031418fdedf293 "
    "ac37ec46683600f808cdd41eac1d55cd 2b3a55ff7f58eb308420c8a9b11cac50 ce3e31103314a704255f3cd90369ecce",
    "T2T-CHM13v2.0": "e469247288ceb332aee524caec92bb22 dd7264df17e7e4a4dac5b0f1f19dcfe0",
}
_BUILD_OF_LENGTH = {
    (name, length_bp): build for build, lengths in _LENGTHS_BP.items() for name, length_bp in lengths.items()
}
_BUILD_OF_M5 = {md5: build for build, md5s in _M5.items() for md5 in md5s.split()}
# UCSC's hg19 carries NC_001807 as chrM; every later human FASTA, and GRCh37 as the 1000 Genomes gave it out, the rCRS.
_HG19_MITOCHONDRION_BP = 16_571
_MITOCHONDRIA = frozenset({"M", "MT"})
_ROWS_SHOWN = 10


class StatedContig(Protocol):
    """A contig as a file states it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def length_bp(self) -> int | None:
        """Its length in bases, None where not stated."""

    @property
    def md5(self) -> str | None:
        """Its M5, hex, None where not stated."""


class HeaderContig(NamedTuple):
    """A contig of an input's header; what the header does not state is None."""

    name: str
    length_bp: int | None
    md5: str | None = None


def plain_name(name: str) -> str:
    """A contig's name without its ``chr`` prefix; the mitochondrion is ``MT`` in every spelling."""
    plain = name[3:] if name[:3].lower() == "chr" and len(name) > 3 else name
    return "MT" if plain.upper() in _MITOCHONDRIA else plain


def recognise_build(contigs: Sequence[StatedContig]) -> str | None:
    """Names the published build that contigs belong to, by their M5 or by their lengths.

    Args:
        contigs: With names in either style (``chr1``, ``1``); one chromosome is enough.

    Returns:
        ``GRCh37`` (``hg19`` where its chrM of 16,571 bases is there), ``GRCh38``, ``T2T-CHM13v2.0``, ``NCBI36``,
        ``GRCm38``, ``GRCm39``, or None: no contig fits one, or contigs of several builds are mixed.
    """
    builds: set[str] = set()
    is_hg19 = False
    for contig in contigs:
        plain = plain_name(contig.name)
        build = _BUILD_OF_M5.get((contig.md5 or "").lower()) or _BUILD_OF_LENGTH.get(
            (plain.upper(), contig.length_bp or -1)
        )
        if build is not None:
            builds.add(build)
        is_hg19 |= plain == "MT" and contig.length_bp == _HG19_MITOCHONDRION_BP
    if len(builds) != 1:
        return None
    (build,) = builds
    return "hg19" if build == "GRCh37" and is_hg19 else build


def side_by_side(
    title: str, contigs: Sequence[StatedContig], other_title: str, other_contigs: Sequence[StatedContig]
) -> str:
    """Draws two contig lists beside each other, one contig a line, the same chromosomes on the same line.

    Args:
        title: Head of the left list.
        contigs: The left list.
        other_title: Head of the right list.
        other_contigs: The right list.

    Returns:
        A text table; lines whose lengths or M5 differ are marked with ``!`` and come first. Long lists are cut, and
        the cut is said.
    """
    others = {plain_name(contig.name): contig for contig in reversed(other_contigs)}
    rows = [(contig, others.get(plain_name(contig.name))) for contig in contigs]
    paired = {plain_name(contig.name) for contig in contigs}
    only_right = [contig for contig in other_contigs if plain_name(contig.name) not in paired]
    # What has a partner says more than 3,000 decoys.
    ordered: list[tuple[StatedContig | None, StatedContig | None]] = [row for row in rows if _differ(*row)]
    ordered += [row for row in rows if row[1] is not None and not _differ(*row)]
    ordered += zip_longest([left for left, right in rows if right is None], only_right)
    cells = [
        ("!" if _differ(left, right) else " ", _cell(left, right), _cell(right, left))
        for left, right in ordered[:_ROWS_SHOWN]
    ]
    width = max([len(title), *(len(left) for _, left, _ in cells)])
    lines = [f"    {title:<{width}}   {other_title}"]
    lines += [f"  {mark} {left:<{width}}   {right}" for mark, left, right in cells]
    if len(ordered) > _ROWS_SHOWN:
        lines.append(f"    … and {len(ordered) - _ROWS_SHOWN:,} more")
    return "\n".join(lines)


def _differ(left: StatedContig | None, right: StatedContig | None) -> bool:
    """Whether two contigs of one name are other sequences; contigs without a partner share a line by chance."""
    if left is None or right is None or plain_name(left.name) != plain_name(right.name):
        return False
    return _lengths_differ(left, right) or _m5_differ(left, right)


def _lengths_differ(left: StatedContig, right: StatedContig) -> bool:
    return left.length_bp is not None and right.length_bp is not None and left.length_bp != right.length_bp


def _m5_differ(left: StatedContig, right: StatedContig) -> bool:
    return left.md5 is not None and right.md5 is not None and left.md5.lower() != right.md5.lower()


def _cell(contig: StatedContig | None, other: StatedContig | None) -> str:
    """One contig's text; its M5 is shown where that is the whole difference."""
    if contig is None:
        return "-"
    text = f"{contig.name}  {'length not stated' if contig.length_bp is None else f'{contig.length_bp:,} bp'}"
    if other is not None and _differ(contig, other) and not _lengths_differ(contig, other):
        text += f"  M5 {contig.md5}"
    return text
