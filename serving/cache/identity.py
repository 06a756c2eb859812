"""The identity of a row: the digest of everything its answer depends on."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from serving.request import Call

IDENTITY_BYTES = 32


def row_identities(execution_digest: str, call: Call) -> list[bytes]:
    """Digests every row of a call.

    An identity is SHA-256 over the execution digest, every input's name, type and row shape, the outputs wanted, the
    parameters, and the row's bytes; equal identities have equal answers.

    Args:
        execution_digest: Everything that the model's numbers depend on besides their inputs.
        call: The call; its inputs are [rows, *dims], C-contiguous.

    Returns:
        `call.rows` digests of 32 bytes.
    """
    prefix = hashlib.sha256(
        json.dumps(
            [
                execution_digest,
                [[name, array.dtype.str, array.shape[1:]] for name, array in call.inputs.items()],
                call.outputs,
                sorted(call.parameters.items()),
            ]
        ).encode()
    )
    columns = [array.reshape(call.rows, -1).view(np.uint8) for array in call.inputs.values()]
    matrix = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
    width = matrix.shape[1]
    content = np.ascontiguousarray(matrix).reshape(-1).data
    copy = prefix.copy
    identities = []
    for start in range(0, call.rows * width, width):
        row = copy()
        row.update(content[start : start + width])
        identities.append(row.digest())
    return identities
