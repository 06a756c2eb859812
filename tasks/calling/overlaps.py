"""Overlaps: calls that lie over the same bases share the sample's copies of them.

A copy that a deletion has taken bases from carries nothing else there. So of the deletions over a base, and a change of
it, no more are carried than there are copies: where the calls say otherwise, the likeliest genotypes that fit all
together take their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tasks.calling.genotypes import MAX_GENOTYPE_QUALITY

Row = dict[str, Any]
"""A row of `tasks.calling.calling.CALL_SCHEMA`."""

CONTRADICTED, HALVED = "calls_contradicted", "calls_halved"

MAX_DELETIONS = 6
"""Deletions weighed together; of more that overlap, those are left out first whose absence is likeliest."""

_Alleles = tuple[int, ...]
_Span = tuple[int, int]


def share_copies(rows: Iterator[Row], counts: dict[str, int]) -> Iterator[Row]:
    """Yields calls of which none carries what the others leave no copy for, in their order.

    The genotypes together are weighed by the sum of their likelihoods. A call of both copies that lies within, or
    overlaps, a deletion of one copy needs no doubt: the fragments with the deletion do not tell of it, and all that do
    are of the other copy. It becomes a call of one copy, ``0/1``: 0 is what is not this allele. Records with several
    alternate alleles stay or go whole. The likelihoods of calls that were weighed are those of the best that the others
    can be beside each genotype; QUAL stays as it was.

    Args:
        rows: Calls in the reference's order.
        counts: Adds up how many calls were left out (``calls_contradicted``) and how many of both copies became calls
            of one (``calls_halved``).
    """
    cluster: list[Row] = []
    reach = -1
    for row in rows:
        if cluster and (row["contig"] != cluster[0]["contig"] or _place(row) >= reach):
            yield from _resolve(cluster, counts)
            cluster, reach = [], -1
        cluster.append(row)
        reach = max([reach, *(end for _, end in _losses(row, row["alleles"]))])
    yield from _resolve(cluster, counts)


def _resolve(cluster: Sequence[Row], counts: dict[str, int]) -> Iterator[Row]:
    settled = list(cluster)
    kept: list[Row | None] = list(cluster)
    for members in _crowds(settled):
        for at, row in zip(members, _weigh([settled[at] for at in members]), strict=True):
            kept[at] = row
            counts[CONTRADICTED] += row is None
            counts[HALVED] += row is not None and row["alleles"] != settled[at]["alleles"]
    return (row for row in kept if row is not None)


def _is_substitution(row: Row) -> bool:
    return all(len(alt) == len(row["ref"]) for alt in row["alts"])


def _place(row: Row) -> int:
    """The first base that a call changes; of an insertion the one behind it."""
    start: int = row["start"]
    return start if _is_substitution(row) else start + 1


def _losses(row: Row, alleles: Sequence[int]) -> list[_Span]:
    """The bases ``[start, end)`` that each copy with a deletion has lost."""
    lost = [len(row["ref"]) - len(row["alts"][allele - 1]) for allele in alleles if allele]
    return [(_place(row), _place(row) + length_bp) for length_bp in lost if length_bp > 0]


def _num_changed(row: Row, alleles: Sequence[int]) -> int:
    """Copies that have the place of a call and are changed there."""
    return sum(1 for allele in alleles if allele) - len(_losses(row, alleles))


def _num_copies(rows: Sequence[Row]) -> int:
    return max((len(row["alleles"]) for row in rows), default=0)


def _num_lost(losses: Sequence[_Span], place: int) -> int:
    return sum(start <= place < end for start, end in losses)


def _crowds(rows: Sequence[Row]) -> list[list[int]]:
    """The calls that lie over bases of which they need more copies than there are, apart from those of other bases."""
    losses = [_losses(row, row["alleles"]) for row in rows]
    crowds: list[set[int]] = []
    for place in sorted({_place(row) for row in rows}):
        over = [at for at, each in enumerate(losses) if _num_lost(each, place)]
        changing = [at for at, row in enumerate(rows) if _place(row) == place and _num_changed(row, row["alleles"])]
        num_lost = sum(_num_lost(losses[at], place) for at in over)
        # What one site's record changes is in one place; a record of an insertion is no rival of its neighbour's base.
        most = max((_num_changed(rows[at], rows[at]["alleles"]) for at in changing), default=0)
        if num_lost and num_lost + most > _num_copies([rows[at] for at in {*over, *changing}]):
            crowd = {*over, *changing}
            for other in [each for each in crowds if each & crowd]:
                crowds.remove(other)
                crowd |= other
            crowds.append(crowd)
    return [sorted(crowd) for crowd in crowds]


def _choices(row: Row) -> list[_Alleles]:
    """The genotypes that a call may come to, that with most copies first."""
    called = tuple(row["alleles"])
    none = (0,) * len(called)
    return [called, (0, 1), none] if called == (1, 1) else [called, none]


def _doubt(row: Row, alleles: _Alleles) -> int:
    """By how much a genotype is less likely than the called one, Phred-scaled."""
    likelihoods: list[int] = row["likelihoods"]
    return max(0, likelihoods[_number(alleles)] - likelihoods[_number(row["alleles"])])


def _number(alleles: Sequence[int]) -> int:
    """Number of a genotype in VCF's order (VCF 4.x, section 1.6.2, GL)."""
    return alleles[0] if len(alleles) == 1 else alleles[1] * (alleles[1] + 1) // 2 + alleles[0]


