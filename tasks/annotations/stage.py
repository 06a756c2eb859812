"""The unit of work that joins one annotation file to the cohort's alleles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.annotations.joining import join_file
from tasks.annotations.shard_keys import ShardKeys
from tasks.files import make_folder, read_json, write_json
from tasks.run import load_run
from tasks.scoring import ScoreShard, annotation_runs


def join_annotation(root: str, name: str, shards: Sequence[ScoreShard]) -> dict[str, Any]:
    """Reads one annotation file for the alleles of all shards; see `tasks.annotations.joining.join_file`.

    Args:
        root: The output folder.
        name: The annotation.
        shards: The scored shards, which hold the cohort's alleles.
    """
    run = load_run(root)
    source = next(source for source in run.annotations if source.name == name)
    folder: Path = make_folder(annotation_runs(run.folder, shards))
    marker = folder / f"{name}.json"
    if not marker.exists():
        keys = ShardKeys([shard.locus_start for shard in shards], [shard.path(run.folder) for shard in shards])
        write_json(marker, join_file(source, run.reference, keys, folder))
    summary: dict[str, Any] = read_json(marker)
    return summary
