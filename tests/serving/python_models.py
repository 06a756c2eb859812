"""Python models that tests serve, as their authors would write them."""

from __future__ import annotations

from pathlib import Path

HEAD = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

"""

TWICE = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            if (x < 0).any():
                error = pb_utils.TritonError("x is below 0", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=error))
            else:
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", 2 * x)]))
        return responses
"""

CONFIG = """
backend: "python" max_batch_size: 16 dynamic_batching { }
input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
"""


def write_python(repository: Path, code: str, config: str = CONFIG, name: str = "m", **files: str) -> Path:
    """Writes a Python model and files beside its code (``_`` in their names for ``.``); gives the version's folder."""
    folder = repository / name / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "config.pbtxt").write_text(config)
    (folder / "model.py").write_text(HEAD + code)
    for file, text in files.items():
        (folder / file.replace("_", ".")).write_text(text)
    return folder
