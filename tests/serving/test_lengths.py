"""Rows of different lengths in one batch: the same answers as alone, within the limits, at the least cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from serving.config import DynamicBatching
from serving.errors import ExecutionError, InvalidArgumentError, ModelLoadError
from serving.execution_cost import ExecutionCost
from serving.length_choice import LengthChoice
from serving.padding import LengthSteps, Padding
from serving.queue import RequestQueue
from serving.request import Call, Request
from serving.server import ModelServer
from serving.tensors import TensorSpec
from tests.serving.functions import write_function
from tests.serving.models import make_graph, write_model

TIMEOUT_S = 10
CONFIG = """
max_batch_size: 8 dynamic_batching { }
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "lengths" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "sum" data_type: TYPE_FP32 dims: [ 1 ] } ]
parameters { key: "lengths_input" value { string_value: "lengths" } }
parameters { key: "row_multiple" value { string_value: "1" } }
"""
MASK_CONFIG = CONFIG.replace("TYPE_INT32 dims: [ 1 ]", "TYPE_BOOL dims: [ -1 ]")


def option(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def masked(inputs):
    """y = 2 x, sum = of the row's own positions; junk wherever a row is padded."""
    x, lengths = inputs["x"], inputs["lengths"]
    mask = lengths if lengths.dtype == bool else np.arange(x.shape[1]) < lengths
    return {
        "y": np.where(mask, 2 * x, np.nan).astype(np.float32),
        "sum": np.cumsum(np.where(mask, x, 0), axis=1, dtype=np.float32)[:, -1:],
    }


def row(length, value=None):
    x = np.random.default_rng(length).normal(size=length) if value is None else np.full(length, value)
    return {"x": x.astype(np.float32)[np.newaxis]}


def behind_a_busy_instance(server, functions, inputs):
    """Answers to requests that meet in the queue."""
    functions.forget()
    functions.close()
    first = server.submit("model", row(3))
    functions.wait(1)
    answers = [server.submit("model", one) for one in inputs]
    functions.open()
    first.result(TIMEOUT_S)
    return [answer.result(TIMEOUT_S) for answer in answers]


@pytest.mark.parametrize("config", [CONFIG, MASK_CONFIG])
def test_rows_of_all_lengths_meet_and_each_gets_its_own_answer(tmp_path, functions, config):
    functions.by_model["model"] = masked
    write_function(tmp_path, "model", config)
    with ModelServer(tmp_path) as server:
        assert [spec.name for spec in server.metadata("model").inputs] == ["x"]
        inputs = [row(length) for length in (5, 3, 8, 1)]
        answers = behind_a_busy_instance(server, functions, inputs)
        assert [batch["x"].shape for batch in functions.batches] == [(1, 3), (4, 8)]
        for one, answer in zip(inputs, answers, strict=True):
            np.testing.assert_array_equal(answer["y"], 2 * one["x"])
            assert answer["sum"].tobytes() == server.infer("model", one)["sum"].tobytes()
        statistics = server.statistics()["model"]
        assert statistics["tokens"] == 3 + 2 * (5 + 3 + 8 + 1)
        assert statistics["tokens_padding"] == 4 * 8 - (5 + 3 + 8 + 1)


def test_a_model_that_does_not_say_so_gets_no_padded_row(tmp_path, functions):
    functions.by_model["model"] = lambda inputs: {"y": inputs["x"].mean(axis=1, keepdims=True)}
    write_function(
        tmp_path,
        "model",
        """
        max_batch_size: 8 dynamic_batching { }
        input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
        parameters { key: "row_multiple" value { string_value: "1" } }
        """,
    )
    with ModelServer(tmp_path) as server:
        answers = behind_a_busy_instance(server, functions, [row(n, 1) for n in (5, 3, 5)])
    assert [answer["y"].tolist() for answer in answers] == [[[1]]] * 3
    assert [batch["x"].shape for batch in functions.batches] == [(1, 3), (2, 5), (1, 3)]


