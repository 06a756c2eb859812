"""The pipelines that ship: a number for each allele, from the 128 bases around it without and with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasks.pipelines import NO_RESOURCES, OutputField, Pipeline, Resources, Rows
from tasks.windows import (
    MAX_ALLELE_BP,
    UNKNOWN_TOKEN,
    alternate_windows,
    column_bases,
    reference_windows,
    windows_on_contig,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.genome.reference import Reference


class WindowEffect(Pipeline):
    """One number from 0 to 1 of an allele, from its window of the reference and the window with the allele put in."""

    ensemble = "variants"

    def expand(
        self,
        alleles: pa.Table,
        reference: Reference,
        shapes: Mapping[str, tuple[int, ...]],
        resources: Resources = NO_RESOURCES,
    ) -> Rows:
        """One row per allele: its reference window and the window with the allele put in."""
        contig = alleles["contig"].to_numpy()
        start = alleles["start"].to_numpy()
        ref, alt = column_bases(alleles["ref"]), column_bases(alleles["alt"])
        windows = reference_windows(reference, contig, start)
        reason = np.full(len(start), None, dtype=object)
        # What lies outside the contig is no gap in the reference: on a contig of 60 bases, 60 are all there is.
        on_contig = windows_on_contig(reference, contig, start)
        num_unknown = ((windows == UNKNOWN_TOKEN) & on_contig).sum(axis=1)
        reason[2 * num_unknown > on_contig.sum(axis=1)] = "NO_REFERENCE_SEQUENCE"
        reason[np.maximum(ref.lengths_bp, alt.lengths_bp) > MAX_ALLELE_BP] = "TOO_LONG"
        allele = np.flatnonzero(reason == None).astype(np.int64)  # noqa: E711 - element by element
        alternates = alternate_windows(reference, contig, start, ref.lengths_bp, alt)
        inputs: dict[str, NDArray[Any]] = {
            "reference_window": windows[allele],
            "alternate_window": alternates[allele],
            "state": np.zeros((len(allele), *shapes["state"]), dtype=np.float32),
        }
        return Rows(inputs, allele, reason)

    def collapse(self, num_alleles: int, rows: Rows, outputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The model's answer, rounded to the field's precision."""
        field = self.fields[0]
        values = np.full(num_alleles, np.nan)
        # Adding 0.0 turns -0.0 into 0.0.
        values[rows.allele] = np.round(outputs["effect"].reshape(-1).astype(np.float64), field.decimals or 0) + 0.0
        return {field.name: values}


class DemoEffect(WindowEffect):
    """How much an allele changes its window, by a model trained on simulated labels."""

    name = "demo-effect"
    title = "effect of an allele on its 128-bp window (demonstration, simulated labels)"
    labels = "simulated"
    fields = (
        OutputField(
            "CF_DEMO_EFFECT",
            "Float",
            "A",
            "Effect of the allele on its 128-bp window, 0 to 1; trained on simulated labels, no clinical meaning",
            decimals=4,
        ),
    )
    caution = "CF_DEMO_EFFECT comes from a model trained on simulated labels: it has no clinical meaning."


class Pathogenicity(WindowEffect):
    """How much an allele looks like pathogenic ones, by a model that a lab trained on classified alleles."""

    name = "pathogenicity"
    title = "likeness of an allele to pathogenic ones (needs --models with a model of `cohortflow train-effect`)"
    labels = "clinical"
    fields = (
        OutputField(
            "CF_PATHOGENICITY",
            "Float",
            "A",
            "Likeness of the allele to pathogenic ones, 0 to 1, where both classes are equally common",
            decimals=4,
        ),
    )
    caution = (
        "CF_PATHOGENICITY sees 128 bases and no gene; the card of the model `effect` says how well it tells classified "
        "alleles apart. It is no classification."
    )
