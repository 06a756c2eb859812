"""Entries of VEP and SnpEff, told allele by allele, beside a plain reading of the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.variants import text as vcf_text
from tasks.variants.consequences import find_consequences
from tasks.variants.header import parse_header
from tasks.variants.table import write_variant_table
from tests.tasks.variant_files import COLUMNS, write_bgzip

VEP = (
    '##INFO=<ID=CSQ,Number=.,Type=String,Description="Consequence annotations from Ensembl VEP. Format: '
    'Allele|Consequence|IMPACT|SYMBOL|Gene|Feature_type|Feature">'
)
NUMBERED = VEP.replace("|Feature_type|", "|ALLELE_NUM|")
SNPEFF = (
    "##INFO=<ID=ANN,Number=.,Type=String,Description=\"Functional annotations: 'Allele | Annotation | "
    "Annotation_Impact | Gene_Name | Gene_ID | Feature_Type | Feature_ID'\">"
)


def read(folder: Path, records: list[str], *header: str) -> tuple[pa.Table, dict[str, Any]]:
    lines = ["##fileformat=VCFv4.2", *header, COLUMNS, *(record.replace(" ", "\t") for record in records)]
    vcf = write_bgzip(folder / "x.vcf.gz", "".join(f"{line}\n" for line in lines).encode())
    summary = write_variant_table(vcf, folder / "x.parquet", [], {})
    return pq.read_table(folder / "x.parquet"), summary


def entry(allele: str, name: str) -> str:
    return f"{allele}|con_{name}&b|HIGH|{name}|ENSG_{name}|Transcript|ENST_{name}"


@pytest.mark.parametrize("block_bytes", [1 << 20, 10])
def test_parts_become_lists_in_the_order_of_the_entries(
    tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vcf_text, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(vcf_text, "_READ_BYTES", block_bytes)
    table, summary = read(
        tmp_path,
        [
            f"1 5 . A C,g . . DP=3;CSQ={entry('G', 'b')},{entry('C', 'a')},{entry('C', 'd')},C|x||||Transcript|",
            "1 6 . A C . . DP=3",
            "1 7 . A . . . CSQ=x",
            f"1 8 . A C . . CSQ={entry('C', 'e')}",
        ],
        VEP,
    )
    assert table["CSQ_SYMBOL"].to_pylist() == [["a", "d", None], ["b"], None, None, ["e"]]
    assert table["CSQ_Gene"].to_pylist()[0] == ["ENSG_a", "ENSG_d", None]
    assert table["CSQ_Feature"].to_pylist()[1] == ["ENST_b"]
    assert table["CSQ_Consequence"].to_pylist()[0] == ["con_a&b", "con_d&b", "x"]
    assert table["CSQ_IMPACT"].to_pylist()[0] == ["HIGH", "HIGH", None]
    assert summary["consequences"] == {"CSQ": {"malformed": 0, "unmatched": 0}}
    assert table["INFO_CSQ"].to_pylist()[4] == entry("C", "e")


@pytest.mark.parametrize(
    ("ref", "alts", "alleles"),
    [
        ("A", "C,T", ["C", "T"]),
        ("CA", "C", ["-"]),
        ("C", "CAA", ["AA"]),
        ("CA", "C,CAA,TA", ["C", "CAA", "TA"]),  # not all begin alike: VEP takes nothing off
        ("CAG", "C,CAGT,CTG", ["-", "AGT", "TG"]),
        ("CA", "C,*", ["-", "*"]),
        ("AC", "GT", ["GT"]),
        ("ac", "aCt", ["CT"]),
        ("CAG", "CTG", ["CTG"]),
        ("CAG", "CTG", ["T"]),  # --minimal
        ("CAGG", "C,CAG", ["-", "AG"]),
        ("C", "<DEL>", ["deletion"]),
        ("C", "<DEL>", ["<DEL>"]),
    ],
)
def test_veps_notation_is_understood(tmp_path: Path, ref: str, alts: str, alleles: list[str]) -> None:
    entries = ",".join(entry(allele, f"g{number}") for number, allele in reversed(list(enumerate(alleles))))
    table, summary = read(tmp_path, [f"1 5 . {ref} {alts} . . CSQ={entries}"], VEP)
    assert table["CSQ_SYMBOL"].to_pylist() == [[f"g{number}"] for number in range(len(alleles))]
    assert summary["consequences"]["CSQ"]["unmatched"] == 0


def test_the_number_of_an_allele_goes_before_its_letters(tmp_path: Path) -> None:
    record = "1 5 . CAG C,CG . . CSQ=-|x|LOW|two|G|2|F,-|x|LOW|one|G|1|F,C|x|LOW|none|G|9|F,G|x|LOW|word|G|z|F"
    table, summary = read(tmp_path, [record], NUMBERED)
    # 9 is no ALT: the letters decide, as where there is no number.
    assert table["CSQ_SYMBOL"].to_pylist() == [["one", "none"], ["two", "word"]]
    assert summary["consequences"]["CSQ"] == {"malformed": 0, "unmatched": 0}


def test_malformed_and_foreign_entries_are_counted(tmp_path: Path) -> None:
    record = f"1 5 . A C . . CSQ=C|too|few,{entry('T', 'other')},{entry('C', 'a')}|more,,{entry('C', 'b')}"
    table, summary = read(tmp_path, [record], VEP)
    assert table["CSQ_SYMBOL"].to_pylist() == [[None, None, "b"]]
    assert summary["consequences"]["CSQ"] == {"malformed": 3, "unmatched": 2}


def test_snpeff_is_read_alike(tmp_path: Path) -> None:
    table, _ = read(tmp_path, [f"1 5 . CA C,CAT . . ANN={entry('CAT', 'b')},{entry('C', 'a')}"], SNPEFF)
    assert [name for name in table.schema.names if name.startswith("ANN")] == [
        "ANN_SYMBOL",
        "ANN_Gene",
        "ANN_Feature",
        "ANN_Consequence",
        "ANN_IMPACT",
    ]
    assert table["ANN_SYMBOL"].to_pylist() == [["a"], ["b"]]
    assert table["ANN_Feature"].to_pylist() == [["ENST_a"], ["ENST_b"]]


@pytest.mark.parametrize("description", ["no format", "Format: Consequence|IMPACT", "Format: Allele|Other"])
def test_a_format_that_says_nothing_gives_no_columns(description: str) -> None:
    line = f'##INFO=<ID=CSQ,Number=.,Type=String,Description="{description}">'
    assert find_consequences(parse_header([line.encode(), COLUMNS.encode()])) == []


def vep_names(ref: str, alts: list[str]) -> list[str]:
    """VEP's notation, as plainly as it can be said."""
    is_indel = any(len(alt) != len(ref) for alt in alts)
    if is_indel and len({allele[0] for allele in [ref, *alts]}) == 1:
        return [alt[1:] or "-" for alt in alts]
    return alts


BASES = st.text("ACGT", min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(ref=BASES, alts=st.lists(BASES, min_size=1, max_size=4, unique=True), data=st.data())
def test_entries_go_to_the_allele_they_name(
    ref: str, alts: list[str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = vep_names(ref, alts)
    order = data.draw(st.lists(st.integers(0, len(alts) - 1), min_size=1, max_size=8))
    entries = ",".join(entry(names[alt], f"g{turn}") for turn, alt in enumerate(order))
    record = f"1 5 . {ref} {','.join(alts)} . . CSQ={entries}"
    table, _ = read(tmp_path_factory.mktemp("vep"), [record], VEP)
    expected = [[f"g{turn}" for turn, alt in enumerate(order) if alt == number] or None for number in range(len(alts))]
    assert table["CSQ_SYMBOL"].to_pylist() == expected
