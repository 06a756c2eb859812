from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pysam
import pytest

from serving.server import ModelServer
from tasks.calling.calling import CALL_SCHEMA, Alignment, call_shard, finish_calls, plan_call_shards
from tasks.errors import AlignmentError, BalanceError, ReferenceError
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
from tests.tasks.alignment_files import Read, random_bases, write_bam, write_reference
from tests.tasks.test_candidates import read_with

STATE_SIZE = 128
LENGTH_BP = 60_000


@dataclass(frozen=True)
class Sequenced:
    """A simulated sample as BAM, its truth, and its reference."""

    reference: Reference
    bam: Path
    truth: Path


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(REPOSITORY / "data" / "models", models=["reads"]) as running:
        yield running


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sequenced:
    folder = tmp_path_factory.mktemp("sample")
    rng = np.random.default_rng(11)
    genome = simulate_genome(rng, [LENGTH_BP])
    alleles = simulate_alleles(rng, genome, heterozygosity=2e-3)
    fasta = folder / "genome.fa"
    write_fasta(fasta, genome)
    files = simulate_individual(folder, "s", genome, alleles, rng, Library(depth=25), placer=Placer(fasta, genome))
    assert files.bam is not None
    return Sequenced(prepare_reference(fasta, folder / "prepared"), files.bam, files.truth)


def alignment_of(path: Path) -> Alignment:
    kind = path.suffix[1:]
    return Alignment(
        path=str(path), index_path=f"{path}.{'bai' if kind == 'bam' else 'crai'}", kind=kind, sample_id="s"
    )


def call(
    path: Path, reference: Reference, server: ModelServer, folder: Path, shards: Sequence[Interval], **more: Any
) -> tuple[list[str], list[dict[str, Any]]]:
    """Calls shard by shard; returns the VCF's lines and the shards' summaries."""
    paths, summaries = [], []
    for number, shard in enumerate(shards):
        paths.append(folder / f"{path.suffix[1:]}-{len(shards)}-{number}.parquet")
        summaries.append(
            call_shard(alignment_of(path), reference, shard, server.infer, paths[-1], state_size=STATE_SIZE, **more)
        )
    vcf = folder / "calls.vcf.gz"
    finish_calls(paths, reference, vcf, "s")
    return gzip.decompress(vcf.read_bytes()).decode().splitlines(), summaries


def records(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not line.startswith("#")]


def f1(called: set[Any], truth: set[Any]) -> float:
    return 2 * len(called & truth) / (len(called) + len(truth))


def snvs(vcf: Path, start: int, end: int) -> set[tuple[int, str, str]]:
    """Single-base alleles that the first sample carries; records that begin in ``[start, end)``."""
    found = set()
    with pysam.VariantFile(str(vcf)) as file:
        for record in file:
            carried = [allele for allele in record.samples[0].alleles if allele and allele != record.ref]
            for alt in carried if start <= record.start < end else []:
                assert record.ref is not None
                if len(alt) == len(record.ref):
                    pairs = zip(record.ref.upper(), alt.upper(), strict=True)
                    found |= {(record.start + at, one, other) for at, (one, other) in enumerate(pairs) if one != other}
    return found


def test_a_simulated_sample_is_called_well(sample: Sequenced, server: ModelServer, tmp_path: Path) -> None:
    shards = plan_call_shards(sample.reference, {"chr1": 1}, None)
    lines, (summary,) = call(sample.bam, sample.reference, server, tmp_path, shards)
    assert summary["calls"] >= len(records(lines)) > 50
    assert f1(snvs(tmp_path / "calls.vcf.gz", 0, LENGTH_BP), snvs(sample.truth, 0, LENGTH_BP)) > 0.9


