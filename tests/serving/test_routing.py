"""Traffic split between versions: weights, sticky keys, shadow, rollback."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest

from serving.canary import Canary, Rollback
from serving.errors import CancelledError, ExecutionError, InvalidArgumentError, ModelLoadError, UnavailableError
from serving.server import ModelServer
from tests.serving.gated import CONFIG, rows
from tests.serving.models import affine, token_mean, write_model

ALL = "max_batch_size: 8 dynamic_batching { } version_policy { all { } } "
ZERO = {"x": np.zeros((1, 4), np.float32)}
TEN_PERCENT = {"aliases": {"stable": 1, "canary": 2}, "weights": {"stable": 90, "canary": 10}}


def write_versions(repository, routing, *biases: float, config: str = ALL) -> None:
    """Model `m` whose version n adds the n-th bias."""
    for version, offset in enumerate(biases, start=1):
        write_model(repository, "m", affine(bias=offset), config, version)
    write_routing(repository, routing)


def write_routing(repository, routing, name: str = "m") -> None:
    (repository / name / "routing.json").write_text(json.dumps(routing))


def write_gated_versions(repository, routing) -> None:
    """Model `gated` with versions 1 and 2."""
    for version in (1, 2):
        (repository / "gated" / str(version)).mkdir(parents=True)
    (repository / "gated" / "config.pbtxt").write_text(CONFIG + ALL)
    write_routing(repository, routing, "gated")


def explicit(repository) -> ModelServer:
    return ModelServer(repository, control="explicit", models=["m"])


def version_of(server, key=None, name="m", inputs=ZERO) -> int:
    answer = server.submit(name, inputs, key=key)
    answer.result(10)
    return answer.version


def test_a_tenth_of_keyed_and_of_other_requests_goes_to_the_canary_and_keys_stay(tmp_path):
    write_versions(tmp_path, TEN_PERCENT, 1, 2)
    keys = [f"patient {number}" for number in range(10_000)]
    with explicit(tmp_path) as server:
        router = server._offer("m").router
        chosen = {key: router.choose(key) for key in keys}
        assert 900 <= Counter(chosen.values())[2] <= 1100
        assert {key: router.choose(key) for key in keys} == chosen
        assert Counter(router.choose(None) for _ in range(10_000))[2] == pytest.approx(1000, abs=3)
        for key in keys[:300]:
            assert version_of(server, key) == chosen[key]
            assert server.infer("m", ZERO, key=key)["y"][0, 0] == chosen[key]
        assert server.version("m") == server.metadata("m").versions[0] == 1
        assert server.infer("m", ZERO, 2, key=keys[0])["y"][0, 0] == 2
        # A larger share only adds keys to it.
        write_routing(tmp_path, {"weights": {"1": 70, "2": 30}})
        first = server._find("m", 1)
        server.load("m")
        assert server._find("m", 1) is first
        wider = {key: server._offer("m").router.choose(key) for key in keys}
        assert 2850 <= Counter(wider.values())[2] <= 3150
        assert all(wider[key] == 2 for key in keys if chosen[key] == 2)
        assert server.routing("m").weights == {1: 70, 2: 30}


def test_keys_stay_over_servers_and_differ_over_models(tmp_path):
    write_versions(tmp_path, {"weights": {"1": 1, "2": 1}}, 1, 2)
    keys = [str(number) for number in range(200)]
    chosen = []
    for _ in range(2):
        with explicit(tmp_path) as server:
            chosen.append([server._offer("m").router.choose(key) for key in keys])
    assert chosen[0] == chosen[1]
    (tmp_path / "m").rename(tmp_path / "n")
    with ModelServer(tmp_path) as server:
        assert [server._offer("n").router.choose(key) for key in keys] != chosen[0]


def test_five_percent_of_errors_roll_the_canary_back_and_touch_no_other_version(tmp_path, gate):
    routing = {**TEN_PERCENT, "rollback": {"version": "canary", "min_requests": 100, "max_error_rate": 0.02}}
    gate.open()
    write_gated_versions(tmp_path, routing)
    canary_turns = 0

    def fail(x):
        if x[0, 0] == -1:
            raise ValueError("injected")
        return {"y": x}

    gate.answer = fail
    with ModelServer(tmp_path, control="explicit", models=["gated"]) as server:
        router = server._offer("gated").router
        for number in range(10_000):
            key = str(number)
            is_canary = router.choose(key) == 2
            canary_turns += is_canary
            answer = server.submit("gated", rows(-1 if is_canary and canary_turns % 20 == 0 else 1), key=key)
            if answer.version == 1:
                answer.result(10)
            else:
                with suppress(ExecutionError):
                    answer.result(10)
        # The third error is more than a 50th of 100 requests.
        assert canary_turns == 60
        first, second = server.model_statistics("gated")
        assert (first.fail.count, second.fail.count, second.success.count) == (0, 3, 57)
        assert first.success.count == 9940
        state = server.routing("gated")
        assert state.weights == {1: 90}
        assert state.rolled_back[2].startswith("rolled back: 3 of its last 60 requests within 60 s failed")
        entries = {entry.version: entry for entry in server.index()}
        assert (entries["2"].state, entries["2"].reason) == ("READY", state.rolled_back[2])
        assert entries["1"].reason == ""
        # It stays so while nothing changes, and is tried again when its routing does.
        server.load("gated")
        assert server.routing("gated").weights == {1: 90}
        write_routing(tmp_path, {**routing, "weights": {"stable": 95, "canary": 5}}, "gated")
        server.load("gated")
        assert server.routing("gated").weights == {1: 95, 2: 5}


def test_a_slow_canary_is_rolled_back(tmp_path, gate):
    write_gated_versions(
        tmp_path,
        {
            "weights": {"1": 1, "2": 1},
            "rollback": {"version": "2", "min_requests": 1, "max_latency_ms": 20, "latency_quantile": 0.5},
        },
    )
    with ModelServer(tmp_path) as server:
        key = next(key for key in map(str, range(100)) if server._offer("gated").router.choose(key) == 2)
        answer = server.submit("gated", rows(1), key=key)
        gate.wait_inside(1)
        time.sleep(0.03)
        gate.open()
        answer.result(10)
        assert "took longer than 20 ms" in server.routing("gated").rolled_back[2]
        assert version_of(server, key, "gated", rows(1)) == 1


def canary(now, told=lambda reason: None, **bounds) -> Canary:
    return Canary(Rollback(version="2", **bounds), told, lambda: int(now[0] * 1e9))


def test_only_the_window_counts_and_only_what_the_version_is_to_blame_for():
    now = [1000.0]
    told = []
    one = canary(now, told.append, window_s=10, min_requests=10, max_error_rate=0.2)
    for _ in range(2):
        one.observe(0, ExecutionError("x"))
    for error in (InvalidArgumentError("x"), CancelledError("x")):
        for _ in range(50):
            one.observe(0, error)
    now[0] += 11
    for _ in range(2):
        one.observe(0, ExecutionError("x"))
    assert one.reason == ""
    one.observe(0, UnavailableError("full"))
    one.observe(0, UnavailableError("full"))
    assert one.reason.startswith("rolled back: 3 of its last 3 requests within 10 s failed")
    assert told == [one.reason]


def test_latency_is_bound_at_its_quantile():
    one = canary([0.0], min_requests=100, max_latency_ms=5, latency_quantile=0.95)
    for number in range(1000):
        one.observe(6_000_000 if number % 20 == 19 else 4_000_000, None)
    assert one.reason == ""
    for _ in range(3):
        one.observe(6_000_000, None)
    assert "took longer than 5 ms, which is more than a share of 0.05" in one.reason


def wait_for_shadow(server, num: int):
    ends_s = time.monotonic() + 10
    while True:
        counts = server.routing("m").shadow
        if counts.same + counts.different + counts.failed + counts.skipped >= num:
            return counts
        assert time.monotonic() < ends_s, counts
        time.sleep(0.002)


@pytest.mark.parametrize(("tolerance", "same"), [(0.0, 0), (0.75, 20)])
def test_a_shadow_is_compared_and_never_answers(tmp_path, tolerance, same):
    write_versions(tmp_path, {"weights": {"1": 1}, "shadow": {"version": "2", "tolerance": tolerance}}, 1, 1.5)
    inputs = {"x": np.zeros((1, 4), np.float32)}
    with explicit(tmp_path) as server:
        for number in range(20):
            inputs["x"][:] = number
            before = inputs["x"].copy()
            answer = server.infer("m", inputs)["y"]
            inputs["x"][:] = np.nan
            assert answer.tobytes() == server.infer("m", {"x": before}, 1)["y"].tobytes()
        counts = wait_for_shadow(server, 20)
        assert (counts.same, counts.different, counts.failed, counts.skipped) == (same, 20 - same, 0, 0)
        assert counts.max_difference == pytest.approx(0.5, abs=1e-3)
        assert server.model_statistics("m", 2)[0].success.count == 20


def test_a_shadow_takes_its_share_and_its_end_fails_nothing(tmp_path):
    write_versions(tmp_path, {"weights": {"1": 1}, "shadow": {"version": "2", "share": 0.25}}, 1, 1)
    with explicit(tmp_path) as server:
        for _ in range(40):
            server.infer("m", ZERO)
        assert wait_for_shadow(server, 10).same == 10
        server.unload("m", version=2)
        assert server.infer("m", ZERO)["y"][0, 0] == 1
        assert server.routing("m").weights == {1: 1}


def test_a_version_that_is_taken_out_gets_no_requests(tmp_path):
    write_versions(tmp_path, {"weights": {"1": 1, "2": 1}}, 1, 2)
    with explicit(tmp_path) as server:
        server.unload("m", version=2)
        assert {version_of(server, str(key)) for key in range(20)} == {1}
        server.load("m")
        assert {version_of(server, str(key)) for key in range(20)} == {1, 2}


@pytest.mark.parametrize(
    ("routing", "words"),
    [
        ({}, "weights"),
        ({"weights": {"1": 1}, "sticky": True}, "sticky"),
        ({"weights": {"1": -1}}, "greater than or equal to 0"),
        ({"weights": {"1": 0}}, "a weight above 0"),
        ({"weights": {"3": 1, "1": 1}}, "version '3' is not served; there are 1, 2"),
        ({"weights": {"new": 1}}, "'new' is neither an alias nor a version"),
        ({"aliases": {"a": 1}, "weights": {"a": 1, "1": 1}}, "name a version twice"),
        ({"weights": {"2": 1}, "rollback": {"version": "2"}}, "leaves no version"),
    ],
)
def test_a_routing_that_does_not_fit_is_a_load_error(tmp_path, routing, words):
    write_versions(tmp_path, routing, 1, 2)
    with pytest.raises(ModelLoadError, match=words) as caught:
        explicit(tmp_path).start()
    assert "'m'" in caught.value.message


def test_versions_of_other_tensors_cannot_share_traffic(tmp_path):
    write_versions(tmp_path, {"weights": {"1": 1, "2": 1}}, 1)
    write_model(tmp_path, "m", token_mean(), ALL, version=2)
    with pytest.raises(ModelLoadError, match="versions 1 and 2 have different inputs or outputs"):
        explicit(tmp_path).start()
