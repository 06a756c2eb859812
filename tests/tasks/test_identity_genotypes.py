"""Genotypes kept of a VCF: read right, keyed by the normalised allele, and the same few of every sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tasks.genome.reference import Reference, prepare_reference
from tasks.identity.genotypes import (
    HEMI_ALT,
    HET,
    HOM_ALT,
    HOM_REF,
    UNKNOWN,
    GenotypeCollector,
    Genotypes,
    place_hash,
    read_genotypes,
)
from tasks.variants.scanning import scan_variants

HEADER = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("genotypes")
    (folder / "g.fa").write_text(f">1\n{'ACGT' * 10_000}\n>X\n{'ACGT' * 1_000}\n")
    return prepare_reference(folder / "g.fa", folder / "reference")


def collect(
    folder: Path, reference: Reference, records: list[str], samples: str = "S", **options: object
) -> tuple[Genotypes, dict[str, object]]:
    path = folder / "in.vcf"
    body = "".join(f"{line}\n" for line in records).replace(" ", "\t")
    path.write_text(HEADER + samples.replace(" ", "\t") + "\n" + body)
    collector = GenotypeCollector(reference, **options)  # type: ignore[arg-type]
    vcf_sample = options.get("vcf_sample")
    scan_variants(path, reference, folder, vcf_sample=vcf_sample, observer=collector.observe)  # type: ignore[arg-type]
    summary = collector.write(folder / "genotypes.parquet")
    return read_genotypes(folder / "genotypes.parquet"), summary


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GT 0/1", HET),
        ("GT 1|0", HET),
        ("GT 1/1", HOM_ALT),
        ("GT 0|0", HOM_REF),
        ("GT ./.", UNKNOWN),
        ("GT ./1", UNKNOWN),
        ("GT 0/.", UNKNOWN),
        ("GT .", UNKNOWN),
        ("GT 1", HEMI_ALT),
        ("GT 0", HOM_REF),
        ("GT 0/2", UNKNOWN),
        ("GT 0/0/1", UNKNOWN),
        ("GT 0/10", UNKNOWN),
        ("GT:GQ 0/1:19", UNKNOWN),
        ("GT:GQ 0/1:20", HET),
        ("GT:GQ 0/1:19.9", UNKNOWN),
        ("GT:GQ 0/1:99.123", HET),
        ("GT:GQ 0/1:.", HET),
        ("GT:GQ 0/1", HET),
        ("GT:DP:GQ 0/1:5:40", HET),
        ("GT:DP:GQ 0/1:5:7", UNKNOWN),
        ("GT:GQX:DP 0/1:1:2", HET),
        ("DP 12", UNKNOWN),
    ],
)
def test_each_way_to_write_a_genotype(tmp_path: Path, reference: Reference, text: str, expected: int) -> None:
    genotypes, _ = collect(tmp_path, reference, [f"1 2 . C T . PASS . {text}"])
    assert genotypes.values.tolist() == [[expected]]


def test_filtered_records_are_unknown_and_not_homozygous_for_ref(tmp_path: Path, reference: Reference) -> None:
    filters = ("PASS", ".", "LowQual", "PAS", "PASS;x")
    records = [f"1 {4 * n + 2} . C T . {word} . GT 0/1" for n, word in enumerate(filters)]
    genotypes, _ = collect(tmp_path, reference, records)
    assert genotypes.values[:, 0].tolist() == [HET, HET, UNKNOWN, UNKNOWN, UNKNOWN]


def test_alleles_count_by_their_normalised_key(tmp_path: Path, reference: Reference) -> None:
    plain, _ = collect(tmp_path, reference, ["1 2 . C T . . . GT 0/1"])
    for record in ("1 1 . ACG ATG . . . GT 0/1", "chr1 2 . c t . . . GT 0/1", "1 2 . C A,T . . . GT 0/2"):
        other, _ = collect(tmp_path, reference, [record])
        row = int(np.flatnonzero((other.locus == plain.locus[0]) & (other.code == plain.code[0]))[0])
        assert other.values[row].tolist() == [HET]
    indels, summary = collect(tmp_path, reference, ["1 2 . C CT . . . GT 0/1", "1 5 . A <NON_REF> . . . GT 0/0"])
    assert len(indels.locus) == 0
    assert indels.bins.tolist() == [0]
    assert summary["sites"] == 0


def test_records_of_one_allele_that_disagree_are_unknown(tmp_path: Path, reference: Reference) -> None:
    genotypes, _ = collect(tmp_path, reference, ["1 2 . C T . . . GT 0/1", "1 2 . C T . . . GT 1/1"])
    assert genotypes.values.tolist() == [[UNKNOWN]]
    genotypes, _ = collect(tmp_path, reference, ["1 2 . C T . . . GT 0/1"] * 2)
    assert genotypes.values.tolist() == [[HET]]


def test_columns_one_or_all(tmp_path: Path, reference: Reference) -> None:
    records = ["1 2 . C T . . . GT:GQ 0/1:50 1/1:60 0/0:3", "1 6 . C T . . . GT 0/0 ./. 0/1"]
    every, _ = collect(tmp_path, reference, records, "A B C")
    assert every.columns == ("A", "B", "C")
    assert every.values.tolist() == [[HET, HOM_ALT, UNKNOWN], [HOM_REF, UNKNOWN, HET]]
    for place, name in enumerate("ABC"):
        one, _ = collect(tmp_path, reference, records, "A B C", vcf_sample=name)
        assert one.columns == (name,)
        assert one.values[:, 0].tolist() == every.values[:, place].tolist()


def test_sites_only_files_have_no_genotypes(tmp_path: Path, reference: Reference) -> None:
    path = tmp_path / "sites.vcf"
    path.write_text("##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n1\t2\t.\tC\tT\t.\t.\t.\n")
    collector = GenotypeCollector(reference)
    scan_variants(path, reference, tmp_path, observer=collector.observe)
    collector.write(tmp_path / "genotypes.parquet")
    assert read_genotypes(tmp_path / "genotypes.parquet").columns == ()


def test_x_is_counted_apart_and_not_kept(tmp_path: Path, reference: Reference) -> None:
    records = [
        "1 2 . C T . . . GT 0/1",
        *(f"X {4 * n + 2} . C T . . . GT {gt}" for n, gt in enumerate(("0/1", "1", "1/1", "0/1"))),
    ]
    genotypes, summary = collect(tmp_path, reference, records)
    assert len(genotypes.locus) == 1
    assert summary["x"] == [{"het": 2, "hom": 1, "hemi": 1}]
    assert summary["autosomes"] == [{"het": 1, "hom": 0, "hemi": 0}]


def test_the_sites_kept_are_those_with_the_smallest_hashes(tmp_path: Path, reference: Reference) -> None:
    records = [f"1 {4 * n + 2} . C T . . . GT 0/1" for n in range(9_000)]
    every, _ = collect(tmp_path, reference, records)
    few, summary = collect(tmp_path, reference, records, max_sites=500)
    ranks = np.sort(place_hash(every.locus))
    assert summary["kept"] == 500
    assert few.limit == int(ranks[499])
    assert set(few.locus.tolist()) == set(every.locus[place_hash(every.locus) <= ranks[499]].tolist())
    # Evenly spread: a fifth of the sites in each fifth of the 36 kb, within four standard deviations.
    fifths = np.bincount((few.locus // 7_200).astype(int), minlength=5)[:5]
    assert (np.abs(fifths - 100) < 4 * np.sqrt(80)).all(), fifths
