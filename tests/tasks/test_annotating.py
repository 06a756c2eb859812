"""The second reading: scores in the text, and nothing else changed in it."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import cyvcf2
import numpy as np
import pyarrow.parquet as pq
import pysam
import pysam.bcftools
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.errors import BalanceError, InputError, VariantFileError
from tasks.genome.reference import Reference, prepare_reference
from tasks.genome.regions import merge_regions
from tasks.reporting.sample_notes import read_notes
from tasks.variants import text as vcf_text
from tasks.variants.alleles import make_key
from tasks.variants.annotating import annotate_variants
from tasks.variants.score_table import ScoreTable
from tests.tasks.variant_files import COLUMNS, SCORE, annotate, make_genome, output_lines, score_of, write_bgzip
from tests.tasks.variant_files import vcf_text as make_text

Genome = tuple[Reference, dict[str, str]]
SAMPLES = f"{COLUMNS}\tFORMAT\tA\tB\tC"


@pytest.fixture(scope="module")
def genome(tmp_path_factory: pytest.TempPathFactory) -> Genome:
    return make_genome(tmp_path_factory.mktemp("genome"))


def pair(genome: Genome, position: int, contig: str = "chr1") -> tuple[str, str]:
    """REF at a 1-based position and another base."""
    base = genome[1][contig][position - 1]
    return base, "ACGT"[("ACGT".index(base) + 1) % 4]


def text_of(genome: Genome, position: int, ref: str, alt: str, contig: int = 0) -> str:
    """The INFO text of an allele's score."""
    return f"{score_of(*make_key(contig, position - 1, ref, alt, genome[0])):.4f}".rstrip("0").rstrip(".")


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "in.vcf"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def infos(folder: Path) -> list[str]:
    return [line.split("\t")[7] for line in output_lines(folder)[1]]


def test_scores_follow_what_is_there(genome: Genome, tmp_path: Path) -> None:
    ref, alt = pair(genome, 50)
    score = text_of(genome, 50, ref, alt)
    before = [".", "X=1", "X=1;Y", "X=1;", ";;X=1", "X=1;;Y=2", "X=1;X=2", ""]
    after = ["", "X=1;", "X=1;Y;", "X=1;", ";;X=1;", "X=1;;Y=2;", "X=1;X=2;", ""]
    path = write(tmp_path, make_text([f"chr1 50 . {ref} {alt} . . {info}" for info in before]))
    annotate(path, genome[0], tmp_path)
    assert infos(tmp_path) == [f"{info}CF_TEST={score}" for info in after]


def test_each_allele_has_its_score_or_its_reason(genome: Genome, tmp_path: Path) -> None:
    ref, alt = pair(genome, 50)
    other = next(base for base in "ACGT" if base not in (ref, alt))
    records = [
        f"chr1 50 . {ref} {alt},{other} . . .",
        f"chr1 50 . {ref} <DEL>,{alt},* . . .",
        f"chr1 50 . {ref} <NON_REF> . . .",
        f"chr1 50 . {alt} {ref} . . .",
        f"chr1 50 . {ref} . . . X=1",
        "nowhere 50 . A C . . .",
        f"chr1 50 . {ref} {ref}GG,{alt} . . .",
        f"chr1 0 . {ref} {alt} . . .",
    ]
    summary = annotate(write(tmp_path, make_text(records)), genome[0], tmp_path, reasons={ref + "GG": "TOO_LONG"})
    one, two = text_of(genome, 50, ref, alt), text_of(genome, 50, ref, other)
    assert infos(tmp_path) == [
        f"CF_TEST={one},{two}",
        f"CF_TEST=.,{one},.;CF_REASON=SYMBOLIC,.,SPANNING_DELETION",
        "CF_TEST=.;CF_REASON=SYMBOLIC",
        "CF_TEST=.;CF_REASON=REF_MISMATCH",
        "X=1",
        "CF_TEST=.;CF_REASON=UNKNOWN_CONTIG",
        f"CF_TEST=.,{one};CF_REASON=TOO_LONG,.",
        "CF_TEST=.;CF_REASON=BEFORE_CONTIG_START",
    ]
    assert summary["scored"] == 4
    assert summary["skipped"] == {
        "BEFORE_CONTIG_START": 1,
        "REF_MISMATCH": 1,
        "SPANNING_DELETION": 1,
        "SYMBOLIC": 2,
        "TOO_LONG": 1,
        "UNKNOWN_CONTIG": 1,
    }


