from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import cyvcf2
import numpy as np
import pysam
import pytest

from serving.server import ModelServer
from tasks.calling.calling import call_shard, finish_calls, plan_call_shards
from tasks.calling.gvcf import finish_gvcf
from tasks.calling.reference_blocks import BANDS, find_blocks
from tasks.genome.reference import Reference, prepare_reference
from tasks.genome.regions import merge_regions
from tasks.intervals import Interval
from tasks.simulation.genome import simulate_genome
from tasks.simulation.individual import simulate_individual
from tasks.simulation.library import Library
from tasks.simulation.placing import Placer
from tasks.simulation.texts import write_fasta
from tasks.simulation.variants import simulate_alleles
from tests.conftest import REPOSITORY
from tests.tasks.test_calling import STATE_SIZE, alignment_of

LENGTH_BP = 30_000


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(REPOSITORY / "data" / "models", models=["reads"]) as running:
        yield running


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reference]:
    folder = tmp_path_factory.mktemp("sample")
    rng = np.random.default_rng(5)
    genome = simulate_genome(rng, [LENGTH_BP])
    alleles = simulate_alleles(rng, genome, heterozygosity=2e-3)
    fasta = folder / "genome.fa"
    write_fasta(fasta, genome)
    files = simulate_individual(folder, "s", genome, alleles, rng, Library(depth=20), placer=Placer(fasta, genome))
    assert files.bam is not None
    return files.bam, prepare_reference(fasta, folder / "prepared")


def gvcf_of(
    bam: Path, reference: Reference, server: ModelServer, folder: Path, shards: Sequence[Interval], **more: object
) -> Path:
    folder.mkdir()
    calls, blocks = ([folder / f"{n}.{kind}.parquet" for n in range(len(shards))] for kind in ("calls", "blocks"))
    for shard, call, block in zip(shards, calls, blocks, strict=True):
        call_shard(alignment_of(bam), reference, shard, server.infer, call, state_size=STATE_SIZE, blocks=block, **more)  # type: ignore[arg-type]
    finish_calls(calls, reference, folder / "s.vcf.gz", "s")
    finish_gvcf(calls, blocks, reference, folder / "s.g.vcf.gz", "s")
    return folder / "s.g.vcf.gz"


def test_every_base_is_in_one_record_and_the_calls_are_those_of_the_vcf(
    sample: tuple[Path, Reference], server: ModelServer, tmp_path: Path
) -> None:
    bam, reference = sample
    path = gvcf_of(bam, reference, server, tmp_path / "g", plan_call_shards(reference, {"chr1": 1}, None))
    told = np.zeros(LENGTH_BP, np.int64)
    calls = []
    with pysam.VariantFile(str(path)) as file:
        for record in file:
            told[record.start : record.stop] += 1
            assert record.alts is not None
            assert record.alts[-1] == "<*>"
            values = record.samples[0]
            num_alleles = len(record.alts) + 1
            assert len(values["PL"]) == num_alleles * (num_alleles + 1) // 2
            assert min(values["PL"]) == 0
            if len(record.alts) > 1:
                calls.append((record.pos, record.ref, record.alts[:-1], values["GT"]))
            else:
                assert values["GT"] == ((0, 0) if values["GQ"] else (None, None))
                assert values["GQ"] == min(99, *values["PL"][1:])
    assert (told > 0).all()
    assert (told > 1).sum() < 40, "only a base change inside a deletion's span is told twice"
    with pysam.VariantFile(str(tmp_path / "g" / "s.vcf.gz")) as file:
        assert calls == [(r.pos, r.ref, r.alts, r.samples[0]["GT"]) for r in file]
    assert len(calls) > 40
    assert path.with_name("s.g.vcf.gz.tbi").exists()
    assert sum(1 for _ in cyvcf2.VCF(str(path))) > len(calls)


@pytest.mark.parametrize("shard_bp", [1_009, 7_001])
def test_the_same_bytes_come_out_wherever_shards_are_cut(
    sample: tuple[Path, Reference], server: ModelServer, tmp_path: Path, shard_bp: int
) -> None:
    bam, reference = sample
    whole, cut = (
        gvcf_of(bam, reference, server, tmp_path / str(size), plan_call_shards(reference, {"chr1": 1}, None, size))
        for size in (LENGTH_BP, shard_bp)
    )
    assert gzip.decompress(whole.read_bytes()) == gzip.decompress(cut.read_bytes())


