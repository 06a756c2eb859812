"""Exons of genes from a GTF or GFF3, merged gene by gene."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.errors import RegionsError
from tasks.files import whole_file
from tasks.genome.contigs import match_contigs
from tasks.genome.reference import Reference
from tasks.genome.regions import text_lines

_GTF_ATTRIBUTE = re.compile(r'(\w+)\s+(?:"([^"]*)"|([^;\s]+))')
# Where an exon's own line names its gene: Ensembl and GENCODE, then RefSeq; without one the GFF3's parents do.
_GENE_NAMES = ("gene_name", "gene")
_NUM_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True, eq=False)
class Exons:
    """Exons in the reference's order; those of one gene are disjoint. Places are counted along the whole reference.

    Attributes:
        start: int64 [n], first places, sorted.
        end: int64 [n], one past the last places.
        gene: int64 [n], places in `names`.
        names: The genes, sorted.
    """

    start: np.ndarray
    end: np.ndarray
    gene: np.ndarray
    names: tuple[str, ...]


def read_exons(path: Path, reference: Reference) -> Exons:
    """Reads the exons of a GTF or GFF3 (plain, gzip or bgzip).

    A gene is known by its name, and by its id where it has none. Exons on contigs that the reference does not have are
    left out.

    Raises:
        RegionsError: The file cannot be read, a line is not GTF or GFF3, or no exon lies on the reference.
    """
    contigs: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    genes: list[str] = []
    parents: dict[str, tuple[str, str]] = {}
    is_gff3 = False
    for number, line in enumerate(text_lines(path), 1):
        if line.startswith("#"):
            if line.startswith("##gff-version 3"):
                is_gff3 = True
            elif line.startswith("##FASTA"):
                break
            continue
        fields = line.rstrip("\r\n").split("\t")
        if fields == [""]:
            continue
        if len(fields) < 9 or not (fields[3].isdigit() and fields[4].isdigit() and int(fields[3]) >= 1):
            raise RegionsError(
                f"{path}: line {number}: not GTF or GFF3 (nine columns with tabs; start and end in the fourth and "
                f"fifth): {line.strip()[:80]!r}",
                field="genes",
                reason="BAD_GENES",
            )
        is_gff3 = is_gff3 or (not contigs and "=" in fields[8].split(";")[0] and '"' not in fields[8].split(";")[0])
        if fields[2] != "exon" and not is_gff3:
            continue
        facts = _gff3_attributes(fields[8]) if is_gff3 else _gtf_attributes(fields[8])
        own = next((facts[key] for key in _GENE_NAMES if facts.get(key)), "")
        if fields[2] == "exon":
            contigs.append(fields[0])
            starts.append(int(fields[3]) - 1)
            ends.append(int(fields[4]))
            genes.append(own or (f"\0{facts['Parent']}" if "Parent" in facts else facts.get("gene_id", "")))
        elif "ID" in facts:
            # The name of what has no parent is the gene's.
            name = own or ("" if "Parent" in facts else facts.get("Name", facts.get("gene_id", facts["ID"])))
            parents[facts["ID"]] = (name, facts.get("Parent", ""))
    names = [_follow(gene[1:], parents) if gene.startswith("\0") else gene for gene in genes]
    return _place(path, reference, contigs, np.array(starts, np.int64), np.array(ends, np.int64), names)


def prepare_exons(path: Path, reference: Reference, output: Path) -> None:
    """Reads the exons once for a whole run and writes them where `load_exons` finds them."""
    exons = read_exons(path, reference)
    table = pa.table(
        {
            "start": exons.start,
            "end": exons.end,
            "gene": pa.DictionaryArray.from_arrays(pa.array(exons.gene, pa.int32()), pa.array(exons.names)),
        }
    )
    with whole_file(output) as aside:
        pq.write_table(table, aside)


def load_exons(path: Path) -> Exons:
    """Reads what `prepare_exons` wrote."""
    table = pq.read_table(path)
    gene = table["gene"].combine_chunks().cast(pa.string()).to_pylist()
    names, number = np.unique(np.array(gene, dtype=np.str_), return_inverse=True)
    start, end = (table[name].to_numpy() for name in ("start", "end"))
    return Exons(start, end, number.astype(np.int64), tuple(names.tolist()))


def _gtf_attributes(text: str) -> dict[str, str]:
    return {key: quoted or plain for key, quoted, plain in _GTF_ATTRIBUTE.findall(text)}


def _gff3_attributes(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(";"))
    return {key.strip(): unquote(value) for key, _, value in pairs}


def _follow(parent: str, parents: dict[str, tuple[str, str]]) -> str:
    """The gene's name, up from a transcript's id (the first of several)."""
    seen = set()
    while parent and parent not in seen:
        seen.add(parent)
        parent = parent.split(",")[0]
        name, above = parents.get(parent, ("", ""))
        if name:
            return name
        if not above:
            return parent
        parent = above
    return parent


def _place(
    path: Path, reference: Reference, contigs: list[str], start: np.ndarray, end: np.ndarray, genes: list[str]
) -> Exons:
    """Puts exons on the reference and merges those of one gene."""
    known = list(dict.fromkeys(contigs))
    unstated = [None] * len(known)
    index = match_contigs(known, unstated, unstated, reference).index
    number_of = {name: int(place) for name, place in zip(known, index, strict=True)}
    contig = np.array([number_of[name] for name in contigs], np.int64)
    keep = (contig >= 0) & np.array([bool(gene) for gene in genes], np.bool_)
    if not keep.any():
        raise RegionsError(
            f"{path}: no exon of a gene on a contig of {reference.path.name}: "
            + (
                f"the exons lie on {', '.join(known[:_NUM_NAMES_SHOWN])}; the reference has "
                f"{', '.join(contig.name for contig in reference.contigs[:_NUM_NAMES_SHOWN])}"
                if contigs
                else "it has no line of the type exon"
            ),
            field="genes",
            reason="NO_GENES",
        )
    contig, start, end = contig[keep], start[keep], end[keep]
    past = np.flatnonzero(end > np.diff(reference.offsets)[contig])
    if past.size:
        place = past[0]
        raise RegionsError(
            f"{path}: an exon ends at base {end[place]:,} of {reference.contigs[contig[place]].name}, past the "
            f"contig's end ({past.size:,} such exons); are the genes of another build?",
            field="genes",
            reason="PAST_CONTIG_END",
        )
    names, gene = np.unique(np.array(genes, dtype=np.str_)[keep], return_inverse=True)
    start, end = start + reference.offsets[contig], end + reference.offsets[contig]
    order = np.lexsort((start, gene))
    start, end, gene = start[order], end[order], gene[order]
    # The farthest end so far within the gene: genes are kept apart by a shift of more than the genome.
    shelf = gene * (int(reference.offsets[-1]) + 1)
    reach = np.maximum.accumulate(end + shelf) - shelf
    is_first = np.append(True, (gene[1:] != gene[:-1]) | (start[1:] > reach[:-1]))
    start, end, gene = start[is_first], reach[np.append(is_first[1:], True)], gene[is_first]
    order = np.lexsort((gene, start))
    return Exons(start[order], end[order], gene[order].astype(np.int64), tuple(names.tolist()))
