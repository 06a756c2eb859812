"""Text and bfloat16 from a request to its answer: checks, batches, ensembles, the row cache; and reshaped rows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from serving.cache.layout import row_layout
from serving.errors import ExecutionError, InvalidArgumentError, ModelLoadError
from serving.server import ModelServer
from serving.tensors import BF16, BYTES, TensorSpec, bytes_array, content, from_content
from tests.serving.models import affine, affine_answer, make_graph, write_model
from tests.serving.modules import seeded
from tests.serving.python_models import write_python

CACHED = "max_batch_size: 8 dynamic_batching { } response_cache { enable: true }"
WORDS = np.array([["a", "é"], [b"\x00 b", ""], ["a", "é"]], object)
WORDS_BYTES = [[b"a", "é".encode()], [b"\x00 b", b""], [b"a", "é".encode()]]

JOIN = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            words = pb_utils.get_input_tensor_by_name(request, "words").as_numpy()
            joined = np.array([[b"%s".join(row)] for row in words.tolist()], object)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("joined", joined)]))
        return responses
"""
JOIN_CONFIG = """
backend: "python" max_batch_size: 8 dynamic_batching { }
input { name: "words" data_type: TYPE_STRING dims: [ -1 ] }
output { name: "joined" data_type: TYPE_STRING dims: [ 1 ] }
"""
ENSEMBLE = """
platform: "ensemble" max_batch_size: 8
input { name: "words" data_type: TYPE_STRING dims: [ -1 ] }
output { name: "twice" data_type: TYPE_STRING dims: [ 1 ] }
ensemble_scheduling {
  step [ { model_name: "comma" model_version: -1
           input_map { key: "words" value: "words" } output_map { key: "joined" value: "once" } },
         { model_name: "dash" model_version: -1
           input_map { key: "words" value: "once" } output_map { key: "joined" value: "twice" } } ]
}
"""


def identity(element, name="m", dims=2):
    return make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        [("x", element, ["batch", dims])],
        [("y", element, ["batch", dims])],
    )


def test_text_goes_through_onnxruntime_and_the_cache(tmp_path):
    write_model(tmp_path, "m", identity(TensorProto.STRING), CACHED)
    with ModelServer(tmp_path) as server:
        assert str(server.metadata("m").inputs[0]) == "x bytes[2]"
        for _ in range(2):
            assert server.infer("m", {"x": WORDS})["y"].tolist() == WORDS_BYTES
        statistics = server.statistics()["m"]
        assert (statistics["rows"], statistics["rows_executed"], statistics["cache_hits"]) == (6, 2, 3)
        # numpy's own strings are taken too; the same text is the same row.
        assert server.infer("m", {"x": np.array([["a", "é"]])})["y"].tolist() == WORDS_BYTES[:1]
        assert server.infer("m", {"x": np.array([[b"a", "é".encode()]])})["y"].tolist() == WORDS_BYTES[:1]
        assert server.statistics()["m"]["rows_executed"] == 2
        # Where a word ends is part of the row.
        assert server.infer("m", {"x": np.array([["ab", "c"], ["a", "bc"]], object)})["y"].tolist() == [
            [b"ab", b"c"],
            [b"a", b"bc"],
        ]


def test_what_is_no_text_is_refused(tmp_path):
    write_model(tmp_path, "m", identity(TensorProto.STRING), CACHED)
    with ModelServer(tmp_path) as server:
        for bad in (np.zeros((1, 2)), np.array([["a", 3]], object)):
            with pytest.raises(InvalidArgumentError, match="input 'x' must hold bytes or text"):
                server.infer("m", {"x": bad})
        good = server.submit("m", {"x": WORDS})
        with pytest.raises(ExecutionError, match="utf-8"):
            server.infer("m", {"x": np.array([[b"\xff", b""]], object)})
        assert good.result()["y"].tolist() == WORDS_BYTES


def test_text_goes_from_step_to_step(tmp_path):
    write_python(tmp_path, JOIN % ",", JOIN_CONFIG, "comma")
    write_python(tmp_path, JOIN % "-", JOIN_CONFIG, "dash")
    write_model(tmp_path, "m", None, ENSEMBLE + "response_cache { enable: true }")
    with ModelServer(tmp_path) as server:
        for _ in range(2):
            assert server.infer("m", {"words": WORDS})["twice"].tolist() == [
                [b"a,\xc3\xa9"],
                [b"\x00 b,"],
                [b"a,\xc3\xa9"],
            ]
        assert server.statistics()["comma"]["rows_executed"] == 2


