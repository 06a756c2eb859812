"""Equal rows get equal bytes: in batches of 1 to 64, alone or among rows of other requests."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import safetensors.torch
import torch
from onnx import TensorProto, helper

from serving.server import ModelServer
from tests.serving import modules
from tests.serving.models import make_graph, write_model

NUM_ROWS = 64
SHAPES = {"Mlp": (64,), "Convolution": (8, 50), "Recurrence": (20, 12), "Attention": (24, 32)}
WIDTHS = {"Mlp": 10, "Convolution": 24, "Recurrence": 48, "Attention": 32}
RNG = np.random.default_rng(11)


def weight(*shape):
    return (RNG.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)


def write_torch(repository, name):
    torch.manual_seed(5)
    module = getattr(modules, name)()
    config = f"""
backend: "torch" max_batch_size: {NUM_ROWS} dynamic_batching {{ }}
input {{ name: "x" data_type: TYPE_FP32 dims: {list(SHAPES[name])} }}
output {{ name: "y" data_type: TYPE_FP32 dims: [ {WIDTHS[name]} ] }}
parameters {{ key: "module" value {{ string_value: "tests.serving.modules:{name}" }} }}
"""
    folder = write_model(repository, "m", None, config)
    safetensors.torch.save_file(module.state_dict(), folder / "model.safetensors")


def nodes(name):
    """The same kinds of model as ONNX graphs: nodes and weights."""
    node = helper.make_node
    if name == "Mlp":
        weights = {"a": weight(64, 256), "b": weight(256), "c": weight(256, 10)}
        return [
            node("Gemm", ["x", "a", "b"], ["h"]),
            node("Relu", ["h"], ["r"]),
            node("MatMul", ["r", "c"], ["y"]),
        ], weights
    if name == "Convolution":
        return [
            node("Conv", ["x", "a", "b"], ["h"], pads=[2, 2]),
            node("Relu", ["h"], ["r"]),
            node("ReduceMean", ["r"], ["y"], axes=[2], keepdims=0),
        ], {"a": weight(24, 8, 5), "b": weight(24)}
    if name == "Recurrence":
        weights = {"w": weight(1, 144, 12), "r": weight(1, 144, 48), "b": weight(1, 288), "first": np.array([0])}
        return [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            node("GRU", ["t", "w", "r", "b"], ["", "h"], hidden_size=48, linear_before_reset=1),
            node("Squeeze", ["h", "first"], ["y"]),
        ], weights
    return [
        *(node("MatMul", ["x", part], [f"x{part}"]) for part in "qkv"),
        node("Transpose", ["xk"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["xq", "t"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "xv"], ["o"]),
        node("ReduceMean", ["o"], ["y"], axes=[1], keepdims=0),
    ], {part: weight(32, 32) for part in "qkv"}


def write_onnx(repository, name):
    made, weights = nodes(name)
    graph = make_graph(
        made,
        [("x", TensorProto.FLOAT, ["batch", *SHAPES[name]])],
        [("y", TensorProto.FLOAT, ["batch", WIDTHS[name]])],
        weights,
    )
    write_model(repository, "m", graph, f"max_batch_size: {NUM_ROWS} dynamic_batching {{ }}")


@pytest.mark.parametrize("write", [write_torch, write_onnx])
@pytest.mark.parametrize("name", list(SHAPES))
def test_rows_are_bit_equal_in_every_batch(tmp_path, name, write):
    write(tmp_path, name)
    x = RNG.normal(size=(NUM_ROWS, *SHAPES[name])).astype(np.float32)
    with ModelServer(tmp_path) as server:

        def rows(start, stop):
            return server.infer("m", {"x": x[start:stop]})["y"]

        alone = np.concatenate([rows(i, i + 1) for i in range(NUM_ROWS)])
        for size in range(2, NUM_ROWS + 1):
            start = int(RNG.integers(0, NUM_ROWS - size + 1))
            assert rows(start, start + size).tobytes() == alone[start : start + size].tobytes(), size
        mixed = np.empty_like(alone)
        cuts = np.sort(RNG.choice(np.arange(1, NUM_ROWS), 20, replace=False))

        def send(start, stop):
            mixed[start:stop] = rows(start, stop)

        pairs = zip([0, *cuts], [*cuts, NUM_ROWS], strict=True)
        senders = [threading.Thread(target=send, args=pair) for pair in pairs]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        assert mixed.tobytes() == alone.tobytes()
