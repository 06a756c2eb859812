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
from tasks.genome.header_check import check_header_contigs
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
_FILTER = "filter"
_FREQUENCIES = (_FREQUENCY, "AF_EXAC", "AF_ESP", "AF_TGP")
"""Where a frequency may stand: gnomAD's, and those that ClinVar quotes."""
_WANTED = (_CLASSIFICATION, _REVIEW, _CONSEQUENCE, _VEP, *_FREQUENCIES)
# Source: ClinVar, "Review status" (https://www.ncbi.nlm.nih.gov/clinvar/docs/review_status/).
_STARS = {
    "practice_guideline": 4,
    "reviewed_by_expert_panel": 3,
    "criteria_provided,_multiple_submitters,_no_conflicts": 2,
    "criteria_provided,_single_submitter": 1,
}
_PASSING = (None, ".", "PASS")
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
        frequency: float64 [n], the highest that a file states; NaN where none does.
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
    by classification, and where its FILTER passes; of `clinvar` by classification where there is no other file. An
    allele that is both is left out, and so is a benign one that `clinvar` calls conflicting, or pathogenic with
    however few stars.

    Args:
        clinvar: ClinVar-format VCF: CLNSIG, CLNREVSTAT, perhaps MC and AF_EXAC, AF_ESP, AF_TGP.
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
    table = _classified(clinvar, reference, scratch, min_stars, benign is None, counts)
    if benign is not None:
        known = np.unique(table["locus"].to_numpy())
        common = _common(benign, reference, scratch, min_stars, min_benign_frequency, known, counts)
        table = pa.concat_tables([table, common])
    locus, code, is_label = (table[name].to_numpy() for name in ("locus", "code", "is_label"))
    order = np.lexsort((~is_label, code, locus))
    table, locus, code, is_label = table.take(order), locus[order], code[order], is_label[order]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (locus[1:] != locus[:-1]) | (code[1:] != code[:-1])
    first = np.flatnonzero(begins)
    # Of each allele's rows: whether one says so. A row with a label stands before those without.
    pathogenic, harmless = (
        np.logical_or.reduceat(table[name].to_numpy(), first) if len(first) else np.zeros(0, np.bool_)
        for name in ("says_pathogenic", "says_benign")
    )
    frequency = np.fmax.reduceat(table["frequency"].to_numpy(), first) if len(first) else np.zeros(0)
    is_contradicted = is_label[first] & pathogenic & harmless
    is_kept = is_label[first] & ~is_contradicted
    counts["contradicted"] = int(is_contradicted.sum())
    num_labels = np.bincount(np.cumsum(begins) - 1, weights=is_label, minlength=len(first)).astype(np.int64)
    counts["repeated"] = int((num_labels[is_kept] - 1).sum())
    table, label, frequency = table.take(first[is_kept]), pathogenic[is_kept], frequency[is_kept]
    counts["pathogenic"], counts["benign"] = int(label.sum()), int((~label).sum())
    for word in ("pathogenic", "benign"):
        if not counts[word]:
            raise LabelError(f"no {word} allele in {', '.join(p.name for p in (clinvar, benign) if p)}: {dict(counts)}")
    return LabelledAlleles(
        table.select(ALLELE_SCHEMA.names),
        label,
        np.array(table["consequence"].to_pylist(), dtype=object),
        frequency,
        dict(sorted(counts.items())),
    )


def _classified(
    path: Path, reference: Reference, scratch: Path, min_stars: int, with_benign: bool, counts: Counter[str]
) -> pa.Table:
    """Alleles by their classification, and those that bar a benign label; all are counted by word."""
    parts = []
    for alleles, rows in _blocks(path, "ClinVar", reference, scratch, (_CLASSIFICATION, _REVIEW), counts):
        pairs = list(zip(rows[_CLASSIFICATION], rows[_REVIEW], strict=True))
        words = [classify(significance, review, min_stars) for significance, review in pairs]
        counts.update(f"ClinVar: {word}" for word in words)
        unreviewed = [classify(significance, review, 0) for significance, review in pairs]
        pathogenic = [word in ("pathogenic", "conflicting") for word in unreviewed]
        benign = [word == "conflicting" or (with_benign and word == "benign") for word in words]
        labels = [word == "pathogenic" or (with_benign and word == "benign") for word in words]
        parts.append(_voted(alleles, rows, pathogenic, benign, labels))
    return pa.concat_tables(parts)


