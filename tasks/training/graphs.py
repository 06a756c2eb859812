"""ONNX files from a graph's text and its weights: the same weights give the same bytes.

The graphs are written by hand in ONNX's own text form. An exporter would add source paths and its version to the file.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import onnx.checker
import onnx.numpy_helper
import onnx.parser

HEADER = '<ir_version: 9, opset_import: ["" : 19]>'
"""The oldest format that has all used operators on bytes; read by every onnxruntime since 1.16."""


def build_model(graph: str, weights: Mapping[str, npt.NDArray[np.generic]]) -> bytes:
    """Makes the bytes of an ONNX file.

    Args:
        graph: The graph in ONNX's text form (https://onnx.ai/onnx/repo-docs/Syntax.html), without header and weights.
        weights: Arrays by the names that the graph uses; stored in the order of their names.
    """
    model = onnx.parser.parse_model(f"{HEADER}\n{graph}")
    tensors = [onnx.numpy_helper.from_array(np.ascontiguousarray(weights[name]), name) for name in sorted(weights)]
    model.graph.initializer.extend(tensors)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))
