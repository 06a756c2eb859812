"""A sample's sex by its data: how deep X and Y are read beside the autosomes, and how many genotypes on X are mixed.

How the thresholds were chosen: by what two chromosomes must do, not by any data.

- One X is read half as deep as an autosome, two as deep. Capture kits and GC shift that by some 10 %, so up to
  `MAX_ONE_X` is one, from `MIN_TWO_X` to `MAX_TWO_X` two, and what lies between is said to be unclear.
- One Y is read half as deep, but about half of its known bases are copies of each other or of X, where no read is
  mapped well, and kits catch few of its genes: 0.1 to 0.4 is usual. Reads of XX astray on Y come to under 0.02.
- Of an outbred person's genotypes that are not REF, 0.5 to 0.65 are heterozygous, on X too where there are two; where
  there is one, only errors are, some percent. gnomAD and plink (``--check-sex``, F under 0.2 and over 0.8) draw their
  lines in the same gap; heterozygous shares of 0.1 and 0.3 are about those.

Depth counts before genotypes: a caller that was told the sex writes what it was told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tasks.alignments.windows import WINDOW_BP, window_offsets
from tasks.genome.builds import plain_name
from tasks.genome.ploidy import sex_chromosomes
from tasks.genome.reference import Reference, load_reference
from tasks.genome.regions import Regions
from tasks.sheets.values import Sex

Verdict = Literal["XX", "XY", "unclear", "too little data"]

MAX_ONE_X, MIN_TWO_X, MAX_TWO_X = 0.65, 0.75, 1.3
MAX_NO_Y, MIN_ONE_Y = 0.03, 0.06
MIN_AUTOSOMAL_BP, MIN_EXPECTED_X_BP = 200_000, 100_000
"""Bases of reads: on the autosomes, and that X would have at the autosomes' depth. With 100-base reads 1,000 reads,
whose number varies by 3 %."""
MIN_X_WINDOWS = 3
"""Stretches of X that must have reads: fewer are a slice, whose depth says nothing of the chromosome."""
MAX_HET_ONE_X, MIN_HET_TWO_X = 0.1, 0.3
MIN_X_SITES = 50
"""Genotypes on X: of 50 with a true share of 0.5, 0.3 or fewer are heterozygous in one of 300 samples."""


@dataclass(frozen=True, slots=True)
class SexFinding:
    """What the data say of a sample's sex.

    Attributes:
        verdict: ``XX``, ``XY``, ``unclear`` or ``too little data``.
        evidence: The numbers, for people.
        x_depth: Depth of X over that of the autosomes, outside of the PAR; None where there are no reads to tell.
        y_depth: The same of Y.
        x_sites: SNVs of X outside of the PAR whose genotype is not REF.
        x_het_share: Share of them that is heterozygous; None where there are none.
    """

    verdict: Verdict
    evidence: str
    x_depth: float | None = None
    y_depth: float | None = None
    x_sites: int = 0
    x_het_share: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Part:
    verdict: Verdict
    evidence: str


def find_sex(
    reference: Reference,
    *,
    windows: Sequence[Sequence[int]] | None = None,
    regions: Regions | None = None,
    x_counts: dict[str, int] | None = None,
    is_called: bool = False,
) -> SexFinding:
    """Tells a sample's sex from its reads, or failing those its genotypes.

    Args:
        reference: The genome.
        windows: Bases of used reads by window: numbers of windows and their bases (`tasks.alignments.windows`).
        regions: What was sequenced, where a BED says so.
        x_counts: ``het``, ``hom`` and ``hemi``: SNVs on X outside of the PAR (`tasks.identity.genotypes`).
        is_called: Whether this program called the genotypes: one copy of X is then what the sheet said.
    """
    x_depth, y_depth, by_depth = None, None, None
    if windows is not None:
        x_depth, y_depth, by_depth = _by_depth(reference, windows, regions)
    x_sites, x_het_share, by_genotypes = 0, None, None
    if x_counts is not None:
        x_sites, x_het_share, by_genotypes = _by_genotypes(x_counts, is_called)
    parts = [part for part in (by_depth, by_genotypes) if part is not None]
    verdict = _joined([part.verdict for part in parts])
    evidence = "; ".join(part.evidence for part in parts) or "no reads and no genotypes"
    return SexFinding(verdict, evidence, x_depth, y_depth, x_sites, x_het_share)


def _joined(verdicts: list[Verdict]) -> Verdict:
    """One verdict of several kinds of evidence: the first that says something, unless another contradicts it."""
    told = [verdict for verdict in verdicts if verdict != "too little data"]
    if not told:
        return "too little data"
    return told[0] if len(set(told)) == 1 else "unclear"


def _by_depth(
    reference: Reference, windows: Sequence[Sequence[int]], regions: Regions | None
) -> tuple[float | None, float | None, _Part]:
    chromosomes = sex_chromosomes(reference)
    if not chromosomes.indices("X"):
        return None, None, _Part("too little data", "the reference has no contig that is X")
    bases = np.zeros(int(window_offsets(reference)[-1]), dtype=np.int64)
    bases[np.asarray(windows[0], dtype=np.int64)] = np.asarray(windows[1], dtype=np.int64)
    known = _known_bases(str(reference.folder)) if regions is None else _bases_of(reference, regions)
    usable = (known > 0) & ~_in_par(reference)
    kinds = _window_kinds(reference)
    touched = usable & (bases > 0)
    autosomes, x = touched & (kinds == _AUTOSOME), touched & (kinds == _X)
    # Y's own windows all count: that none of them is read is what is looked for.
    y = usable & (kinds == _Y)
    autosomal_bp, num_x = int(bases[autosomes].sum()), int(x.sum())
    depth = autosomal_bp / max(int(known[autosomes].sum()), 1)
    expected_x_bp = depth * int(known[x].sum())
    if autosomal_bp < MIN_AUTOSOMAL_BP or expected_x_bp < MIN_EXPECTED_X_BP or num_x < MIN_X_WINDOWS:
        evidence = (
            f"reads: {autosomal_bp:,} bases on autosomes, {int(bases[x].sum()):,} on {num_x} stretches of X of "
            f"{WINDOW_BP // 1000} kb outside of the PAR (at least {MIN_AUTOSOMAL_BP:,} and {MIN_X_WINDOWS} stretches)"
        )
        return None, None, _Part("too little data", evidence)
    x_depth = round(int(bases[x].sum()) / int(known[x].sum()) / depth, 4)
    y_depth = round(int(bases[y].sum()) / int(known[y].sum()) / depth, 4) if y.any() else None
    evidence = f"reads: depth of X {x_depth:.2f}, of Y {'-' if y_depth is None else f'{y_depth:.2f}'} of the autosomes'"
    return x_depth, y_depth, _Part(_of_depths(x_depth, y_depth), evidence)


def _of_depths(x_depth: float, y_depth: float | None) -> Verdict:
    has_one_x, has_two_x = x_depth <= MAX_ONE_X, MIN_TWO_X <= x_depth <= MAX_TWO_X
    if has_two_x and (y_depth is None or y_depth <= MAX_NO_Y):
        return "XX"
    if has_one_x and (y_depth is None or y_depth >= MIN_ONE_Y):
        return "XY"
    return "unclear"


def _by_genotypes(counts: dict[str, int], is_called: bool) -> tuple[int, float | None, _Part]:
    diploid = counts["het"] + counts["hom"]
    num_sites = diploid + counts["hemi"]
    share = round(counts["het"] / num_sites, 4) if num_sites else None
    if counts["hemi"] > diploid and is_called:
        return num_sites, share, _Part("too little data", "genotypes on X were called with one copy, as the sheet says")
    if num_sites < MIN_X_SITES or share is None:
        evidence = f"genotypes: {num_sites} SNVs on X outside of the PAR (at least {MIN_X_SITES})"
        return num_sites, share, _Part("too little data", evidence)
    evidence = f"genotypes: {share:.0%} of {num_sites:,} SNVs on X outside of the PAR are heterozygous"
    verdict: Verdict = "XY" if share <= MAX_HET_ONE_X else "XX" if share >= MIN_HET_TWO_X else "unclear"
    return num_sites, share, _Part(verdict, evidence)


def sex_differs(finding: SexFinding, sex: Sex | None) -> bool:
    """Whether the data contradict the sheet."""
    return sex in ("XX", "XY") and finding.verdict in ("XX", "XY") and finding.verdict != sex


_AUTOSOME, _X, _Y, _OTHER = 0, 1, 2, 3


def _window_kinds(reference: Reference) -> npt.NDArray[np.uint8]:
    """What each window's contig is: uint8 [windows]. Where chromosomes are numbered, only those are autosomes."""
    kinds = sex_chromosomes(reference).kind
    is_numbered = [plain_name(contig.name).isdecimal() for contig in reference.contigs]
    codes = []
    for kind, numbered in zip(kinds, is_numbered, strict=True):
        if kind == "autosome":
            codes.append(_AUTOSOME if numbered or not any(is_numbered) else _OTHER)
        else:
            codes.append({"X": _X, "Y": _Y}.get(kind, _OTHER))
    return np.repeat(np.array(codes, dtype=np.uint8), np.diff(window_offsets(reference)))