def test_one_score_for_every_way_to_write_an_allele(genome: Genome, tmp_path: Path) -> None:
    sequence = genome[1]["chr1"]
    _, alt = pair(genome, 50)
    records = []
    for left, right in ((0, 0), (1, 0), (3, 2), (40, 900)):
        before, ref, after = sequence[49 - left : 49], sequence[49], sequence[50 : 50 + right]
        records.append(f"chr1 {50 - left} . {before + ref + after} {before + alt + after} . . .")
        records.append(f"chr1 {50 - left} . {(before + ref + after).lower()} {(before + alt + after).lower()} . . .")
    # A deletion and an insertion of an A, at any place of the run of 20 (0-based 100-119).
    records += [f"chr1 {position} . AA A . . ." for position in range(101, 120)] + ["chr1 100 . CA C . . ."]
    records += [f"chr1 {position} . A AA . . ." for position in range(101, 121)] + ["chr1 100 . C CA . . ."]
    annotate(write(tmp_path, make_text(records)), genome[0], tmp_path)
    found = infos(tmp_path)
    assert len(set(found[:8])) == len(set(found[8:28])) == len(set(found[28:])) == 1
    assert len(set(found)) == 3
    assert pq.read_metadata(tmp_path / "alleles.parquet").num_rows == 3


def test_fields_of_another_program_are_replaced_and_told(genome: Genome, tmp_path: Path) -> None:
    ref, alt = pair(genome, 50)
    foreign = '##INFO=<ID=CF_TEST,Number=1,Type=Flag,Description="cystic fibrosis test">'
    ours = '##INFO=<ID=CF_REASON,Number=A,Type=String,Description="x",Source="cohortflow">'
    header = ("##fileformat=VCFv4.2", foreign, ours)
    text = make_text([f"chr1 50 . {ref} {alt} . . CF_TEST;CF_REASON=SYMBOLIC"], header=header)
    summary = annotate(write(tmp_path, text), genome[0], tmp_path)
    assert summary["warnings"] == ["in.vcf: INFO/CF_TEST of another program was replaced by this program's"]
    assert infos(tmp_path) == [f"CF_TEST={text_of(genome, 50, ref, alt)}"]
    assert foreign not in output_lines(tmp_path)[0]


def test_every_other_byte_is_kept(genome: Genome, tmp_path: Path) -> None:
    ref, alt = pair(genome, 50)
    header = [
        "##fileformat=VCFv4.1",
        "##contig=<ID=chr1>",
        '##INFO=<ID=CF_MUTATION,Number=1,Type=String,Description="cystic fibrosis">',
        "##odd  spaces = kept ",
    ]
    lines = [
        f"chr1\t50\trs1;rs2\t{ref}\t{alt}\t1e-3\tq10;s50\tCF_MUTATION=F508del;É=1\tGT:GT\t0/1:.\t./.\t.",
        f"chr1\t0050\t.\t{ref.lower()}\t{alt}\t.\t.\tEND=60\tGT\t0|1\t1\t/0",
        "chr1\t51\t.\tN\t<DEL>\t.\t.\tSVTYPE=DEL\tGT\t0|1\t1\t1",
    ]
    path = write(tmp_path, "\n".join([*header, SAMPLES, *lines, ""]).encode("latin-1"))
    summary = annotate(path, genome[0], tmp_path)
    content = gzip.decompress((tmp_path / "out" / "S.vcf.gz").read_bytes()).decode("latin-1").split("\n")
    own = [line for line in content if line.startswith(("##INFO=<ID=CF_TEST", "##INFO=<ID=CF_REASON", "##cohortflow="))]
    assert len(own) == 3
    kept = [line for line in content if line not in own]
    score = text_of(genome, 50, ref, alt)
    expected = [
        lines[0].replace("É=1", f"É=1;CF_TEST={score}"),
        lines[1].replace("END=60", f"END=60;CF_TEST={score}"),
        lines[2].replace("SVTYPE=DEL", "SVTYPE=DEL;CF_TEST=.;CF_REASON=SYMBOLIC"),
    ]
    assert kept == [*header, SAMPLES, *expected, ""]
    assert summary["repairs"] == {}