def test_depth_and_sureness_are_those_of_the_reads(
    sample: tuple[Path, Reference], server: ModelServer, tmp_path: Path
) -> None:
    bam, reference = sample
    path = gvcf_of(bam, reference, server, tmp_path / "g", plan_call_shards(reference, {"chr1": 1}, None))
    with pysam.AlignmentFile(str(bam)) as alignment, pysam.VariantFile(str(path)) as file:
        blocks = [r for r in file if len(r.alts or ()) == 1]
        for record in blocks[:: max(len(blocks) // 40, 1)]:
            names = [
                {
                    read.alignment.query_name
                    for read in column.pileups
                    if read.is_del or (read.query_position is not None and not read.is_refskip)
                }
                for column in alignment.pileup(
                    record.contig, record.start, record.stop, truncate=True, min_mapping_quality=10, min_base_quality=10
                )
            ]
            fewest = min(map(len, names), default=0) if len(names) == record.stop - record.start else 0
            assert abs(record.samples[0]["MIN_DP"] - fewest) <= 3
            assert record.samples[0]["GQ"] <= 3.02 * record.samples[0]["MIN_DP"] + 1
    qualities = {int(np.searchsorted(BANDS, r.samples[0]["GQ"], side="right")) for r in blocks}
    assert len(qualities) > 3


def test_blocks_keep_to_regions(sample: tuple[Path, Reference], server: ModelServer, tmp_path: Path) -> None:
    bam, reference = sample
    regions = merge_regions(np.array([0, 0]), np.array([5_000, 9_000]), np.array([6_000, 9_100]))
    shards = plan_call_shards(reference, {"chr1": 1}, regions)
    path = gvcf_of(bam, reference, server, tmp_path / "g", shards, regions=regions)
    told = np.zeros(LENGTH_BP, np.int64)
    with pysam.VariantFile(str(path)) as file:
        for record in file:
            if len(record.alts or ()) == 1:
                told[record.start : record.stop] += 1
    outside = np.ones(LENGTH_BP, np.bool_)
    outside[5_000:6_000] = outside[9_000:9_100] = False
    assert not told[outside].any()
    assert told[~outside].mean() > 0.9


def test_one_copy_of_a_place_has_one_allele_in_its_block() -> None:
    counts = np.array([[20, 0]] * 10, np.int32)
    ploidy = np.array([2] * 4 + [1] * 4 + [0] * 2, np.uint8)
    two, one = find_blocks(counts, 100, ploidy, np.ones(10, np.bool_), [], {})
    assert (two.start, two.end, two.num_copies, two.min_depth) == (100, 104, 2, 20)
    assert (one.start, one.end, one.num_copies) == (104, 108, 1)
    assert two.genotype_quality == two.likelihoods[1] == round(20 * 10 * np.log10(2) + 200 * np.log10(0.99))
    assert one.genotype_quality == 99


def test_what_was_weighed_and_not_called_tells_how_sure_the_reference_is() -> None:
    counts = np.array([[20, 0]] * 5, np.int32)
    blocks = list(find_blocks(counts, 0, np.full(5, 2, np.uint8), np.ones(5, np.bool_), [], {2: (7, 30)}))
    assert [(block.start, block.end) for block in blocks] == [(0, 2), (2, 3), (3, 5)]
    assert blocks[1].genotype_quality == 7


@pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")
def test_bcftools_merges_it_as_a_gvcf(sample: tuple[Path, Reference], server: ModelServer, tmp_path: Path) -> None:
    bam, reference = sample
    path = gvcf_of(bam, reference, server, tmp_path / "g", plan_call_shards(reference, {"chr1": 1}, None))
    other = tmp_path / "other.g.vcf.gz"
    names = tmp_path / "names"
    names.write_text("t\n")
    subprocess.run(["bcftools", "reheader", "-s", names, "-o", other, path], check=True)
    subprocess.run(["bcftools", "index", "-t", other], check=True)
    merged = subprocess.run(
        ["bcftools", "merge", "--gvcf", reference.fasta_path, path, other],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    rows = [line.split("\t") for line in merged.splitlines() if not line.startswith("#")]
    assert len(rows) > 100
    assert all(row[9].split(":")[0] == row[10].split(":")[0] for row in rows)
