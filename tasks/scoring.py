"""Scoring shards: stretches of the genome whose distinct alleles one unit of work scores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.annotations.table import merging
from tasks.files import file_sha256, json_sha256, read_json, whole_file, write_json
from tasks.folder import RunFolder
from tasks.genome.reference import Reference
from tasks.intervals import to_position
from tasks.model_host import model_server
from tasks.pipelines import GeneValues, OutputField
from tasks.run import Run, load_run
from tasks.variants.allele_runs import BIN_SHIFT, distinct_alleles, locus_histogram

SHARD_ALLELES = 20_000
"""Alleles of a shard, unless one histogram bin holds more."""
ROW_GROUP_ALLELES = 65_536
_LOCUS_END = 1 << 63
_ARROW_TYPES = {"Float": pa.float64(), "Integer": pa.int64(), "String": pa.string()}


@dataclass(frozen=True, slots=True)
class ScoreShard:
    """A stretch of the genome in one cut of it.

    Attributes:
        cut: Names the cut: the digest of the allele runs it was made from.
        locus_start: First locus, as the keys of `tasks.variants.alleles` count them.
        locus_end: The locus after the last.
    """

    cut: str
    locus_start: int
    locus_end: int

    def path(self, folder: RunFolder) -> Path:
        """The shard's scores; its summary lies beside them as JSON."""
        return folder.scores / self.cut / f"{self.locus_start:016x}-{self.locus_end:016x}.parquet"

    def gene_path(self, folder: RunFolder) -> Path:
        """The shard's answers by allele and gene, of a pipeline that has such."""
        return self.path(folder).with_suffix(".genes.parquet")


def annotation_runs(folder: RunFolder, shards: Sequence[ScoreShard]) -> Path:
    """Where the runs of annotations lie that are joined to these shards."""
    return folder.scores / shards[0].cut / "annotations"


def score_schema(fields: Sequence[OutputField]) -> pa.Schema:
    """The columns of a score table: key, place, allele, one column per field, reason."""
    place = [("contig", pa.string()), ("pos", pa.int64()), ("ref", pa.string()), ("alt", pa.string())]
    values = [(field.name, _ARROW_TYPES[field.kind]) for field in fields]
    return pa.schema([("locus", pa.uint64()), ("code", pa.uint64()), *place, *values, ("reason", pa.string())])


def gene_schema(fields: Sequence[OutputField]) -> pa.Schema:
    """The columns of ``cohort/allele_gene.parquet``: key, place, allele, gene, one column per field."""
    place = [("contig", pa.string()), ("pos", pa.int64()), ("ref", pa.string()), ("alt", pa.string())]
    values = [(field.name, _ARROW_TYPES[field.kind]) for field in fields]
    return pa.schema([("locus", pa.uint64()), ("code", pa.uint64()), *place, ("gene", pa.string()), *values])


def plan_score_shards(runs: Sequence[str], shard_alleles: int = SHARD_ALLELES) -> list[ScoreShard]:
    """Cuts the genome so that no shard holds more than `shard_alleles` alleles; together they cover every locus.

    Args:
        runs: Allele runs of all samples.
        shard_alleles: Most distinct alleles of a shard, unless one bin of 16,384 bp holds more.
    """
    paths = [Path(run) for run in runs]
    bins, counts = locus_histogram(paths)
    cut = json_sha256([[path.parent.name, path.name, path.stat().st_mtime_ns] for path in paths])[:16]
    cuts = [0]
    held = 0
    for place, count in zip(bins.tolist(), counts.tolist(), strict=True):
        if held and held + count > shard_alleles:
            cuts.append(place << BIN_SHIFT)
            held = 0
        held += count
    cuts.append(_LOCUS_END)
    return [ScoreShard(cut, start, end) for start, end in pairwise(cuts)]


