"""An annotation file read once, block by block; the values of alleles that the cohort has are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tasks.annotations.runs import RunWriter
from tasks.annotations.shard_keys import ShardKeys
from tasks.annotations.source import AnnotationSource
from tasks.annotations.values import ValuePicker
from tasks.errors import VariantFileError
from tasks.genome.header_check import check_header_contigs
from tasks.genome.reference import Reference
from tasks.variants.binary import as_text
from tasks.variants.records import RecordReader
from tasks.variants.scanning import ScanCounts

_COUNTS = ("records_in", "rejected", "alleles", "skipped")


def join_file(source: AnnotationSource, reference: Reference, cohort: ShardKeys, folder: Path) -> dict[str, Any]:
    """Reads an annotation file and writes what it says of the cohort's alleles as runs.

    Alleles are found by their normalised form, however file and cohort write them. One block of text and a bounded run
    are in memory at a time.

    Args:
        source: The file and its fields.
        reference: The genome.
        cohort: The alleles that are asked for.
        folder: Receives the runs.

    Returns:
        ``records_in``, ``rejected`` lines, ``alleles``, those ``skipped`` by reason, ``malformed`` values by field, and
        ``runs`` (file names).

    Raises:
        VariantFileError: The file is damaged, truncated, or has too many bad lines.
        ReferenceError: It was made with another reference.
    """
    counts, picker, runs = ScanCounts(), ValuePicker(source.fields), RunWriter(source, folder)
    what = f"annotation {source.name} ({source.path.name})"
    with as_text(source.path, folder) as text:
        reader = RecordReader(text, reference)
        for block in reader.blocks():
            counts.add(block)
            keyed = np.flatnonzero(block.keys.skip == 0)
            hits = keyed[cohort.contains(block.keys.locus[keyed], block.keys.code[keyed])]
            if len(hits):
                runs.add([block.keys.locus[hits], block.keys.code[hits], *picker.pick(block, hits)])
        if not counts.records_in:
            raise VariantFileError(f"{what}: there is no record in it", reason="NO_RECORDS")
        counts.check(what, source.path)
        contigs = counts.contigs(reader.contig_names)
        lengths_bp = [reader.header.contig_lengths_bp.get(name) for name in contigs]
        md5s = [reader.header.contig_md5s.get(name) for name in contigs]
        check_header_contigs(what, list(contigs), lengths_bp, md5s, list(contigs.values()), reference)
    runs.close()
    summary = counts.summary()
    return {
        **{name: summary[name] for name in _COUNTS},
        "malformed": {name: number for name, number in picker.malformed.items() if number},
        "runs": runs.names,
    }
