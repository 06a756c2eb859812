"""A lab's own pipeline: it needs genes, writes entries that name their allele, and has a table by allele and gene."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pysam
import pytest

from tests.flows.cohort import Cohort, outputs, run_command

LAB = '''
import numpy as np

from tasks.effect_pipelines import DemoEffect
from tasks.pipelines import GeneValues, OutputField, Rows


class ByGene(DemoEffect):
    """The demonstration's effect, told for each gene that an allele lies in."""

    name = "by-gene"
    resources = ("genes",)
    fields = (OutputField("LAB_GENES", "String", ".", "allele|gene|effect"),)
    gene_fields = (OutputField("effect", "Float", "A", "effect", decimals=4),)

    def expand(self, alleles, reference, shapes, resources):
        rows = super().expand(alleles, reference, shapes, resources)
        place = alleles["start"].to_numpy() + reference.offsets[alleles["contig"].to_numpy()]
        exons = resources.genes
        inside = (exons.start <= place[rows.allele, None]) & (place[rows.allele, None] < exons.end)
        row, exon = np.nonzero(inside)
        reason = rows.reason.copy()
        lost = np.setdiff1d(rows.allele, rows.allele[row])
        reason[lost] = "NO_GENE"
        inputs = {name: values[row] for name, values in rows.inputs.items()}
        self.alt = alleles["alt"].to_pylist()
        return Rows(inputs, rows.allele[row], reason, np.array(exons.names, object)[exons.gene[exon]])

    def collapse(self, num_alleles, rows, outputs):
        entries = [[] for _ in range(num_alleles)]
        for allele, gene, effect in zip(rows.allele, rows.gene, outputs["effect"].reshape(-1)):
            entries[allele].append(f"{self.alt[allele]}|{gene}|{effect:.4f}")
        texts = np.array([",".join(each) or None for each in entries], object)
        return {"LAB_GENES": texts}

    def collapse_genes(self, num_alleles, rows, outputs):
        effect = np.round(outputs["effect"].reshape(-1).astype(float), 4)
        return GeneValues(rows.allele, rows.gene.tolist(), {"effect": effect})
'''
GTF = "".join(
    f'chr1\tx\texon\t{start}\t{end}\t.\t+\t.\tgene_id "{gene}";\n'
    for start, end, gene in ((1, 30_000, "ONE"), (20_000, 50_000, "TWO"))
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The module ``lab`` installed, its pipeline named by an entry point."""
    folder = tmp_path_factory.mktemp("lab")
    info = folder / "lab-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[cohortflow.pipelines]\nby-gene = lab:ByGene\n")
    (folder / "lab.py").write_text(LAB)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def test_a_labs_pipeline_runs_from_genes_to_its_tables(
    cohort: Cohort, environment: dict[str, str], tmp_path: Path
) -> None:
    genes = tmp_path / "genes.gtf"
    genes.write_text(GTF)
    sheet = cohort.sheet("lab.csv", [{"sample": "V", "vcf": cohort.vcf}])
    output = tmp_path / "out"
    command = ("score", sheet, "--reference", cohort.reference, "--output", output, "--pipeline", "by-gene")
    refused = run_command(*command, environment=environment)
    assert refused.returncode == 2
    assert "needs genes" in refused.stderr
    done = run_command(*command, "--genes", genes, environment=environment)
    assert done.returncode == 0, done.stderr

    table = pq.read_table(output / "cohort" / "allele_gene.parquet").to_pylist()
    assert {row["gene"] for row in table} == {"ONE", "TWO"}
    told: dict[tuple[str, int, str], list[str]] = {}
    for row in table:
        assert row["contig"] == "chr1"
        told.setdefault((row["contig"], row["pos"], row["alt"]), []).append(row["gene"])
        assert (20_000 <= row["pos"] <= 50_000) if row["gene"] == "TWO" else (row["pos"] <= 30_000)
    assert {tuple(genes) for genes in told.values()} == {("ONE",), ("TWO",), ("ONE", "TWO")}
    num_entries = 0
    with pysam.VariantFile(str(output / "samples/V/V.vcf.gz")) as file:
        assert file.header.info["LAB_GENES"].number == "."
        for record in file:
            entries = [entry.split("|") for entry in record.info.get("LAB_GENES", ()) if entry not in (None, ".")]
            num_entries += len(entries)
            for alt, gene, effect in entries:
                assert gene in {"ONE", "TWO"}
                assert set(alt) <= set("ACGT")
                assert 0 <= float(effect) <= 1
            if not entries:
                assert set(record.info["CF_REASON"]) & {"NO_GENE", "NO_REFERENCE_SEQUENCE", "TOO_LONG"}
    assert num_entries == len(table)
    before = outputs(output)
    again = run_command(*command, "--genes", genes, environment=environment)
    assert again.returncode == 0, again.stderr
    assert outputs(output) == before
