"""Annotation files joined to alleles: values cut out right, alleles found however they are written, faults told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.annotations import runs as annotation_runs
from tasks.annotations.joining import join_file
from tasks.annotations.request import AnnotationError, parse_requests
from tasks.annotations.shard_keys import ShardKeys
from tasks.annotations.source import AnnotationSource, check_free, check_inputs_free, open_source
from tasks.annotations.table import AnnotationTable, merging
from tasks.errors import ReferenceError, VariantFileError
from tasks.files import make_folder
from tasks.genome.reference import Reference
from tasks.variants.alleles import make_key
from tasks.variants.annotating import annotate_variants
from tasks.variants.header import REASON_ID, parse_header
from tasks.variants.scanning import scan_variants
from tasks.variants.score_table import ScoreTable
from tasks.variants.table import write_variant_table
from tasks.variants.text import VariantText
from tests.tasks.variant_files import SCORE, make_genome, make_scores, output_lines, vcf_text, write_bgzip

CLINVAR = (
    "##fileformat=VCFv4.1",
    '##INFO=<ID=CLNSIG,Number=.,Type=String,Description="Aggregate \\"germline\\" classification">',
    '##INFO=<ID=CLNREVSTAT,Number=.,Type=String,Description="review status">',
    '##INFO=<ID=ALLELEID,Number=1,Type=Integer,Description="the ClinVar Allele ID">',
    '##INFO=<ID=AF,Number=A,Type=Float,Description="frequency">',
    '##INFO=<ID=AD,Number=R,Type=Integer,Description="depths">',
    '##INFO=<ID=CLNHGVS,Number=A,Type=String,Description="HGVS">',
    '##INFO=<ID=DBSNP,Number=0,Type=Flag,Description="in dbSNP">',
)
ALL = ("CLNSIG", "CLNREVSTAT", "ALLELEID", "AF", "AD", "CLNHGVS", "DBSNP")


@pytest.fixture(scope="module")
def genome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reference, dict[str, str]]:
    return make_genome(tmp_path_factory.mktemp("genome"))


@dataclass
class Joined:
    """What came of a join: counts, typed columns by allele, the sample's output."""

    counts: dict[str, Any]
    columns: dict[str, dict[tuple[int, int], Any]]
    header: list[str]
    infos: list[dict[str, str]]
    table: pa.Table
    summary: dict[str, Any]


def join(
    folder: Path, reference: Reference, cohort: Sequence[str], annotation: Path, fields: Sequence[str] = ALL
) -> Joined:
    vcf = folder / "cohort.vcf"
    vcf.write_text(vcf_text(cohort))
    scan = scan_variants(vcf, reference, folder / "work")
    alleles_path = make_scores(folder / "alleles.parquet", [folder / "work" / r for r in scan["runs"]], reference)
    (request,) = parse_requests([f"cv={annotation}:{','.join(fields)}"])
    source = AnnotationSource("cv", annotation, "d" * 64, open_source(request, reference, folder / "scratch"))
    runs = make_folder(folder / "runs")
    # Two shards, cut between the contigs.
    alleles = pq.read_table(alleles_path)
    cut = 1 << 40
    is_first = np.array(alleles["locus"].to_numpy() < cut)
    shards = []
    for number, mask in enumerate((is_first, ~is_first)):
        shards.append(folder / f"shard-{number}.parquet")
        pq.write_table(alleles.filter(pa.array(mask)), shards[-1])
    counts = join_file(source, reference, ShardKeys([0, cut], shards), runs)
    joined = folder / "cv.parquet"
    columns: dict[str, dict[tuple[int, int], Any]] = {}
    with merging(source, [runs / name for name in counts["runs"]], joined) as merger:
        for shard, start, end in ((shards[0], 0, cut), (shards[1], cut, 1 << 63)):
            table = pq.read_table(shard)
            keys = list(zip(table["locus"].to_pylist(), table["code"].to_pylist(), strict=True))
            for name, column in merger.columns(table, start, end).items():
                columns.setdefault(name, {}).update(zip(keys, column.to_pylist(), strict=True))
        counts |= {"found": merger.reader.num_found, "repeated": merger.reader.num_repeated}
    with ScoreTable(alleles_path, [SCORE]) as scores, AnnotationTable(joined, source) as annotations:
        summary = annotate_variants(
            vcf, reference, scores, [SCORE], folder / "out", "S", header_lines=[], annotations=[annotations]
        )
    table = folder / "out" / "S.parquet"
    write_variant_table(
        folder / "out" / "S.vcf.gz", table, [SCORE.name, REASON_ID, *(o.name for o in source.outputs)], {}
    )
    header, lines = output_lines(folder)
    infos = [dict(entry.partition("=")[::2] for entry in line.split("\t")[7].split(";")) for line in lines]
    return Joined(counts, columns, header, infos, pq.read_table(table), summary)


