"""Labelled human alleles: pathogenic ones of a ClinVar-format VCF, benign ones of it or of a gnomAD-format VCF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.errors import InputError
from tasks.genome.reference import Reference
from tasks.variants.alleles import ALLELE_SCHEMA, allele_table
from tasks.variants.binary import as_text
from tasks.variants.columns import TableColumns
from tasks.variants.records import RecordReader
from tasks.variants.scanning import ScanCounts

MIN_STARS = 1
"""Review stars that a ClinVar classification must have."""
MIN_BENIGN_FREQUENCY = 1e-3
"""Allele frequency from which an allele of a population counts as benign."""
_CLASSIFICATION, _REVIEW, _CONSEQUENCE, _FREQUENCY, _VEP = "CLNSIG", "CLNREVSTAT", "MC", "AF", "CSQ"
_WANTED = (_CLASSIFICATION, _REVIEW, _CONSEQUENCE, _FREQUENCY, _VEP)
# Source: ClinVar, "Review status" (https://www.ncbi.nlm.nih.gov/clinvar/docs/review_status/).
_STARS = {
    "practice_guideline": 4,
    "reviewed_by_expert_panel": 3,
    "criteria_provided,_multiple_submitters,_no_conflicts": 2,
    "criteria_provided,_single_submitter": 1,
}
_PATHOGENIC = frozenset({"Pathogenic", "Likely_pathogenic"})
_BENIGN = frozenset({"Benign", "Likely_benign"})
# Most severe first. Source: Ensembl, "Calculated variant consequences"; ClinVar's MC has these terms, and nonsense.
_CONSEQUENCES = {
    "stop_gained": "loss of function",
    "nonsense": "loss of function",
    "frameshift_variant": "loss of function",
    "splice_acceptor_variant": "loss of function",
    "splice_donor_variant": "loss of function",
    "start_lost": "loss of function",
    "initiator_codon_variant": "loss of function",
    "stop_lost": "protein change",
    "missense_variant": "protein change",
    "inframe_insertion": "protein change",
    "inframe_deletion": "protein change",
    "inframe_indel": "protein change",
    "protein_altering_variant": "protein change",
    "splice_region_variant": "splice region",
    "synonymous_variant": "synonymous",
    "stop_retained_variant": "synonymous",
    "5_prime_UTR_variant": "untranslated",
    "3_prime_UTR_variant": "untranslated",
    "intron_variant": "intron",
}
_OTHER, _UNKNOWN = "other", "unknown"
_SEVERITY = {term: rank for rank, term in enumerate(_CONSEQUENCES)}


class LabelError(InputError):
    """Files from which no labels can be made."""

    default_reason = "NO_LABELS"


@dataclass(frozen=True, slots=True)
class LabelledAlleles:
    """Alleles with labels, each once, sorted by key.

    Attributes:
        alleles: `tasks.variants.alleles.ALLELE_SCHEMA`.
        label: bool [n], True for pathogenic.
        consequence: object [n], the group of the most severe consequence that a file states; ``unknown`` without one.
        frequency: float64 [n], NaN where no file states it.
        counts: What became of the files' alleles, by word.
    """

    alleles: pa.Table
    label: npt.NDArray[np.bool_]
    consequence: npt.NDArray[np.object_]
    frequency: npt.NDArray[np.float64]
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: npt.NDArray[np.int64]) -> LabelledAlleles:
        """Some of the alleles, in the order of `rows`."""
        return replace(
            self,
            alleles=self.alleles.take(rows),
            label=self.label[rows],
            consequence=self.consequence[rows],
            frequency=self.frequency[rows],
        )


def read_labels(
    clinvar: Path,
    benign: Path | None,
    reference: Reference,
    scratch: Path,
    *,
    min_stars: int = MIN_STARS,
    min_benign_frequency: float = MIN_BENIGN_FREQUENCY,
) -> LabelledAlleles:
    """Reads pathogenic and benign alleles.

    Pathogenic: classified so, or likely so, by at least `min_stars`; conflicting and uncertain classifications, and
    modified ones (low penetrance, risk allele), are left out. Benign: of `benign`, by frequency where it has AF, else
    by classification; of `clinvar` by classification where there is no other file. An allele that is both is left out.

    Args:
        clinvar: ClinVar-format VCF: CLNSIG, CLNREVSTAT, perhaps MC.
        benign: gnomAD-format VCF (AF, perhaps CSQ), a ClinVar-format one, or None.
        reference: The genome.
        scratch: Folder for the text of BCFs.
        min_stars: Review stars, 0 to 4.
        min_benign_frequency: Allele frequency.

    Raises:
        LabelError: A file lacks the fields, or a class has no allele.
        VariantFileError: A file is damaged.
        ReferenceError: It was made with another reference.
    """
    counts: Counter[str] = Counter()
    parts = [_classified(clinvar, reference, scratch, min_stars, benign is None, counts)]
    if benign is not None:
        parts.append(_common(benign, reference, scratch, min_stars, min_benign_frequency, counts))
    table = pa.concat_tables(parts)
    locus, code = table["locus"].to_numpy(), table["code"].to_numpy()
    order = np.lexsort((code, locus))
    table, locus, code = table.take(order), locus[order], code[order]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (locus[1:] != locus[:-1]) | (code[1:] != code[:-1])
    group = np.cumsum(begins) - 1
    label = table["label"].to_numpy()
    both = np.bincount(group, weights=label)
    num_rows = np.bincount(group)
    is_contradicted = (both > 0) & (both < num_rows)
    counts["contradicted"] = int(np.count_nonzero(is_contradicted))
    counts["repeated"] = int(len(order) - begins.sum() - (num_rows[is_contradicted] - 1).sum())
    chosen = np.flatnonzero(begins & ~is_contradicted[group])
    table, label = table.take(chosen), label[chosen]
    counts["pathogenic"], counts["benign"] = int(label.sum()), int((~label).sum())
    for word in ("pathogenic", "benign"):
        if not counts[word]:
            raise LabelError(f"no {word} allele in {', '.join(p.name for p in (clinvar, benign) if p)}: {dict(counts)}")
    return LabelledAlleles(
        table.select(ALLELE_SCHEMA.names),
        label,
        np.array(table["consequence"].to_pylist(), dtype=object),
        table["frequency"].to_numpy(),
        dict(sorted(counts.items())),
    )


def _classified(
    path: Path, reference: Reference, scratch: Path, min_stars: int, with_benign: bool, counts: Counter[str]
) -> pa.Table:
    """Alleles by their classification; those that are left out are counted by why."""
    wanted = {"pathogenic": True, **({"benign": False} if with_benign else {})}
    parts = []
    for alleles, rows in _blocks(path, reference, scratch, (_CLASSIFICATION, _REVIEW)):
        words = [
            classify(significance, review, min_stars)
            for significance, review in zip(rows[_CLASSIFICATION], rows[_REVIEW], strict=True)
        ]
        counts.update(f"ClinVar: {word}" for word in words)
        parts.append(_labelled(alleles, rows, [wanted.get(word) for word in words]))
    return pa.concat_tables(parts)


def _common(
    path: Path, reference: Reference, scratch: Path, min_stars: int, min_frequency: float, counts: Counter[str]
) -> pa.Table:
    """Benign alleles of a second file: frequent ones, or where it is of ClinVar's format those classified so."""
    parts = []
    for alleles, rows in _blocks(path, reference, scratch, ()):
        if _FREQUENCY in rows:
            is_benign = [_number(value) >= min_frequency for value in rows[_FREQUENCY]]
        elif _CLASSIFICATION in rows and _REVIEW in rows:
            pairs = zip(rows[_CLASSIFICATION], rows[_REVIEW], strict=True)
            is_benign = [classify(significance, review, min_stars) == "benign" for significance, review in pairs]
        else:
            raise LabelError(f"{path}: declares neither INFO AF nor CLNSIG and CLNREVSTAT: nothing says what is benign")
        counts["benign file: left out"] += is_benign.count(False)
        parts.append(_labelled(alleles, rows, [False if benign else None for benign in is_benign]))
    return pa.concat_tables(parts)


