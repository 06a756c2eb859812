"""Each sequence of a file told apart, as a table; the shares of the file as counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from serving.server import ModelServer
from tasks.errors import InputError
from tasks.files import whole_file
from tasks.origins.classifying import CLASSES, FIRST_PROBABILITIES, SECOND_PROBABILITIES, Floats, classify
from tasks.origins.fragments import count_kmers
from tasks.origins.sequences import SequenceBlock, read_blocks

MIN_EMBEDDED_BP = 1000
"""Shorter sequences get no embedding. Source: SemiBin 2.6.0, the lower of its two default lengths."""
_EMBEDDING_K = 4
_NUM_EMBEDDED = 100
_ENDINGS = re.compile(r"\.(fa|fasta|fna|fas|fq|fastq)(\.gz|\.bgz)?$", re.IGNORECASE)
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def sample_ids(files: list[Path]) -> dict[str, Path]:
    """Names samples by their files, without what tells the format.

    Raises:
        InputError: Two files have one name, or a name has letters that no file of ours may have.
    """
    found: dict[str, Path] = {}
    for path in files:
        name = _ENDINGS.sub("", path.name)
        if not _SAFE.fullmatch(name):
            raise InputError(f"{path}: names of files become names of samples: letters, digits, _ . + - only")
        if name in found:
            raise InputError(f"{path}: and {found[name]} would both be sample {name!r}; rename one")
        found[name] = path
    return found


def tell_origins(
    path: Path, table: Path, classes: ModelServer, embeddings: tuple[ModelServer, str] | None
) -> dict[str, Any]:
    """Classifies, and where asked embeds, every sequence of a file.

    Args:
        path: FASTA or FASTQ.
        table: The Parquet file to write, a row a sequence in the file's order; it appears whole.
        classes: Serves the models of Tiara.
        embeddings: Serves models of SemiBin, and the name of the one to ask.

    Returns:
        Numbers of sequences and of bases by class.

    Raises:
        ReadsError: The file is wrong.
    """

    def ask(model: str, counts: Floats) -> Floats:
        return np.asarray(classes.infer(model, {"counts": counts})["probability"], dtype=np.float32)

    num_sequences = np.zeros(len(CLASSES), dtype=np.int64)
    num_bases = np.zeros(len(CLASSES), dtype=np.int64)
    with whole_file(table) as aside, pq.ParquetWriter(aside, _schema(embeddings is not None)) as writer:
        for block in read_blocks(path):
            told = classify(block, ask)
            num_sequences += np.bincount(told.code, minlength=len(CLASSES))
            num_bases += np.bincount(told.code, block.lengths_bp, len(CLASSES)).astype(np.int64)
            columns: list[Any] = [block.names, block.lengths_bp, pa.DictionaryArray.from_arrays(told.code, CLASSES)]
            columns += [_column(values) for values in (*told.first.T, *told.second.T)]
            if embeddings:
                columns.append(_embedded(block, *embeddings))
            writer.write_table(pa.table(columns, schema=_schema(embeddings is not None)))
    return {
        "sequences": dict(zip(CLASSES, num_sequences.tolist(), strict=True)),
        "bases": dict(zip(CLASSES, num_bases.tolist(), strict=True)),
    }


def _schema(has_embeddings: bool) -> pa.Schema:
    fields = [("name", pa.string()), ("length_bp", pa.int64()), ("class", pa.dictionary(pa.int8(), pa.string()))]
    fields += [(f"first_{name}", pa.float32()) for name in FIRST_PROBABILITIES]
    fields += [(f"second_{name}", pa.float32()) for name in SECOND_PROBABILITIES]
    if has_embeddings:
        fields.append(("embedding", pa.list_(pa.float32(), _NUM_EMBEDDED)))
    return pa.schema(fields)


def _column(values: npt.NDArray[np.float64]) -> pa.Array:
    return pa.array(values.astype(np.float32), mask=np.isnan(values))


def _embedded(block: SequenceBlock, server: ModelServer, model: str) -> pa.Array:
    """The embeddings of the sequences that are long enough, null for the others."""
    end = np.cumsum(block.lengths_bp)
    chosen = np.flatnonzero(block.lengths_bp >= MIN_EMBEDDED_BP)
    values = np.zeros((len(end), _NUM_EMBEDDED), dtype=np.float32)
    for rows in _batches(chosen):
        counts = count_kmers(block.tokens, end[rows] - block.lengths_bp[rows], end[rows], _EMBEDDING_K)
        values[rows] = server.infer(model, {"counts": counts})["embedding"]
    is_absent = block.lengths_bp < MIN_EMBEDDED_BP
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), _NUM_EMBEDDED, mask=pa.array(is_absent))


def _batches(rows: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    yield from (rows[at : at + 1024] for at in range(0, len(rows), 1024))
