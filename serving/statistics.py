"""What a model did: counters of one server, which also feed the process's metrics page."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitoring.metrics import SERVING


@dataclass(frozen=True, slots=True)
class Duration:
    """Triton's StatisticDuration: how often something happened, and how long it took in all."""

    count: int
    ns: int


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """Triton's InferBatchStatistics: the executions of one batch size."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


@dataclass(frozen=True, slots=True)
class VersionStatistics:
    """Triton's ModelStatistics: what one version of a model did in one server.

    `success`, `fail` and the durations count requests; `cache_hit` and `cache_miss` count rows.
    """

    name: str
    version: str
    last_inference_ms: int
    inference_count: int
    execution_count: int
    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cache_hit: Duration
    cache_miss: Duration
    batch_stats: tuple[BatchStatistics, ...]


class ModelStatistics:
    """Counters of one version of a model in one server; the metrics page sums them over servers."""

    def __init__(self, model: str, version: str) -> None:
        self._model = model
        self._version = version
        self._series = SERVING.open_series(model, version, self)
        self._last_s = 0.0
        self.add = self._series.add
        self.add_batch = self._series.add_batch

    def add_request(self, rows: int, duration_ns: int, failure: str | None) -> None:
        """Counts a finished request, once."""
        self._last_s = time.time()
        self._series.add_request(rows, duration_ns, failure)

    def version_statistics(self) -> VersionStatistics:
        """The counters under Triton's names."""
        counts, failures = self._series.snapshot()
        return VersionStatistics(
            name=self._model,
            version=self._version,
            last_inference_ms=int(self._last_s * 1000),
            inference_count=counts.get("inference_count", 0),
            execution_count=counts.get("exec_count", 0),
            success=_duration(counts, "request_success", "request_duration_ns"),
            fail=Duration(sum(failures.values()), counts.get("fail_duration_ns", 0)),
            queue=_duration(counts, "computed_requests", "queue_duration_ns"),
            compute_input=_duration(counts, "computed_requests", "compute_input_duration_ns"),
            compute_infer=_duration(counts, "computed_requests", "compute_infer_duration_ns"),
            compute_output=_duration(counts, "computed_requests", "compute_output_duration_ns"),
            cache_hit=_duration(counts, "cache_hits", "cache_hit_duration_ns"),
            cache_miss=_duration(counts, "cache_misses", "cache_miss_duration_ns"),
            batch_stats=tuple(
                BatchStatistics(rows, Duration(count, inputs), Duration(count, infer), Duration(count, outputs))
                for rows, (count, inputs, infer, outputs) in self._series.batches().items()
            ),
        )

    def snapshot(self) -> dict[str, Any]:
        """The counters as a plain dict.

        `rows` were asked for by finished requests; `rows_executed` (Triton's inference_count) of them went through the
        model, the others came from the cache; for a cached model cache_hits + cache_misses + cache_coalesced == rows.
        """
        counts, failures = self._series.snapshot()
        return {
            "requests": counts.get("request_success", 0) + sum(failures.values()),
            "requests_failed": sum(failures.values()),
            "failures": failures,
            "rows": counts.get("rows", 0),
            "rows_executed": counts.get("inference_count", 0),
            "rows_padding": counts.get("padding_rows", 0),
            "tokens": counts.get("tokens", 0),
            "tokens_padding": counts.get("padding_tokens", 0),
            "slot_steps": counts.get("slot_steps", 0),
            "slot_steps_used": counts.get("slot_steps_used", 0),
            "executions": counts.get("exec_count", 0),
            "cache_hits": counts.get("cache_hits", 0),
            "cache_hits_redis": counts.get("cache_hits_redis", 0),
            "cache_misses": counts.get("cache_misses", 0),
            "cache_coalesced": counts.get("cache_coalesced", 0),
            "request_duration_us": counts.get("request_duration_ns", 0) // 1000,
            "queue_duration_us": counts.get("queue_duration_ns", 0) // 1000,
            "compute_infer_duration_us": counts.get("compute_infer_duration_ns", 0) // 1000,
        }


def _duration(counts: Mapping[str, int], number: str, ns: str) -> Duration:
    return Duration(counts.get(number, 0), counts.get(ns, 0))
