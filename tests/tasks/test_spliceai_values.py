"""Values of the published command line, where its model was added and the real reference is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from serving.server import ModelServer
from tasks.genome.reference import prepare_reference
from tasks.pipelines import Resources, make_pipeline
from tasks.splicing.transcripts import load_transcripts, prepare_transcripts
from tasks.variants.alleles import ALLELE_SCHEMA

MODELS = Path(os.environ.get("COHORTFLOW_HOME") or "~/.cohortflow").expanduser() / "models" / "spliceai"
FASTA = Path(os.environ.get("COHORTFLOW_SHARED_DATA", "nowhere")) / "na12878" / "ucsc.hg19.chr20.unittest.fasta.gz"
VALUES = Path(__file__).with_name("spliceai_values.tsv")


@pytest.mark.skipif(not MODELS.is_dir(), reason="needs `cohortflow models add spliceai`")
@pytest.mark.skipif(not FASTA.is_file(), reason="needs COHORTFLOW_SHARED_DATA with the NA12878 slice")
@pytest.mark.parametrize("strict", [False, True])
def test_strings_are_the_published_ones(tmp_path: Path, strict: bool) -> None:
    lines = [line.split("\t") for line in VALUES.read_text().splitlines() if not line.startswith("#")]
    expected = [line[1:] for line in lines if line[0] == str(int(strict))]
    reference = prepare_reference(FASTA, tmp_path / "reference")
    prepare_transcripts(MODELS / "spliceai" / "grch37.txt", reference, tmp_path / "transcripts")
    pipeline = make_pipeline("spliceai", {"strict_compat": strict})
    zeros = np.zeros(len(expected), np.uint64)
    start = np.array([int(line[0]) - 1 for line in expected])
    columns = [zeros, zeros, zeros.astype(np.int32), start, [line[1] for line in expected]]
    alleles = pa.table([*columns, [line[2] for line in expected]], schema=ALLELE_SCHEMA)
    rows = pipeline.expand(alleles, reference, {}, Resources(transcripts=load_transcripts(tmp_path / "transcripts")))
    with ModelServer(MODELS, threads=2, models=["spliceai"]) as server:
        texts = pipeline.collapse(len(expected), rows, server.infer("spliceai", rows.inputs))["SpliceAI"]
    assert texts.tolist() == [line[3] for line in expected]