def _labelled(alleles: pa.Table, rows: dict[str, list[Any]], labels: list[bool | None]) -> pa.Table:
    """The alleles that have a label, with it, consequence and frequency."""
    empty: list[Any] = [None] * len(labels)
    terms = zip(rows.get(_CONSEQUENCE, empty), rows.get(_VEP, empty), strict=True)
    table = alleles.append_column("label", pa.array(labels, pa.bool_()))
    table = table.append_column("consequence", pa.array([consequence_group(*each) for each in terms], pa.string()))
    frequencies = [_number(value) for value in rows.get(_FREQUENCY, empty)]
    table = table.append_column("frequency", pa.array(frequencies, pa.float64()))
    return table.filter(pa.array([label is not None for label in labels], pa.bool_()))


def _number(value: float | str | None) -> float:
    """A frequency; NaN where it is missing, or is text that is no number (a list, say)."""
    try:
        return np.nan if value is None else float(value)
    except ValueError:
        return np.nan


def classify(significance: str | None, review: str | None, min_stars: int) -> str:
    """What a ClinVar classification is worth as a label.

    Args:
        significance: CLNSIG, parts of other kinds (``drug_response``, ...) behind a bar.
        review: CLNREVSTAT.
        min_stars: Stars it must have.

    Returns:
        ``pathogenic``, ``benign``, or why it is no label: ``too few stars``, ``conflicting``, ``other``.
    """
    germline = (significance or "").split("|")[0]
    if germline.startswith("Conflicting"):
        return "conflicting"
    classes = set(germline.split("/"))
    word = "pathogenic" if classes <= _PATHOGENIC else "benign" if classes <= _BENIGN else "other"
    return "too few stars" if word != "other" and _STARS.get(review or "", 0) < min_stars else word