def other(base: str, step: int = 1) -> str:
    return "ACGT"[("ACGT".index(base) + step) % 4]


def test_every_kind_of_number_is_picked_for_its_allele(
    genome: tuple[Reference, dict[str, str]], tmp_path: Path
) -> None:
    reference, sequences = genome
    ref = sequences["chr1"][9]
    a, b, c = (other(ref, step) for step in (1, 2, 3))
    info = (
        "CLNSIG=Pathogenic;CLNREVSTAT=criteria_provided,_conflicting%3B;ALLELEID=0042;"
        "AF=0.10,1e-05,.;AD=9,8,7,6;CLNHGVS=x%2Cy,z=1,;DBSNP"
    )
    annotation = tmp_path / "clinvar.vcf"
    annotation.write_text(vcf_text([f"1 10 . {ref.lower()} {a},{b.lower()},{c} . . {info}"], header=CLINVAR))
    # The cohort's record lists the alleles in another order, and one that the file does not have.
    cohort = [f"chr1 10 . {ref} {c},{b} . . X=1", f"chr1 10 . {ref} {a} . . .", f"chr1 10 . {ref} {ref}T . . ."]
    found = join(tmp_path, reference, cohort, annotation)
    first, second, third = found.infos
    assert first["X"] == "1"
    assert first["cv_CLNSIG"] == "Pathogenic,Pathogenic"
    assert first["cv_CLNREVSTAT"] == ",".join(["criteria_provided%2C_conflicting%3B"] * 2)
    assert first["cv_ALLELEID"] == "0042,0042"
    assert first["cv_AF"] == ".,1e-05"
    assert first["cv_AD"] == "6,7"
    assert first["cv_CLNHGVS"] == ".,z=1"
    assert first["cv_DBSNP"] == "1,1"
    assert second["cv_AF"] == "0.10"
    assert second["cv_CLNHGVS"] == "x%2Cy"
    assert not [key for key in third if key.startswith("cv_")]
    assert found.counts["found"] == 3
    assert found.summary["annotated"] == {"cv": 3}
    key = make_key(0, 9, ref, b, reference)
    assert {name: values[key] for name, values in found.columns.items()} == {
        "cv_CLNSIG": "Pathogenic",
        "cv_CLNREVSTAT": "criteria_provided,_conflicting%3B",
        "cv_ALLELEID": 42,
        "cv_AF": 1e-05,
        "cv_AD": 7,
        "cv_CLNHGVS": "z=1",
        "cv_DBSNP": 1,
    }
    assert found.table["cv_AF"].to_pylist() == [None, 1e-05, 0.1, None]
    assert found.table["cv_CLNREVSTAT"].to_pylist()[:3] == ["criteria_provided,_conflicting%3B"] * 3
    declared = next(line for line in found.header if "ID=cv_CLNSIG," in line)
    assert declared == (
        '##INFO=<ID=cv_CLNSIG,Number=A,Type=String,Description="Aggregate \\"germline\\" classification",'
        f'Source="cohortflow",Version="sha256:{"d" * 64}">'
    )
    assert str(tmp_path) not in "\n".join(found.header)
    with pysam.VariantFile(str(tmp_path / "out/S.vcf.gz")) as variants:
        records = list(variants)
    assert records[0].info["cv_AD"] == (6, 7)
    assert records[1].info["cv_AF"] == pytest.approx((0.1,))


