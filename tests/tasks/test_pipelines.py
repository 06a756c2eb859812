"""Pipelines: rows or a reason for every allele, values at their declared precision."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tasks.genome.reference import Reference, prepare_reference
from tasks.pipelines import DEFAULT_PIPELINE, PipelineError, make_pipeline, pipeline_types
from tasks.variants.alleles import ALLELE_SCHEMA

SHAPES = {"reference_window": (128,), "alternate_window": (128,), "state": (7,)}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("reference")
    contigs = {"one": "ACGT" * 100 + "N" * 400, "short": "ACGT" * 15, "gap": "N" * 40 + "ACGT" * 5}
    (folder / "r.fa").write_text("".join(f">{name}\n{bases}\n" for name, bases in contigs.items()))
    return prepare_reference(folder / "r.fa", folder / "prepared")


def alleles(*each: tuple[int, str, str]) -> pa.Table:
    columns = [[0] * len(each), list(range(len(each))), [0] * len(each), *map(list, zip(*each, strict=True))]
    return pa.table(dict(zip(ALLELE_SCHEMA.names, columns, strict=True)), schema=ALLELE_SCHEMA)


def test_each_allele_has_a_row_or_a_reason(reference: Reference) -> None:
    table = alleles((100, "A", "G"), (200, "A", "A" * 60), (600, "N", "T"), (100, "A" * 49, "A"))
    rows = make_pipeline(DEFAULT_PIPELINE).expand(table, reference, SHAPES)
    assert rows.reason.tolist() == [None, "TOO_LONG", "NO_REFERENCE_SEQUENCE", "TOO_LONG"]
    assert rows.allele.tolist() == [0]
    assert rows.inputs["state"].shape == (1, 7)
    changed = rows.inputs["reference_window"] != rows.inputs["alternate_window"]
    assert np.argwhere(changed).tolist() == [[0, 64]]


def test_a_short_contig_is_no_gap_in_the_reference(reference: Reference) -> None:
    table = alleles((0, "A", "G"), (30, "G", "T"), (59, "T", "C"))
    short = table.set_column(2, "contig", pa.array([1] * 3, pa.int32()))
    rows = make_pipeline(DEFAULT_PIPELINE).expand(short, reference, SHAPES)
    assert rows.reason.tolist() == [None] * 3
    assert (rows.inputs["reference_window"] != 4).sum(axis=1).tolist() == [60] * 3
    gap = alleles((50, "G", "C"), (40, "A", "G")).set_column(2, "contig", pa.array([2] * 2, pa.int32()))
    assert (
        make_pipeline(DEFAULT_PIPELINE).expand(gap, reference, SHAPES).reason.tolist() == ["NO_REFERENCE_SEQUENCE"] * 2
    )


def test_values_are_rounded_and_never_minus_zero(reference: Reference) -> None:
    pipeline = make_pipeline(DEFAULT_PIPELINE)
    rows = pipeline.expand(alleles((100, "A", "G"), (200, "A", "A" * 60), (101, "C", "G")), reference, SHAPES)
    values = pipeline.collapse(3, rows, {"effect": np.array([[0.123449], [-0.00001]], dtype=np.float32)})
    found = values["CF_DEMO_EFFECT"]
    assert found[0] == 0.1234
    assert np.isnan(found[1])
    assert found[2] == 0.0
    assert not np.signbit(found[2])


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(PipelineError, match="there is: demo-effect"):
        make_pipeline("nope")
    with pytest.raises(PipelineError, match=r"depth.*options: none"):
        make_pipeline(DEFAULT_PIPELINE, {"depth": 3})


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Installs a module ``lab`` whose ``Own`` is named by an entry point, as pip would."""

    def write(text: str) -> None:
        folder = tmp_path / "lab-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1\n")
        (folder / "entry_points.txt").write_text("[cohortflow.pipelines]\nown = lab:Own\n")
        (tmp_path / "lab.py").write_text(f"from tasks.effect_pipelines import DemoEffect\n\n{text}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "lab", raising=False)
        pipeline_types.cache_clear()

    yield write
    pipeline_types.cache_clear()


def test_a_labs_pipeline_is_found_by_its_entry_point(install: Callable[[str], None]) -> None:
    install("class Own(DemoEffect):\n    name = 'own'")
    assert list(pipeline_types()) == ["demo-effect", "pathogenicity", "spliceai", "own"]
    assert make_pipeline("own").title == make_pipeline(DEFAULT_PIPELINE).title


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Own(DemoEffect):\n    name, unit = 'own', 'read'", "pipeline 'own' .*unit 'read'.*has allele only"),
        ("class Own(DemoEffect):\n    name, key = 'own', 'window'", "pipeline 'own' .*key 'window'.*has allele only"),
        (
            "class Own(DemoEffect):\n    name, resources = 'own', ('phases',)",
            "resource 'phases'.*genes, transcripts only",
        ),
        (
            "class Own(DemoEffect):\n    name, labels = 'own', 'guessed'",
            "labels 'guessed'.*simulated, clinical only",
        ),
        ("Own = 3", "entry point 'own' .* is not a Pipeline subclass"),
    ],
)
def test_what_no_run_can_compute_is_refused_when_loaded(install: Callable[[str], None], text: str, said: str) -> None:
    install(text)
    with pytest.raises(PipelineError, match=said):
        pipeline_types()


def test_the_demonstration_says_what_it_is() -> None:
    kind = pipeline_types()[DEFAULT_PIPELINE]
    assert "no clinical meaning" in kind.fields[0].header_line
    assert "no clinical meaning" in (kind.caution or "")
