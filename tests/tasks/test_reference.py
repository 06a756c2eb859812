"""The reference: one read of any FASTA gives the same genome, and whatever is no FASTA is refused in words."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pysam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.errors import ReferenceError
from tasks.genome.reference import Contig, Reference, load_reference, prepare_reference
from tasks.intervals import Interval

CONTIGS = {
    "chr1": "ACGTNACGTRYacgtnACGTACGTTTAGGCAT",
    "HLA:A*01-x": "ttttttttttacgtacgtnnnnACG",
    "chrM": "GATC" * 20,
}


def fasta_text(contigs: dict[str, str], width: int = 10, end: str = "\n") -> str:
    text = ""
    for name, bases in contigs.items():
        text += f">{name} some words{end}"
        text += "".join(bases[at : at + width] + end for at in range(0, len(bases), width))
    return text


def expected_tokens(bases: str) -> list[int]:
    return ["ACGT".find(base) if base in "ACGT" else 4 for base in bases.upper()]


def write(folder: Path, text: str | bytes, name: str = "genome.fa") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def assert_is_genome(reference: Reference, contigs: dict[str, str]) -> None:
    assert [contig.name for contig in reference.contigs] == list(contigs)
    for index, (name, bases) in enumerate(contigs.items()):
        assert reference.contigs[index] == Contig(name, len(bases), hashlib.md5(bases.upper().encode()).hexdigest())
        assert reference.contig_tokens(index).tolist() == expected_tokens(bases)
        with pysam.FastaFile(str(reference.fasta_path)) as indexed:
            assert indexed.fetch(name).upper() == bases.upper()


def test_a_plain_fasta_becomes_tokens_and_an_index(tmp_path: Path) -> None:
    path = write(tmp_path, fasta_text(CONTIGS))
    reference = prepare_reference(path, tmp_path / "run" / "reference")
    assert_is_genome(reference, CONTIGS)
    assert reference.path == path
    assert reference.offsets.tolist() == [0, 32, 57, 137]
    assert reference.gzi_path is None
    assert reference.build is None
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["genome.fa", "run"], "nothing beside the FASTA"
    pysam.faidx(str(path))
    assert reference.fai_path.read_bytes() == Path(f"{path}.fai").read_bytes()


def test_bgzip_lower_case_and_crlf_are_the_same_genome(tmp_path: Path) -> None:
    plain = prepare_reference(write(tmp_path, fasta_text(CONTIGS)), tmp_path / "plain")
    others = {
        "lower.fa": fasta_text({name: bases.lower() for name, bases in CONTIGS.items()}).encode(),
        "crlf.fa": fasta_text(CONTIGS, end="\r\n").encode(),
        "wide.fa": fasta_text(CONTIGS, width=1000).encode(),
        "no_last_newline.fa": fasta_text(CONTIGS).rstrip("\n").encode(),
        "bom.fa": b"\xef\xbb\xbf" + fasta_text(CONTIGS).encode(),
        "blank_lines.fa": fasta_text(CONTIGS).replace(">", "\n\n>").encode() + b"\n\n",
        "blank_inside.fa": fasta_text(CONTIGS).replace("\n", "\n\n").encode(),
        "ragged.fa": fasta_text(CONTIGS).replace("ACGTNACGTR\n", "ACG\nTNACGTR\n").encode(),
        "trailing_spaces.fa": fasta_text(CONTIGS).replace("\n", " \n").encode(),
    }
    for name, content in others.items():
        other = prepare_reference(write(tmp_path, content, name), tmp_path / f"run_{name}")
        assert_is_genome(other, CONTIGS)
        assert other.digest == plain.digest, name
        assert np.array_equal(other.tokens, plain.tokens), name
    bgzip = tmp_path / "genome.fa.gz"
    pysam.tabix_compress(str(write(tmp_path, fasta_text(CONTIGS))), str(bgzip))
    other = prepare_reference(bgzip, tmp_path / "bgzip")
    assert_is_genome(other, CONTIGS)
    assert other.digest == plain.digest
    assert other.gzi_path is not None
    assert other.gzi_path.exists()


def test_many_blocks_index_as_samtools_does(tmp_path: Path) -> None:
    bases = "".join(np.random.default_rng(0).choice(list("ACGTN"), 700_000))
    contigs = {"a": bases[:300_000], "b": bases[300_000:]}
    plain = write(tmp_path, fasta_text(contigs, width=61))
    bgzip = tmp_path / "genome.fa.gz"
    pysam.tabix_compress(str(plain), str(bgzip))
    reference = prepare_reference(bgzip, tmp_path / "run")
    assert_is_genome(reference, contigs)
    pysam.faidx(str(bgzip))
    assert reference.gzi_path is not None
    own, samtools = reference.gzi_path.read_bytes()[8:], Path(f"{bgzip}.gzi").read_bytes()[8:]
    assert len(samtools) > 64
    assert own[: len(samtools)] == samtools
    assert len(own) == len(samtools) + 16, "the end-of-file block, which bgzip lists and faidx does not"
    assert reference.fai_path.read_bytes() == Path(f"{bgzip}.fai").read_bytes()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    contigs=st.lists(st.text("ACGTNacgtnRYK", min_size=1, max_size=60), min_size=1, max_size=4),
    width=st.integers(1, 70),
    end=st.sampled_from(["\n", "\r\n"]),
    block_bytes=st.integers(1, 20),
    blanks=st.integers(0, 2),
)
def test_blocks_cut_anywhere_change_nothing(
    contigs: list[str], width: int, end: str, block_bytes: int, blanks: int
) -> None:
    from tasks.genome.fasta import FastaScan

    named = {f"c{index}": bases for index, bases in enumerate(contigs)}
    text = fasta_text(named, width, end).replace(">", end * blanks + ">").encode()
    scan = FastaScan(Path("x.fa"))
    blocks = [text[at : at + block_bytes] for at in range(0, len(text), block_bytes)]
    read = [b""] * len(contigs)
    for index, bases in scan.pieces(blocks):
        read[index] += bases
    assert [bases.decode() for bases in read] == [bases.upper() for bases in contigs]
    for contig, bases in zip(scan.contigs, contigs, strict=True):
        assert contig.regular
        assert contig.length_bp == len(bases)
        assert contig.line_bases == min(width, len(bases))
        start = contig.text_start
        assert text[start : start + contig.line_bases].decode() == bases[:width]


def test_prepared_work_is_kept_until_the_file_changes(tmp_path: Path) -> None:
    path = write(tmp_path, fasta_text(CONTIGS))
    folder = tmp_path / "run"
    first = prepare_reference(path, folder)
    made = (folder / "tokens.u8").stat().st_mtime_ns
    assert prepare_reference(path, folder).digest == first.digest
    assert (folder / "tokens.u8").stat().st_mtime_ns == made
    write(tmp_path, fasta_text({"chr1": "ACGT"}))
    changed = prepare_reference(path, folder)
    assert_is_genome(changed, {"chr1": "ACGT"})
    assert changed.digest != first.digest


def test_damaged_preparation_is_made_again(tmp_path: Path) -> None:
    path = write(tmp_path, fasta_text(CONTIGS))
    folder = tmp_path / "run"
    prepare_reference(path, folder)
    (folder / "tokens.u8").write_bytes(b"\x00")
    with pytest.raises(ReferenceError, match="1 bytes for 137 bases"):
        load_reference(folder)
    assert_is_genome(prepare_reference(path, folder), CONTIGS)
    (folder / "reference.json").write_text("{")
    assert_is_genome(prepare_reference(path, folder), CONTIGS)


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    prepare_reference(write(tmp_path, fasta_text(CONTIGS)), tmp_path / "run")
    for entry in (tmp_path / "run").iterdir():
        if not entry.is_symlink():
            assert entry.stat().st_mode & 0o777 == 0o600, entry


def test_tokens_cannot_be_written_and_travel_as_a_path(tmp_path: Path) -> None:
    reference = prepare_reference(write(tmp_path, fasta_text(CONTIGS)), tmp_path / "run")
    with pytest.raises(ValueError, match="read-only"):
        reference.tokens[0] = 1
    travelled = pickle.dumps(reference)
    assert len(travelled) < 1000
    assert pickle.loads(travelled).digest == reference.digest


def test_sequence(tmp_path: Path) -> None:
    reference = prepare_reference(write(tmp_path, fasta_text(CONTIGS)), tmp_path / "run")
    assert reference.sequence(Interval("chr1", 0, 12)) == "ACGTNACGTNNA"
    assert reference.sequence(Interval("chrM", 78, 80)) == "TC"
    assert reference.sequence(Interval("chrM", 80, 80)) == ""
    with pytest.raises(ReferenceError, match="past the contig's end at 80"):
        reference.sequence(Interval("chrM", 78, 81))
    with pytest.raises(ReferenceError, match=r"no contig 'chr2'.*chr1, HLA"):
        reference.contig_index("chr2")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "not one line begins with '>'"),
        (b"ACGT\n>chr1\nACGT\n", "line 1: the first line must begin with '>'"),
        (b">chr1\nACGT\n>chr1\nAC\n", "line 3: contig chr1 for the second time, first on line 1"),
        (b">chr1\n>chr2\nACGT\n", "line 1: contig chr1 has no bases"),
        (b">chr1\nACGT\n>chr2\n", "line 3: contig chr2 has no bases"),
        (b">chr1\nACGT\n>chr2", "line 3: contig chr2 has no bases"),
        (b"> chr1\nACGT\n", "line 1: '' is not a contig name"),
        (b">\nACGT\n", "line 1: '' is not a contig name"),
        (b">chr1,2\nACGT\n", "line 1: 'chr1,2' is not a contig name"),
        (b">sp|P1\nACGT\nMKVLEE\n", "line 3: contig sp|P1: 'L' is not a nucleotide code; is this a protein"),
        (b">chr1\nACGT\nAC1T\n", "line 3: contig chr1: '1' is not a nucleotide code"),
        (b">chr1\nAC\x00GT\n", "line 2: contig chr1: '\\\\x00' is not"),
        (b">chr1\rACGT\rACGT\r", "line 1: lines end in a lone CR"),
        (b"@r1\nACGT\n+\nIIII\n", "this is FASTQ or SAM"),
        (b"##fileformat=VCFv4.2\n", "this is a VCF"),
        ("\ufeff>chr1\nACGT\n".encode("utf-16-le"), "this is UTF-16"),
        (b">chr1" + b"x" * (2 << 20), "line ends are missing"),
    ],
)
def test_what_is_no_fasta_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ReferenceError) as caught:
        prepare_reference(path, tmp_path / "run")
    assert message.replace("\\\\", "\\") in str(caught.value)
    assert str(path) in str(caught.value)
    with pytest.raises(ReferenceError, match="no prepared reference"):
        load_reference(tmp_path / "run")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=60)
    | st.lists(
        st.sampled_from([b">", b"a", b"ACGT", b"\n", b"\r\n", b" ", b"\t", b">b\n", b"n-*", b"\x1f\x8b"]), max_size=12
    ).map(b"".join)
)
def test_any_bytes_are_read_or_refused_in_words(tmp_path: Path, content: bytes) -> None:
    try:
        reference = prepare_reference(write(tmp_path, content), tmp_path / "run")
    except ReferenceError:
        return
    with pysam.FastaFile(str(reference.fasta_path)) as indexed:
        for index, contig in enumerate(reference.contigs):
            fetched = indexed.fetch(contig.name)
            assert hashlib.md5(fetched.upper().encode()).hexdigest() == contig.md5
            assert reference.contig_tokens(index).tolist() == expected_tokens(fetched)


def test_missing_folder_and_gzip(tmp_path: Path) -> None:
    with pytest.raises(ReferenceError, match="no such file"):
        prepare_reference(tmp_path / "absent.fa", tmp_path / "run")
    with pytest.raises(ReferenceError, match="not a regular file"):
        prepare_reference(tmp_path, tmp_path / "run")
    path = tmp_path / "genome.fa.gz"
    path.write_bytes(gzip.compress(fasta_text(CONTIGS).encode()))
    with pytest.raises(ReferenceError, match="bgzip it") as caught:
        prepare_reference(path, tmp_path / "run")
    assert caught.value.reason == "NOT_BGZIP"


@pytest.mark.parametrize(
    "damage", ["cut in a block", "cut between blocks", "flipped", "gzip appended", "rubbish appended"]
)
def test_damaged_bgzip_is_refused(tmp_path: Path, damage: str) -> None:
    bases = "".join(np.random.default_rng(0).choice(list("ACGT"), 200_000))
    bgzip = tmp_path / "genome.fa.gz"
    pysam.tabix_compress(str(write(tmp_path, fasta_text({"a": bases}))), str(bgzip))
    content = bytearray(bgzip.read_bytes())
    if damage == "cut in a block":
        content = content[:-100]
    elif damage == "cut between blocks":
        content = content[:-28]
    elif damage == "flipped":
        content[len(content) // 2] ^= 0xFF
    elif damage == "gzip appended":
        content += gzip.compress(b">b\nACGT\n")
    else:
        content += b"rubbish at the end"
    bgzip.write_bytes(content)
    with pytest.raises(ReferenceError) as caught:
        prepare_reference(bgzip, tmp_path / "run")
    assert caught.value.reason in ("TRUNCATED", "DAMAGED", "NOT_BGZIP")


def test_a_stale_index_beside_the_fasta_is_not_trusted(tmp_path: Path) -> None:
    path = write(tmp_path, fasta_text(CONTIGS))
    Path(f"{path}.fai").write_text("chr1\t5\t6\t5\t6\n")
    assert_is_genome(prepare_reference(path, tmp_path / "run"), CONTIGS)
    assert Path(f"{path}.fai").read_text() == "chr1\t5\t6\t5\t6\n"


def test_a_relative_path_works_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, fasta_text(CONTIGS))
    monkeypatch.chdir(tmp_path)
    prepare_reference(Path("genome.fa"), Path("run"))
    os.chdir("/")
    assert_is_genome(load_reference(tmp_path / "run"), CONTIGS)


def test_memory_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "genome.fa"
    with open(path, "w") as handle:
        for number in range(3):
            handle.write(f">c{number}\n")
            line = "ACGTACGTAC" * 10 + "\n"
            for _ in range(40):
                handle.write(line * 5_000)
    program = (
        "import resource, sys; from pathlib import Path; from tasks.genome.reference import prepare_reference as p\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "r = p(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "print(len(r.tokens), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, path, tmp_path / "run"], capture_output=True, text=True, check=True
    )
    num_bases, grown_mib = map(int, answer.stdout.split())
    assert num_bases == 60_000_000
    assert grown_mib < 60


def test_the_real_chromosome(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "na12878" / "ucsc.hg19.chr20.unittest.fasta.gz"
    reference = prepare_reference(path, tmp_path / "run")
    assert reference.contigs == (Contig("chr20", 63_025_520, "bb0bb8a3e13da208358bb53ca1031f4b"),)
    assert reference.build == "GRCh37"
    assert reference.fai_path.read_bytes() == Path(f"{path}.fai").read_bytes()
    assert reference.gzi_path is not None
    assert reference.gzi_path.read_bytes() == Path(f"{path}.gzi").read_bytes()
    assert np.bincount(reference.tokens, minlength=5)[4] == 61_925_520


def test_the_odd_references(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "odd" / "reference"
    with pytest.raises(ReferenceError, match="line 1: the first line must begin with '>'"):
        prepare_reference(folder / "malformed.fasta", tmp_path / "malformed")
    reference = prepare_reference(folder / "unindexed_emptylines.fasta", tmp_path / "emptylines")
    assert [(contig.name, contig.length_bp) for contig in reference.contigs] == [
        ("chrM", 100),
        ("chr1", 76),
        ("chr2", 121),
    ]
    assert reference.sequence(Interval("chr2", 0, 6)) == "CGCTNC"


def test_an_external_reference_cram_decodes_through_it(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "na12878"
    reference = prepare_reference(folder / "ucsc.hg19.chr20.unittest.fasta.gz", tmp_path / "run")
    cram = tmp_path / "x.cram"
    with pysam.AlignmentFile(str(folder / "NA12878_S1.chr20.10_10p1mb.bam")) as bam:
        with pysam.AlignmentFile(
            str(cram), "wc", template=bam, reference_filename=str(reference.fasta_path)
        ) as written:
            reads = [read for read, _ in zip(bam, range(200), strict=False)]
            for read in reads:
                written.write(read)
    with pysam.AlignmentFile(str(cram), reference_filename=str(reference.fasta_path)) as back:
        assert [read.query_sequence for read in back] == [read.query_sequence for read in reads]