def test_bfloat16_goes_through_onnxruntime_and_the_cache(tmp_path):
    graph = make_graph(
        [
            helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["wide", "wide"], ["square"]),
            helper.make_node("Cast", ["square"], ["y"], to=TensorProto.BFLOAT16),
        ],
        [("x", TensorProto.BFLOAT16, ["batch", 2])],
        [("y", TensorProto.BFLOAT16, ["batch", 2])],
    )
    write_model(tmp_path, "m", graph, CACHED)
    x = np.array([[1.5, -2], [3, 0.25], [1.5, -2]], ml_dtypes.bfloat16)
    with ModelServer(tmp_path) as server:
        for _ in range(2):
            y = server.infer("m", {"x": x})["y"]
            assert (y.dtype, y.tolist()) == (BF16, (x * x).tolist())
        assert server.statistics()["m"]["rows_executed"] == 2
        assert server.infer("m", {"x": x[:1]})["y"].tolist() == (x * x)[:1].tolist()
        with pytest.raises(InvalidArgumentError, match="must be bfloat16, not float32"):
            server.infer("m", {"x": x.astype(np.float32)})
        with pytest.raises(ExecutionError, match=r"not a number \(NaN\) in 1 of 3 rows: row 1"):
            server.infer("m", {"x": np.array([[1, 1], [np.nan, 1], [2, 2]], ml_dtypes.bfloat16)})


def test_bfloat16_goes_through_torch(tmp_path):
    config = """
backend: "torch" max_batch_size: 16
input { name: "x" data_type: TYPE_BF16 dims: [ 4 ] }
output { name: "embedding" data_type: TYPE_BF16 dims: [ 3 ] }
output { name: "mean" data_type: TYPE_FP32 dims: [ 1 ] }
parameters { key: "module" value { string_value: "tests.serving.modules:Embedder" } }
parameters { key: "precision" value { string_value: "bf16" } }
"""
    folder = write_model(tmp_path, "m", None, config)
    (folder / "model.safetensors").write_bytes(safetensors.torch.save(seeded().state_dict()))
    with ModelServer(tmp_path) as server:
        outputs = server.infer("m", {"x": np.ones((2, 4), ml_dtypes.bfloat16)})
    assert [array.dtype for array in outputs.values()] == [BF16, np.float32]


@pytest.mark.parametrize(
    ("dims", "reshape", "batch"),
    [("2, 2", "4", ("batch",)), ("1, 4, 1", "4", ("batch",))],
)
def test_rows_are_reshaped_for_the_model_and_back(tmp_path, dims, reshape, batch):
    config = f"""
max_batch_size: 8 dynamic_batching {{ }} response_cache {{ enable: true }}
input {{ name: "x" dims: [ {dims} ] reshape {{ shape: [ {reshape} ] }} }}
output {{ name: "y" dims: [ 3, 1 ] reshape {{ shape: [ 3 ] }} }}
"""
    write_model(tmp_path, "m", affine(), config)
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    with ModelServer(tmp_path) as server:
        for _ in range(2):
            y = server.infer("m", {"x": x.reshape(5, *map(int, dims.split(",")))})["y"]
            np.testing.assert_allclose(y, affine_answer(x)[:, :, np.newaxis])
        with pytest.raises(InvalidArgumentError, match="must have the shape"):
            server.infer("m", {"x": x})


def test_a_row_of_one_number_may_have_no_dimension_in_the_model(tmp_path):
    graph = make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        [("x", TensorProto.FLOAT, ["batch"])],
        [("y", TensorProto.FLOAT, ["batch"])],
    )
    tensors = 'input { name: "x" dims: 1 reshape { } } output { name: "y" dims: 1 reshape { } }'
    write_model(tmp_path, "m", graph, "max_batch_size: 4 " + tensors)
    with ModelServer(tmp_path) as server:
        assert server.infer("m", {"x": np.ones((3, 1), np.float32)})["y"].tolist() == [[-1], [-1], [-1]]


@given(st.lists(st.binary(max_size=5), max_size=6))
def test_content_and_back(words):
    array = bytes_array(words, (len(words),))
    packed = content(array)
    assert from_content(packed, BYTES, array.shape).tolist() == words
    assert from_content(packed, BYTES, (len(words) + 1,)) is None
    assert from_content(packed + b"x", BYTES, array.shape) is None


def test_a_packed_row_that_was_damaged_is_not_taken():
    layout = row_layout([TensorSpec("words", BYTES, (-1,)), TensorSpec("y", np.dtype(np.float32), (2,))])
    outputs = {"words": np.array([[b"ab", b""], [b"c", b"d"]], object), "y": np.arange(4, dtype=np.float32)[:, None]}
    outputs["y"] = outputs["y"].reshape(2, 2)
    rows = layout.pack(outputs, 2)
    again = layout.unpack(rows)
    assert {name: array.tolist() for name, array in again.items()} == {
        name: array.tolist() for name, array in outputs.items()
    }
    for row in rows:
        assert layout.accepts(row)
        assert not any(layout.accepts(bad) for bad in (row[:-1], row + b"\0", b"", b"\xff" * len(row)))


def test_torch_has_no_text(tmp_path):
    config = """
backend: "torch" max_batch_size: 4
input { name: "x" data_type: TYPE_STRING dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }
parameters { key: "module" value { string_value: "tests.serving.modules:Embedder" } }
"""
    folder = write_model(tmp_path, "m", None, config)
    (folder / "model.safetensors").write_bytes(safetensors.torch.save(seeded().state_dict()))
    with pytest.raises(ModelLoadError, match=r"x bytes\[4\]: torch has no TYPE_STRING"):
        ModelServer(tmp_path).start()
