"""The row cache: the same answers, fewer executions, and every row counted."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.cache.identity import call_prefix, row_identities
from serving.cache.layout import RowLayout
from serving.cache.memory import MemoryTier
from serving.errors import CancelledError, ExecutionError, UnavailableError
from serving.request import Call
from serving.server import ModelServer
from serving.tensors import TensorSpec
from tests.serving.functions import write_function
from tests.serving.gated import rows, write_gated
from tests.serving.models import ensemble_inputs, write_ensemble

CACHED = "max_batch_size: 8 dynamic_batching { } response_cache { enable: true }"
TIMEOUT_S = 10


def balance(statistics):
    return statistics["cache_hits"] + statistics["cache_misses"] + statistics["cache_coalesced"]


def test_cache_on_equals_cache_off(tmp_path):
    write_ensemble(tmp_path / "off")
    write_ensemble(tmp_path / "on", CACHED)
    write_ensemble(tmp_path / "both", CACHED, "response_cache { enable: true }")
    parts = [ensemble_inputs(30, seed) for seed in (1, 2, 1)]
    parts.append({name: np.concatenate([part[name] for part in parts])[::2] for name in parts[0]})
    answers = {}
    for name in ("off", "on", "both"):
        with ModelServer(tmp_path / name) as server:
            answers[name] = [server.infer("variants", part)["effect"].tobytes() for part in parts]
            statistics = server.statistics()
            if name != "off":
                cached = statistics["embedder" if name == "on" else "variants"]
                assert balance(cached) == cached["rows"]
                assert cached["cache_hits"] > 0
                assert statistics["embedder"]["rows_executed"] == statistics["embedder"]["cache_misses"] <= 120
    assert answers["off"] == answers["on"] == answers["both"]


def test_repeated_rows_of_one_request_are_executed_once(tmp_path, gate):
    write_gated(tmp_path, CACHED)
    gate.open()
    with ModelServer(tmp_path) as server:
        assert server.infer("gated", rows(1, 2, 1, 3, 2, 1))["y"][:, 0].tolist() == [2, 4, 2, 6, 4, 2]
        assert server.infer("gated", rows(3, 4, 4))["y"][:, 0].tolist() == [6, 8, 8]
        statistics = server.statistics()["gated"]
    assert gate.batches == [[1, 2, 3], [4]]
    assert (statistics["cache_hits"], statistics["cache_misses"], statistics["cache_coalesced"]) == (1, 4, 4)
    assert statistics["rows"] == 9


def test_identical_rows_in_flight_are_executed_once(tmp_path, gate):
    write_gated(tmp_path, CACHED)
    with ModelServer(tmp_path) as server:
        leader = server.submit("gated", rows(1, 2))
        gate.wait_inside(1)
        follower = server.submit("gated", rows(2, 1, 3))
        gate.let(2)
        assert leader.result(TIMEOUT_S)["y"][:, 0].tolist() == [2, 4]
        assert follower.result(TIMEOUT_S)["y"][:, 0].tolist() == [4, 2, 6]
        statistics = server.statistics()["gated"]
    assert gate.batches == [[1, 2], [3]]
    assert balance(statistics) == statistics["rows"] == 5
    assert statistics["cache_coalesced"] == 2


def test_a_follower_takes_over_from_a_cancelled_leader(tmp_path, gate):
    write_gated(tmp_path, CACHED)
    with ModelServer(tmp_path) as server:
        blocker = server.submit("gated", rows(9))
        gate.wait_inside(1)
        leader = server.submit("gated", rows(1, 2))
        followers = [server.submit("gated", rows(2)), server.submit("gated", rows(2, 3))]
        leader.cancel()
        gate.open()
        with pytest.raises(CancelledError):
            leader.result(TIMEOUT_S)
        assert followers[0].result(TIMEOUT_S)["y"][:, 0].tolist() == [4]
        assert followers[1].result(TIMEOUT_S)["y"][:, 0].tolist() == [4, 6]
        assert blocker.result(TIMEOUT_S)
    executed = sorted(value for batch in gate.batches for value in batch)
    assert executed == [2, 3, 9]


def test_eight_identical_misses_at_once_are_one_execution(tmp_path, gate):
    write_gated(tmp_path, CACHED)
    got = []
    with ModelServer(tmp_path) as server:
        threads = [
            threading.Thread(target=lambda: got.append(server.infer("gated", rows(5))["y"][0, 0])) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        gate.wait_inside(1)
        while server.statistics()["gated"]["cache_coalesced"] < 7:
            time.sleep(0.001)
        gate.let(1)
        for thread in threads:
            thread.join(TIMEOUT_S)
        statistics = server.statistics()["gated"]
    assert got == [10] * 8
    assert gate.batches == [[5]]
    assert (statistics["cache_hits"], statistics["cache_misses"], statistics["cache_coalesced"]) == (0, 1, 7)
    assert statistics["rows"] == statistics["requests"] == 8


def test_seven_known_rows_of_eight_execute_one_and_keep_their_order(tmp_path, gate):
    write_gated(tmp_path, CACHED)
    gate.open()
    with ModelServer(tmp_path) as server:
        server.infer("gated", rows(*range(7)))
        assert server.infer("gated", rows(6, 5, 4, 77, 3, 2, 1, 0))["y"][:, 0].tolist() == [12, 10, 8, 154, 6, 4, 2, 0]
        statistics = server.statistics()["gated"]
    assert gate.batches == [[0, 1, 2, 3, 4, 5, 6], [77]]
    assert (statistics["cache_hits"], statistics["cache_misses"]) == (7, 8)


def test_one_follower_of_many_takes_over_from_a_cancelled_leader(tmp_path, gate):
    write_gated(tmp_path, CACHED)
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(9))
        gate.wait_inside(1)
        leader = server.submit("gated", rows(1))
        followers = [server.submit("gated", rows(1)) for _ in range(7)]
        leader.cancel()
        gate.open()
        assert [follower.result(TIMEOUT_S)["y"].tolist() for follower in followers] == [[[2]]] * 7
        statistics = server.statistics()["gated"]
    assert gate.batches == [[9], [1]]
    assert balance(statistics) == statistics["rows"] == 9
    assert statistics["failures"] == {"CANCELED": 1}


def test_an_ensembles_own_answer_is_cached(tmp_path):
    write_ensemble(tmp_path, extra="response_cache { enable: true }")
    inputs = ensemble_inputs(5)
    with ModelServer(tmp_path) as server:
        first = server.infer("variants", inputs)["effect"]
        before = server.statistics()
        assert server.infer("variants", inputs)["effect"].tobytes() == first.tobytes()
        after = server.statistics()
    assert after["variants"]["cache_hits"] == 5
    assert all(after[name]["requests"] == before[name]["requests"] for name in ("embedder", "effect"))


def test_the_same_bytes_in_another_shape_or_for_other_outputs_or_versions_have_their_own_answers(tmp_path, functions):
    config = """
    max_batch_size: 8 dynamic_batching { } response_cache { enable: true } version_policy { all { } }
    input { name: "x" data_type: TYPE_FP32 dims: [ -1, -1 ] }
    output [ { name: "sums" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "least" data_type: TYPE_FP32 dims: [ 1 ] } ]
    parameters { key: "row_multiple" value { string_value: "1" } }
    """
    functions.by_model["model"] = lambda inputs: {
        "sums": inputs["x"].sum(axis=2),
        "least": inputs["x"].min(axis=(1, 2), keepdims=True)[:, 0],
    }
    write_function(tmp_path, "model", config)
    (tmp_path / "model" / "2").mkdir()
    (tmp_path / "model" / "2" / "weights").write_text("other")
    x = np.arange(6, dtype=np.float32)
    with ModelServer(tmp_path) as server:
        for _ in range(2):
            assert server.infer("model", {"x": x.reshape(1, 2, 3)})["sums"].tolist() == [[3, 12]]
            assert server.infer("model", {"x": x.reshape(1, 3, 2)})["sums"].tolist() == [[1, 5, 9]]
            assert list(server.infer("model", {"x": x.reshape(1, 2, 3)}, outputs=["least"])) == ["least"]
            assert list(server.infer("model", {"x": x.reshape(1, 2, 3)}, version=1)) == ["sums", "least"]
        assert server.digest("model", 1) != server.digest("model", 2)
        assert server.statistics()["model"]["cache_misses"] == 4
        assert server.statistics()["model"]["cache_hits"] == 4


def test_errors_are_not_cached_and_followers_try_for_themselves(tmp_path, gate):
    write_gated(tmp_path, CACHED)
    failures = [ValueError("first")]

    def answer(x):
        if failures and (x == 1).any():
            raise failures.pop()
        return {"y": 2 * x}

    gate.answer = answer
    with ModelServer(tmp_path) as server:
        leader = server.submit("gated", rows(1))
        gate.wait_inside(1)
        follower = server.submit("gated", rows(1))
        gate.open()
        with pytest.raises(ExecutionError, match="first"):
            leader.result(TIMEOUT_S)
        assert follower.result(TIMEOUT_S)["y"].tolist() == [[2]]
        assert server.infer("gated", rows(1))["y"].tolist() == [[2]]
    assert gate.batches == [[1], [1]]


def test_a_deadline_ends_a_follower_and_not_its_leader(tmp_path, gate):
    write_gated(tmp_path, CACHED)
    with ModelServer(tmp_path) as server:
        leader = server.submit("gated", rows(1))
        gate.wait_inside(1)
        with pytest.raises(Exception, match="deadline"):
            server.infer("gated", rows(1), deadline_s=0.05)
        gate.open()
        assert leader.result(TIMEOUT_S)["y"].tolist() == [[2]]


def test_many_threads_with_overlapping_rows(tmp_path):
    write_ensemble(tmp_path, CACHED, "response_cache { enable: true }")
    inputs = ensemble_inputs(200)
    inputs = {name: array[np.arange(200) % 40] for name, array in inputs.items()}
    with ModelServer(tmp_path) as server:
        expected = server.infer("variants", inputs)["effect"]
    wrong = []
    with ModelServer(tmp_path, cache_bytes=4000) as server:

        def ask(seed):
            for pick in np.random.default_rng(seed).integers(0, 200, (20, 50)):
                got = server.infer("variants", {name: array[pick] for name, array in inputs.items()})["effect"]
                if got.tobytes() != expected[pick].tobytes():
                    wrong.append(seed)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for statistics in server.statistics().values():
            if statistics["cache_misses"]:
                assert balance(statistics) == statistics["rows"]
        assert server.cache_statistics()["memory_bytes"] <= 4000
    assert not wrong


def test_memory_keeps_to_its_budget_and_drops_what_was_used_least_recently():
    tier = MemoryTier(3 * (100 + 32 + 230))
    names = [bytes([i]) * 32 for i in range(4)]
    tier.put_many((name, b"x" * 100) for name in names[:3])
    assert tier.get_many(names[:1]) == [b"x" * 100]
    tier.put_many([(names[3], b"y" * 100)])
    assert [row is not None for row in tier.get_many(names)] == [True, False, True, True]
    assert tier.num_bytes == 3 * (100 + 32 + 230)
    tier.put_many([(b"z" * 32, b"z" * 2000)])
    assert tier.num_bytes == len(tier) == 0


def call_of(inputs, outputs=("y",), **options):
    return Call(inputs, len(next(iter(inputs.values()))), outputs, **options)


def test_an_identity_is_the_row_with_all_its_answer_depends_on():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)

    def row_identities_of(digest, call):
        return row_identities(call_prefix(digest, call), call)

    base = row_identities_of("digest", call_of({"x": x}))
    assert len(set(base)) == 3
    assert row_identities_of("digest", call_of({"x": x[1:2]})) == base[1:2]
    for other in [
        row_identities_of("other", call_of({"x": x})),
        row_identities_of("digest", call_of({"z": x})),
        row_identities_of("digest", call_of({"x": x.view(np.int32)})),
        row_identities_of("digest", call_of({"x": x.reshape(3, 2, 2)})),
        row_identities_of("digest", call_of({"x": x}, outputs=("y", "z"))),
        row_identities_of("digest", call_of({"x": x}, parameters={"a": "b"})),
        row_identities_of("digest", call_of({"x": x[:, :2].copy(), "z": x[:, 2:].copy()})),
    ]:
        assert not set(base) & set(other)


@given(st.integers(1, 5), st.integers(0, 4), st.sampled_from(["float32", "uint8", "int64", "bool"]))
@settings(max_examples=30, deadline=None)
def test_packing_is_undone_by_unpacking(num_rows, length, dtype):
    specs = [
        TensorSpec("a", np.dtype(dtype), (-1, 2)),
        TensorSpec("b", np.dtype("float64"), (3,)),
        TensorSpec("c", np.dtype("int8"), ()),
    ]
    rng = np.random.default_rng(num_rows)
    outputs = {
        "a": rng.integers(0, 2, (num_rows, length, 2)).astype(dtype),
        "b": rng.normal(size=(num_rows, 3)),
        "c": rng.integers(-9, 9, num_rows).astype(np.int8),
    }
    layout = RowLayout(specs)
    packed = layout.pack(outputs, num_rows)
    assert all(layout.accepts(row) for row in packed)
    assert not any(layout.accepts(row[:-1]) or layout.accepts(row + b"x") for row in packed)
    unpacked = layout.unpack(packed)
    for name, array in outputs.items():
        assert unpacked[name].dtype == array.dtype
        assert unpacked[name].tobytes() == array.tobytes()
        assert unpacked[name].shape == array.shape


def test_rows_with_outputs_of_different_shapes_are_refused(tmp_path, gate):
    write_gated(tmp_path, CACHED)
    gate.open()
    gate.answer = lambda x: {"y": np.zeros((len(x), int(x[0, 0])), np.float32)}
    with ModelServer(tmp_path) as server:
        server.infer("gated", rows(1))
        server.infer("gated", rows(2))
        with pytest.raises(ExecutionError, match="different shapes"):
            server.infer("gated", rows(1, 2))


def test_rows_of_a_refused_request_are_counted_too(tmp_path, gate):
    policy = "dynamic_batching { default_queue_policy { max_queue_size: 1 } }"
    write_gated(tmp_path, f"max_batch_size: 1 {policy} response_cache {{ enable: true }}")
    with ModelServer(tmp_path) as server:
        server.submit("gated", rows(1))
        gate.wait_inside(1)
        waiting = server.submit("gated", rows(2))
        with pytest.raises(UnavailableError):
            server.submit("gated", rows(3, 4))
        follower = server.submit("gated", rows(2))
        gate.open()
        assert waiting.result(TIMEOUT_S)["y"].tolist() == follower.result(TIMEOUT_S)["y"].tolist() == [[4]]
        assert server.infer("gated", rows(3))["y"].tolist() == [[6]]
        statistics = server.statistics()["gated"]
    assert balance(statistics) == statistics["rows"] == 6
    assert statistics["failures"] == {"REJECTED": 1}
