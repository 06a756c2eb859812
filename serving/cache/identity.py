"""The identity of a row: the digest of everything its answer depends on."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from blake3 import blake3

from serving.request import Call
from serving.tensors import BYTES, content

IDENTITY_BYTES = 32


def call_prefix(execution_digest: str, call: Call) -> Any:
    """BLAKE3 over what all rows of a call have in common.

    That is the execution digest, every input's name, type and row shape, the outputs wanted, and the parameters.
    """
    # As hard to collide as SHA-256, and 8 MB take a quarter of its time even on processors with instructions for that.
    return blake3(
        json.dumps(
            [
                execution_digest,
                [[name, array.dtype.str, array.shape[1:]] for name, array in call.inputs.items()],
                call.outputs,
                sorted(call.parameters.items()),
            ]
        ).encode()
    )


def row_identities(prefix: Any, call: Call) -> list[bytes]:
    """Digests every row of a call: BLAKE3 over `call_prefix` and the row's bytes; equal identities, equal answers.

    Args:
        prefix: Of the call, or of one that differs in nothing but the contents and number of rows; unchanged.
        call: The call; its inputs are [rows, *dims], C-contiguous.

    Returns:
        `call.rows` digests of 32 bytes.
    """
    copy = prefix.copy
    if any(array.dtype == BYTES for array in call.inputs.values()):
        return [_identity_of_text(copy(), call, row) for row in range(call.rows)]
    if call.rows == 1:
        row = copy()
        for array in call.inputs.values():
            row.update(array.reshape(-1).view(np.uint8))
        return [row.digest()]
    columns = [array.reshape(call.rows, -1).view(np.uint8) for array in call.inputs.values()]
    matrix = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
    width = matrix.shape[1]
    text = np.ascontiguousarray(matrix).reshape(-1).data
    identities = []
    for start in range(0, call.rows * width, width):
        row = copy()
        row.update(text[start : start + width])
        identities.append(row.digest())
    return identities


def _identity_of_text(digest: Any, call: Call, row: int) -> bytes:
    """As `row_identities`, for a row whose elements have lengths of their own: each tensor's length comes before it."""
    for array in call.inputs.values():
        packed = content(array[row])
        digest.update(len(packed).to_bytes(8, "little"))
        digest.update(packed)
    identity: bytes = digest.digest()
    return identity
