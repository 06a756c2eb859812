"""Same row, same bytes: measured at load, and kept whatever the batch."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from serving.errors import ExecutionError, ModelLoadError
from serving.invariance import measure_row_multiple
from serving.server import ModelServer
from serving.tensors import TensorSpec
from tests.serving.models import affine, make_graph, write_model

X = [TensorSpec("x", np.dtype(np.float32), (-1,))]


def sizes_seen(function):
    seen = set()

    def execute(inputs, rows):
        seen.add(rows)
        return {"y": function(inputs["x"])}

    return seen, execute


@pytest.mark.parametrize("multiple", [1, 2, 8])
def test_the_smallest_multiple_is_found(multiple):
    seen, execute = sizes_seen(lambda x: x * (1 if len(x) % multiple == 0 else 1.5))
    assert measure_row_multiple("model", execute, X, 32) == multiple
    assert max(seen) == 32


def test_an_engine_that_takes_one_batch_size_runs_there():
    def execute(inputs, rows):
        if rows != 12:
            raise ExecutionError("the engine was built for 12 rows")
        return {"y": inputs["x"]}

    assert measure_row_multiple("model", execute, X, 12) == 12


def test_rows_that_look_at_their_neighbours_go_alone():
    _, execute = sizes_seen(lambda x: x - x.mean(axis=0))
    assert measure_row_multiple("model", execute, X, 8) is None


def test_small_batches_that_are_refused_are_not_used():
    def execute(inputs, rows):
        if rows < 4:
            raise ExecutionError("too small")
        return {"y": inputs["x"]}

    assert measure_row_multiple("model", execute, X, 16) == 4


def test_a_model_that_made_up_rows_break_is_always_padded_full():
    def execute(inputs, rows):
        raise ExecutionError("out of range")

    assert measure_row_multiple("model", execute, X, 16) == 16


def test_batches_are_padded_and_padding_is_not_counted(tmp_path):
    config = 'max_batch_size: 10 dynamic_batching { } parameters { key: "row_multiple" value { string_value: "4" } }'
    write_model(tmp_path, "affine", affine(), config)
    x = np.ones((11, 4), np.float32)
    with ModelServer(tmp_path) as server:
        assert server.infer("affine", {"x": x})["y"].shape == (11, 3)
        statistics = server.statistics()["affine"]
        assert server.metadata("affine").row_multiple == 4
    # Batches of 8 and 3: a batch of 10 could not be padded to a multiple of 4.
    assert (statistics["executions"], statistics["rows_executed"], statistics["rows_padding"]) == (2, 11, 1)


def test_a_graph_that_mixes_its_rows_is_served_row_by_row(tmp_path):
    graph = make_graph(
        [
            helper.make_node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1),
            helper.make_node("Sub", ["x", "m"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, ["batch", 2])],
        [("y", TensorProto.FLOAT, ["batch", 2])],
    )
    write_model(tmp_path, "mixer", graph, "max_batch_size: 8 dynamic_batching { }")
    with ModelServer(tmp_path) as server:
        assert not server.infer("mixer", {"x": np.random.default_rng(0).random((5, 2), np.float32)})["y"].any()
        assert server.statistics()["mixer"]["executions"] == 5


def test_a_multiple_that_cannot_be_is_refused(tmp_path):
    write_model(
        tmp_path, "a", affine(), 'max_batch_size: 4 parameters { key: "row_multiple" value { string_value: "5" } }'
    )
    with pytest.raises(ModelLoadError, match="'row_multiple' is '5', not a number within 1-4"):
        ModelServer(tmp_path).start()


def test_any_cut_of_the_rows_gives_the_same_bytes(tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(4, 3)).astype(np.float32)
    write_model(tmp_path, "affine", affine(weight), "max_batch_size: 16 dynamic_batching { }")
    x = rng.normal(size=(50, 4)).astype(np.float32)
    with ModelServer(tmp_path) as server:
        whole = server.infer("affine", {"x": x})["y"].tobytes()
        for step in (1, 3, 7, 16, 33):
            parts = [server.infer("affine", {"x": x[start : start + step]})["y"] for start in range(0, 50, step)]
            assert np.concatenate(parts).tobytes() == whole
