"""The data that the caller was made for, as its configuration states it, and whether a sample is of that kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.config import CONFIG_NAME, read_config
from tasks.errors import ModelDataError

PLATFORMS, READ_LENGTH_BP, DEPTH, MAX_SPLICED_SHARE = (
    "domain_platforms",
    "domain_read_length_bp",
    "domain_depth",
    "domain_max_spliced_share",
)
"""Keys of the parameters in the ensemble's ``config.pbtxt``."""

SPLICED_ALIGNMENTS, DEPTH_TOO_LOW, TUMOUR_SAMPLE = "SPLICED_ALIGNMENTS", "DEPTH_TOO_LOW", "TUMOUR_SAMPLE"
_TUMOUR = 1

_KNOWN_PLATFORMS = frozenset(
    {
        *("CAPILLARY", "DNBSEQ", "ELEMENT", "HELICOS", "ILLUMINA", "IONTORRENT", "LS454", "ONT", "PACBIO", "SINGULAR"),
        *("SOLID", "ULTIMA"),
    }
)
"""Other words say nothing of the machine. Source: SAM v1, section 1.3, @RG PL."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallerDomain:
    """What a caller was trained for.

    Attributes:
        platforms: Sequencing platforms, in the words of @RG PL, upper case.
        read_length_bp: Least and greatest median length of the reads.
        depth: Least and greatest usual depth (`DepthCounter.usual_depth`); above the greatest it still calls.
        max_spliced_share: Largest share of reads that skip an intron.
    """

    platforms: tuple[str, ...]
    read_length_bp: tuple[int, int]
    depth: tuple[int, int]
    max_spliced_share: float

    def check_read_length(self, median_bp: int, is_long: bool, what: str) -> None:
        """Refuses reads of another length.

        Raises:
            ModelDataError: Reason NO_MODEL_FOR_THIS_DATA.
        """
        low, high = self.read_length_bp
        if is_long or not low <= median_bp <= high:
            kind = "long reads" if is_long else "reads of another length"
            raise ModelDataError(
                f"{what}: {kind} (median {median_bp} bp): the shipped caller was made for {low} to {high} bp"
            )

    def check_platforms(self, platforms: Sequence[str], what: str) -> None:
        """Refuses reads whose read groups name another platform; words that name none are let through.

        Raises:
            ModelDataError: Reason NO_MODEL_FOR_THIS_DATA.
        """
        found = {platform.upper() for platform in platforms}
        others = sorted((found & _KNOWN_PLATFORMS) - set(self.platforms))
        if others:
            raise ModelDataError(
                f"{what}: reads of another platform ({', '.join(others)} in @RG PL): the shipped caller was made for "
                f"{', '.join(self.platforms)}"
            )

    def check_alignment(self, alignment: Mapping[str, Any], what: str) -> list[str]:
        """Refuses an alignment that the caller was not made for.

        Args:
            alignment: What `tasks.alignments.file.check_alignment` returned.
            what: The sample, for messages.

        Returns:
            What a reader of the calls should know.

        Raises:
            ModelDataError: Reason NO_MODEL_FOR_THIS_DATA, SPLICED_ALIGNMENTS or DEPTH_TOO_LOW.
        """
        self.check_platforms([group["platform"] for group in alignment["read_groups"]], what)
        self.check_read_length(alignment["read_length_median"], alignment["long_reads"], what)
        if alignment["spliced_share"] > self.max_spliced_share:
            raise ModelDataError(
                f"{what}: {alignment['spliced_share']:.1%} of the reads skip an intron (CIGAR N; at most "
                f"{self.max_spliced_share:.0%} are expected of DNA): the shipped caller was made for DNA",
                reason=SPLICED_ALIGNMENTS,
            )
        low, high = self.depth
        depth, where = alignment["usual_depth"], "inside the regions " if alignment["depth_in_regions"] else ""
        if depth < low:
            raise ModelDataError(
                f"{what}: the usual read {where}lies at {depth}x: the shipped caller was made for {low}x and more",
                reason=DEPTH_TOO_LOW,
            )
        if depth > high:
            return [f"deeper than what the caller was trained on ({low}-{high}x): {depth}x {where}".rstrip()]
        return []


def read_domain(repository: Path, ensemble: str) -> CallerDomain:
    """Reads the domain that an ensemble's ``config.pbtxt`` states.

    Raises:
        ModelDataError: A statement is missing or cannot be read.
    """
    path = repository / ensemble / CONFIG_NAME
    message = read_config(path.parent)
    stated = {key: value.string_value for key, value in message.parameters.items()}
    try:
        return CallerDomain(
            platforms=tuple(stated[PLATFORMS].split(",")),
            read_length_bp=_bounds(stated[READ_LENGTH_BP]),
            depth=_bounds(stated[DEPTH]),
            max_spliced_share=float(stated[MAX_SPLICED_SHARE]),
        )
    except (KeyError, ValueError) as error:
        raise ModelDataError(
            f"{path}: the parameters {PLATFORMS}, {READ_LENGTH_BP}, {DEPTH} and {MAX_SPLICED_SHARE} must say what the "
            f"caller was made for: {error}"
        ) from error


def refuse_tumour(sample: Mapping[str, Any]) -> None:
    """Refuses the reads of a tumour: its variants are not in one half or all of the reads.

    Args:
        sample: The sheet's sample as JSON (`tasks.sheets.sheet.Sample.to_json`).

    Raises:
        ModelDataError: Reason TUMOUR_SAMPLE.
    """
    if sample["kind"] != "vcf" and sample["status"] == _TUMOUR:
        raise ModelDataError(
            f"sample {sample['id']}: a tumour (status 1), and the shipped caller calls germline variants. Call it with "
            "a somatic caller and give the VCF",
            field="status",
            reason=TUMOUR_SAMPLE,
        )


def _bounds(text: str) -> tuple[int, int]:
    low, high = text.split("-")
    return int(low), int(high)
