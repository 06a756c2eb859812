"""Probabilities around a planted exon, beside those that published splicing networks give for it."""

from __future__ import annotations

import numpy as np

from serving.server import ModelServer
from tasks.published.planted import drawn, exon
from tasks.published.publication import PublishedModelError

TOLERANCE = 1e-6
_LENGTH_BP, _FIRST, _CONTEXT_BP = 10_201, 5_017, 5_000
# Place among the 201 answers, then the probabilities of neither, acceptor and donor there.
_PUBLISHED: dict[str, dict[int, tuple[float, float, float]]] = {
    "cispliceai": {
        0: (0.999998868, 5.30035305e-09, 1.20303389e-06),
        17: (0.9992975, 0.000702418038, 6.5594179e-08),
        40: (0.247598454, 0.752386928, 1.46188304e-05),
        100: (1, 3.26164269e-08, 3.65346509e-08),
        158: (0.999544442, 1.73537885e-07, 0.000455454458),
        162: (0.302367985, 5.76063831e-05, 0.697574377),
        200: (0.999998927, 1.91997707e-08, 1.02958768e-06),
    },
    "spliceai": {
        0: (0.999999821, 5.56833761e-08, 1.78611316e-07),
        17: (0.99414891, 0.00584543264, 5.65636674e-06),
        40: (0.119828366, 0.880107284, 6.42487867e-05),
        100: (1.0, 2.42882603e-08, 8.1579774e-09),
        158: (0.999830067, 4.67517253e-07, 0.000169490682),
        162: (0.0612352714, 0.000107748048, 0.938656986),
        200: (0.999999821, 8.22475421e-09, 1.89907311e-07),
    },
}


def check_sites(server: ModelServer, model: str, origin: str) -> str:
    """Compares a model's answers for a sequence of 10,201 bases; returns what was compared.

    Raises:
        PublishedModelError: One differs by more than 1e-6.
    """
    sequence = drawn(b"splicing", _LENGTH_BP).copy()
    planted = exon()
    sequence[_FIRST : _FIRST + len(planted)] = planted
    row = {
        "sequence": sequence[None],
        "position": np.zeros((1, 1), np.int64),
        "start": np.full((1, 1), _CONTEXT_BP, np.int32),
        "deleted": np.zeros((1, 1), np.int32),
        "inserted": np.zeros((1, 0), np.uint8),
    }
    found = server.infer(model, row, outputs=["reference"])["reference"][0]
    for place, expected in _PUBLISHED[model].items():
        difference = float(np.abs(found[place] - np.array(expected)).max())
        if not difference <= TOLERANCE:
            raise PublishedModelError(
                f"{model}: the probabilities at place {place} differ from the publication's by {difference:.2g}",
                reason="CHECK_FAILED",
            )
    return (
        f"At {len(_PUBLISHED[model])} places around a planted exon, its two sites among them, all probabilities are "
        f"within {TOLERANCE:g} of what {origin} give for the same 10,201 bases."
    )
