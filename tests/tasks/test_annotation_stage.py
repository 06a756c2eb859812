"""The unit of work that joins an annotation; its columns in the cohort table do not depend on the shards."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tasks.annotations.request import parse_requests
from tasks.annotations.source import AnnotationSource, open_source
from tasks.annotations.stage import join_annotation
from tasks.files import read_json, whole_file
from tasks.folder import RunFolder
from tasks.genome.reference import prepare_reference
from tasks.pipelines import make_pipeline
from tasks.plan import Plan
from tasks.run import load_run, write_run
from tasks.scoring import ScoreShard, _as_table, finish_scores, score_schema
from tasks.variants.allele_runs import distinct_alleles
from tasks.variants.scanning import scan_variants
from tests.tasks.test_annotations import CLINVAR, other
from tests.tasks.variant_files import make_genome, vcf_text


@pytest.mark.parametrize("cuts", [[], [20, 21, 40, 41], [1 << 40]])
def test_columns_and_counts_do_not_depend_on_the_cuts(tmp_path: Path, cuts: list[int]) -> None:
    reference, sequences = make_genome(tmp_path)
    folder = RunFolder(tmp_path / "out")
    prepare_reference(tmp_path / "genome.fa", folder.reference)
    letters = sequences["chr1"]
    annotation = tmp_path / "a.vcf"
    records = [
        f"1 {p} . {letters[p - 1]} {other(letters[p - 1])} . . ALLELEID={p};CLNREVSTAT=a,_b" for p in range(1, 61, 3)
    ]
    annotation.write_text(vcf_text([*records, records[0]], header=CLINVAR))
    (request,) = parse_requests([f"cv={annotation}:ALLELEID,CLNREVSTAT"])
    source = AnnotationSource("cv", annotation, "d" * 64, open_source(request, reference, tmp_path))
    pipeline = make_pipeline("demo-effect")
    recipe = {
        "version": "1",
        "pipeline": {"name": pipeline.name, "options": {}},
        "models": {},
        "reference": {"digest": reference.digest, "build": None},
        "annotations": [source.to_json()],
    }
    write_run(folder, Plan(recipe, {}), {"annotations": {"cv": str(annotation)}, "samples": {}, "regions": None})
    assert load_run(str(folder.root)).annotations == (source,)
    cohort = tmp_path / "cohort.vcf"
    cohort.write_text(vcf_text([f"chr1 {p} . {letters[p - 1]} {other(letters[p - 1])} . . ." for p in range(1, 61, 2)]))
    scan = scan_variants(cohort, reference, tmp_path / "scan")
    runs = [tmp_path / "scan" / name for name in scan["runs"]]
    edges = [0, *cuts, 1 << 63]
    shards = [ScoreShard("cut", start, end) for start, end in pairwise(edges)]
    for shard in shards:
        alleles = distinct_alleles(runs, shard.locus_start, shard.locus_end)
        with whole_file(shard.path(folder)) as aside:
            pq.write_table(_as_table(alleles, {}, score_schema(pipeline.fields), reference), aside)
    counts = join_annotation(str(folder.root), "cv", shards)
    assert counts["records_in"] == 21
    assert finish_scores(str(folder.root), shards) == {"alleles": 30}
    table = pq.read_table(folder.alleles)
    assert table.schema.names[-3:] == ["cv_ALLELEID", "cv_CLNREVSTAT", "reason"]
    expected = [p if p % 3 == 1 else None for p in range(1, 61, 2)]
    assert table["cv_ALLELEID"].to_pylist() == expected
    assert table["cv_CLNREVSTAT"].to_pylist() == [None if p is None else "a,_b" for p in expected]
    summary = read_json(folder.annotations / "cv.json")
    assert (summary["found"], summary["repeated"], summary["malformed"]) == (10, 1, {})
    assert pq.read_table(folder.annotations / "cv.parquet")["cv_CLNREVSTAT"].to_pylist() == [b"a%2C_b"] * 10
