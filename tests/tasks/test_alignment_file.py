"""BAM, CRAM and SAM: counts, refusals, indices, and every odd file we know."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pytest

from tasks.alignments.file import check_alignment, read_alignment
from tasks.errors import AlignmentError, ReferenceError, TaskError
from tasks.genome.reference import Reference, prepare_reference
from tests.tasks.alignments import genome, prepared, reads_of, sam_line, sam_text, write_bam

LENGTHS = {"chr1": 5_000, "chr2": 4_000}


@pytest.fixture(scope="module")
def sequences() -> dict[str, str]:
    return genome(LENGTHS)


@pytest.fixture(scope="module")
def reference(sequences: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return prepared(sequences, tmp_path_factory.mktemp("genome"))


@pytest.fixture(scope="module")
def lines(sequences: dict[str, str]) -> list[str]:
    return [line for name, sequence in sequences.items() for line in reads_of(name, sequence)]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading in this process sets what keeps htslib offline; take it back."""
    for name in ("REF_PATH", "REF_CACHE", "http_proxy", "https_proxy", "ftp_proxy", "all_proxy"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


def read(path: Path, reference: Reference, folder: Path, index: Path | None = None) -> dict[str, Any]:
    return read_alignment([str(path)], [str(index) if index else None], str(reference.folder), str(folder))


def refusal(path: Path, reference: Reference, folder: Path) -> TaskError:
    with pytest.raises(TaskError) as caught:
        read(path, reference, folder)
    return caught.value


def test_records_are_counted_by_kind(tmp_path: Path, sequences: dict[str, str], reference: Reference) -> None:
    bases = sequences["chr1"][100:200]
    rows = [
        sam_line("used", "chr1", 100, bases),
        sam_line("secondary", "chr1", 100, bases, flag=0x100),
        sam_line("supplementary", "chr1", 100, bases, flag=0x800),
        sam_line("failed", "chr1", 100, bases, flag=0x200),
        sam_line("duplicate", "chr1", 100, bases, flag=0x400),
        sam_line("repeat", "chr1", 100, bases, mapq=3),
        sam_line("mate", "chr1", 100, bases, flag=4, cigar="*"),
        sam_line("pair", "chr1", 150, sequences["chr1"][150:250], flag=0x63, mate="=\t181\t130"),
        sam_line("pair", "chr1", 180, sequences["chr1"][180:280], flag=0x93, mate="=\t151\t-130"),
        sam_line("elsewhere", "chrUn", 10, bases),
        sam_line("lost", "*", -1, bases, flag=4, cigar="*"),
    ]
    bam = write_bam(tmp_path / "a.bam", {**LENGTHS, "chrUn": 900}, rows)
    summary = read(bam, reference, tmp_path / "work")
    assert summary["counts"] == {
        "total": 11,
        "used": 3,
        "unmapped": 2,
        "secondary": 1,
        "supplementary": 1,
        "qc_failed": 1,
        "duplicate": 1,
        "unknown_contig": 1,
        "low_mapping_quality": 1,
    }
    assert summary["mates_overlapping"] == 1
    assert summary["contig_reads"] == {"chr1": 8}
    assert summary["skipped"] == {"UNKNOWN_CONTIG": {"chrUn": 1}}
    assert (summary["mismatch_rate"], summary["covered_bp"]) == (0, 180)
    assert summary["mean_depth"] == pytest.approx(300 / 180, abs=1e-3)
    assert (summary["insert_size_median"], summary["read_length_median"]) == (130, 100)
    assert summary["base_quality_mean"] == 40
    assert summary["warnings"] == []


def test_duplicates_of_amplicons_are_used(tmp_path: Path, sequences: dict[str, str], reference: Reference) -> None:
    bases = sequences["chr1"][100:200]
    rows = [sam_line(str(number), "chr1", 100, bases, flag=0x400 if number else 0) for number in range(8)]
    bam = write_bam(tmp_path / "a.bam", LENGTHS, rows)
    folders = str(reference.folder), str(tmp_path / "work")
    assert read_alignment([str(bam)], [None], *folders)["counts"]["used"] == 1
    summary = read_alignment([str(bam)], [None], *folders, use_duplicates=True)
    assert (summary["counts"]["used"], summary["counts"]["duplicate"], summary["usual_depth"]) == (8, 0, 7)
    assert summary["warnings"] == ["7 reads: marked as duplicates, and used: these are amplicons"]
    with pysam.AlignmentFile(summary["path"], index_filename=summary["index"]) as alignment:
        assert [record.is_duplicate for record in alignment.fetch("chr1")] == [False] * 8


def test_depth_is_judged_inside_the_regions(tmp_path: Path, sequences: dict[str, str], reference: Reference) -> None:
    bases = sequences["chr1"]
    rows = [sam_line(str(start), "chr1", start, bases[start : start + 100]) for start in range(0, 2_000, 50)]
    rows += [sam_line(f"d{n}", "chr1", 3_000, bases[3_000:3_100]) for n in range(20)]
    bam = write_bam(tmp_path / "a.bam", LENGTHS, rows)
    bed = tmp_path / "targets.bed"
    bed.write_text("chr1\t3030\t3050\n")
    folders = str(reference.folder), str(tmp_path / "work")
    everywhere = read_alignment([str(bam)], [None], *folders)
    inside = read_alignment([str(bam)], [None], *folders, bed=str(bed))
    padded = read_alignment([str(bam)], [None], *folders, bed=str(bed), padding_bp=3_000)
    assert (everywhere["usual_depth"], everywhere["depth_in_regions"]) == (1, False)
    assert (inside["usual_depth"], inside["depth_in_regions"]) == (19, True)
    assert padded["usual_depth"] < 19


def test_mismatches_are_counted_through_any_cigar(
    tmp_path: Path, sequences: dict[str, str], reference: Reference
) -> None:
    at = 1_000
    ref = sequences["chr1"]
    other = {"A": "C", "C": "G", "G": "T", "T": "A"}
    bases = "TTTTT" + ref[at : at + 20] + "AC" + other[ref[at + 20]] + ref[at + 21 : at + 40] + ref[at + 43 : at + 60]
    row = sam_line("read", "chr1", at, bases, cigar="5S20M2I20M3D17M")
    summary = read(write_bam(tmp_path / "a.bam", LENGTHS, [row]), reference, tmp_path / "work")
    assert summary["mismatch_rate"] == pytest.approx(1 / 57, abs=1e-6)
    assert summary["covered_bp"] == 60


def test_the_users_index_is_used_only_while_it_fits(tmp_path: Path, lines: list[str], reference: Reference) -> None:
    bam = write_bam(tmp_path / "a.bam", LENGTHS, lines)
    assert read(bam, reference, tmp_path / "none")["index"] == str(tmp_path / "none" / "a.bam.bai")
    pysam.index(str(bam))
    index = Path(f"{bam}.bai")
    assert read(bam, reference, tmp_path / "fits")["index"] == str(index)
    moved = index.rename(tmp_path / "elsewhere.bai")
    assert read(bam, reference, tmp_path / "given", moved)["index"] == str(moved)
    os.utime(moved, ns=(0, bam.stat().st_mtime_ns - 1))
    assert read(bam, reference, tmp_path / "old", moved)["index_made"] is True
    other = write_bam(tmp_path / "b.bam", LENGTHS, lines[:-1])
    pysam.index(str(other), str(index))
    assert read(bam, reference, tmp_path / "other")["index_made"] is True
    index.write_bytes(b"rubbish")
    summary = read(bam, reference, tmp_path / "rubbish")
    with pysam.AlignmentFile(str(bam), index_filename=summary["index"]) as alignment:
        assert sum(1 for _ in alignment.fetch("chr2")) == 60
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        *("a.bam", "a.bam.bai", "b.bam", "elsewhere.bai")
    ]


