"""Does a row get the same bytes however long the rows beside it are? Measured on the loaded model, not believed.

Sums over a padded length can be taken in another order than over the row's own, and then differ in their last bits.
Rows are padded to lengths at which they do not.
"""

from __future__ import annotations

import logging

import numpy as np

from serving.config import ModelConfig
from serving.errors import ServingError
from serving.instance import Instance
from serving.invariance import made_up_rows
from serving.padding import LengthSteps
from serving.request import Call, Request
from serving.tensors import Tensors, TensorSpec, content

log = logging.getLogger(__name__)

_MULTIPLES = (1, 8, 16, 32, 64, 128)
# Lengths of the probe rows, and of the rows beside them: on both sides of the block sizes of kernels, and far off.
_LENGTHS = (1, 5, 16, 33, 100, 151)
_NEIGHBOURS = (7, 40, 64, 100, 128, 129, 160, 255, 256, 320, 512)


def measure_length_steps(label: str, instance: Instance, config: ModelConfig, seed: int = 0) -> LengthSteps:
    """Finds the smallest multiple of lengths at which equal rows get equal bytes.

    Each probe row is executed by itself, and beside a longer row of several lengths. Floats are standard normal, whole
    numbers 0 or 1. The executions count nowhere.

    Args:
        label: The model, for the log.
        instance: An instance whose row multiple is settled.
        config: The model's configuration, with `padding`.
        seed: Of the rows' contents.

    Returns:
        Multiples at which rows of all lengths may meet; steps when there is none, or when the model cannot be executed
        with made-up rows.
    """
    rng = np.random.default_rng(seed)
    probes = [_row(config.request_inputs, length, rng) for length in _LENGTHS]
    neighbours = [_row(config.request_inputs, length, rng) for length in _NEIGHBOURS]
    try:
        for multiple in _MULTIPLES:
            instance.length_steps = LengthSteps(multiple)
            if _is_invariant(label, instance, probes, neighbours, config.max_batch_size):
                return instance.length_steps
    except ServingError as error:
        log.warning("%s: lengths not measured, rows are padded to fixed steps: %s", label, error)
    else:
        log.warning("%s: a row's output depends on the length it is padded to; rows are padded to fixed steps", label)
    return LengthSteps(None)


def _is_invariant(
    label: str, instance: Instance, probes: list[Tensors], neighbours: list[Tensors], max_batch_size: int
) -> bool:
    if max_batch_size < 2:
        return True
    for probe, length in zip(probes, _LENGTHS, strict=True):
        alone = _outputs(label, instance, [(probe, length)])
        for neighbour, other in zip(neighbours, _NEIGHBOURS, strict=True):
            if other <= length:
                continue
            if _outputs(label, instance, [(probe, length), (neighbour, other)]) != alone:
                return False
    return True


def _outputs(label: str, instance: Instance, rows: list[tuple[Tensors, int]]) -> list[bytes]:
    """Bytes of the first row's outputs, the rows being executed together."""
    parts = []
    for inputs, length in rows:
        request = Request(label, Call(inputs, 1, ()), 1, 0, length)
        parts.append(request.take_piece())
    first = instance.measure(parts)[0]
    if isinstance(first, ServingError):
        raise first
    return [content(array) for array in first.values()]


def _row(specs: tuple[TensorSpec, ...], length: int, rng: np.random.Generator) -> Tensors:
    return {spec.name: made_up_rows(spec, 1, length, rng) for spec in specs}