def test_sex_chromosomes_and_mitochondrion_are_called_by_their_copies(server: ModelServer, tmp_path: Path) -> None:
    rng = np.random.default_rng(12)
    names = ("chrX", "chrY", "chrM")
    genome = replace(simulate_genome(rng, [30_000, 12_000, 12_000], unassembled_share=0.0), names=names)
    alleles = simulate_alleles(rng, genome, heterozygosity=4e-3)
    both = np.repeat(alleles.draw(rng)[:, :1], 2, axis=1)
    fasta = tmp_path / "genome.fa"
    write_fasta(fasta, genome)
    files = simulate_individual(
        tmp_path, "s", genome, alleles, rng, Library(depth=30), carried=both, placer=Placer(fasta, genome)
    )
    assert files.bam is not None
    reference = prepare_reference(fasta, tmp_path / "prepared")
    shards = plan_call_shards(reference, dict.fromkeys(names, 1), None)
    forms: dict[str, dict[str, set[str]]] = {}
    for sex in ("XX", "XY", None):
        found: dict[str, set[str]] = {name: set() for name in names}
        for line in records(call(files.bam, reference, server, tmp_path, shards, sex=sex)[0]):
            contig, *_, layout, values = line.split("\t")
            found[contig].add(f"{layout} {values.split(':')[0]}")
        forms[str(sex)] = found
        with pysam.VariantFile(str(tmp_path / "calls.vcf.gz")) as file:
            assert sum(1 for _ in file) > 50
    diploid, haploid = {"GT:GQ:DP:AD:PL 0/1", "GT:GQ:DP:AD:PL 1/1"}, {"GT:GQ:DP:AD:PL 1"}
    for sex, expected in (("XX", diploid), ("XY", haploid), ("None", diploid)):
        assert forms[sex]["chrX"] <= expected
        assert forms[sex]["chrX"]
        assert forms[sex]["chrM"] == {"GT:DP:AD:AF ."}
    assert forms["XX"]["chrY"] == set()
    assert forms["XY"]["chrY"] == haploid
    assert forms["None"]["chrY"] <= diploid


@pytest.mark.parametrize("shard_bp", [1_013, 7_001, 30_000])
def test_the_same_calls_come_out_wherever_shards_are_cut(
    sample: Sequenced, server: ModelServer, tmp_path: Path, shard_bp: int
) -> None:
    whole, (summary,) = call(
        sample.bam, sample.reference, server, tmp_path, plan_call_shards(sample.reference, {"chr1": 1}, None)
    )
    cut = plan_call_shards(sample.reference, {"chr1": 1}, None, shard_bp)
    assert len(cut) > 1
    lines, summaries = call(sample.bam, sample.reference, server, tmp_path, cut)
    assert lines == whole
    for reason, number in summary["reads"].items():
        assert sum(each["reads"][reason] for each in summaries) == number


@pytest.mark.parametrize("border", [-3, -1, 0, 1, 2, 5, 9, 12])
def test_a_deletion_across_a_border_is_called_once(server: ModelServer, tmp_path: Path, border: int) -> None:
    genome = random_bases(4, 2000) + "CAGCAGCAGCAG" + random_bases(5, 2000)
    reference = write_reference(tmp_path, {"chr1": genome})
    shown = read_with(genome, 2005, genome[2005:2012], genome[2005])
    bam = write_bam(tmp_path / "deletion.bam", {"chr1": len(genome)}, [shown] * 30)
    whole, _ = call(bam, reference, server, tmp_path, [Interval("chr1", 0, len(genome))])
    at = 2000 + border
    cut, _ = call(bam, reference, server, tmp_path, [Interval("chr1", 0, at), Interval("chr1", at, len(genome))])
    assert len(records(whole)) == 1
    assert cut == whole


