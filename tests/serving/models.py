"""Tiny models with known answers, written as Triton repositories."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 8
"""Weights of `affine`, [4, 3]."""


def write_model(repository: Path, name: str, graph: onnx.ModelProto | None, config: str = "", version: int = 1) -> Path:
    """Writes `<repository>/<name>/config.pbtxt` and `<version>/model.onnx`; gives the version's folder."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "config.pbtxt").write_text(config)
    if graph is not None:
        onnx.save(graph, str(folder / "model.onnx"))
    return folder


def make_graph(nodes, inputs, outputs, weights=None) -> onnx.ModelProto:
    """A checked ONNX model; inputs and outputs are (name, TensorProto type, shape)."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(*spec) for spec in inputs],
        [helper.make_tensor_value_info(*spec) for spec in outputs],
        [numpy_helper.from_array(array, key) for key, array in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def affine(weight: np.ndarray = WEIGHT, bias: float = 1.0, batch: str | int = "batch") -> onnx.ModelProto:
    """y [3] = x [4] @ weight + bias."""
    return make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Add", ["xw", "b"], ["y"])],
        [("x", TensorProto.FLOAT, [batch, 4])],
        [("y", TensorProto.FLOAT, [batch, 3])],
        {"w": weight, "b": np.full(3, bias, np.float32)},
    )


def affine_answer(x: np.ndarray, bias: float = 1.0) -> np.ndarray:
    """What `affine` gives."""
    return x @ WEIGHT + np.float32(bias)


def token_mean() -> onnx.ModelProto:
    """embedding [1] = mean of tokens [-1] (uint8), plus state [1]; next_state [1] = state + 1."""
    return make_graph(
        [
            helper.make_node("Cast", ["tokens"], ["cast"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", ["cast"], ["mean"], axes=[1], keepdims=1),
            helper.make_node("Add", ["mean", "state"], ["embedding"]),
            helper.make_node("Add", ["state", "one"], ["next_state"]),
        ],
        [("tokens", TensorProto.UINT8, ["batch", "length"]), ("state", TensorProto.FLOAT, ["batch", 1])],
        [("embedding", TensorProto.FLOAT, ["batch", 1]), ("next_state", TensorProto.FLOAT, ["batch", 1])],
        {"one": np.ones(1, np.float32)},
    )


def difference() -> onnx.ModelProto:
    """effect [1] = alternate [1] - reference [1]."""
    return make_graph(
        [helper.make_node("Sub", ["alternate", "reference"], ["effect"])],
        [("reference", TensorProto.FLOAT, ["batch", 1]), ("alternate", TensorProto.FLOAT, ["batch", 1])],
        [("effect", TensorProto.FLOAT, ["batch", 1])],
    )


def logarithm() -> onnx.ModelProto:
    """y [1] = log(x [1]): NaN for a negative row."""
    return make_graph(
        [helper.make_node("Log", ["x"], ["y"])],
        [("x", TensorProto.FLOAT, ["batch", 1])],
        [("y", TensorProto.FLOAT, ["batch", 1])],
    )


ENSEMBLE_CONFIG = """
platform: "ensemble"
max_batch_size: 8
input [
  { name: "reference_window" data_type: TYPE_UINT8 dims: [ 6 ] },
  { name: "alternate_window" data_type: TYPE_UINT8 dims: [ 6 ] },
  { name: "state" data_type: TYPE_FP32 dims: [ 1 ] }
]
output [ { name: "effect" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling {
  step [
    { model_name: "embedder" model_version: -1
      input_map { key: "tokens" value: "reference_window" } input_map { key: "state" value: "state" }
      output_map { key: "embedding" value: "reference_embedding" } },
    { model_name: "embedder" model_version: -1
      input_map { key: "tokens" value: "alternate_window" } input_map { key: "state" value: "state" }
      output_map { key: "embedding" value: "alternate_embedding" } },
    { model_name: "effect" model_version: -1
      input_map { key: "reference" value: "reference_embedding" }
      input_map { key: "alternate" value: "alternate_embedding" }
      output_map { key: "effect" value: "effect" } }
  ]
}
"""


def write_ensemble(
    repository: Path, embedder_config: str = "max_batch_size: 8 dynamic_batching { }", extra: str = ""
) -> None:
    """`variants`: embedder on both windows, then their difference."""
    write_model(repository, "embedder", token_mean(), embedder_config)
    write_model(repository, "effect", difference(), "max_batch_size: 8 dynamic_batching { }")
    write_model(repository, "variants", None, ENSEMBLE_CONFIG + extra)


def ensemble_inputs(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random windows and states for `variants`."""
    rng = np.random.default_rng(seed)
    return {
        "reference_window": rng.integers(0, 5, (rows, 6), dtype=np.uint8),
        "alternate_window": rng.integers(0, 5, (rows, 6), dtype=np.uint8),
        "state": np.zeros((rows, 1), np.float32),
    }


def ensemble_answer(inputs: dict[str, np.ndarray]) -> np.ndarray:
    """What `variants` gives, nearly."""
    means = [
        inputs[name].astype(np.float32).mean(axis=1, keepdims=True) for name in ("reference_window", "alternate_window")
    ]
    return means[1] - means[0]