def _in_par(reference: Reference) -> npt.NDArray[np.bool_]:
    """Which windows a PAR touches: bool [windows]."""
    chromosomes, offsets = sex_chromosomes(reference), window_offsets(reference)
    inside = np.zeros(int(offsets[-1]), dtype=np.bool_)
    for contig, par in enumerate(chromosomes.par):
        for low, high in par:
            inside[offsets[contig] + low // WINDOW_BP : offsets[contig] + (high - 1) // WINDOW_BP + 1] = True
    return inside


@lru_cache(maxsize=1)
def _known_bases(folder: str) -> npt.NDArray[np.int64]:
    """How many bases of each window are A, C, G or T: int64 [windows]."""
    reference = load_reference(Path(folder))
    known = [
        np.count_nonzero(tokens[low : low + WINDOW_BP] < 4)
        for tokens in map(reference.contig_tokens, range(len(reference.contigs)))
        for low in range(0, len(tokens), WINDOW_BP)
    ]
    return np.array(known, dtype=np.int64)


def _bases_of(reference: Reference, regions: Regions) -> npt.NDArray[np.int64]:
    """How many bases of the regions lie in each window: int64 [windows]."""
    offsets = window_offsets(reference)
    bases = np.zeros(int(offsets[-1]), dtype=np.int64)
    for contig, start, end in zip(regions.contig, regions.start, regions.end, strict=True):
        edges = np.arange(start // WINDOW_BP, (end - 1) // WINDOW_BP + 1)
        inside = np.minimum((edges + 1) * WINDOW_BP, end) - np.maximum(edges * WINDOW_BP, start)
        bases[offsets[contig] + edges] += inside
    return bases