def score_shard(root: str, shard: ScoreShard, runs: Sequence[str]) -> dict[str, Any]:
    """Scores a shard's distinct alleles; those that the folder's table already holds are taken from it.

    Args:
        root: The output folder.
        shard: The loci.
        runs: Allele runs of all samples.

    Returns:
        Counts: ``alleles``, ``known`` (taken from the table), ``scored``, ``skipped`` by reason.
    """
    run = load_run(root)
    path = shard.path(run.folder)
    summary_path = path.with_suffix(".json")
    if summary_path.exists():
        summary: dict[str, Any] = read_json(summary_path)
        return summary
    alleles = distinct_alleles([Path(r) for r in runs], shard.locus_start, shard.locus_end)
    known = _known(run.folder.alleles, score_schema(run.pipeline.fields), shard)
    new = alleles.filter(pc.invert(_is_in(alleles, known))) if known.num_rows else alleles
    fresh, fresh_genes = _score(run, new)
    table = pa.concat_tables([known, fresh]).sort_by([("locus", "ascending"), ("code", "ascending")])
    if fresh_genes is not None:
        known_genes = _known(run.folder.allele_genes, fresh_genes.schema, shard)
        order = [("locus", "ascending"), ("code", "ascending"), ("gene", "ascending")]
        with whole_file(shard.gene_path(run.folder)) as aside:
            pq.write_table(pa.concat_tables([known_genes, fresh_genes]).sort_by(order), aside)
    with whole_file(path) as aside:
        pq.write_table(table, aside)
    reasons = pc.value_counts(fresh["reason"].drop_null()).to_pylist()
    summary = {
        "alleles": table.num_rows,
        "known": known.num_rows,
        "scored": fresh["reason"].null_count,
        "skipped": {entry["values"]: entry["counts"] for entry in reasons},
    }
    write_json(summary_path, summary)
    return summary


def _known(path: Path, schema: pa.Schema, shard: ScoreShard) -> pa.Table:
    """The rows of one of the folder's tables that lie in the shard."""
    if not path.exists():
        return schema.empty_table()
    start, end = pa.scalar(shard.locus_start, pa.uint64()), pa.scalar(shard.locus_end, pa.uint64())
    inside = (pc.field("locus") >= start) & (pc.field("locus") < end)
    return pq.read_table(path, columns=schema.names, filters=inside).cast(schema)


def _is_in(alleles: pa.Table, known: pa.Table) -> pa.Array:
    """Boolean ``[alleles]``: whether `known` holds the allele's key."""

    def keys(table: pa.Table) -> np.ndarray[Any, Any]:
        pair = np.empty(table.num_rows, dtype=[("locus", np.uint64), ("code", np.uint64)])
        pair["locus"], pair["code"] = table["locus"].to_numpy(), table["code"].to_numpy()
        return pair

    return pa.array(np.isin(keys(alleles), keys(known)))


