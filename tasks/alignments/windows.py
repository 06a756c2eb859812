"""Windows of equal size over a reference, in which the reads' bases are counted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tasks.genome.reference import Reference

WINDOW_BP = 100_000
"""Size of a window; a contig's last one is shorter."""


def window_offsets(reference: Reference) -> npt.NDArray[np.int64]:
    """int64 [num_contigs + 1], the number of each contig's first window, and of all windows."""
    numbers = [-(-contig.length_bp // WINDOW_BP) for contig in reference.contigs]
    return np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64)
