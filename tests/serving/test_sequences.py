"""Continuous batching: sequences enter and leave the batch at every step, and come out as they do alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from onnx import TensorProto, helper

from serving.errors import CancelledError, ExecutionError, InvalidArgumentError, ModelLoadError, UnavailableError
from serving.server import ModelServer
from tests.serving.functions import write_function
from tests.serving.models import make_graph, write_model

TIMEOUT_S = 30
CONFIG = """
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "state" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [
  { name: "y" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "sum" data_type: TYPE_FP32 dims: [ 1 ] },
  { name: "next" data_type: TYPE_FP32 dims: [ 1 ] }
]
sequence_batching {
  iterative_sequence: true
  oldest { max_candidate_sequences: 4 }
  state { input_name: "state" output_name: "next" data_type: TYPE_FP32 dims: [ 1 ] initial_state { zero_data: true } }
}
parameters { key: "row_multiple" value { string_value: "1" } }
"""
COUNTDOWN = """
max_batch_size: 4
input [ { name: "n" data_type: TYPE_INT64 dims: [ 1 ] }, { name: "state" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [
  { name: "steps" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "next" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "done" data_type: TYPE_BOOL dims: [ 1 ] }
]
sequence_batching { iterative_sequence: true state { input_name: "state" output_name: "next" } }
parameters { key: "done_output" value { string_value: "done" } }
parameters { key: "row_multiple" value { string_value: "1" } }
"""


def accumulate(inputs):
    """A running sum: y at each position, sum at the last one."""
    y = inputs["state"] + np.cumsum(inputs["x"], axis=1, dtype=np.float32)
    return {"y": y, "sum": y[:, -1:].copy(), "next": y[:, -1:].copy()}


def sequence(length, seed=0):
    return {"x": np.random.default_rng(seed + length).normal(size=(1, length)).astype(np.float32)}


def test_short_sequences_never_wait_for_a_long_one(tmp_path, functions):
    functions.by_model["sum"] = accumulate
    write_function(tmp_path, "sum", CONFIG)
    inputs = [sequence(1000), *(sequence(10, seed) for seed in range(40))]
    finished: list[int] = []
    with ModelServer(tmp_path) as server:
        functions.close()
        answers = [server.submit("sum", inputs[0])]
        functions.wait(1)
        answers += [server.submit("sum", one) for one in inputs[1:]]
        for number, answer in enumerate(answers):
            answer.add_done_callback(lambda _, number=number: finished.append(number))
        functions.open()
        together = [answer.result(TIMEOUT_S) for answer in answers]
        assert finished[-1] == 0
        assert len(finished) == 41
        statistics = server.statistics()["sum"]
        assert statistics["executions"] == 1000
        assert statistics["rows_executed"] == 1000 + 40 * 10
        assert statistics["slot_steps_used"] >= 0.9 * statistics["slot_steps"] > 0
        for one, answer in zip(inputs, together, strict=True):
            alone = server.infer("sum", one)
            assert sorted(answer) == sorted(alone) == ["sum", "y"]
            assert all(answer[name].tobytes() == alone[name].tobytes() for name in alone)
            np.testing.assert_allclose(answer["y"], np.cumsum(one["x"], axis=1), rtol=1e-4, atol=1e-4)


def test_a_recurrent_network_gives_a_sequence_the_same_bytes_in_any_company(tmp_path):
    rng = np.random.default_rng(1)
    graph = make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["carried"]),
            helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=1),
            helper.make_node("Add", ["carried", "mean"], ["added"]),
            helper.make_node("Tanh", ["added"], ["next"]),
            helper.make_node("Identity", ["next"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, ["batch", "length"]), ("state", TensorProto.FLOAT, ["batch", 16])],
        [("y", TensorProto.FLOAT, ["batch", 16]), ("next", TensorProto.FLOAT, ["batch", 16])],
        {"w": rng.normal(size=(16, 16)).astype(np.float32) / 4},
    )
    write_model(
        tmp_path,
        "rnn",
        graph,
        'max_batch_size: 8 sequence_batching { iterative_sequence: true state { input_name: "state" '
        'output_name: "next" } } parameters { key: "step_length" value { string_value: "16" } }',
    )
    inputs = [sequence(length) for length in (16, 1, 400, 33, 64, 100, 17, 250, 90, 31, 150, 15)]
    with ModelServer(tmp_path) as server:
        alone = [server.infer("rnn", one)["y"].tobytes() for one in inputs]
        answers = [server.submit("rnn", one) for one in inputs]
        assert [answer.result(TIMEOUT_S)["y"].tobytes() for answer in answers] == alone
        assert len(set(alone)) == len(inputs)


def test_each_row_is_a_sequence_and_ends_when_the_model_says_so(tmp_path, functions):
    def countdown(inputs):
        step = inputs["state"] + 1
        return {"steps": step, "next": step, "done": step >= inputs["n"]}

    functions.by_model["count"] = countdown
    write_function(tmp_path, "count", COUNTDOWN)
    with ModelServer(tmp_path) as server:
        assert [spec.name for spec in server.metadata("count").outputs] == ["steps"]
        numbers = np.array([[3], [50], [1], [7], [2], [9]])
        np.testing.assert_array_equal(server.infer("count", {"n": numbers})["steps"], numbers)
        assert server.statistics()["count"]["executions"] == 50


def test_a_slot_is_free_at_once_when_its_sequence_is_given_up(tmp_path, functions):
    functions.by_model["sum"] = accumulate
    write_function(tmp_path, "sum", CONFIG.replace("max_candidate_sequences: 4", "max_candidate_sequences: 1"))
    with ModelServer(tmp_path) as server:
        functions.close()
        long, waiting, short = (server.submit("sum", sequence(length)) for length in (100_000, 100_000, 3))
        functions.wait(1)
        assert server.statistics()["sum"]["requests_waiting"] == 2
        waiting.cancel()
        long.cancel()
        functions.open()
        assert short.result(TIMEOUT_S)["y"].shape == (1, 3)
        for given_up in (long, waiting):
            with pytest.raises(CancelledError):
                given_up.result()
        statistics = server.statistics()["sum"]
        assert statistics["failures"] == {"CANCELED": 2}
        assert statistics["executions"] == 1 + 3


def test_a_sequence_that_fails_fails_alone(tmp_path, functions):
    def unlucky(inputs):
        if (inputs["x"] == 13).any():
            raise ValueError("unlucky")
        return accumulate(inputs)

    functions.by_model["sum"] = unlucky
    write_function(tmp_path, "sum", CONFIG)
    with ModelServer(tmp_path) as server:
        functions.close()
        first = server.submit("sum", sequence(5))
        functions.wait(1)
        bad = server.submit("sum", {"x": np.array([[1, 2, 13, 4]], np.float32)})
        good = server.submit("sum", {"x": np.array([[1, 2, 3, 4]], np.float32)})
        functions.open()
        assert first.result(TIMEOUT_S)["y"].shape == (1, 5)
        assert good.result(TIMEOUT_S)["sum"].tolist() == [[10]]
        with pytest.raises(ExecutionError, match="the backend failed: unlucky"):
            bad.result(TIMEOUT_S)
        with pytest.raises(InvalidArgumentError, match="at least 1"):
            server.infer("sum", {"x": np.zeros((1, 0), np.float32)})


def test_closing_finishes_the_sequences(tmp_path, functions):
    functions.by_model["sum"] = accumulate
    write_function(tmp_path, "sum", CONFIG)
    server = ModelServer(tmp_path)
    server.start()
    answers = [server.submit("sum", sequence(n)) for n in range(1, 30)]
    closing = threading.Thread(target=server.close)
    closing.start()
    closing.join(TIMEOUT_S)
    assert [answer.result(0)["y"].shape[1] for answer in answers] == list(range(1, 30))
    with pytest.raises(UnavailableError):
        server.submit("sum", sequence(1))


def test_two_instances_share_the_sequences(tmp_path, functions):
    functions.by_model["sum"] = accumulate
    write_function(tmp_path, "sum", CONFIG + "instance_group { count: 2 kind: KIND_CPU }")
    with ModelServer(tmp_path) as server:
        functions.close()
        answers = [server.submit("sum", sequence(20, n)) for n in range(20)]
        functions.wait(2)
        functions.open()
        for n, answer in enumerate(answers):
            np.testing.assert_allclose(answer.result(TIMEOUT_S)["y"], np.cumsum(sequence(20, n)["x"], 1), atol=1e-5)


def test_a_sequence_is_cached_whole(tmp_path, functions):
    functions.by_model["sum"] = accumulate
    write_function(tmp_path, "sum", CONFIG + "response_cache { enable: true }")
    with ModelServer(tmp_path) as server:
        first = server.infer("sum", sequence(50))
        assert server.infer("sum", sequence(50))["y"].tobytes() == first["y"].tobytes()
        assert server.statistics()["sum"]["executions"] == 50


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("iterative_sequence: true", "", "sequence_batching is not supported"),
        ("oldest {", "direct { } oldest {", "config.pbtxt"),
        ("iterative_sequence: true", "iterative_sequence: true max_sequence_idle_microseconds: 5", "max_sequence_idle"),
        (
            "iterative_sequence: true",
            'iterative_sequence: true control_input { name: "s" }',
            "sequence_batching.control_input is not supported",
        ),
        ("max_candidate_sequences: 4", "max_candidate_sequences: 5", "is 5, max_batch_size is 4"),
        ('output_name: "next"', 'output_name: "none"', "carries output 'none' to input 'state'"),
        ('output_name: "next"', 'output_name: "y"', "they must be alike"),
        ("dims: [ 1 ] initial_state", "dims: [ 2 ] initial_state", r"is TYPE_FP32 \[2\]"),
        ("zero_data: true", 'data_file: "f"', "initial_state.data_file is not supported"),
        ('name: "x" data_type: TYPE_FP32 dims: [ -1 ]', 'name: "x" data_type: TYPE_FP32 dims: [ 3 ]', "would end"),
        ("max_batch_size: 4", "max_batch_size: 4 dynamic_batching { }", "config.pbtxt|no dynamic_batching"),
    ],
)
def test_what_is_not_supported_is_a_load_error_that_names_it(tmp_path, functions, old, new, words):
    functions.by_model["sum"] = accumulate
    write_function(tmp_path, "sum", CONFIG.replace(old, new, 1))
    with pytest.raises(ModelLoadError, match=words):
        ModelServer(tmp_path).start()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("step_length", "0", "not a positive number"), ("done_output", "y", "no output of TYPE_BOOL")],
)
def test_parameters_that_do_not_fit_are_load_errors(tmp_path, functions, key, value, words):
    functions.by_model["sum"] = accumulate
    parameter = f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
    write_function(tmp_path, "sum", CONFIG + parameter)
    with pytest.raises(ModelLoadError, match=words):
        ModelServer(tmp_path).start()