def test_unsorted_bam_and_sam_are_sorted_in_the_runs_folder(
    tmp_path: Path, lines: list[str], reference: Reference
) -> None:
    whole = read(write_bam(tmp_path / "a.bam", LENGTHS, lines), reference, tmp_path / "sorted")
    shuffled = [lines[place] for place in np.random.default_rng(5).permutation(len(lines))]
    summary = read(write_bam(tmp_path / "b.bam", LENGTHS, shuffled), reference, tmp_path / "unsorted")
    assert summary["path"] == str(tmp_path / "unsorted" / "sorted.bam")
    assert "not sorted" in summary["warnings"][0]
    text = sam_text(LENGTHS, shuffled)
    (tmp_path / "c.bam").write_text(text.replace("\n", "\r\n"))
    (tmp_path / "d.sam.gz").write_bytes(gzip.compress(text.encode()))
    as_sam = [read(tmp_path / name, reference, tmp_path / "sam") for name in ("c.bam", "d.sam.gz")]
    for other in (summary, *as_sam):
        assert {key: other[key] for key in ("counts", "covered_bp", "contig_reads", "mean_depth")} == {
            key: whole[key] for key in ("counts", "covered_bp", "contig_reads", "mean_depth")
        }
    assert not [path for path in (tmp_path / "sam").iterdir() if path.name.endswith((".tmp", ".part"))]


