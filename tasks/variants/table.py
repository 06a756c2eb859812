"""A sample's annotated VCF as a Parquet table: one row for each allele of each record.

    contig, pos, id, ref, alt, qual, filter    the record and one of its ALT alleles (null for ALT ``.``)
    CF_..., NAME_...                           fields of ours and of joined annotations, by their own names; in text
                                               %2C is a comma again
    INFO_key                                   Number=1 by its Type, Number=A one value per allele, Flag bool, else text
    CSQ_..., ANN_...                           VEP's and SnpEff's SYMBOL, Gene, Feature, Consequence, IMPACT: lists in
                                               the order of the allele's entries (`tasks.variants.consequences`)
    FORMAT_key                                 Number=1 by its Type; of another Number (A, R, G, ``.``, 2 ...) a list of
                                               its Type, ``.`` in it null; GT and what is not declared text; with
                                               several samples a list of these in the samples' order

A declared type holds unless a value in the file is not of it: then the whole column is text, as written. The schema's
metadata has, as JSON, the names of the samples (``samples``) and what made the table (``cohortflow``).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.files import whole_file
from tasks.variants.columns import TableColumns
from tasks.variants.header import parse_header
from tasks.variants.lines import split_lines
from tasks.variants.text import VariantText

_GROUP_ROWS = 65_536
_GROUP_BYTES = 24 << 20


class _ColumnsChanged(Exception):
    """A column turned out to be another than the header told."""


def write_variant_table(vcf: Path, table: Path, own_ids: Collection[str], facts: Mapping[str, str]) -> dict[str, Any]:
    """Writes the table.

    The VCF is read once; twice where its records hold keys or values that its header does not declare so.

    Args:
        vcf: An annotated VCF, without bad lines.
        table: The Parquet file.
        own_ids: INFO IDs that keep their names as columns.
        facts: What made the table: plan, build and so on.

    Returns:
        ``table_rows``: the alleles, and one for each record without ALT; ``consequences``: for each key with entries of
        VEP or SnpEff those ``malformed`` and ``unmatched`` (`tasks.variants.consequences`), absent without such keys.
    """
    columns = TableColumns(parse_header(VariantText(vcf).header), own_ids)
    try:
        num_rows = _write(vcf, table, columns, facts)
    except _ColumnsChanged:
        # The first reading went on to the end: all is known now.
        num_rows = _write(vcf, table, columns, facts)
    told = {key.decode(): reader.summary for key, reader in columns.consequences.items()}
    return {"table_rows": num_rows, **({"consequences": told} if told else {})}


def _write(vcf: Path, table: Path, columns: TableColumns, facts: Mapping[str, str]) -> int:
    for reader in columns.consequences.values():
        reader.counts[:] = 0
    text = VariantText(vcf)
    header = parse_header(text.header)
    metadata = {"samples": json.dumps(header.samples), "cohortflow": json.dumps(dict(facts))}
    schema = columns.schema.with_metadata(metadata)
    num_rows, held_bytes = 0, 0
    held: list[pa.Table] = []
    with whole_file(table) as aside, pq.ParquetWriter(aside, schema, compression="zstd") as writer:
        for block in text.blocks():
            rows = columns.rows(split_lines(block, len(header.columns)))
            if columns.schema != schema:
                held = []
                continue
            held.append(rows.replace_schema_metadata(schema.metadata))
            num_rows += rows.num_rows
            held_bytes += rows.nbytes
            if held_bytes >= _GROUP_BYTES or sum(part.num_rows for part in held) >= _GROUP_ROWS:
                writer.write_table(pa.concat_tables(held))
                held, held_bytes = [], 0
        if columns.schema != schema:
            raise _ColumnsChanged
        if held:
            writer.write_table(pa.concat_tables(held))
    return num_rows