@pytest.mark.parametrize(
    ("limit", "shapes"),
    [
        (option("max_batch_tokens", 16), [(1, 8), (2, 8)]),
        (option("max_padding_ratio", 0.2), [(1, 8), (2, 8)]),
        (option("max_padding_ratio", 0), [(1, 8), (1, 7), (1, 2)]),
    ],
)
def test_no_batch_exceeds_the_limits(tmp_path, functions, limit, shapes):
    functions.by_model["model"] = masked
    write_function(tmp_path, "model", CONFIG + limit)
    with ModelServer(tmp_path) as server:
        behind_a_busy_instance(server, functions, [row(n) for n in (8, 7, 2)])
    for batch in functions.batches[1:]:
        x, lengths = batch["x"], batch["lengths"]
        if "tokens" in limit:
            assert x.size <= 16
        elif len(x) > 1:
            assert 1 - lengths.sum() / x.size <= 0.2
    assert {batch["x"].shape for batch in functions.batches[1:]} & set(shapes)


def test_limits_of_batches_are_no_part_of_the_digest(tmp_path, functions):
    functions.by_model.update(plain=masked, limited=masked, stepped=masked)
    write_function(tmp_path, "plain", CONFIG)
    write_function(tmp_path, "limited", CONFIG + option("max_batch_tokens", 99) + option("max_padding_ratio", 0.5))
    write_function(tmp_path, "stepped", CONFIG + option("length_multiple", 16))
    with ModelServer(tmp_path) as server:
        assert server.digest("plain") == server.digest("limited") != server.digest("stepped")


def attention_like():
    """sum [1] of x [-1] * mask [-1], as onnxruntime adds it up."""
    return make_graph(
        [
            helper.make_node("Exp", ["x"], ["e"]),
            helper.make_node("Mul", ["e", "mask"], ["real"]),
            helper.make_node("ReduceSum", ["real", "axes"], ["total"], keepdims=1),
            helper.make_node("Div", ["real", "total"], ["weight"]),
            helper.make_node("Mul", ["weight", "x"], ["part"]),
            helper.make_node("ReduceSum", ["part", "axes"], ["mean"], keepdims=1),
        ],
        [("x", TensorProto.FLOAT, ["batch", "length"]), ("mask", TensorProto.FLOAT, ["batch", "length"])],
        [("weight", TensorProto.FLOAT, ["batch", "length"]), ("mean", TensorProto.FLOAT, ["batch", 1])],
        {"axes": np.array([1])},
    )


def test_same_row_same_bytes_whatever_lies_beside_it(tmp_path):
    write_model(
        tmp_path,
        "model",
        attention_like(),
        "max_batch_size: 16 dynamic_batching { max_queue_delay_microseconds: 20000 } "
        + option("lengths_input", "mask"),
    )
    inputs = [row(length) for length in range(35, 152, 3)]
    with ModelServer(tmp_path) as server:
        alone = [server.infer("model", one) for one in inputs]
        together = [server.submit("model", one) for one in inputs]
        together = [answer.result(TIMEOUT_S) for answer in together]
        assert server.statistics()["model"]["executions"] < len(inputs) + 15
    for one, first, second in zip(inputs, alone, together, strict=True):
        assert first["weight"].shape == one["x"].shape
        assert {name: array.tobytes() for name, array in first.items()} == {
            name: array.tobytes() for name, array in second.items()
        }
        weight = np.exp(one["x"]) / np.exp(one["x"]).sum()
        np.testing.assert_allclose(first["mean"], (weight * one["x"]).sum(keepdims=True), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        (lambda length: 0, LengthSteps(1)),
        (lambda length: length % 16, LengthSteps(16)),
        (lambda length: length, LengthSteps(None)),
    ],
)
def test_lengths_are_padded_to_where_equal_rows_get_equal_bytes(tmp_path, functions, needs, expected):
    functions.by_model["model"] = lambda inputs: {
        "y": inputs["x"],
        "sum": np.float32(inputs["lengths"] + needs(inputs["x"].shape[1])),
    }
    write_function(tmp_path, "model", CONFIG)
    with ModelServer(tmp_path) as server:
        behind_a_busy_instance(server, functions, [row(n) for n in (35, 60, 100, 5)])
        shapes = [batch["x"].shape for batch in functions.batches[1:]]
    assert all(expected.up(length) == length for _, length in shapes)
    assert len(shapes) == (4 if expected.multiple is None else 1)