info_texts = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\0"), min_size=1, max_size=30)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(st.integers(1, 2000), info_texts, info_texts, info_texts), min_size=1, max_size=30),
    block_bytes=st.sampled_from([64, 1 << 20]),
)
def test_taking_our_fields_out_gives_the_input_back(
    rows: list[tuple[int, str, str, str]],
    block_bytes: int,
    genome: Genome,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vcf_text, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(vcf_text, "_READ_BYTES", block_bytes)
    folder = tmp_path_factory.mktemp("bytes")
    lines = []
    for position, name, quality, info in rows:
        ref, alt = pair(genome, position, "2:x")
        lines.append(f"2:x\t{position}\t{name}\t{ref}\t{alt}\t{quality}\tPASS\t{info}\tGT\t{name}\t.\t0/1")
    path = write(folder, make_text([], columns=SAMPLES) + "".join(f"{line}\n" for line in lines))
    annotate(path, genome[0], folder)
    _, records = output_lines(folder)
    for line, record in zip(lines, records, strict=True):
        before, own, after = record.partition("CF_TEST=")
        assert own
        info = line.split("\t")[7]
        taken_out = before.removesuffix(";") if not info.endswith(";") else before
        whole = taken_out + ("." if info == "." else "") + after[after.index("\t") :]
        assert whole == line


def test_a_second_run_replaces_the_first_one(genome: Genome, tmp_path: Path) -> None:
    ref, alt = pair(genome, 50)
    records = [
        f"chr1 50 . {ref} {alt} . . X=1;CF_TEST=9;Y",
        f"chr1 50 . {ref} {alt},* . . CF_TEST=9,9",
        f"chr1 50 . {ref} . . . CF_REASON=OLD",
        f"chr1 50 . {ref} . . . X=1;CF_OLD=3;CF_OLDER=4",
        f"chr1 50 . {ref} {alt} . . CF_TEST;CF_TESTS=1;XCF_TEST=2",
    ]
    header = [
        "##fileformat=VCFv4.2",
        "##contig=<ID=chr1,length=2000>",
        "##contig=<ID=2:x,length=2000>",
        '##INFO=<ID=CF_OLD,Number=A,Type=Float,Description="of an older pipeline",Source="cohortflow">',
        "##cohortflow=<Version=0>",
    ]
    annotate(write(tmp_path, make_text(records, header=header)), genome[0], tmp_path)
    score = text_of(genome, 50, ref, alt)
    assert infos(tmp_path) == [
        f"X=1;Y;CF_TEST={score}",
        f"CF_TEST={score},.;CF_REASON=.,SPANNING_DELETION",
        ".",
        "X=1;CF_OLDER=4",
        f"CF_TESTS=1;XCF_TEST=2;CF_TEST={score}",
    ]
    first = output_lines(tmp_path)
    assert sum("CF_OLD" in line or "Version=0" in line for line in first[0]) == 0
    (tmp_path / "again").mkdir()
    annotate(tmp_path / "out" / "S.vcf.gz", genome[0], tmp_path / "again")
    for name in ("S.vcf.gz", "S.vcf.gz.tbi", "S.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / "out" / name).read_bytes()


def test_one_sample_of_many(genome: Genome, tmp_path: Path) -> None:
    ref, alt = pair(genome, 50)
    records = [f"chr1 50 . {ref} {alt} . . X=1 GT:DP 0/0:1 0/1:2 1/1:3", "chr1 60 . N . . . . GT . ./. 0"]
    path = write(tmp_path, make_text(records, columns=SAMPLES))
    score = text_of(genome, 50, ref, alt)
    for sample, calls in {"A": ("0/0:1", "."), "B": ("0/1:2", "./."), "C": ("1/1:3", "0")}.items():
        annotate(path, genome[0], tmp_path / sample, vcf_sample=sample)
        header, lines = output_lines(tmp_path / sample)
        assert header[-1] == f"{COLUMNS}\tFORMAT\t{sample}"
        assert lines == [
            f"chr1\t50\t.\t{ref}\t{alt}\t.\t.\tX=1;CF_TEST={score}\tGT:DP\t{calls[0]}",
            f"chr1\t60\t.\tN\t.\t.\t.\t.\tGT\t{calls[1]}",
        ]
    with pytest.raises(VariantFileError):
        annotate(path, genome[0], tmp_path, vcf_sample="D")


def test_lines_that_are_no_records_go_unchanged_to_their_file(genome: Genome, tmp_path: Path) -> None:
    good = [f"chr1 {position} . {' '.join(pair(genome, position))} . . ." for position in range(200, 450)]
    bad = [b"chr1\t123abc\t.\tA\tC\t.\t.\t\xff\r\n", b"#odd\n"]
    text = make_text(good[:99]).encode() + bad[0] + make_text(good[99:], header=[], columns="#x")[3:].encode() + bad[1]
    summary = annotate(write(tmp_path, text), genome[0], tmp_path)
    assert (summary["records_in"], summary["records_out"], summary["rejected"]) == (252, 250, 2)
    rejected = (tmp_path / "out" / "S.rejected.vcf").read_bytes().splitlines(keepends=True)
    assert rejected[1:] == [
        b"## line 104: BAD_POS: POS is not a whole number, 0 or more\n",
        bad[0],
        b"## line 256: HEADER_LINE: a header line among the records\n",
        bad[1],
    ]
    # Nothing of it is left when the mended file is annotated into the same folder.
    annotate(write(tmp_path, make_text(good)), genome[0], tmp_path)
    assert not (tmp_path / "out" / "S.rejected.vcf").exists()


def test_repairs_are_made_and_told(genome: Genome, tmp_path: Path) -> None:
    ref, alt = pair(genome, 50, "2:x")
    text = make_text([f"2:x 50 . {ref} {alt} . . .", "", "far 5 . A C . . ."], header=["##source=x"])
    summary = annotate(write(tmp_path, "\ufeff" + text.replace("\n", "\r\n")[:-2]), genome[0], tmp_path)
    header, lines = output_lines(tmp_path)
    assert header[:4] == ["##fileformat=VCFv4.2", "##source=x", "##contig=<ID=2:x,length=2000>", "##contig=<ID=far>"]
    assert not any("\r" in line for line in header + lines)
    assert summary["repairs"] == {
        "blank_lines": 1,
        "byte_order_mark": 1,
        "carriage_returns": 4,
        "contig": 2,
        "fileformat": 1,
        "final_newline": 1,
    }
    notes = [note.text for note in read_notes({"output": summary})]
    assert len(notes) == 6
    assert "repaired: the byte order mark before the header was removed" in notes
    assert "repaired: blank lines were removed" in notes


@pytest.mark.parametrize(
    ("header", "places", "index"),
    [
        (["##contig=<ID=chr1,length=2000>"], ["chr1 5", "chr1 9"], "tbi"),
        (["##contig=<ID=chr1,length=2000>"], ["chr1 9", "chr1 5"], None),
        (["##contig=<ID=chr1,length=2000>"], ["chr1 0", "chr1 9"], "tbi"),
        (["##contig=<ID=far,length=600000000>"], ["chr1 5", "chr1 9"], "csi"),
        (["##contig=<ID=far,length=10010000000>"], ["chr1 5", "far 10009999919"], "csi"),
        (["##contig=<ID=chr1,length=2000>"], ["chr1 5", "chr1 9 END=700000000"], "csi"),
        (["##contig=<ID=chr1,length=2000>"], [], "tbi"),
    ],
)
def test_the_index_fits_the_positions(
    header: list[str], places: list[str], index: str | None, genome: Genome, tmp_path: Path
) -> None:
    records = [f"{' '.join(place.split()[:2])} . N <DEL> . . {[*place.split(), '.'][2]}" for place in places]
    text = make_text(records, header=["##fileformat=VCFv4.2", *header])
    (tmp_path / "out").mkdir()
    for kind in ("tbi", "csi"):
        (tmp_path / "out" / f"S.vcf.gz.{kind}").write_bytes(b"stale")
    summary = annotate(write(tmp_path, text), genome[0], tmp_path)
    assert (summary["index"], summary["index_reason"]) == (index, None if index else "UNSORTED")
    assert [path.suffix for path in (tmp_path / "out").glob("S.vcf.gz.*")] == ([f".{index}"] if index else [])
    if places and index:
        contig, position = places[-1].split()[:2]
        # pysam's own fetch stops at 2^31.
        found = pysam.bcftools.view("-H", str(tmp_path / "out" / "S.vcf.gz"), f"{contig}:{position}-{position}")
        assert found.split("\t")[:2] == [contig, position]


def test_off_target_alleles_stay_with_their_reason(genome: Genome, tmp_path: Path) -> None:
    regions = merge_regions(np.array([0]), np.array([49]), np.array([50]))
    records = [f"chr1 {position} . {' '.join(pair(genome, position))} . . ." for position in (49, 50, 51)]
    annotate(write(tmp_path, make_text(records)), genome[0], tmp_path, regions=regions)
    found = infos(tmp_path)
    assert found[0] == found[2] == "CF_TEST=.;CF_REASON=OFF_TARGET"
    assert found[1] == f"CF_TEST={text_of(genome, 50, *pair(genome, 50))}"


@pytest.mark.parametrize("container", ["plain", "bgzip", "gzip", "bcf"])
def test_every_container_gives_the_same_output(container: str, genome: Genome, tmp_path: Path) -> None:
    records = [
        f"{contig} {position} . {' '.join(pair(genome, position, contig))} 50 PASS DP=3 GT 0/1 0/0 ./."
        for contig in ("chr1", "2:x")
        for position in range(100, 900)
    ]
    header = [
        "##fileformat=VCFv4.2",
        '##FILTER=<ID=PASS,Description="All filters passed">',
        "##contig=<ID=chr1,length=2000>",
        "##contig=<ID=2:x,length=2000>",
        '##INFO=<ID=DP,Number=1,Type=Integer,Description="x">',
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="x">',
    ]
    path = write(tmp_path, make_text(records, header=header, columns=SAMPLES))
    annotate(path, genome[0], tmp_path / "expected", row_group=100)
    other = tmp_path / "other"
    if container == "bgzip":
        write_bgzip(other, path.read_bytes())
    elif container == "gzip":
        other.write_bytes(gzip.compress(path.read_bytes()))
    elif container == "bcf":
        pysam.bcftools.view("--no-version", "-Ob", "-o", str(other), str(path), catch_stdout=False)
    else:
        other = path
    annotate(other, genome[0], tmp_path)
    for name in ("S.vcf.gz", "S.vcf.gz.tbi", "S.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "expected" / "out" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["S.parquet", "S.vcf.gz", "S.vcf.gz.tbi"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "out").iterdir())


def test_an_allele_without_a_row_is_a_defect(genome: Genome, tmp_path: Path) -> None:
    ref, alt = pair(genome, 50)
    path = write(tmp_path, make_text([f"chr1 50 . {ref} {alt} . . ."]))
    annotate(path, genome[0], tmp_path)
    before = (tmp_path / "out" / "S.vcf.gz").read_bytes()
    write(tmp_path, make_text([f"chr1 50 . {ref} {alt}{alt} . . ."]))
    with ScoreTable(tmp_path / "alleles.parquet", [SCORE]) as scores:
        with pytest.raises(BalanceError, match="chr1:50"):
            annotate_variants(path, genome[0], scores, [SCORE], tmp_path / "out", "S", header_lines=[])
    assert (tmp_path / "out" / "S.vcf.gz").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["S.parquet", "S.vcf.gz", "S.vcf.gz.tbi"]


@settings(max_examples=120, deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 100_000), st.integers(0, 8), st.text("\t\n\r\0 .,;:=#<[*A1\x80", max_size=3)),
        max_size=6,
    ),
    sample=st.sampled_from([None, "A"]),
)
def test_whatever_the_bytes_there_is_an_output_or_a_reason(
    edits: list[tuple[int, int, str]],
    sample: str | None,
    genome: Genome,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("edited")
    records = [
        f"chr1 {position} rs1 {' '.join(pair(genome, position))},<DEL>,* 5 PASS DP=3;AF=0.1,.,.;X GT:AD 0/1:1,2 ./. 0"
        for position in range(100, 400)
    ]
    text = make_text(records, columns=SAMPLES).encode()
    for at, num_bytes, put in edits:
        at %= len(text)
        text = text[:at] + put.encode("latin-1") + text[at + num_bytes :]
    try:
        annotate(write(folder, text), genome[0], folder, vcf_sample=sample)
    except InputError:
        return
    header, lines = output_lines(folder)
    widths = {line.count("\t") for line in [header[-1], *lines]}
    assert len(widths) == 1
    pq.read_table(folder / "out" / "S.parquet").validate(full=True)


def readable(path: Path) -> list[object]:
    """What three parsers make of a file: positions and alleles, or that they refuse it."""
    found: list[object] = []
    try:
        text = pysam.bcftools.view("--no-version", str(path))
        found.append([line.split("\t")[:7] for line in text.splitlines() if not line.startswith("#")])
    except pysam.utils.SamtoolsError:
        found.append("refused")
    for parser in (pysam.VariantFile, cyvcf2.VCF):
        try:
            found.append(sum(1 for _ in parser(str(path))))
        except Exception:
            found.append("refused")
    return found


def with_genome(lines: list[bytes]) -> tuple[list[bytes], dict[str, str]]:
    """The lines with their places moved together, in their order, and a genome that has their REF there."""
    refs: dict[bytes, dict[int, bytes]] = {}
    for line in lines:
        fields = line.split(b"\t")
        if len(fields) > 4 and not line.startswith(b"#") and fields[1].isdigit():
            here = refs.setdefault(fields[0], {})
            here[int(fields[1])] = max(here.get(int(fields[1]), b""), fields[3].upper(), key=len)
    genome, moved = {}, {}
    for name, here in refs.items():
        bases = ""
        for place in sorted(here):
            moved[name, place] = len(bases) + 1
            bases += re.sub("[^ACGT]", "N", here[place].decode("latin-1"))
        genome[name.decode()] = bases + "ACGT"
    for number, line in enumerate(lines):
        fields = line.split(b"\t")
        if len(fields) > 4 and not line.startswith(b"#") and fields[1].isdigit():
            fields[1] = str(moved[fields[0], int(fields[1])]).encode()
            lines[number] = b"\t".join(fields)
    return lines, genome


def test_parsers_that_read_an_odd_file_read_its_output(shared_data: Path, tmp_path: Path) -> None:
    refused = {}
    num_annotated = 0
    for path in sorted((shared_data / "odd" / "vcf").iterdir()):
        if path.suffix == ".tbi":
            continue
        # Each file gets a genome of its own, whatever lengths its header states.
        content = path.read_bytes()
        text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        lines = [line for line in text.split(b"\n") if not line.startswith((b"##contig", b"##reference"))]
        places = [line.split(b"\t")[:2] for line in lines if line and not line.startswith(b"#")]
        lines, genome = with_genome(lines)
        folder = tmp_path / path.name
        folder.mkdir()
        contigs = {**dict.fromkeys((place[0].decode() for place in places), "ACGT"), **genome} or {"1": "ACGT"}
        (folder / "g.fa").write_text("".join(f">{name}\n{bases}\n" for name, bases in contigs.items()))
        reference = prepare_reference(folder / "g.fa", folder / "prepared")
        stripped = folder / "in.vcf"
        stripped.write_bytes(b"\n".join(lines))
        try:
            summary = annotate(stripped, reference, folder)
        except InputError as error:
            refused[path.name] = error.reason
            continue
        num_annotated += 1
        assert summary["records_out"] == len(places)
        before, after = readable(stripped), readable(folder / "out" / "S.vcf.gz")
        for one, other in zip(before, after, strict=True):
            assert one in ("refused", other), path.name
        assert pq.read_table(folder / "out" / "S.parquet").num_rows == summary["table_rows"]
    assert refused == {
        "empty.vcf": "EMPTY_FILE",
        "example_empty.vcf": "EMPTY_FILE",
        "malformed.vcf": "TOO_MANY_REJECTED",
        "test-invalid-header.vcf": "BAD_HEADER",
        "vcf_no_header.vcf": "NO_HEADER",
    }
    assert num_annotated > 20


def test_the_real_sample_comes_out_whole_and_in_order(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "na12878"
    reference = prepare_reference(folder / "ucsc.hg19.chr20.unittest.fasta.gz", tmp_path / "reference")
    path = folder / "test_nist.b37_chr20_100kbp_at_10mb.vcf.gz"
    summary = annotate(path, reference, tmp_path)
    assert (summary["records_in"], summary["records_out"], summary["scored"]) == (221, 221, 222)
    assert (summary["refs_differ"], summary["index"]) == (0, "tbi")
    before = [line for line in gzip.decompress(path.read_bytes()).decode().splitlines() if not line.startswith("#")]
    after = output_lines(tmp_path)[1]
    for one, other in zip(before, after, strict=True):
        columns, changed = one.split("\t"), other.split("\t")
        assert changed[7].startswith(columns[7] + ";CF_TEST=")
        assert columns[:7] + columns[8:] == changed[:7] + changed[8:]
    assert json.loads(json.dumps(summary)) == summary
