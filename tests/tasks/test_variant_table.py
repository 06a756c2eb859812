"""The Parquet table of an annotated VCF, beside what cyvcf2 reads and a split of the text in plain Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cyvcf2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.genome.reference import prepare_reference
from tasks.variants import columns as variant_columns
from tasks.variants import table as variant_table
from tasks.variants import text as vcf_text
from tasks.variants.table import write_variant_table
from tests.tasks.variant_files import COLUMNS, annotate, write_bgzip

HEADER = [
    "##fileformat=VCFv4.2",
    '##INFO=<ID=DP,Number=1,Type=Integer,Description="x">',
    '##INFO=<ID=MQ,Number=1,Type=Float,Description="x">',
    '##INFO=<ID=DB,Number=0,Type=Flag,Description="x">',
    '##INFO=<ID=AC,Number=A,Type=Integer,Description="x">',
    '##INFO=<ID=AF,Number=A,Type=Float,Description="x">',
    '##INFO=<ID=AD,Number=R,Type=Integer,Description="x">',
    '##INFO=<ID=GENE,Number=1,Type=String,Description="x">',
    '##INFO=<ID=CF_X,Number=A,Type=Float,Description="x">',
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="x">',
    '##FORMAT=<ID=DP,Number=1,Type=Integer,Description="x">',
    '##FORMAT=<ID=AD,Number=R,Type=Integer,Description="x">',
    '##FORMAT=<ID=PL,Number=G,Type=Integer,Description="x">',
    '##FORMAT=<ID=AF,Number=A,Type=Float,Description="x">',
    '##FORMAT=<ID=GP,Number=.,Type=Float,Description="x">',
    '##FORMAT=<ID=FT,Number=1,Type=String,Description="x">',
    '##FORMAT=<ID=HQ,Number=2,Type=String,Description="x">',
]


def table_of(folder: Path, records: list[str], samples: str = "") -> pa.Table:
    columns = COLUMNS + (f"\tFORMAT\t{samples}" if samples else "")
    lines = [*HEADER, columns, *(record.replace(" ", "\t") for record in records)]
    vcf = write_bgzip(folder / "x.vcf.gz", "".join(f"{line}\n" for line in lines).encode())
    summary = write_variant_table(vcf, folder / "x.parquet", ["CF_X"], {"Build": "GRCh38"})
    table = pq.read_table(folder / "x.parquet")
    assert summary == {"table_rows": table.num_rows}
    assert json.loads(table.schema.metadata[b"cohortflow"]) == {"Build": "GRCh38"}
    return table


def column(table: pa.Table, name: str) -> list[Any]:
    values: list[Any] = table[name].to_pylist()
    return values


@pytest.fixture(params=[1 << 20, 10], ids=["one block", "a block per line"])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(vcf_text, "BLOCK_BYTES", request.param)
    monkeypatch.setattr(vcf_text, "_READ_BYTES", request.param)
    monkeypatch.setattr(variant_table, "_GROUP_ROWS", 2)
    return int(request.param)


@pytest.mark.usefixtures("block_bytes")
def test_one_row_for_each_allele_with_declared_types(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [
            "chr1 5 rs1 A C,G 50.5 PASS DP=7;DB;AC=1,2;AF=0.5,.;AD=3,4,5;GENE=x;CF_X=0.25,.",
            "chr1 6 . A . . . MQ=60.1;AC=.",
            "chr1 7 . A <DEL> 1e2 q10 DP=.;AC=3;AF=1e-5;CF_X=.",
        ],
    )
    expected = "contig pos id ref alt qual filter CF_X INFO_DP INFO_MQ INFO_DB INFO_AC INFO_AF INFO_AD INFO_GENE"
    assert " ".join(table.schema.names) == expected
    assert column(table, "pos") == [5, 5, 6, 7]
    assert column(table, "id") == ["rs1", "rs1", None, None]
    assert column(table, "alt") == ["C", "G", None, "<DEL>"]
    assert column(table, "qual") == [50.5, 50.5, None, 100.0]
    assert column(table, "filter") == ["PASS", "PASS", None, "q10"]
    assert column(table, "CF_X") == [0.25, None, None, None]
    assert column(table, "INFO_DP") == [7, 7, None, None]
    assert column(table, "INFO_MQ") == [None, None, 60.1, None]
    assert column(table, "INFO_DB") == [True, True, False, False]
    assert column(table, "INFO_AC") == [1, 2, None, 3]
    assert column(table, "INFO_AF") == [0.5, None, None, 1e-5]
    assert column(table, "INFO_AD") == ["3,4,5", "3,4,5", None, None]
    assert column(table, "INFO_GENE") == ["x", "x", None, None]
    assert table.schema.field("INFO_DP").type == pa.int64()
    assert table.schema.field("CF_X").type == pa.float64()


@pytest.mark.usefixtures("block_bytes")
def test_values_of_another_type_than_declared_make_the_column_text(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [
            "chr1 5 . A C,G . . DP=7;MQ=60;AC=1,2;AF=0.5,0.25;DB",
            "chr1 6 . A C,G high . DP=7.5;MQ=bad;AC=1,x;AF=0.5;DB=yes",
            "chr1 7 . A C 1 . AC=5",
        ],
    )
    assert column(table, "qual") == [None, None, "high", "high", "1"]
    assert column(table, "INFO_DP") == ["7", "7", "7.5", "7.5", None]
    assert column(table, "INFO_MQ") == ["60", "60", "bad", "bad", None]
    assert column(table, "INFO_AC") == ["1", "2", "1", "x", "5"]
    assert column(table, "INFO_AF") == ["0.5,0.25", "0.5,0.25", "0.5", "0.5", None]
    assert column(table, "INFO_DB") == ["", "", "yes", "yes", None]


@pytest.mark.usefixtures("block_bytes")
def test_undeclared_keys_have_columns_too(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [
            "chr1 5 . A C . . DP=1;;DP=2 GT 0/1",
            "chr1 6 . A C . . contig=9;NEW;=x;É=ü GT:ZZ 0/1:4",
            "chr1 7 . A C . . . . .",
        ],
        samples="S",
    )
    assert column(table, "INFO_DP") == [1, None, None]
    assert column(table, "INFO_contig") == [None, "9", None]
    assert column(table, "contig") == ["chr1"] * 3
    assert column(table, "INFO_NEW") == [False, True, False]
    assert column(table, "INFO_É") == [None, "ü", None]
    assert column(table, "FORMAT_GT") == ["0/1", "0/1", None]
    assert column(table, "FORMAT_ZZ") == [None, "4", None]
    assert column(table, "FORMAT_DP") == [None, None, None]


@pytest.mark.usefixtures("block_bytes")
def test_many_samples_stand_in_lists(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [
            "chr1 5 . A C,G . . . GT:DP 0/1:5 ./. 2|2:.",
            "chr1 6 . A C . . . DP:GT:GT 1:0:9 2 .:1/1",
            "chr1 7 . A C . . . . . . .",
        ],
        samples="B\tA\tC c",
    )
    assert json.loads(table.schema.metadata[b"samples"]) == ["B", "A", "C c"]
    assert column(table, "FORMAT_GT") == [["0/1", "./.", "2|2"]] * 2 + [["0", None, "1/1"], [None] * 3]
    assert column(table, "FORMAT_DP") == [[5, None, None]] * 2 + [[1, 2, None], [None] * 3]


@pytest.mark.usefixtures("block_bytes")
def test_format_values_have_the_declared_types(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [
            "chr1 5 . A C,G . . . GT:DP:AD:PL:AF:GP:FT:HQ 1:7:3,4,0:0,.,99:0.5,1e-3:.,.:PASS:a,b",
            "chr1 6 . A C . . . GT:DP:AD 0:.:.",
            "chr1 7 . A C . . . . .",
        ],
        samples="S",
    )
    assert column(table, "FORMAT_GT") == ["1", "1", "0", None]
    assert column(table, "FORMAT_DP") == [7, 7, None, None]
    assert column(table, "FORMAT_AD") == [[3, 4, 0], [3, 4, 0], None, None]
    assert column(table, "FORMAT_PL") == [[0, None, 99], [0, None, 99], None, None]
    assert column(table, "FORMAT_AF") == [[0.5, 1e-3], [0.5, 1e-3], None, None]
    assert column(table, "FORMAT_GP") == [[None, None], [None, None], None, None]
    assert column(table, "FORMAT_FT") == ["PASS", "PASS", None, None]
    assert column(table, "FORMAT_HQ") == [["a", "b"], ["a", "b"], None, None]
    assert table.schema.field("FORMAT_DP").type == pa.int64()
    assert table.schema.field("FORMAT_PL").type == pa.list_(pa.int64())
    assert table.schema.field("FORMAT_GP").type == pa.list_(pa.float64())


@pytest.mark.usefixtures("block_bytes")
def test_format_values_of_another_type_make_the_column_text(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        ["chr1 5 . A C . . . GT:DP:AD:AF 0/1:7:3,4:0.5 0/1:8:1,2:0.1", "chr1 6 . A C . . . DP:AD 7.5:3,x 8:,"],
        samples="S\tT",
    )
    assert column(table, "FORMAT_DP") == [["7", "8"], ["7.5", "8"]]
    assert column(table, "FORMAT_AD") == [["3,4", "1,2"], ["3,x", ","]]
    assert column(table, "FORMAT_AF") == [[[0.5], [0.1]], [None, None]]


def test_bytes_that_are_not_text_do_not_stop_it(tmp_path: Path) -> None:
    lines = [*HEADER, COLUMNS, "chr1\t5\t\xe9\tA\tC\t.\t.\tK=\xff"]
    vcf = write_bgzip(tmp_path / "x.vcf.gz", "\n".join([*lines, ""]).encode("latin-1"))
    write_variant_table(vcf, tmp_path / "x.parquet", [], {})
    table = pq.read_table(tmp_path / "x.parquet")
    table.validate(full=True)
    assert (column(table, "id"), column(table, "INFO_K")) == (["?"], ["?"])


def test_the_number_of_undeclared_columns_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variant_columns, "MAX_UNDECLARED", 3)
    table = table_of(tmp_path, ["chr1 5 . A C . . " + ";".join(f"K{n}=1" for n in range(50))])
    assert [name for name in table.schema.names if name.startswith("INFO_K")] == ["INFO_K0", "INFO_K1", "INFO_K2"]


def test_no_records_make_an_empty_table(tmp_path: Path) -> None:
    assert table_of(tmp_path, []).num_rows == 0


def test_real_files_read_as_cyvcf2_reads_them(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "na12878"
    reference = prepare_reference(folder / "ucsc.hg19.chr20.unittest.fasta.gz", tmp_path / "reference")
    for number, path in enumerate(
        (
            folder / "test_nist.b37_chr20_100kbp_at_10mb.vcf.gz",
            shared_data / "odd/vcf/golden.postprocess_gvcf_output.g.vcf",
        )
    ):
        annotate(path, reference, tmp_path / str(number))
        table = pq.read_table(tmp_path / str(number) / "out" / "S.parquet")
        expected = [
            (variant.CHROM, variant.POS, variant.ID, variant.REF, alt, variant.QUAL and round(variant.QUAL, 2))
            for variant in cyvcf2.VCF(str(path))
            for alt in variant.ALT or [None]
        ]
        found = [
            (*values[:5], values[5] and round(values[5], 2))
            for values in zip(*(column(table, name) for name in table.schema.names[:6]), strict=True)
        ]
        assert found == expected
        assert table["CF_TEST"].null_count == sum(alt == "<*>" for *_, alt, _ in expected)
