"""Does a row get the same bytes whatever batch it lies in? Measured on the loaded model, not believed.

Matrix kernels choose their algorithm by the shape of the batch, so the last bits of a row can depend on how many rows
lie beside it (torch on a CPU: other bits at 1, 2, 3 and 7 rows than at multiples of 8). A model is then run at batch
sizes where they do not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from serving.errors import ServingError
from serving.tensors import BYTES, VARIABLE, Tensor, Tensors, TensorSpec, bytes_array, content, is_float

log = logging.getLogger(__name__)

PROBE_LENGTH = 128
"""Length given to free dimensions while measuring, unless a model has one of its own."""

_NUM_PROBES = 3
# Batch sizes, in multiples, around those at which kernels change: their block sizes (4, 6, 8, 12, 16, 32, ...).
_COUNTS = (*range(1, 10), 11, 12, 13, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 192, 255, 256)


def measure_row_multiple(
    label: str,
    execute: Callable[[Tensors, int], Tensors],
    inputs: Sequence[TensorSpec],
    max_batch_size: int,
    length: int = PROBE_LENGTH,
    seed: int = 0,
) -> int | None:
    """Finds the smallest multiple of rows at which equal rows get equal bytes.

    Probe rows are executed by themselves (repeated up to the multiple), and among other rows in batches of many sizes,
    first, in the middle and last. Floats are standard normal, whole numbers 0 or 1.

    Args:
        label: The model, for the log.
        execute: Executes [rows, *dims] arrays.
        inputs: The model's inputs.
        max_batch_size: The largest batch, at least 1.
        length: Of free dimensions.
        seed: Of the rows' contents.

    Returns:
        1, a power of two, or `max_batch_size`, such that batches of whole multiples are safe; `max_batch_size` also
        when the model cannot be executed with made-up rows at all; None when even then a row depends on its neighbours,
        so that each must be executed by itself.
    """
    if max_batch_size == 1:
        return 1
    rng = np.random.default_rng(seed)
    pool = {spec.name: made_up_rows(spec, max_batch_size + _NUM_PROBES, length, rng) for spec in inputs}
    multiples = [multiple for multiple in (1, 2, 4, 8, 16, 32, 64) if multiple < max_batch_size] + [max_batch_size]
    failure: ServingError | None = None
    for multiple in multiples:
        try:
            if _is_invariant(execute, pool, multiple, max_batch_size):
                return multiple
        except ServingError as error:
            # An exported program may refuse batches below the size it was exported with.
            failure = error
    if failure is not None:
        log.warning("%s: not measured, every batch is padded to %d rows: %s", label, max_batch_size, failure)
        return max_batch_size
    log.warning("%s: a row's output depends on the other rows of its batch; rows are executed one by one", label)
    return None


def _is_invariant(
    execute: Callable[[Tensors, int], Tensors], pool: Tensors, multiple: int, max_batch_size: int
) -> bool:
    alone = []
    for probe in range(_NUM_PROBES):
        outputs = execute({name: rows[[probe] * multiple] for name, rows in pool.items()}, multiple)
        alone.append(_row_bytes(outputs, 0))
    counts = sorted({count for count in _COUNTS if count * multiple <= max_batch_size} | {max_batch_size // multiple})
    for size in (count * multiple for count in counts):
        # In a batch of one or two the places coincide, and the last probe has it.
        places = dict(zip((0, size // 2, size - 1), range(_NUM_PROBES), strict=True))
        order = np.arange(size) + _NUM_PROBES
        order[list(places)] = list(places.values())
        outputs = execute({name: rows[order] for name, rows in pool.items()}, size)
        if any(_row_bytes(outputs, place) != alone[probe] for place, probe in places.items()):
            return False
    return True


def _row_bytes(outputs: Tensors, row: int) -> list[bytes]:
    return [content(array[row : row + 1]) for array in outputs.values()]


def made_up_rows(spec: TensorSpec, rows: int, length: int, rng: np.random.Generator) -> Tensor:
    """Rows [rows, *dims], free dimensions `length` long: standard normal, 0 or 1, or text of one of the two."""
    shape = (rows, *(length if dim == VARIABLE else dim for dim in spec.dims))
    if is_float(spec.dtype):
        return rng.standard_normal(shape, dtype=np.float32).astype(spec.dtype)
    drawn = rng.integers(0, 2, shape)
    if spec.dtype == BYTES:
        return bytes_array([b"%d" % number for number in drawn.reshape(-1)], shape)
    return drawn.astype(spec.dtype)