def test_steps_waste_at_most_a_third():
    steps = LengthSteps(None)
    assert [steps.up(n) for n in (1, 16, 17, 24, 25, 33, 48, 49, 65)] == [16, 16, 24, 24, 32, 48, 48, 64, 96]
    assert all(n <= steps.up(n) <= 1.5 * n for n in range(16, 5000))


def test_an_output_without_the_inputs_length_is_an_error(tmp_path, functions):
    functions.by_model["model"] = lambda inputs: masked(inputs) | {"y": inputs["x"][:, :2]}
    write_function(tmp_path, "model", CONFIG)
    with ModelServer(tmp_path) as server, pytest.raises(ExecutionError, match="output 'y' has rows of the shape"):
        server.infer("model", row(5))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (CONFIG.replace('"lengths" } }', '"x" } }'), "needs a max_batch_size and another input"),
        (CONFIG.replace('"lengths" } }', '"z" } }'), "'z', which is no input of numbers"),
        (CONFIG + option("max_padding_ratio", 2), "'max_padding_ratio' is '2', not a number from 0 to 1"),
        (CONFIG + option("max_batch_tokens", "many"), "'max_batch_tokens' is 'many'"),
        (CONFIG + option("length_multiple", 0), "'length_multiple' is '0'"),
        (CONFIG.replace('"lengths_input"', '"max_batch_tokens"'), "needs the parameter 'lengths_input'"),
    ],
)
def test_parameters_that_do_not_fit_are_load_errors(tmp_path, functions, config, words):
    functions.by_model["model"] = masked
    write_function(tmp_path, "model", config)
    with pytest.raises(ModelLoadError, match=words):
        ModelServer(tmp_path).start()


def test_one_request_has_one_length(tmp_path, functions):
    two = '{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "z" data_type: TYPE_FP32 dims: [ 2, -1 ] }'
    functions.by_model["model"] = masked
    write_function(tmp_path, "model", CONFIG.replace('{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }', two))
    with ModelServer(tmp_path) as server:
        server.infer("model", row(4) | {"z": np.zeros((1, 2, 4), np.float32)})
        with pytest.raises(InvalidArgumentError, match=r"input 'z' has the shape .* must have one length"):
            server.infer("model", row(4) | {"z": np.zeros((1, 2, 5), np.float32)})
        with pytest.raises(InvalidArgumentError, match="no input 'lengths'"):
            server.infer("model", row(4) | {"lengths": np.full((1, 1), 4, np.int32)})


def test_the_cost_is_learnt_from_executions():
    cost, rng = ExecutionCost(), np.random.default_rng(1)
    for number in range(200):
        tokens = int(rng.integers(35, 3000))
        pause = 50_000_000 if number % 40 == 39 else 0
        cost.observe(tokens, int(500_000 + 20_000 * tokens * rng.normal(1, 0.02)) + pause)
    assert cost.token_ns == pytest.approx(20_000, rel=0.15)
    assert cost.fixed_ns < 3_000_000
    for _ in range(1000):
        cost.observe(int(rng.integers(35, 3000)), 5_000_000)
    assert cost.fixed_ns == pytest.approx(5_000_000, rel=0.05)
    assert cost.token_ns == pytest.approx(0, abs=100)


def request(length, rows=1):
    return Request("model", Call({"x": np.zeros((rows, length))}, rows, ("y",)), 16, 0, length, 0)


def choice_of(fixed_ns=1.0, token_ns=0.0, multiple=1, steps=None, **limits):
    cost = ExecutionCost()
    cost.fixed_ns, cost.token_ns = fixed_ns, token_ns
    spec = TensorSpec("lengths", np.dtype(np.int32), (1,))
    return LengthChoice(Padding(spec, (("x", 1),), **limits), steps or LengthSteps(), multiple, cost)


def lengths_of(requests):
    return [one.length for one in requests]