def test_alleles_are_found_however_they_are_written(genome: tuple[Reference, dict[str, str]], tmp_path: Path) -> None:
    reference, sequences = genome
    run = sequences["chr1"][99:121]
    assert run == "C" + "A" * 20 + "G"
    annotation = tmp_path / "a.vcf"
    # One A too many at the run's end, the whole run spelled, and a change with bases around it; another contig name.
    base = sequences["chr1"][500]
    annotation.write_text(
        vcf_text(
            [
                "1 120 . AG AAG . . CLNSIG=insertion",
                f"1 100 . {run} {run[:-2]}G . . CLNSIG=deletion",
                f"1 500 . {sequences['chr1'][499:503]} "
                f"{sequences['chr1'][499]}{other(base)}{sequences['chr1'][501:503]} . . CLNSIG=change",
            ],
            header=CLINVAR,
        )
    )
    cohort = [
        "chr1 100 . C CA . . .",
        "chr1 110 . AA A . . .",
        f"chr1 501 . {base.lower()} {other(base).lower()} . . .",
    ]
    found = join(tmp_path, reference, cohort, annotation, ["CLNSIG"])
    assert [info.get("cv_CLNSIG") for info in found.infos] == ["insertion", "deletion", "change"]


def test_the_first_record_of_an_allele_counts(genome: tuple[Reference, dict[str, str]], tmp_path: Path) -> None:
    reference, sequences = genome
    ref = sequences["chr1"][9]
    annotation = tmp_path / "a.vcf"
    record = f"chr1 10 . {ref} {other(ref)} . . CLNSIG="
    annotation.write_text(vcf_text([f"{record}first;CLNSIG=again", f"{record}second"], header=CLINVAR))
    found = join(tmp_path, reference, [f"chr1 10 . {ref} {other(ref)} . . ."], annotation, ["CLNSIG"])
    assert found.infos[0]["cv_CLNSIG"] == "first"
    assert found.counts["repeated"] == 1


def test_values_that_are_not_of_their_kind_are_left_out_and_counted(
    genome: tuple[Reference, dict[str, str]], tmp_path: Path
) -> None:
    reference, sequences = genome
    ref = sequences["chr1"][9]
    annotation = tmp_path / "a.vcf"
    annotation.write_bytes(
        vcf_text(
            [f"chr1 10 . {ref} {other(ref)} . . AF=0.1,0.2;ALLELEID=1,2;AD=7,few;CLNSIG=caf\u00e9;CLNHGVS"],
            header=CLINVAR,
        ).encode("latin-1")
    )
    found = join(tmp_path, reference, [f"chr1 10 . {ref} {other(ref)} . . ."], annotation)
    assert found.counts["malformed"] == {"cv_AF": 1, "cv_ALLELEID": 1, "cv_AD": 1}
    assert found.infos[0]["cv_DBSNP"] == "0"
    assert found.infos[0]["cv_CLNSIG"].encode(errors="surrogateescape") == "caf\u00e9".encode("latin-1")
    assert next(iter(found.columns["cv_CLNSIG"].values())) == "caf?"
    assert not {"cv_AF", "cv_ALLELEID", "cv_AD", "cv_CLNHGVS"} & found.infos[0].keys()


@pytest.mark.parametrize("form", ["plain", "bgzip", "bcf"])
def test_text_and_bcf_give_the_same(genome: tuple[Reference, dict[str, str]], tmp_path: Path, form: str) -> None:
    reference, sequences = genome
    ref = sequences["2:x"][49]
    header = (*CLINVAR, "##contig=<ID=2:x,length=2000>")
    text = vcf_text([f"2:x 50 . {ref} {other(ref)},{other(ref, 2)} . . AF=0.5,0.25;DBSNP"], header=header)
    path = tmp_path / "a.vcf"
    path.write_text(text)
    if form == "bgzip":
        path = write_bgzip(tmp_path / "a.vcf.gz", text.encode())
    if form == "bcf":
        with pysam.VariantFile(str(path)) as variants:
            path = tmp_path / "a.bcf"
            with pysam.VariantFile(str(path), "wb", header=variants.header) as written:
                for record in variants:
                    written.write(record)
    cohort = [f"2:x 50 . {ref} {other(ref, 2)} . . ."]
    found = join(tmp_path, reference, cohort, path, ["AF", "DBSNP"])
    assert {key: found.infos[0][key] for key in ("cv_AF", "cv_DBSNP")} == {"cv_AF": "0.25", "cv_DBSNP": "1"}