def _score(run: Run, alleles: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """Asks the worker's model server for the rows of `alleles`.

    Returns:
        A table in the score schema, and one in the gene schema where the pipeline has that grain.
    """
    at_once = run.pipeline.alleles_at_once
    parts = [_score_part(run, alleles.slice(at, at_once)) for at in range(0, alleles.num_rows or 1, at_once)]
    scores = pa.concat_tables([scores for scores, _ in parts])
    return scores, pa.concat_tables([of for _, of in parts if of is not None]) if run.pipeline.gene_fields else None


def _score_part(run: Run, alleles: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """As `_score`, for alleles that are asked about in one request."""
    pipeline = run.pipeline
    ensemble = pipeline.ensemble
    columns: dict[str, Any] = {}
    genes = None
    if alleles.num_rows:
        model = run.plan.recipe["models"][ensemble]
        server, version = model_server({ensemble: model["digest"]}), model["version"]
        shapes = {spec.name: spec.dims for spec in server.metadata(ensemble, version).inputs}
        rows = pipeline.expand(alleles, run.reference, shapes, run.resources)
        outputs = server.infer(ensemble, rows.inputs, version=version) if len(rows.allele) else {}
        reason = pa.array(rows.reason, pa.string(), from_pandas=True)
        values = pipeline.collapse(alleles.num_rows, rows, outputs) if reason.null_count else {}
        columns = {"reason": reason, **values}
        if pipeline.gene_fields and len(rows.allele):
            genes = pipeline.collapse_genes(alleles.num_rows, rows, outputs)
    scores = _as_table(alleles, columns, score_schema(pipeline.fields), run.reference)
    if not pipeline.gene_fields:
        return scores, None
    found = genes or GeneValues(np.zeros(0, np.int64), (), {})
    columns = {"gene": pa.array(found.gene, pa.string()), **found.values}
    return scores, _as_table(alleles.take(found.allele), columns, gene_schema(pipeline.gene_fields), run.reference)


def _as_table(alleles: pa.Table, columns: dict[str, Any], schema: pa.Schema, reference: Reference) -> pa.Table:
    names = pa.array([contig.name for contig in reference.contigs])
    place = {
        "locus": alleles["locus"],
        "code": alleles["code"],
        "contig": names.take(alleles["contig"].combine_chunks()),
        "pos": pc.add(alleles["start"], to_position(0)),
        "ref": alleles["ref"],
        "alt": alleles["alt"],
    }
    arrays = []
    for field in schema:
        value = place.get(field.name, columns.get(field.name))
        if value is None:
            value = pa.nulls(alleles.num_rows, field.type)
        elif isinstance(value, np.ndarray):
            value = pa.array(value, field.type, from_pandas=True)
        arrays.append(value)
    return pa.table(arrays, schema=schema)


def drop_scores(folder: RunFolder) -> None:
    """Removes every score in the folder: they are those of another plan."""
    folder.alleles.unlink(missing_ok=True)
    folder.allele_genes.unlink(missing_ok=True)
    shutil.rmtree(folder.scores, ignore_errors=True)


def drop_damaged_scores(folder: RunFolder) -> bool:
    """Removes the folder's tables unless their content is what was written; returns whether whole ones are there."""
    try:
        written = read_json(folder.alleles_digest)
        is_whole: bool = file_sha256(folder.alleles) == written["sha256"]
        if "genes_sha256" in written:
            is_whole &= file_sha256(folder.allele_genes) == written["genes_sha256"]
    except FileNotFoundError:
        is_whole = False
    if not is_whole:
        folder.alleles.unlink(missing_ok=True)
        folder.allele_genes.unlink(missing_ok=True)
    return is_whole


def finish_scores(root: str, shards: Sequence[ScoreShard]) -> dict[str, Any]:
    """Joins the shards into ``cohort/alleles.parquet``; its bytes do not depend on how the genome was cut.

    Also ``cohort/allele_gene.parquet``, where the pipeline has that grain.

    The schema's metadata (``cohortflow``, JSON) has what made the scores: pipeline, models, build.

    Raises:
        FileNotFoundError: Shards are missing; all of them are named.
    """
    run = load_run(root)
    paths = [shard.path(run.folder) for shard in shards]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        raise FileNotFoundError(f"scoring shards are missing: {', '.join(missing)}")
    joined = [output for source in run.annotations for output in source.outputs]
    schema = score_schema([*run.pipeline.fields, *joined])
    stated = schema.with_metadata({"cohortflow": json.dumps(run.cohort_facts())})
    num_alleles = 0
    with whole_file(run.folder.alleles) as aside:
        with pq.ParquetWriter(aside, stated, compression="zstd") as writer:
            for group in _regrouped(_with_annotations(run, shards), schema):
                writer.write_table(group, row_group_size=ROW_GROUP_ALLELES)
                num_alleles += group.num_rows
    digests = {"sha256": file_sha256(run.folder.alleles)}
    if run.pipeline.gene_fields:
        schema = gene_schema(run.pipeline.gene_fields)
        tables = (pq.read_table(shard.gene_path(run.folder)) for shard in shards)
        with whole_file(run.folder.allele_genes) as aside:
            with pq.ParquetWriter(aside, schema.with_metadata(stated.metadata), compression="zstd") as writer:
                for group in _regrouped(tables, schema):
                    writer.write_table(group, row_group_size=ROW_GROUP_ALLELES)
        digests["genes_sha256"] = file_sha256(run.folder.allele_genes)
    write_json(run.folder.alleles_digest, digests)
    # The table now answers for every shard: a later run takes known alleles from it.
    shutil.rmtree(run.folder.scores)
    return {"alleles": num_alleles}


def _with_annotations(run: Run, shards: Sequence[ScoreShard]) -> Iterator[pa.Table]:
    """The shards' tables with the columns of the run's annotations; writes each annotation's table and counts."""
    runs = annotation_runs(run.folder, shards)
    counts = {source.name: read_json(runs / f"{source.name}.json") for source in run.annotations}
    with ExitStack() as stack:
        mergers = {}
        for source in run.annotations:
            table = run.folder.annotations / f"{source.name}.parquet"
            names = counts[source.name].pop("runs")
            mergers[source.name] = stack.enter_context(merging(source, [runs / name for name in names], table))
        for shard in shards:
            alleles = pq.read_table(shard.path(run.folder))
            place = alleles.num_columns - 1
            for merger in mergers.values():
                for name, column in merger.columns(alleles, shard.locus_start, shard.locus_end).items():
                    alleles = alleles.add_column(place, name, column)
                    place += 1
            yield alleles
    for name, merger in mergers.items():
        found = {"found": merger.reader.num_found, "repeated": merger.reader.num_repeated}
        write_json(run.folder.annotations / f"{name}.json", counts[name] | found)


def _regrouped(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Cuts a stream of tables anew into tables of `ROW_GROUP_ALLELES` rows."""
    held = schema.empty_table()
    for table in tables:
        held = pa.concat_tables([held, table.cast(schema)])
        while held.num_rows >= ROW_GROUP_ALLELES:
            yield held.slice(0, ROW_GROUP_ALLELES).combine_chunks()
            held = held.slice(ROW_GROUP_ALLELES)
    if held.num_rows:
        yield held.combine_chunks()