def test_what_costs_least_per_useful_token_goes_with_the_one_whose_turn_it_is():
    waiting = [[request(n) for n in (50, 150, 52, 40, 151, 48)]]
    assert lengths_of(choice_of().choose(waiting, 16)) == [50, 150, 52, 40, 151, 48]
    assert lengths_of(choice_of().choose(waiting, 3)) == [50, 150, 52]
    assert lengths_of(choice_of(0, 1).choose(waiting, 16)) == [50]
    assert lengths_of(choice_of(25, 1).choose(waiting, 16)) == [50, 52, 48]
    assert lengths_of(choice_of(25, 1).choose(waiting, 16, min_rows=4)) == [50, 52, 40, 48]
    assert lengths_of(choice_of(25, 1, multiple=4).choose(waiting, 16)) == [50, 52, 40, 48]
    assert lengths_of(choice_of(max_tokens=110).choose(waiting, 16)) == [50, 52]


def test_padding_and_fixed_cost_together_take_little_of_a_busy_models_time():
    """Thirty-two clients, each with one request at a time, on a model of 0.5 ms + 20 us a padded token."""
    rng = np.random.default_rng(5)
    cost = ExecutionCost()
    spec = TensorSpec("lengths", np.dtype(np.int32), (1,))
    queue = RequestQueue(
        "model", DynamicBatching(()), 32, LengthChoice(Padding(spec, (("x", 1),)), LengthSteps(), 1, cost)
    )
    for _ in range(32):
        queue.put(request(int(rng.integers(35, 152))))
    useful = padded = took_ns = longest_wait = 0
    waits: dict[Request, int] = {}
    for number in range(2000):
        lengths = [piece.length for piece in queue.take(0)]
        tokens = len(lengths) * max(lengths)
        execution_ns = 500_000 + 20_000 * tokens
        cost.observe(tokens, execution_ns)
        if number >= 100:
            useful, padded, took_ns = useful + sum(lengths), padded + tokens, took_ns + execution_ns
        for _ in lengths:
            queue.put(fresh := request(int(rng.integers(35, 152))))
            waits[fresh] = number
        waits = {one: since for one, since in waits.items() if one.next_rows}
        longest_wait = max(longest_wait, number - min(waits.values()))
    assert 1 - useful / padded < 0.15
    assert useful * 20_000 / took_ns > 0.8
    # Whoever is first in line is part of the next batch.
    assert longest_wait <= 32


def test_a_lower_priority_only_fills_up():
    urgent, patient = [request(50), request(90)], [request(51), request(89)]
    assert lengths_of(choice_of().choose([urgent, patient], 3)) == [50, 90]
    assert lengths_of(choice_of().choose([urgent, patient], 4)) == [50, 90, 51, 89]
    assert lengths_of(choice_of(1, 1).choose([urgent, patient], 4)) == [50]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 300), st.integers(1, 3)), min_size=1, max_size=80), min_size=1, max_size=3
    ),
    st.floats(0, 1000),
    st.floats(0, 10),
    st.integers(3, 40),
    st.sampled_from([1, 4]),
    st.sampled_from([LengthSteps(1), LengthSteps(16), LengthSteps(None)]),
    st.sampled_from([{}, {"max_tokens": 900}, {"max_ratio": 0.3}]),
)
@example([[(1, 1), (135, 3)]], 0.0, 0.0, 4, 1, LengthSteps(None), {"max_ratio": 0.3})
@settings(max_examples=60, deadline=None)
def test_a_batch_is_within_the_limits_and_has_the_first_request(
    levels, fixed, token, max_rows, multiple, steps, limits
):
    waiting = [[request(*one) for one in level] for level in levels]
    chosen = choice_of(fixed, token, multiple, steps, **limits).choose(waiting, max_rows)
    everyone = [one for level in waiting for one in level]
    assert waiting[0][0] in chosen
    assert [one for one in everyone if one in chosen] == chosen
    assert sum(one.next_rows for one in chosen) <= max_rows
    if len(chosen) > 1:
        rows = sum(one.next_rows for one in chosen)
        padded = steps.up(max(one.length for one in chosen))
        if "max_tokens" in limits:
            assert -(-rows // multiple) * multiple * padded <= 900
        if "max_ratio" in limits:
            assert 1 - sum(one.next_rows * one.length for one in chosen) / (rows * padded) <= 0.3
