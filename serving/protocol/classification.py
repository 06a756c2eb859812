"""The highest values of an output, as strings ``value:index``.

Source: Triton, "Classification Extension"; the text of a number is that of C++'s ``std::to_string``.
"""

from __future__ import annotations

import numpy as np

from serving.errors import InvalidArgumentError
from serving.tensors import BF16, BYTES, Tensor


def classify(name: str, array: Tensor, num_classes: int, *, is_batched: bool) -> Tensor:
    """The `num_classes` highest values of each row, highest first; equal ones by their index.

    Args:
        name: The output's name, for messages.
        array: The output, [rows, *dims], or [*dims] when not `is_batched`.
        num_classes: How many; a row with fewer values gives all.
        is_batched: Whether the first dimension counts rows.

    Returns:
        bytes (object), [rows, classes] or [classes].

    Raises:
        InvalidArgumentError: The output holds no numbers.
    """
    if array.dtype == BF16:
        array = array.astype(np.float32)
    if array.dtype.kind not in "iuf":
        raise InvalidArgumentError(f"output {name!r}: classification needs numbers", field=name)
    rows = array.reshape(len(array), -1) if is_batched else array.reshape(1, -1)
    # Stable, and right for unsigned numbers, where a minus would wrap.
    order = rows.shape[1] - 1 - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1][:, :num_classes]
    pattern = "%f:%d" if array.dtype.kind == "f" else "%d:%d"
    classes = np.empty(order.shape, BYTES)
    for place, index in np.ndenumerate(order):
        classes[place] = (pattern % (rows[place[0], index], index)).encode()
    return classes if is_batched else classes[0]