def test_lanes_are_merged(tmp_path: Path, lines: list[str], reference: Reference) -> None:
    groups = ["@RG\tID:one\tSM:sample\n", "@RG\tID:two\tSM:sample\n"]
    lanes = [write_bam(tmp_path / f"{i}.bam", LENGTHS, lines[i::2], groups[i]) for i in range(2)]
    summary = check_alignment(lanes, [None, None], reference, tmp_path / "work")
    assert summary["counts"]["used"] == len(lines)
    assert [group["id"] for group in summary["read_groups"]] == ["one", "two"]
    content = Path(summary["path"]).read_bytes()
    again = check_alignment(lanes, [None, None], reference, tmp_path / "again")
    assert Path(again["path"]).read_bytes() == content
    assert str(tmp_path).encode() not in content


def test_a_wrong_reference_of_the_same_length_is_found_out(
    tmp_path: Path, lines: list[str], sequences: dict[str, str]
) -> None:
    bam = write_bam(tmp_path / "a.bam", LENGTHS, lines)
    one_wrong = {**sequences, "chr2": genome(LENGTHS, seed=9)["chr2"]}
    error = refusal(bam, prepared(one_wrong, tmp_path, "wrong"), tmp_path / "work")
    assert error.reason == "WRONG_REFERENCE"
    assert "chr2 7" in error.message
    shorter = {**sequences, "chr2": sequences["chr2"][:-1]}
    error = refusal(bam, prepared(shorter, tmp_path, "shorter"), tmp_path / "work")
    assert "another length" in error.message


def test_what_holds_no_aligned_reads(tmp_path: Path, sequences: dict[str, str], reference: Reference) -> None:
    unmapped = sam_line("read", "*", -1, "ACGT", flag=4, cigar="*")
    files = {
        "NO_READS": write_bam(tmp_path / "a.bam", LENGTHS, []),
        "UNALIGNED": write_bam(tmp_path / "b.bam", LENGTHS, [unmapped]),
        "NO_CONTIGS": write_bam(tmp_path / "c.bam", {}, [unmapped]),
    }
    for reason, path in files.items():
        assert refusal(path, reference, tmp_path / "work").reason == reason


def test_reads_that_do_not_align_are_named_by_their_own_files(
    tmp_path: Path, sequences: dict[str, str], reference: Reference, lines: list[str]
) -> None:
    unmapped = write_bam(tmp_path / "S.bam", LENGTHS, [sam_line("read", "*", -1, "ACGT", flag=4, cigar="*")])
    other = write_bam(tmp_path / "T.bam", LENGTHS, lines)
    elsewhere = prepared({**sequences, "chr2": genome(LENGTHS, seed=9)["chr2"]}, tmp_path, "wrong")
    reads = [Path("/lab/S_R1.fastq.gz"), Path("/lab/S_R2.fastq.gz")]
    for path, genome_of, reason in ((unmapped, reference, "UNALIGNED"), (other, elsewhere, "WRONG_REFERENCE")):
        with pytest.raises(TaskError) as caught:
            check_alignment([path], [None], genome_of, tmp_path / "work", reads=reads)
        assert caught.value.reason == reason
        assert caught.value.message.startswith("/lab/S_R1.fastq.gz, /lab/S_R2.fastq.gz: ")
        assert path.name not in caught.value.message
        assert "check" in caught.value.message
    assert "0 of 1 reads (0.0%) are aligned" in refusal(unmapped, reference, tmp_path / "work").message


