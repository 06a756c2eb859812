"""How well each gene is covered over the samples of a cohort, worst first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq

from tasks.coverage.joining import GENES
from tasks.folder import RunFolder
from tasks.reporting.figures import Figure
from tasks.reporting.plots import PlotText, dot_rows
from tasks.reporting.scales import percent

_MAX_ROWS = 25


@dataclass(slots=True)
class GeneCoverage:
    """One gene.

    Attributes:
        gene: Its name.
        num_samples: Samples whose targets include it.
        num_complete: Samples in which each of its bases has a depth of 20 and more.
        total_share: Sum over the samples of the share of its bases at 20 and more.
        lowest_share: The lowest of these shares.
        lowest_sample: The first sample that has it.
    """

    gene: str
    num_samples: int = 0
    num_complete: int = 0
    total_share: float = 0.0
    lowest_share: float = 2.0
    lowest_sample: str = ""

    @property
    def mean_share(self) -> float:
        """Mean over the samples of the share of its bases at 20 and more."""
        return self.total_share / self.num_samples


def read_gene_coverage(folder: RunFolder, sample_ids: Iterable[str]) -> list[GeneCoverage]:
    """Gathers the genes of every sample that has a table of them, the worst covered first.

    A sample at a time: memory depends on the number of genes alone.
    """
    genes: dict[str, GeneCoverage] = {}
    for sample_id in sample_ids:
        path = folder.sample(sample_id) / f"{sample_id}{GENES}"
        if not path.exists():
            continue
        table = pq.read_table(path, columns=["gene", "share_20", "gap_bases"])
        for name, share, gap_bases in zip(*(column.to_pylist() for column in table.columns), strict=True):
            gene = genes.setdefault(name, GeneCoverage(name))
            gene.num_samples += 1
            gene.num_complete += gap_bases == 0
            gene.total_share += share
            if share < gene.lowest_share:
                gene.lowest_share, gene.lowest_sample = share, sample_id
    return sorted(genes.values(), key=lambda gene: (gene.mean_share, gene.lowest_share, gene.gene))


def gene_figure(genes: Sequence[GeneCoverage]) -> Figure:
    """The worst covered genes, a row each."""
    rows = [(gene.gene, gene.mean_share) for gene in genes[:_MAX_ROWS]]
    num_complete = sum(gene.num_complete == gene.num_samples for gene in genes)
    title = "Genes with the lowest share at 20×"
    summary = f"{num_complete:,} of {len(genes):,} genes have every base at 20× and more in every sample"
    text = PlotText("plot-genes", title, f"{summary}; the lowest, {rows[0][0]}, {percent(rows[0][1])}.")

    def value_text(share: float) -> str:
        return f"{share * 100:.1f}\u00a0%"

    svg = dot_rows(
        text, rows, x_label="share of bases at 20× and more", x_range=(0.0, 1.0), number=percent, value_text=value_text
    )
    return Figure(title, f"Mean over the samples. {summary}.", svg)