POSITIONS = st.integers(1, 60)


@settings(max_examples=25, deadline=None)
@given(
    cohort=st.lists(st.tuples(POSITIONS, st.integers(1, 3)), min_size=1, max_size=30),
    annotated=st.lists(st.tuples(POSITIONS, st.integers(1, 3), st.integers(0, 9999)), min_size=1, max_size=40),
)
def test_a_join_is_a_dictionary(
    genome: tuple[Reference, dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
    cohort: list[tuple[int, int]],
    annotated: list[tuple[int, int, int]],
) -> None:
    reference, sequences = genome
    folder = tmp_path_factory.mktemp("law")
    letters = sequences["chr1"]
    records, known = [], {}
    for position, step, value in annotated:
        ref = letters[position - 1]
        records.append(f"chr1 {position} . {ref} {other(ref, step)} . . ALLELEID={value}")
        known.setdefault((position, step), str(value))
    annotation = folder / "a.vcf"
    annotation.write_text(vcf_text(records, header=CLINVAR))
    with pytest.MonkeyPatch.context() as patch:
        # Every block's rows become a run.
        patch.setattr(annotation_runs, "RUN_BYTES", 1)
        found = join(
            folder,
            reference,
            [f"chr1 {p} . {letters[p - 1]} {other(letters[p - 1], step)} . . ." for p, step in cohort],
            annotation,
            ["ALLELEID"],
        )
    assert [info.get("cv_ALLELEID") for info in found.infos] == [known.get(allele) for allele in cohort]
    assert found.counts["found"] == len(known.keys() & set(cohort))


def test_runs_are_merged_in_the_order_of_the_file(
    genome: tuple[Reference, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, sequences = genome
    monkeypatch.setattr(annotation_runs, "RUN_BYTES", 1)
    monkeypatch.setattr("tasks.variants.text.BLOCK_BYTES", 2000)
    monkeypatch.setattr("tasks.variants.text._READ_BYTES", 500)
    letters = sequences["chr1"]
    records = [
        f"chr1 {p} . {letters[p - 1]} {other(letters[p - 1])} . . ALLELEID={turn * 1000 + p}"
        for turn in (1, 2)
        for p in range(1, 90)
    ]
    annotation = tmp_path / "a.vcf"
    annotation.write_text(vcf_text(records, header=CLINVAR))
    cohort = [f"chr1 {p} . {letters[p - 1]} {other(letters[p - 1])} . . ." for p in range(1, 90, 2)]
    found = join(tmp_path, reference, cohort, annotation, ["ALLELEID"])
    assert len(found.counts["runs"]) > 2
    assert [info["cv_ALLELEID"] for info in found.infos] == [str(1000 + p) for p in range(1, 90, 2)]
    assert found.counts["repeated"] == 45


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clinvar", "must be NAME=FILE"),
        ("clinvar=x.vcf", "must be NAME=FILE"),
        ("1kg=FILE:AF", "'1kg' cannot begin an INFO ID"),
        ("a b=FILE:AF", "'a b' cannot begin an INFO ID"),
        ("CF=FILE:REASON", "names that begin with CF"),
        ("INFO_x=FILE:AF", "names that begin with CF, INFO"),
        ("g=FILE:AF,", "'' is no INFO ID"),
        ("g=/nowhere/file.vcf.gz:AF", "no such file"),
    ],
)
def test_a_wrong_request_is_told(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "file.vcf"
    file.touch()
    with pytest.raises(AnnotationError, match=said):
        parse_requests([text.replace("FILE", str(file))])


def test_names_that_collide_are_told(tmp_path: Path) -> None:
    file = tmp_path / "a:b=c.vcf"
    file.touch()
    (request,) = parse_requests([f"g={file}:AF, AC,AF"])
    assert (request.path, request.fields) == (file, ("AF", "AC"))
    with pytest.raises(AnnotationError, match="the name 'g' is given twice"):
        parse_requests([f"g={file}:AF", f"g={file}:AC"])
    with pytest.raises(AnnotationError, match="a_b_c is written by annotation a_b already"):
        parse_requests([f"a_b={file}:c", f"a={file}:b_c"])
    with pytest.raises(AnnotationError, match="my_SCORE is written by the pipeline already"):
        parse_requests([f"my={file}:SCORE"], ["my_SCORE"])


def test_a_field_that_is_not_declared_is_told_with_those_that_are(
    genome: tuple[Reference, dict[str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "a.vcf"
    path.write_text(vcf_text([], header=CLINVAR))
    (request,) = parse_requests([f"cv={path}:CLNSIG,NOPE"])
    with pytest.raises(AnnotationError, match=r"declares no INFO NOPE; it declares AD, AF, ALLELEID") as raised:
        open_source(request, genome[0], tmp_path)
    assert raised.value.reason == "NO_SUCH_FIELD"


def test_a_file_of_another_genome_is_refused_before_work_starts(
    genome: tuple[Reference, dict[str, str]], tmp_path: Path
) -> None:
    reference, sequences = genome
    wrong = [f"chr1 {p} . {other(sequences['chr1'][p - 1])} {sequences['chr1'][p - 1]} . . ." for p in range(1, 20)]
    cases = {
        "REF differs": vcf_text(wrong, header=CLINVAR),
        "none of its contigs": vcf_text([], header=[*CLINVAR, "##contig=<ID=chr7,length=159138663>"]),
    }
    for said, text in cases.items():
        path = tmp_path / "a.vcf"
        path.write_text(text)
        (request,) = parse_requests([f"cv={path}:AF"])
        with pytest.raises(ReferenceError, match=said):
            open_source(request, reference, tmp_path)


def test_a_damaged_or_empty_file_is_refused(genome: tuple[Reference, dict[str, str]], tmp_path: Path) -> None:
    reference, _ = genome
    path = tmp_path / "a.vcf"
    path.write_text(vcf_text([], header=CLINVAR))
    (request,) = parse_requests([f"cv={path}:AF"])
    fields = open_source(request, reference, tmp_path)
    keys = ShardKeys([], [])
    with pytest.raises(VariantFileError, match="no record"):
        join_file(AnnotationSource("cv", path, "", fields), reference, keys, tmp_path)
    whole = write_bgzip(tmp_path / "b.vcf.gz", vcf_text(["chr1 1 . A C . . ."], header=CLINVAR).encode())
    whole.write_bytes(whole.read_bytes()[:-28])
    with pytest.raises(VariantFileError, match="truncated"):
        open_source(replace(request, path=whole), reference, tmp_path)


def test_fields_of_an_input_are_not_overwritten(genome: tuple[Reference, dict[str, str]], tmp_path: Path) -> None:
    source = tmp_path / "a.vcf"
    source.write_text(vcf_text([], header=CLINVAR))
    (request,) = parse_requests([f"cv={source}:AF"])
    outputs = [field.output for field in open_source(request, genome[0], tmp_path)]
    line = '##INFO=<ID=cv_AF,Number=A,Type=Float,Description="x"{}>'
    ours, others = tmp_path / "ours.vcf", tmp_path / "others.vcf"
    ours.write_text(vcf_text([], header=[line.format(',Source="cohortflow"')]))
    others.write_text(vcf_text([], header=[line.format("")]))
    rubbish = tmp_path / "rubbish.vcf"
    rubbish.write_text("rubbish")
    check_inputs_free([ours, rubbish, tmp_path / "absent.vcf"], outputs)
    with pytest.raises(AnnotationError, match="has INFO cv_AF already"):
        check_inputs_free([ours, others], outputs)
    with pytest.raises(AnnotationError, match="has INFO cv_AF already"):
        check_free("S", parse_header(VariantText(others).header), outputs)


def test_a_source_survives_the_plan(genome: tuple[Reference, dict[str, str]], tmp_path: Path) -> None:
    path = tmp_path / "a.vcf"
    path.write_text(vcf_text([], header=CLINVAR))
    (request,) = parse_requests([f"cv={path}:{','.join(ALL)}"])
    source = AnnotationSource("cv", path, "d" * 64, open_source(request, genome[0], tmp_path))
    assert AnnotationSource.from_json(source.to_json(), path) == source
    assert str(tmp_path) not in str(source.to_json())