def test_what_is_no_alignment(tmp_path: Path, lines: list[str], reference: Reference) -> None:
    bam = write_bam(tmp_path / "a.bam", LENGTHS, lines).read_bytes()
    middle = bytearray(bam)
    middle[len(bam) // 2] ^= 0xFF
    contents = {
        "EMPTY_FILE": b"",
        "NOT_ALIGNMENT": b"@read\nACGT\n+\nIIII\n",
        "TRUNCATED": bam[:-28],
        "NO_CONTIGS": "".join(f"{line}\n" for line in lines).encode(),
        "BAD_ALIGNMENT": sam_text(LENGTHS, ["read\t0\tchr1\tx"]).encode(),
    }
    for reason, content in contents.items():
        path = tmp_path / f"{reason}.bam"
        path.write_bytes(content)
        error = refusal(path, reference, tmp_path / "work")
        assert (error.reason, str(path) in error.message) == (reason, True)
    (tmp_path / "gzip.bam").write_bytes(gzip.compress(gzip.decompress(bam)))
    assert "without blocks" in refusal(tmp_path / "gzip.bam", reference, tmp_path / "work").message
    (tmp_path / "damaged.bam").write_bytes(bytes(middle))
    assert refusal(tmp_path / "damaged.bam", reference, tmp_path / "work").reason in ("TRUNCATED", "BAD_HEADER")
    assert refusal(tmp_path / "absent.bam", reference, tmp_path / "work").reason == "UNREADABLE"


def test_samples_and_platforms_of_read_groups(tmp_path: Path, lines: list[str], reference: Reference) -> None:
    extra = "@RG\tID:g\tSM:somebody\tPL:ont\n"
    summary = read(write_bam(tmp_path / "a.bam", LENGTHS, lines, extra), reference, tmp_path / "work")
    assert summary["long_reads"] is True
    assert summary["read_groups"] == [{"id": "g", "sample": "somebody", "platform": "ont"}]


def test_long_reads_are_told_by_their_length(tmp_path: Path, sequences: dict[str, str], reference: Reference) -> None:
    rows = reads_of("chr1", sequences["chr1"], count=10, length_bp=900)
    assert read(write_bam(tmp_path / "a.bam", LENGTHS, rows), reference, tmp_path / "work")["long_reads"] is True


def to_cram(bam: Path, reference: Reference, path: Path, *options: str) -> Path:
    pysam.view("--no-PG", "-C", *options, "-T", str(reference.path), "-o", str(path), str(bam), catch_stdout=False)
    return path


def test_cram_counts_as_bam(tmp_path: Path, lines: list[str], reference: Reference) -> None:
    bam = write_bam(tmp_path / "a.bam", LENGTHS, lines)
    expected = read(bam, reference, tmp_path / "bam")
    external = read(to_cram(bam, reference, tmp_path / "a.cram"), reference, tmp_path / "external")
    embedded = to_cram(bam, reference, tmp_path / "b.cram", "--output-fmt-option", "embed_ref=1")
    alone = read(embedded, reference, tmp_path / "embedded")
    for summary in (external, alone):
        assert summary["kind"] == "cram"
        assert Path(summary["index"]).suffix == ".crai"
        same = set(expected) - {"path", "index", "index_made", "kind"}
        assert {key: summary[key] for key in same} == {key: expected[key] for key in same}


def test_cram_of_other_sequences_says_contig_and_m5(
    tmp_path: Path, lines: list[str], sequences: dict[str, str], reference: Reference
) -> None:
    cram = to_cram(write_bam(tmp_path / "a.bam", LENGTHS, lines), reference, tmp_path / "a.cram")
    other = prepared({**sequences, "chr2": genome(LENGTHS, seed=9)["chr2"]}, tmp_path, "other")
    error = refusal(cram, other, tmp_path / "work")
    assert isinstance(error, ReferenceError)
    assert f"chr2: the CRAM was made with M5 {reference.contigs[1].md5}" in error.message
    assert other.contigs[1].md5 in error.message
    assert "chr1" not in error.message


def test_cram_of_contigs_that_are_not_there_says_which_m5(
    tmp_path: Path, lines: list[str], sequences: dict[str, str], reference: Reference
) -> None:
    cram = to_cram(write_bam(tmp_path / "a.bam", LENGTHS, lines), reference, tmp_path / "a.cram")
    absent = prepared({"other": sequences["chr1"]}, tmp_path, "absent")
    longer = prepared({"chr1": sequences["chr1"] + "A", "chr2": sequences["chr2"]}, tmp_path, "longer")
    for name, other in {"absent": absent, "longer": longer}.items():
        error = refusal(cram, other, tmp_path / f"work-{name}")
        assert error.reason == "WRONG_REFERENCE"
        assert f"chr1 {reference.contigs[0].md5}" in error.message


def test_cram_whose_contigs_are_called_otherwise_or_are_absent(
    tmp_path: Path, lines: list[str], sequences: dict[str, str], reference: Reference
) -> None:
    bam = write_bam(tmp_path / "a.bam", LENGTHS, lines)
    cram = to_cram(bam, reference, tmp_path / "a.cram")
    renamed = prepared({"2": sequences["chr2"], "1": sequences["chr1"]}, tmp_path, "renamed")
    summary = read(cram, renamed, tmp_path / "work")
    assert summary["contig_reads"] == {"2": 60, "1": 60}
    assert (summary["kind"], summary["mismatch_rate"]) == ("bam", 0)
    for name in ("chr1", "1"):
        partial = prepared({name: sequences["chr1"]}, tmp_path, f"partial-{name}")
        summary = read(cram, partial, tmp_path / f"work-{name}")
        assert summary["skipped"] == {"UNKNOWN_CONTIG": {"chr2": 60}}
        assert summary["counts"]["unknown_contig"] == summary["counts"]["used"] == 60
        with pysam.AlignmentFile(
            summary["path"], index_filename=summary["index"], reference_filename=str(partial.fasta_path)
        ) as alignment:
            assert len([read.query_sequence for read in alignment.fetch("chr1")]) == 60


@pytest.fixture(scope="module")
def chr20(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    fasta = shared_data / "na12878" / "ucsc.hg19.chr20.unittest.fasta.gz"
    return prepare_reference(fasta, tmp_path_factory.mktemp("chr20"))


def test_the_real_bam_and_crams(tmp_path: Path, shared_data: Path, chr20: Reference) -> None:
    bam = shared_data / "na12878" / "NA12878_S1.chr20.10_10p1mb.bam"
    cram = shared_data / "na12878" / "NA12878_chr20_10_10p1mb.cram"
    external = to_cram(bam, chr20, tmp_path / "external.cram")
    summaries = [check_alignment([path], [None], chr20, tmp_path / path.suffix[1:]) for path in (bam, cram, external)]
    same = set(summaries[0]) - {"path", "index", "index_made", "kind"}
    for summary in summaries:
        assert {key: summary[key] for key in same} == {key: summaries[0][key] for key in same}
    counts = summaries[0]["counts"]
    assert (counts["total"], counts["unmapped"], counts["duplicate"]) == (52_035, 162, 297)
    assert summaries[0]["contig_reads"] == {"chr20": 51_873}
    assert summaries[0]["mismatch_rate"] < 0.01
    assert (summaries[0]["warnings"], summaries[0]["long_reads"]) == ([], False)
    assert summaries[0]["index_made"] is False


ODD = {
    "0example_no_seq_in_header_null_bytes.bam": "WRONG_REFERENCE",
    "1.quickcheck.badeof.bam": "TRUNCATED",
    "10.quickcheck.notargets.bam": "NO_CONTIGS",
    "13_barcodes_fail_qt_length.sam": 2_696,
    "2.quickcheck.badheader.bam": "BAD_ALIGNMENT",
    "2_bad_order.sam": 17,
    "3.quickcheck.ok.bam": 40,
    "7.quickcheck.cram30.ok.cram": "WRONG_REFERENCE",
    "7_mark_supp_dup.sam": "BAD_ALIGNMENT",
    "9.quickcheck.cram30.truncated.cram": "TRUNCATED",
    "colons.bam": 6,
    "ex9_fail.sam": 1,
    "headerless.sam": "NOT_ALIGNMENT",
    "index_dos.sam": "WRONG_REFERENCE",
    "no_hdr_sq_1.bam": 6,
    "rg_with_tab.sam": 3_270,
    "test_cram.embed_ref_0_version_3.0.cram": "WRONG_REFERENCE",
    "test_cram.embed_ref_1_version_3.0.cram": "WRONG_REFERENCE",
}


def reference_for(path: Path, folder: Path) -> Reference:
    """A genome of the file's contigs whose bases are those of its reads, N between them; "odd" where that cannot be."""
    sequences = {"odd": bytearray(b"ACGT")}
    try:
        with pysam.AlignmentFile(str(path), check_sq=False) as alignment:
            for name, length_bp in zip(alignment.references, alignment.lengths, strict=True):
                if length_bp < 2_000_000 and "," not in name:
                    sequences[name] = bytearray(b"N" * length_bp)
            for row in alignment.fetch(until_eof=True):
                if row.is_unmapped or row.reference_name not in sequences or not row.query_sequence:
                    continue
                for place, start in row.get_aligned_pairs(matches_only=True):
                    sequences[row.reference_name][start : start + 1] = row.query_sequence[place].encode()
    except (OSError, ValueError):
        pass
    return prepared({name: bases.decode() for name, bases in sequences.items()}, folder, path.name)


def test_every_odd_file_has_an_answer(tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REF_PATH", os.devnull)
    answers: dict[str, Any] = {}
    for path in sorted((shared_data / "odd" / "alignments").iterdir()):
        if path.suffix == ".bai":
            continue
        try:
            answers[path.name] = read(path, reference_for(path, tmp_path), tmp_path / path.stem)["counts"]["total"]
        except (AlignmentError, ReferenceError) as error:
            answers[path.name] = error.reason if str(path) in error.message else "NO_PATH"
    assert answers == ODD
