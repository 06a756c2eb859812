"""Splice scores beside the published tool's algorithm written out plainly, with small networks of the same kind."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from serving.server import ModelServer
from tasks.errors import RegionsError
from tasks.genome.reference import Reference, prepare_reference
from tasks.pipelines import PipelineError, Resources, make_pipeline
from tasks.splicing.deltas import align, as_written
from tasks.splicing.transcripts import Transcripts, load_transcripts, prepare_transcripts
from tasks.variants.alleles import ALLELE_SCHEMA
from tasks.windows import tokenize
from tests.serving.convolutions import document, padded_forward, weights, write_model

DILATION = 2_488
CONTEXT = 5_000
GENOME = "".join(np.random.default_rng(2).choice(list("ACGT"), 30_000))
GENES = """\
#NAME\tCHROM\tSTRAND\tTX_START\tTX_END\tEXON_START\tEXON_END
PLUS\t1\t+\t7000\t16000\t7000,9000,15000,\t7500,9400,16000,
MINUS\t1\t-\t8990\t12000\t8990,11000,\t9100,12000,
"""
# 1-based positions, REF and ALT: gene edges, both strands, insertions, deletions longer than the distance, delins.
PLACES = [
    (7001, 1, "n"),
    (7003, 1, "n"),
    (9001, 1, "n"),
    (9050, 1, "gg"),
    (9095, 4, ""),
    (9401, 60, ""),
    (9402, 3, "ca"),
]
PLACES += [
    (9500, 1, "acgtacg"),
    (11001, 5, "tt"),
    (11002, 2, "cacgt"),
    (15999, 1, "n"),
    (16000, 1, "n"),
    (16001, 1, "n"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("splicing")
    (folder / "genome.fa").write_text(f">chr1\n{GENOME}\n")
    (folder / "genes.txt").write_text(GENES)
    write_model(folder / "models", name="spliceai", content=document(1, DILATION))
    return folder


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return prepare_reference(folder / "genome.fa", folder / "reference")


@pytest.fixture(scope="module")
def transcripts(folder: Path, reference: Reference) -> Transcripts:
    prepare_transcripts(folder / "genes.txt", reference, folder / "transcripts.parquet")
    return load_transcripts(folder / "transcripts.parquet")


@pytest.fixture(scope="module")
def server(folder: Path):
    with ModelServer(folder / "models", threads=2) as server:
        yield server


def spell(place: tuple[int, int, str]) -> tuple[int, str, str]:
    """Position, REF and ALT of an entry of `PLACES`: another base, an insertion, a deletion, or a delins."""
    position, length, bases = place
    ref = GENOME[position - 1 : position - 1 + length]
    if bases == "n":
        return position, ref, "ACGT"[("ACGT".index(ref) + 1) % 4]
    if length == 1 or not bases:
        return position, ref, ref[0] + bases.upper()
    return position, ref, bases.upper()


def table(alleles: list[tuple[int, str, str]]) -> pa.Table:
    zeros = np.zeros(len(alleles), np.uint64)
    columns = [zeros, zeros, zeros.astype(np.int32), np.array([at - 1 for at, _, _ in alleles])]
    return pa.table([*columns, [ref for _, ref, _ in alleles], [alt for _, _, alt in alleles]], schema=ALLELE_SCHEMA)


def score(alleles, options, reference, transcripts, server):
    pipeline = make_pipeline("spliceai", options)
    rows = pipeline.expand(table(alleles), reference, {}, Resources(transcripts=transcripts))
    outputs = server.infer("spliceai", rows.inputs)
    return pipeline.collapse(len(alleles), rows, outputs)["SpliceAI"], rows.reason


@cache
def plain_changes(position, ref, alt, gene, distance):
    """Gains and losses of acceptor and donor as the published tool comes to them: four arrays [2 * distance + 1].

    Source: spliceai 1.3.1, utils.py, get_delta_scores, and for a delins what `tasks.splicing.deltas.align` says.
    """
    _, _, strand, start, end, *_ = gene.split("\t")
    half = CONTEXT + distance
    sequence = GENOME[position - half - 1 : position + half]
    left, right = max(half + int(start) + 1 - position, 0), max(half - int(end) + position, 0)
    x_ref = "N" * left + sequence[left : len(sequence) - right] + "N" * right
    x_alt = x_ref[:half] + alt + x_ref[half + len(ref) :]
    tracks = []
    content = document(1, DILATION)
    tensors = weights(content)
    for text in (x_ref, x_alt):
        tokens = tokenize(text.encode())
        if strand == "-":
            tokens = np.where(tokens < 4, 3 - tokens, tokens)[::-1]
        y = padded_forward(content, tensors, tokens, CONTEXT).astype(np.float64)
        tracks.append(y[::-1] if strand == "-" else y)
    y_ref, y_alt = tracks
    shared = min(len(ref), len(alt))
    if len(ref) > len(alt):
        y_alt = np.concatenate(
            [y_alt[: distance + shared], np.zeros((len(ref) - shared, 3)), y_alt[distance + shared :]]
        )
    else:
        at = distance + shared - 1
        most = y_alt[at : distance + len(alt)].max(axis=0)[None]
        y_alt = np.concatenate([y_alt[:at], most, y_alt[distance + len(alt) :]])
    change = y_alt - y_ref
    return change[:, 1], -change[:, 1], change[:, 2], -change[:, 2]


@pytest.mark.parametrize(("distance", "mask"), [(50, False), (50, True), (120, False)])
def test_scores_are_those_of_the_published_algorithm(reference, transcripts, server, distance, mask):
    alleles = [spell(place) for place in PLACES]
    texts, reason = score(alleles, {"distance": distance, "mask": mask}, reference, transcripts, server)
    lines = GENES.splitlines()[1:]
    num_masked = 0
    for allele, text, why in zip(alleles, texts, reason, strict=True):
        position, _, alt = allele
        own = [line for line in lines if int(line.split("\t")[3]) + 1 <= position <= int(line.split("\t")[4])]
        if not own:
            assert (text, why) == (None, "NO_GENE")
            continue
        entries = [entry.split("|") for entry in text.split(",")]
        assert [entry[:2] for entry in entries] == [[alt, line.split("\t")[0]] for line in own]
        for entry, line in zip(entries, own, strict=True):
            gene = line.split("\t")
            edges = [int(x) + 1 for x in gene[5].split(",")[:-1]] + [int(x) for x in gene[6].split(",")[:-1]]
            nearest = min((edge - position for edge in sorted(edges)), key=abs)
            for kind, change in enumerate(plain_changes(*allele, line, distance)):
                told, place = float(entry[2 + kind]), int(entry[6 + kind])
                assert change[place + distance] == pytest.approx(change.max(), abs=2e-5)
                is_masked = mask and (place == nearest) == (kind in (0, 2))
                num_masked += is_masked
                assert told == pytest.approx(0 if is_masked else change.max(), abs=5.1e-3)
    assert bool(num_masked) == mask


def test_strict_compat_has_dots_for_what_the_published_tool_does_not_score(reference, transcripts, server):
    alleles = [spell((8402, 3, "ca")), spell((8403, 1, "n"))]
    options = {"strict_compat": True}
    texts, reason = score(alleles, options, reference, transcripts, server)
    assert texts[0] == f"{alleles[0][2]}|PLUS|.|.|.|.|.|.|.|."
    assert texts[1].startswith(f"{alleles[1][2]}|PLUS|")
    assert "|." not in texts[1]
    assert list(reason) == [None, None]
    assert make_pipeline("spliceai", options).keeps_records


def test_each_allele_without_a_score_has_its_own_reason(reference, transcripts, server):
    alleles = [spell((9001, 1, "n")), spell((20_000, 1, "n")), spell((9300, 101, ""))]
    _, reason = score(alleles, {}, reference, transcripts, server)
    assert list(reason) == [None, "NO_GENE", "REF_TOO_LONG"]
    near = Transcripts(*(getattr(transcripts, name) for name in ("gene", "contig", "is_reverse")), *_wide(transcripts))
    _, reason = score([spell((5_050, 1, "n")), spell((5_051, 1, "n"))], {}, reference, near, server)
    assert list(reason) == ["NEAR_CONTIG_END", None]
    _, reason = score([spell((24_950, 1, "n")), spell((24_951, 1, "n"))], {}, reference, near, server)
    assert list(reason) == [None, "NEAR_CONTIG_END"]


def _wide(transcripts: Transcripts):
    return np.array([0, 0]), np.array([30_000, 1]), transcripts.exon_edges


def test_a_delins_is_laid_beside_the_reference_base_by_base():
    track = np.arange(12, dtype=np.float32)[:, None]
    # Distance 5: index 5 is the allele's first base. Three bases for two: the third joins the second by the maximum.
    assert align(track, 2, 3, 5)[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert align(track[:9], 4, 2, 5)[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 0, 7, 8]
    assert align(track[:11], 2, 2, 5)[:, 0].tolist() == list(range(11))


def test_entries_of_a_record_that_writes_its_allele_otherwise():
    told = "C|JAG1|1.00|1.00|0.00|-0.00|5|-2|0|50,C|OTHER|.|.|.|.|.|.|.|."
    expected = "CAC|JAG1|1.00|1.00|0.00|-0.00|0|-7|-5|45,CAC|OTHER|.|.|.|.|.|.|.|."
    assert as_written(told, "CAC", 5) == expected


def test_a_gtf_gives_one_transcript_a_gene(folder, reference):
    def exon(gene, transcript, start, end, tags=""):
        names = f'gene_id "{gene}"; gene_name "N{gene}"; transcript_id "{transcript}";{tags}'
        return f"chr1\tx\texon\t{start}\t{end}\t.\t-\t.\t{names}\n"

    text = exon("A", "A1", 100, 900) + exon("A", "A2", 200, 300, ' tag "Ensembl_canonical";')
    text += exon("A", "A2", 500, 600, ' tag "Ensembl_canonical";') + exon("B", "B1", 10, 20) + exon("B", "B2", 10, 90)
    (folder / "genes.gtf").write_text("##comment\n" + text)
    prepare_transcripts(folder / "genes.gtf", reference, folder / "gtf.parquet")
    read = load_transcripts(folder / "gtf.parquet")
    assert list(zip(read.gene, read.start, read.end, read.is_reverse, strict=True)) == [
        ("NA", 199, 600, True),
        ("NB", 9, 90, True),
    ]
    assert read.exon_edges[0].tolist() == [199, 299, 499, 599]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("TX_END", "END"), "no column TX_END"),
        (("16000\t7000", "x\t7000"), "line 2: not a row"),
        (("\t+\t", "\t.\t"), "line 2: PLUS: strand"),
        (("\t1\t", "\t2\t"), "no transcript on a contig"),
        (("\t16000\t", "\t31000\t"), "past the contig's end"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(folder, reference, change, said):
    (folder / "bad.txt").write_text(GENES.replace(*change))
    with pytest.raises(RegionsError, match=said):
        prepare_transcripts(folder / "bad.txt", reference, folder / "bad.parquet")


def test_options_are_checked():
    with pytest.raises(PipelineError, match="distance"):
        make_pipeline("spliceai", {"distance": 5_000})
