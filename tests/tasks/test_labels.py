"""Labels for the effect model: who gets one, what is matched, what is held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import ReferenceError
from tasks.genome.reference import Reference
from tasks.training.label_split import BLOCK_SHIFT, GAP_BP, split_labels
from tasks.training.labels import LabelError, LabelledAlleles, classify, consequence_group, read_labels
from tasks.variants.alleles import ALLELE_SCHEMA
from tests.tasks.variant_files import make_genome, vcf_text

CLINVAR = (
    "##fileformat=VCFv4.1",
    '##INFO=<ID=CLNSIG,Number=.,Type=String,Description="x">',
    '##INFO=<ID=CLNREVSTAT,Number=.,Type=String,Description="x">',
    '##INFO=<ID=MC,Number=.,Type=String,Description="x">',
    '##INFO=<ID=AF_ESP,Number=1,Type=Float,Description="x">',
    '##INFO=<ID=AF_EXAC,Number=1,Type=Float,Description="x">',
)
GNOMAD = (
    "##fileformat=VCFv4.2",
    '##INFO=<ID=AF,Number=A,Type=Float,Description="x">',
    '##INFO=<ID=CSQ,Number=.,Type=String,Description="From VEP. Format: Allele|Consequence|SYMBOL">',
)
ONE, TWO = "criteria_provided,_single_submitter", "criteria_provided,_multiple_submitters,_no_conflicts"


@pytest.fixture(scope="module")
def genome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reference, dict[str, str]]:
    return make_genome(tmp_path_factory.mktemp("genome"))


def other(base: str, step: int = 1) -> str:
    return "ACGT"[("ACGT".index(base) + step) % 4]


@pytest.mark.parametrize(
    ("significance", "review", "min_stars", "word"),
    [
        ("Pathogenic", ONE, 1, "pathogenic"),
        ("Likely_pathogenic", "reviewed_by_expert_panel", 3, "pathogenic"),
        ("Pathogenic/Likely_pathogenic|drug_response", TWO, 2, "pathogenic"),
        ("Pathogenic", ONE, 2, "too few stars"),
        ("Pathogenic", "no_assertion_criteria_provided", 1, "too few stars"),
        ("Pathogenic", "no_assertion_criteria_provided", 0, "pathogenic"),
        ("Pathogenic,_low_penetrance", TWO, 1, "other"),
        ("Conflicting_classifications_of_pathogenicity", TWO, 0, "conflicting"),
        ("Conflicting_interpretations_of_pathogenicity|other", TWO, 0, "conflicting"),
        ("Benign/Likely_benign", TWO, 1, "benign"),
        ("Uncertain_significance", TWO, 1, "other"),
        ("Pathogenic/Benign", TWO, 1, "other"),
        (None, None, 0, "other"),
    ],
)
def test_classifications(significance: str | None, review: str | None, min_stars: int, word: str) -> None:
    assert classify(significance, review, min_stars) == word


def test_the_most_severe_consequence_counts() -> None:
    assert consequence_group("SO:1|intron_variant,SO:2|missense_variant", None) == "protein change"
    assert consequence_group(None, ["intron_variant&stop_gained", None]) == "loss of function"
    assert consequence_group("SO:1|nonsense", None) == "loss of function"
    assert consequence_group(None, ["regulatory_region_variant"]) == "other"
    assert consequence_group(None, None) == "unknown"


def test_who_gets_a_label(genome: tuple[Reference, dict[str, str]], tmp_path: Path) -> None:
    reference, sequences = genome
    letters = sequences["chr1"]

    def record(position: int, info: str, step: int = 1) -> str:
        ref = letters[position - 1]
        return f"1 {position} . {ref} {other(ref, step)} . . {info}"

    clinvar, gnomad = tmp_path / "clinvar.vcf", tmp_path / "gnomad.vcf"
    clinvar.write_text(
        vcf_text(
            [
                record(10, f"CLNSIG=Pathogenic;CLNREVSTAT={TWO};MC=SO:0001587|nonsense"),
                record(11, f"AF_ESP=0.001;AF_EXAC=0.002;CLNSIG=Likely_pathogenic;CLNREVSTAT={ONE}"),
                record(12, "CLNSIG=Pathogenic;CLNREVSTAT=no_assertion_criteria_provided"),
                record(13, f"CLNSIG=Conflicting_classifications_of_pathogenicity;CLNREVSTAT={ONE}"),
                record(14, f"CLNSIG=Pathogenic;CLNREVSTAT={ONE}"),
                record(15, f"CLNSIG=Benign;CLNREVSTAT={TWO};MC=SO:0001819|synonymous_variant"),
                "1 100 . CA C . . CLNSIG=Pathogenic;CLNREVSTAT=" + TWO,
            ],
            header=CLINVAR,
        )
    )
    ref = letters[19]
    gnomad.write_text(
        vcf_text(
            [
                record(14, "AF=0.2"),  # also pathogenic
                f"chr1 20 . {ref} {other(ref)},{other(ref, 2)} . . "
                f"AF=0.0001,0.01;CSQ={other(ref)}|stop_gained|,{other(ref, 2)}|missense_variant|",
                "chr1 110 . AA A . . AF=.",
                "chr1 30 . N C . . AF=0.5",
            ],
            header=GNOMAD,
        )
    )
    labels = read_labels(clinvar, gnomad, reference, tmp_path)
    found = [
        (start + 1, label, group, None if np.isnan(frequency) else frequency)
        for start, label, group, frequency in zip(
            labels.alleles["start"].to_pylist(), labels.label, labels.consequence, labels.frequency, strict=True
        )
    ]
    assert found == [
        (10, True, "loss of function", None),
        (11, True, "unknown", 0.002),
        (20, False, "protein change", 0.01),
        (100, True, "unknown", None),
    ]
    assert labels.alleles.schema == ALLELE_SCHEMA
    assert labels.counts == {
        "ClinVar: benign": 1,
        "ClinVar: conflicting": 1,
        "ClinVar: pathogenic": 4,
        "ClinVar: too few stars": 1,
        "benign": 1,
        "benign file: FILTER does not pass": 0,
        "benign file: NOT_ACGT": 1,
        "benign file: left out": 2,
        "contradicted": 1,
        "pathogenic": 3,
        "repeated": 0,
    }
    alone = read_labels(clinvar, None, reference, tmp_path, min_stars=2)
    assert alone.counts["pathogenic"] == 2
    with pytest.raises(LabelError, match="no benign allele"):
        read_labels(clinvar, gnomad, reference, tmp_path, min_benign_frequency=0.9)
    with pytest.raises(LabelError, match="declares no INFO CLNSIG"):
        read_labels(gnomad, None, reference, tmp_path)


def test_what_the_files_contradict_each_other_about_gets_no_label(
    genome: tuple[Reference, dict[str, str]], tmp_path: Path
) -> None:
    reference, sequences = genome

    def write(path: Path, header: tuple[str, ...], infos: dict[int, str], filters: dict[int, str]) -> Path:
        rows = []
        for position, info in infos.items():
            ref = sequences["chr1"][position - 1]
            rows.append(f"chr1 {position} . {ref} {other(ref)} . {filters.get(position, '.')} {info}")
        path.write_text(vcf_text(rows, header=header))
        return path

    classes = {
        10: f"CLNSIG=Pathogenic;CLNREVSTAT={ONE}",
        11: f"CLNSIG=Conflicting_classifications_of_pathogenicity;CLNREVSTAT={ONE}",
        12: "CLNSIG=Likely_pathogenic;CLNREVSTAT=no_assertion_criteria_provided",
        13: f"CLNSIG=Uncertain_significance;CLNREVSTAT={ONE}",
        14: "CLNSIG=Benign;CLNREVSTAT=no_assertion_criteria_provided",
    }
    clinvar = write(tmp_path / "clinvar.vcf", CLINVAR, classes, {})
    frequencies = {10: "AF=0.00002", 11: "AF=0.3", 12: "AF=0.3", 13: "AF=0.3", 14: "AF=0.3", 15: "AF=0.3", 16: "AF=0.3"}
    gnomad = write(tmp_path / "gnomad.vcf", GNOMAD, frequencies, {15: "AC0", 16: "PASS"})
    labels = read_labels(clinvar, gnomad, reference, tmp_path)
    assert (np.array(labels.alleles["start"]) + 1).tolist() == [10, 13, 14, 16]
    assert labels.label.tolist() == [True, False, False, False]
    assert labels.frequency.tolist() == [0.00002, 0.3, 0.3, 0.3]
    assert labels.counts["contradicted"] == 2
    assert labels.counts["benign file: FILTER does not pass"] == 1
    twice = write(tmp_path / "twice.vcf", CLINVAR, {**classes, 20: f"CLNSIG=Benign;CLNREVSTAT={ONE}"}, {})
    again = twice.read_text().splitlines()
    line = next(each for each in again if each.startswith("chr1\t10\t"))
    for word in ("Benign", "Conflicting_classifications_of_pathogenicity"):
        twice.write_text("\n".join([*again, line, line.replace("Pathogenic", word)]) + "\n")
        with pytest.raises(LabelError, match=r"no pathogenic allele.*'contradicted': 1"):
            read_labels(twice, None, reference, tmp_path)


def test_a_file_of_another_build_is_refused_and_what_has_no_place_is_counted(
    genome: tuple[Reference, dict[str, str]], tmp_path: Path
) -> None:
    reference, sequences = genome
    rows = [
        f"chr1 {at} . {sequences['chr1'][at - 1]} {other(sequences['chr1'][at - 1])} . . "
        f"CLNSIG={'Pathogenic' if at % 2 else 'Benign'};CLNREVSTAT={ONE}"
        for at in range(10, 50)
    ]
    path = tmp_path / "clinvar.vcf"
    path.write_text(vcf_text([*rows, rows[0].replace("chr1", "chr9")], header=CLINVAR))
    labels = read_labels(path, None, reference, tmp_path)
    assert (labels.counts["ClinVar: UNKNOWN_CONTIG"], len(labels)) == (1, 40)
    path.write_text(vcf_text([row.replace("chr1 1", "chr1 5") for row in rows], header=CLINVAR))
    with pytest.raises(ReferenceError, match="wrong reference"):
        read_labels(path, None, reference, tmp_path)
    path.write_text(vcf_text(rows, header=(*CLINVAR, "##contig=<ID=chr1,length=2001>")))
    with pytest.raises(ReferenceError, match=r"clinvar\.vcf"):
        read_labels(path, None, reference, tmp_path)


def made_up(rng: np.random.Generator, size: int) -> LabelledAlleles:
    contig = rng.integers(0, 3, size)
    start = rng.integers(0, 8 << BLOCK_SHIFT, size)
    # Many lie at the blocks' edges.
    start[::3] = (start[::3] >> BLOCK_SHIFT << BLOCK_SHIFT) + rng.integers(-400, 400, len(start[::3]))
    start = np.clip(start, 0, None)
    locus = np.sort((contig << 40) | start).astype(np.uint64)
    columns = {
        "locus": locus,
        "code": np.arange(size, dtype=np.uint64),
        "contig": (locus >> np.uint64(40)).astype(np.int32),
        "start": (locus & np.uint64((1 << 40) - 1)).astype(np.int64),
        "ref": ["A"] * size,
        "alt": ["C"] * size,
    }
    return LabelledAlleles(
        pa.table(columns, schema=ALLELE_SCHEMA),
        rng.random(size) < 0.3,
        np.array(["loss of function", "synonymous", "intron"], dtype=object)[rng.integers(0, 3, size)],
        np.where(rng.random(size) < 0.5, 10 ** rng.uniform(-6, 0, size), np.nan),
        {},
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(30, 400))
def test_neighbours_do_not_leak_and_classes_are_matched(seed: int, size: int) -> None:
    labels = made_up(np.random.default_rng(seed), size)
    split = split_labels(labels, seed)
    locus = labels.alleles["locus"].to_numpy().astype(np.int64)
    training, held_out = locus[split.training], locus[split.held_out]
    assert not set(split.training.tolist()) & set(split.held_out.tolist())
    if len(training) and len(held_out):
        assert np.abs(training[:, None] - held_out[None, :]).min() > GAP_BP
    assert len(held_out) >= 0.2 * size
    assert len(training) + len(held_out) + split.num_near + split.num_unmatched == size
    for group in set(labels.consequence.tolist()):
        rows = split.training[labels.consequence[split.training] == group]
        assert labels.label[rows].sum() * 2 == len(rows)
        assert (group in split.unmatched_groups) <= (len(rows) == 0)
        matched = split.held_out_matched[labels.consequence[split.held_out_matched] == group]
        assert labels.label[matched].sum() * 2 == len(matched)
    assert set(split.held_out_matched.tolist()) <= set(split.held_out.tolist())
    again = split_labels(labels, seed)
    assert np.array_equal(split.training, again.training)
    assert np.array_equal(split.held_out, again.held_out)


def test_frequency_is_matched_only_where_the_classes_share_it() -> None:
    labels = made_up(np.random.default_rng(1), 3_000)
    split = split_labels(labels, 1)
    assert split.is_frequency_matched
    decade = np.floor(np.log10(np.nan_to_num(labels.frequency, nan=1e-7)))[split.training]
    label = labels.label[split.training]
    for place in np.unique(decade):
        assert label[decade == place].mean() == 0.5
    labels.frequency[labels.label] = np.nan
    labels.frequency[~labels.label] = 0.5
    apart = split_labels(labels, 1)
    assert not apart.is_frequency_matched
    assert len(apart.training) > 1_000
    labels.frequency[np.flatnonzero(labels.label)[:30]] = 0.5
    few_shared = split_labels(labels, 1)
    assert not few_shared.is_frequency_matched
    assert len(few_shared.training) == len(apart.training)
    labels.frequency[:] = np.nan
    assert not split_labels(labels, 1).is_frequency_matched
