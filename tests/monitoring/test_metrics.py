"""The metrics page of the model server: Triton's names, and counters that never go back."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from monitoring import metrics
from serving.errors import ServingError
from serving.server import ModelServer
from tests.serving.models import affine, logarithm, write_model


def page(registry=REGISTRY):
    """Samples by (name, model, other labels)."""
    samples = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key not in ("model", "version")}
            samples[sample.name, sample.labels.get("model"), *labels.values()] = sample.value
    return samples


def test_a_server_built_twice_goes_on_counting(tmp_path):
    write_model(
        tmp_path, "built_twice", affine(), "max_batch_size: 8 dynamic_batching { } response_cache { enable: true }"
    )
    x = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    for times in (1, 2):
        with ModelServer(tmp_path) as server:
            server.infer("built_twice", {"x": x})
            server.infer("built_twice", {"x": x})
            samples = page()
            assert samples["cohortflow_cache_bytes", ""] == server.cache_statistics()["memory_bytes"]
        assert samples["nv_inference_request_success", "built_twice"] == 2 * times
        assert samples["nv_inference_count", "built_twice"] == 10 * times
        assert samples["nv_inference_exec_count", "built_twice"] == 2 * times
        assert samples["nv_cache_num_hits_per_model", "built_twice"] == 10 * times
        assert samples["nv_cache_num_misses_per_model", "built_twice"] == 10 * times
        assert samples["nv_inference_request_duration_us", "built_twice"] > 0
        assert samples["cohortflow_inference_batch_rows_count", "built_twice"] == 2 * times
        assert samples["nv_inference_pending_request_count", "built_twice"] == 0
    assert ("nv_inference_pending_request_count", "built_twice") not in page()


def test_a_failure_is_counted_once_with_its_reason(tmp_path):
    write_model(tmp_path, "fails", logarithm(), "max_batch_size: 8")
    with ModelServer(tmp_path) as server:
        with pytest.raises(ServingError):
            server.infer("fails", {"x": np.array([[-1]], np.float32)})
        with pytest.raises(ServingError):
            server.infer("fails", {"x": np.array([[1]], np.float32)}, priority=3)
    samples = page()
    assert samples["nv_inference_request_failure", "fails", "BACKEND"] == 1
    assert samples["nv_inference_request_failure", "fails", "OTHER"] == 1
    assert samples["nv_inference_request_success", "fails"] == 0


def test_registering_twice_changes_nothing():
    registry = CollectorRegistry()
    metrics.register(registry)
    metrics.register(registry)
    assert generate_latest(registry).decode().count("# HELP nv_inference_count ") == 1


def test_counts_stay_on_the_page_after_their_server_is_gone(tmp_path):
    write_model(tmp_path, "gone", affine(), "max_batch_size: 8")
    for number in (1, 2, 3):
        server = ModelServer(tmp_path)
        with server:
            server.infer("gone", {"x": np.ones((2, 4), np.float32)})
        del server
        gc.collect()
        samples = page()
        assert samples["nv_inference_request_success", "gone"] == number
        assert samples["nv_inference_count", "gone"] == 2 * number
        assert samples["cohortflow_inference_request_duration_seconds_count", "gone"] == number
        assert samples["cohortflow_inference_batch_rows_bucket", "gone", "2.0"] == number


def test_versions_share_the_traffic_and_levels_the_queue(tmp_path):
    for version in (1, 2):
        write_model(
            tmp_path,
            "shared",
            affine(bias=version),
            "max_batch_size: 8 version_policy { all { } } "
            "dynamic_batching { priority_levels: 2 default_priority_level: 1 }",
            version,
        )
    x = {"x": np.ones((1, 4), np.float32)}
    with ModelServer(tmp_path) as server:
        for version in (1, 2, 2, 2):
            server.infer("shared", x, version)
        text = generate_latest(REGISTRY).decode()
    for line in (
        'cohortflow_inference_traffic_share{model="shared",version="1"} 0.25',
        'cohortflow_inference_traffic_share{model="shared",version="2"} 0.75',
        'cohortflow_inference_queue_depth{model="shared",priority="2",version="1"} 0.0',
    ):
        assert line in text or line.replace(',priority="2",version="1"', ',version="1",priority="2"') in text
    assert "cohortflow_inference_queue_depth{" not in generate_latest(REGISTRY).decode().replace("# ", "")
