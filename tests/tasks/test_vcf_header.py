"""VCF headers: what they declare, and the header of an output."""

from __future__ import annotations

from tasks.variants.header import Declaration, output_header, parse_header
from tests.tasks.variant_files import COLUMNS


def test_reads_declarations_in_any_order_and_with_quotes() -> None:
    header = parse_header(
        [
            b"##fileformat=VCFv4.3",
            b'##INFO=<Type=Integer,Description="a, b=<c> \\" d",ID=DP,Number=1>',
            b'##FORMAT=<ID=AD,Number=R,Type=Integer,Description="x">',
            b"##contig=<ID=chr1,length=100,md5=abc>",
            b'##contig=<ID=HLA-A*01:01:01:01,length="3503",assembly=GRCh38>',
            b"##contig=<ID=nolength>",
            b"##META=<ID=Assay,Number=.,Type=String,Values=[WholeGenome, Exome]>",
            b"##nonsense",
            b"##INFO=<broken",
            b"##source=\xff\xfe",
            f"{COLUMNS}\tFORMAT\tS 1".encode(),
        ]
    )
    assert header.info == {"DP": Declaration("1", "Integer", 'a, b=<c> " d')}
    assert header.formats == {"AD": Declaration("R", "Integer", "x")}
    assert header.contig_lengths_bp == {"chr1": 100, "HLA-A*01:01:01:01": 3503, "nolength": None}
    assert header.contig_md5s["chr1"] == "abc"
    assert header.samples == ("S 1",)


def test_adds_only_what_is_missing() -> None:
    lines = [b"##fileformat=VCFv4.1", b"##contig=<ID=1>", b"##x=\xff", COLUMNS.encode()]
    text, repairs = output_header(parse_header(lines), ["##own"], {"CF"}, {"1": 10}, lines[-1])
    assert text == b"##fileformat=VCFv4.1\n##contig=<ID=1>\n##x=\xff\n##own\n" + COLUMNS.encode() + b"\n"
    assert repairs == {}


def test_a_missing_fileformat_and_contigs_are_added() -> None:
    text, repairs = output_header(parse_header([COLUMNS.encode()]), [], (), {"1": 10, "x:y": None}, b"#CHROM")
    assert text == b"##fileformat=VCFv4.2\n##contig=<ID=1,length=10>\n##contig=<ID=x:y>\n#CHROM\n"
    assert repairs == {"fileformat": 1, "contig": 2}


def test_a_fileformat_that_comes_late_is_put_first() -> None:
    lines = [b"##source=x", b"##fileformat=VCFv4.3", b"#CHROM"]
    text, repairs = output_header(parse_header(lines), [], (), {}, b"#CHROM")
    assert text == b"##fileformat=VCFv4.3\n##source=x\n#CHROM\n"
    assert repairs == {"fileformat": 1}


def test_lines_of_an_earlier_run_are_left_out_and_no_others() -> None:
    lines = [
        b"##fileformat=VCFv4.2",
        b'##INFO=<ID=CF_OLD,Number=A,Type=Float,Description="x",Source="cohortflow">',
        b'##INFO=<ID=CF_NEW,Number=A,Type=Float,Description="x">',
        b'##INFO=<ID=CF_MUTATION,Number=1,Type=String,Description="cystic fibrosis">',
        b'##FORMAT=<ID=CF_NEW,Number=1,Type=String,Description="x">',
        b"##cohortflow=<Plan=1>",
        b"##cohortflowers=daisies",
        b"#CHROM",
    ]
    header = parse_header(lines)
    assert header.own_ids == {"CF_OLD"}
    text, _ = output_header(header, [], {"CF_NEW"}, {}, b"#CHROM")
    assert text.splitlines() == [lines[0], lines[3], lines[4], lines[6], lines[7]]