def consequence_group(molecular: str | None, vep: list[str | None] | None) -> str:
    """The group of the most severe consequence.

    Args:
        molecular: ClinVar's MC: ``SO:0001583|missense_variant,...``.
        vep: Consequence of each of VEP's entries, terms joined by ``&``.
    """
    terms = [each.rpartition("|")[2] for each in (molecular or "").split(",")]
    terms += [term for each in vep or [] for term in (each or "").split("&")]
    told = [term for term in terms if term]
    known = [term for term in told if term in _SEVERITY]
    if not known:
        return _OTHER if told else _UNKNOWN
    return _CONSEQUENCES[min(known, key=_SEVERITY.__getitem__)]


def _blocks(
    path: Path, reference: Reference, scratch: Path, needed: tuple[str, ...]
) -> Iterator[tuple[pa.Table, dict[str, list[Any]]]]:
    """Yields normalised alleles block by block, and the values of those fields of `_WANTED` that the file declares."""
    counts = ScanCounts()
    with as_text(path, scratch) as text:
        reader = RecordReader(text, reference)
        missing = [name for name in needed if name not in reader.header.info]
        if missing:
            raise LabelError(f"{path}: declares no INFO {', '.join(missing)}; is this ClinVar's VCF?")
        header = replace(reader.header, columns=reader.header.columns[:8], formats={})
        columns = TableColumns(header, (), info_ids=_WANTED)
        names = {name: f"INFO_{name}" for name in _WANTED if name in header.info}
        names |= {_VEP: "CSQ_Consequence"} if _VEP in names else {}
        yield ALLELE_SCHEMA.empty_table(), {name: [] for name in names}
        for block in reader.blocks():
            counts.add(block)
            keyed = np.flatnonzero(block.keys.skip == 0)
            num_rows = np.maximum(np.diff(block.records.first_allele), 1)
            first_row = np.concatenate(([0], np.cumsum(num_rows)))[:-1]
            record = block.keys.record[keyed]
            row = first_row[record] + keyed - block.records.first_allele[record]
            rows = columns.rows(block.lines).take(row)
            there = {name: column for name, column in names.items() if column in rows.schema.names}
            alleles = allele_table(block.lines.text, block.records, block.keys, reference)
            yield alleles, {name: rows[column].to_pylist() for name, column in there.items()}
        counts.check(path.name, path)
