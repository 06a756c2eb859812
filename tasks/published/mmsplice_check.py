"""MMSplice's answers for alleles of a planted exon, beside those of its published arithmetic."""

from __future__ import annotations

import numpy as np

from serving.server import ModelServer
from tasks.published.planted import Tokens, drawn, exon, letters
from tasks.published.publication import PublishedModelError

_FLANK_BP = 100
# By a plain numpy forward in double precision, written from the published layers, and the package's own transform,
# linear and logistic models (mmsplice 2.4.0, utils.py): place, REF, ALT, delta logit PSI, pathogenicity.
_PUBLISHED = (
    (98, "A", "C", -3.6549935524705566, 0.9999989614763508),
    (101, "A", "C", -0.2828355462132437, 0.07657958613932034),
    (140, "", "", -0.004335841206119389, 0.018693270534172426),
    (150, "G", "T", -0.5300015845993736, 0.016785500733602084),
    (223, "G", "A", -4.295602629942244, 0.9999894026112793),
)
_DELETED_BP = 6


def check_exon(server: ModelServer, tolerance: float) -> str:
    """Compares the ensemble's answers with the published ones; returns what was compared.

    Raises:
        PublishedModelError: One differs by more than `tolerance`.
    """
    planted = exon()
    # 100 bases before the exon, 123 of it, 100 behind.
    sequence = np.concatenate([drawn(b"upstream", 77), planted, drawn(b"downstream", 91)])
    for place, ref, alt, delta, pathogenicity in _PUBLISHED:
        num_deleted = len(ref) or _DELETED_BP
        alternate = np.concatenate([sequence[:place], letters(alt), sequence[place + num_deleted :]])
        inputs = {
            f"{side}_{name}": row[None]
            for side, whole in (("reference", sequence), ("alternate", alternate))
            for name, row in regions(whole).items()
        }
        answer = server.infer("mmsplice", inputs)
        for name, expected in (("delta_logit_psi", delta), ("pathogenicity", pathogenicity)):
            difference = abs(float(answer[name][0, 0]) - expected)
            if not difference <= tolerance:
                raise PublishedModelError(
                    f"mmsplice: {name} of an allele at {place} differs from the publication's by {difference:.2g}",
                    reason="CHECK_FAILED",
                )
    return (
        f"For {len(_PUBLISHED)} alleles of an exon (at its sites, in it, a deletion) delta logit PSI and pathogenicity "
        f"are within {tolerance:g} of a plain double-precision forward of the published layers and the package's own "
        "linear and logistic arithmetic. (The package itself cannot be installed beside a current Python.)"
    )


def regions(sequence: Tokens) -> dict[str, Tokens]:
    """The five regions of an exon with 100 bases to either side.

    Source: mmsplice 2.4.0, exon_dataloader.SeqSpliter.split with its defaults.
    """
    first, end = _FLANK_BP, len(sequence) - _FLANK_BP
    return {
        "acceptor_intron": sequence[: first - 6],
        "acceptor": sequence[first - 50 : first + 3],
        "exon": sequence[first:end],
        "donor": sequence[end - 5 : end + 13],
        "donor_intron": sequence[end + 6 :],
    }