def _common(
    path: Path,
    reference: Reference,
    scratch: Path,
    min_stars: int,
    min_frequency: float,
    known: npt.NDArray[np.uint64],
    counts: Counter[str],
) -> pa.Table:
    """Benign alleles of a second file: frequent ones, or where it is of ClinVar's format those classified so.

    Alleles at the loci `known` come too, for their frequency.
    """
    parts = []
    for alleles, rows in _blocks(path, "benign file", reference, scratch, (), counts):
        if _FREQUENCY in rows:
            is_benign = [_number(value) >= min_frequency for value in rows[_FREQUENCY]]
        elif _CLASSIFICATION in rows and _REVIEW in rows:
            pairs = zip(rows[_CLASSIFICATION], rows[_REVIEW], strict=True)
            is_benign = [classify(significance, review, min_stars) == "benign" for significance, review in pairs]
        else:
            raise LabelError(f"{path}: declares neither INFO AF nor CLNSIG and CLNREVSTAT: nothing says what is benign")
        passes = [value in _PASSING for value in rows[_FILTER]]
        counts["benign file: FILTER does not pass"] += passes.count(False)
        labels = [benign and passing for benign, passing in zip(is_benign, passes, strict=True)]
        counts["benign file: left out"] += labels.count(False) - passes.count(False)
        is_known = np.isin(alleles["locus"].to_numpy(), known).tolist() if _FREQUENCY in rows else None
        parts.append(_voted(alleles, rows, [False] * len(labels), labels, labels, is_known))
    return pa.concat_tables(parts)


def _voted(
    alleles: pa.Table,
    rows: dict[str, list[Any]],
    pathogenic: list[bool],
    benign: list[bool],
    labels: list[bool],
    others: list[bool] | None = None,
) -> pa.Table:
    """The alleles of which a file says something (or that `others` asks for), with that, consequence and frequency."""
    empty: list[Any] = [None] * len(labels)
    terms = zip(rows.get(_CONSEQUENCE, empty), rows.get(_VEP, empty), strict=True)
    stated = [list(map(_number, rows.get(name, empty))) for name in _FREQUENCIES]
    frequency = np.fmax.reduce(np.array(stated, dtype=np.float64), axis=0)
    columns = {
        "says_pathogenic": pa.array(pathogenic, pa.bool_()),
        "says_benign": pa.array(benign, pa.bool_()),
        "is_label": pa.array(labels, pa.bool_()),
        "consequence": pa.array([consequence_group(*each) for each in terms], pa.string()),
        "frequency": pa.array(frequency, pa.float64()),
    }
    for name, column in columns.items():
        alleles = alleles.append_column(name, column)
    asked = others or [False] * len(labels)
    return alleles.filter(pa.array(list(map(any, zip(pathogenic, benign, asked, strict=True))), pa.bool_()))


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
    path: Path, what: str, reference: Reference, scratch: Path, needed: tuple[str, ...], counts: Counter[str]
) -> Iterator[tuple[pa.Table, dict[str, list[Any]]]]:
    """Yields normalised alleles block by block, their FILTER, and those fields of `_WANTED` that the file declares.

    Alleles that have no place or no bases are counted by reason.
    """
    scanned = ScanCounts()
    with as_text(path, scratch) as text:
        reader = RecordReader(text, reference)
        missing = [name for name in needed if name not in reader.header.info]
        if missing:
            raise LabelError(f"{path}: declares no INFO {', '.join(missing)}; is this ClinVar's VCF?")
        contigs = reader.header.contig_lengths_bp
        if contigs:
            md5s = list(reader.header.contig_md5s.values())
            check_header_contigs(path.name, list(contigs), list(contigs.values()), md5s, [None] * len(md5s), reference)
        header = replace(reader.header, columns=reader.header.columns[:8], formats={})
        columns = TableColumns(header, (), info_ids=_WANTED)
        names = {name: f"INFO_{name}" for name in _WANTED if name in header.info}
        names |= {_VEP: "CSQ_Consequence"} if _VEP in names else {}
        names[_FILTER] = _FILTER
        yield ALLELE_SCHEMA.empty_table(), {name: [] for name in names}
        for block in reader.blocks():
            scanned.add(block)
            keyed = np.flatnonzero(block.keys.skip == 0)
            num_rows = np.maximum(np.diff(block.records.first_allele), 1)
            first_row = np.concatenate(([0], np.cumsum(num_rows)))[:-1]
            record = block.keys.record[keyed]
            row = first_row[record] + keyed - block.records.first_allele[record]
            rows = columns.rows(block.lines).take(row)
            there = {name: column for name, column in names.items() if column in rows.schema.names}
            alleles = allele_table(block.lines.text, block.records, block.keys, reference)
            yield alleles, {name: rows[column].to_pylist() for name, column in there.items()}
        scanned.check(path.name, path)
        counts.update({f"{what}: {reason}": number for reason, number in scanned.skipped.items()})