@pytest.mark.parametrize(("bases", "genotype"), [("GA", "0/1"), ("G", "1/1"), ("GC", "1/2"), ("A", None)])
def test_clear_genotypes_are_called_as_they_are(
    server: ModelServer, tmp_path: Path, bases: str, genotype: str | None
) -> None:
    genome = random_bases(6, 2000) + "A" + random_bases(7, 2000)
    reference = write_reference(tmp_path, {"chr1": genome})
    reads = []
    for number in range(40):
        whole = read_with(genome, 2000, "A", bases[number % len(bases)])
        cut = 3 * number % 60
        reads.append(Read(whole.start + cut, f"{121 - cut}M", whole.bases[cut:], flag=16 * (number // 2 % 2)))
    bam = write_bam(tmp_path / "clear.bam", {"chr1": len(genome)}, reads)
    lines, _ = call(bam, reference, server, tmp_path, [Interval("chr1", 0, len(genome))])
    samples = [line.split("\t")[9].split(":") for line in records(lines)]
    assert [sample[0] for sample in samples] == ([genotype] if genotype else [])
    assert all(int(sample[1]) >= 15 and sample[2] == "40" for sample in samples)


@pytest.mark.parametrize("options", [["-O", "cram"], ["-O", "cram,version=3.0"], ["-O", "cram,embed_ref=1"]])
def test_cram_and_bam_give_the_same_calls(
    sample: Sequenced, server: ModelServer, tmp_path: Path, options: list[str]
) -> None:
    cram = tmp_path / "sample.cram"
    pysam.view("-T", str(sample.reference.fasta_path), *options, "-o", str(cram), str(sample.bam), catch_stdout=False)
    pysam.index(str(cram))
    shards = plan_call_shards(sample.reference, {"chr1": 1}, None, 25_000)
    from_bam = call(sample.bam, sample.reference, server, tmp_path, shards)
    assert call(cram, sample.reference, server, tmp_path, shards) == from_bam


def test_calling_keeps_to_regions(sample: Sequenced, server: ModelServer, tmp_path: Path) -> None:
    regions = merge_regions(np.array([0, 0]), np.array([10_000, 41_000]), np.array([20_000, 45_000]))
    everywhere, (all_counts,) = call(
        sample.bam, sample.reference, server, tmp_path, plan_call_shards(sample.reference, {"chr1": 1}, None)
    )
    shards = plan_call_shards(sample.reference, {"chr1": 1}, regions, 10_000)
    assert [shard.start for shard in shards] == [10_000, 40_000]
    inside, counts = call(sample.bam, sample.reference, server, tmp_path, shards, regions=regions)

    def on_target(line: str) -> bool:
        start, length = int(line.split("\t")[1]) - 1, len(line.split("\t")[3])
        return bool(regions.contains(np.array([0]), np.array([start]), np.array([start + length]))[0])

    assert records(inside) == [line for line in records(everywhere) if on_target(line)]
    assert all_counts["candidates_off_target"] == 0 < sum(each["candidates_off_target"] for each in counts)


def test_a_contig_by_its_other_name_is_the_same_contig(sample: Sequenced, server: ModelServer, tmp_path: Path) -> None:
    renamed = tmp_path / "renamed.bam"
    with pysam.AlignmentFile(str(sample.bam)) as bam:
        header = bam.header.to_dict()
        header["SQ"] = [{"SN": "GL000207.1", "LN": 4262}, {**header["SQ"][0], "SN": "1"}]
        with pysam.AlignmentFile(str(renamed), "wb", header=header) as out:
            for read in bam:
                record = pysam.AlignedSegment.fromstring(read.to_string().replace("\tchr1\t", "\t1\t", 1), out.header)
                out.write(record)
    pysam.index(str(renamed))
    shards = [Interval("chr1", 0, LENGTH_BP)]
    assert records(call(renamed, sample.reference, server, tmp_path, shards)[0]) == records(
        call(sample.bam, sample.reference, server, tmp_path, shards)[0]
    )


def test_shards_skip_contigs_without_reads_and_stretches_without_bases(tmp_path: Path) -> None:
    bases = random_bases(1, 5_000)
    reference = write_reference(tmp_path, {"b": bases + "N" * 20_000 + bases, "a": bases, "c": bases})
    planned = plan_call_shards(reference, {"a": 5, "b": 7, "c": 0}, None, 5_000)
    assert planned == [Interval("b", 0, 5_000), Interval("b", 25_000, 30_000), Interval("a", 0, 5_000)]
    with pytest.raises(ReferenceError, match="nowhere"):
        plan_call_shards(reference, {"nowhere": 1}, None)


def test_a_sample_with_nothing_to_call_has_a_valid_vcf(tmp_path: Path, server: ModelServer) -> None:
    genome = random_bases(1, 3_000)
    reference = write_reference(tmp_path, {"chr1": genome, "chr2": genome})
    bam = write_bam(tmp_path / "s.bam", {"chr1": 3_000, "chr2": 3_000}, [Read(100, "50M", genome[100:150])])
    lines, (summary,) = call(bam, reference, server, tmp_path, [Interval("chr1", 0, 3_000)])
    assert summary["reads"]["usable"] == 1
    for vcf_lines in (lines, call(bam, reference, server, tmp_path, [])[0]):
        assert records(vcf_lines) == []
    with pysam.VariantFile(str(tmp_path / "calls.vcf.gz")) as vcf:
        assert list(vcf.header.samples) == ["s"]
        assert list(vcf.header.contigs) == ["chr1", "chr2"]
        assert set(vcf.header.formats) == {"GT", "GQ", "DP", "AD", "AF", "PL"}


def test_a_contig_that_the_alignment_lacks_has_no_calls(tmp_path: Path, server: ModelServer) -> None:
    genome = random_bases(1, 3_000)
    reference = write_reference(tmp_path, {"chr1": genome, "chr2": genome})
    bam = write_bam(tmp_path / "s.bam", {"chr1": 3_000}, [])
    _, (summary,) = call(bam, reference, server, tmp_path, [Interval("chr2", 0, 3_000)])
    assert (summary["reads"], summary["calls"]) == ({}, 0)


def test_the_written_records_read_back(sample: Sequenced, server: ModelServer, tmp_path: Path) -> None:
    lines, _ = call(sample.bam, sample.reference, server, tmp_path, [Interval("chr1", 0, LENGTH_BP)])
    with pysam.VariantFile(str(tmp_path / "calls.vcf.gz")) as vcf:
        places = []
        for record in vcf:
            data = record.samples["s"]
            num_alleles = len(record.alleles or ())
            assert len(data["AD"]) == num_alleles
            assert len(data["PL"]) == num_alleles * (num_alleles + 1) // 2
            assert sum(data["AD"]) <= data["DP"]
            assert record.ref == sample.reference.sequence(Interval("chr1", record.start, record.stop))
            places.append(record.start)
    assert places == sorted(places)
    assert len(places) == len(records(lines))


def test_shards_out_of_order_are_a_defect(sample: Sequenced, server: ModelServer, tmp_path: Path) -> None:
    paths = []
    for number, shard in enumerate([Interval("chr1", 30_000, LENGTH_BP), Interval("chr1", 0, 30_000)]):
        paths.append(tmp_path / f"{number}.parquet")
        call_shard(alignment_of(sample.bam), sample.reference, shard, server.infer, paths[-1], state_size=STATE_SIZE)
    assert pq.read_schema(paths[0]).equals(CALL_SCHEMA)
    with pytest.raises(BalanceError, match=r"1\.parquet"):
        finish_calls(paths, sample.reference, tmp_path / "calls.vcf.gz", "s")
    assert not (tmp_path / "calls.vcf.gz").exists()


def test_a_damaged_file_is_an_error_that_names_it(sample: Sequenced, server: ModelServer, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.bam"
    content = bytearray(sample.bam.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    damaged.write_bytes(content)
    Path(f"{damaged}.bai").write_bytes(Path(f"{sample.bam}.bai").read_bytes())
    with pytest.raises(AlignmentError, match=r"damaged\.bam"):
        call(damaged, sample.reference, server, tmp_path, [Interval("chr1", 0, LENGTH_BP)])


@pytest.fixture
def real(shared_data: Path, tmp_path: Path) -> Callable[[str], tuple[Path, Reference]]:
    folder = shared_data / "na12878"
    reference = prepare_reference(folder / "ucsc.hg19.chr20.unittest.fasta.gz", tmp_path / "prepared")
    return lambda name: (folder / name, reference)


def real_shards(reference: Reference) -> list[Interval]:
    shards = plan_call_shards(reference, {"chr20": 1}, None)
    return [shard for shard in shards if 9_900_000 <= shard.start < 10_200_000]


def test_the_real_slice(real: Callable[[str], tuple[Path, Reference]], server: ModelServer, tmp_path: Path) -> None:
    bam, reference = real("NA12878_S1.chr20.10_10p1mb.bam")
    shards = real_shards(reference)
    from_bam, _ = call(bam, reference, server, tmp_path, shards)
    truth, _ = real("test_nist.b37_chr20_100kbp_at_10mb.vcf.gz")
    called = snvs(tmp_path / "calls.vcf.gz", 10_000_000, 10_100_000)
    assert f1(called, snvs(truth, 10_000_000, 10_100_000)) >= 0.95
    cram, _ = real("NA12878_chr20_10_10p1mb.cram")
    assert call(cram, reference, server, tmp_path, shards)[0] == from_bam