@dataclass(slots=True)
class _Profile:
    """Of one call: the least doubt about all calls together, by its own genotype."""

    row: Row
    least: dict[_Alleles, int]

    def settle(self, chosen: _Alleles, best: int) -> Row | None:
        if not any(chosen):
            return None
        if len(self.row["alts"]) > 1:
            return self.row
        number = _number(self.row["alleles"])
        likelihoods = [max(0, value - self.row["likelihoods"][number]) for value in self.row["likelihoods"]]
        for alleles, doubt in self.least.items():
            likelihoods[_number(alleles)] = doubt - best
        others = [value for at, value in enumerate(likelihoods) if at != _number(chosen)]
        return self.row | {
            "alleles": list(chosen),
            "likelihoods": likelihoods,
            "genotype_quality": min(MAX_GENOTYPE_QUALITY, *others),
        }


def _weigh(rows: Sequence[Row]) -> list[Row | None]:
    """The calls with the genotypes that are likeliest together; None for those that are left out."""
    deletions = [at for at, row in enumerate(rows) if _losses(row, row["alleles"])]
    weakest_first = sorted(deletions, key=lambda at: rows[at]["likelihoods"][0])
    left_out = set(weakest_first[: max(0, len(deletions) - MAX_DELETIONS)])
    deletions = [at for at in deletions if at not in left_out]
    changes = [at for at in range(len(rows)) if at not in deletions and at not in left_out]
    num_copies = _num_copies(rows)
    profiles = [_Profile(row, {}) for row in rows]
    best: tuple[int, dict[int, _Alleles]] | None = None
    for alleles in product(*(_choices(rows[at]) for at in deletions)):
        chosen = dict(zip(deletions, alleles, strict=True))
        losses = {at: _losses(rows[at], chosen[at]) for at in deletions}
        if not _fits(rows, chosen, losses, num_copies):
            continue
        doubts = {at: _doubt_of_deletion(rows[at], at, chosen[at], losses) for at in deletions}
        every_loss = [span for each in losses.values() for span in each]
        told = {at: _doubts_of_change(rows[at], num_copies - _num_lost(every_loss, _place(rows[at]))) for at in changes}
        for at, each in told.items():
            chosen[at] = min(each, key=each.__getitem__)
            doubts[at] = each[chosen[at]]
        total = sum(doubts.values())
        for at in (*deletions, *changes):
            for mine, doubt in told.get(at, {chosen[at]: doubts[at]}).items():
                least = profiles[at].least
                least[mine] = min(least.get(mine, total - doubts[at] + doubt), total - doubts[at] + doubt)
        if best is None or total < best[0]:
            best = total, chosen
    assert best is not None, "no call at all fits"
    return [profiles[at].settle(best[1][at], best[0]) if at in best[1] else None for at in range(len(rows))]


def _fits(rows: Sequence[Row], chosen: dict[int, _Alleles], losses: dict[int, list[_Span]], num_copies: int) -> bool:
    """Whether there are copies enough for deletions."""
    every_loss = [span for each in losses.values() for span in each]
    return all(
        _num_lost(every_loss, _place(rows[at])) + _num_changed(rows[at], alleles) <= num_copies
        for at, alleles in chosen.items()
        if any(alleles)
    )


def _doubt_of_deletion(row: Row, at: int, alleles: _Alleles, losses: dict[int, list[_Span]]) -> int:
    """No doubt where the other copy has another deletion: its fragments do not tell of this one."""
    (start, end), *_ = _losses(row, row["alleles"])
    others = (span for other, spans in losses.items() if other != at for span in spans)
    is_shared = any(first < end and start < last for first, last in others)
    return 0 if alleles == (0, 1) and is_shared else _doubt(row, alleles)


def _doubts_of_change(row: Row, room: int) -> dict[_Alleles, int]:
    """Doubts about the genotypes of a change of which there are no more than `room` copies."""
    fitting = [alleles for alleles in _choices(row) if sum(map(bool, alleles)) <= room]
    return {alleles: 0 if room == 1 and alleles == (0, 1) else _doubt(row, alleles) for alleles in fitting}
