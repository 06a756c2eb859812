"""What a model did: counters of one server, which also feed the process's metrics page."""

from __future__ import annotations

from typing import Any

from monitoring.metrics import SERVING, ModelSeries


class ModelStatistics:
    """Counters of one version of a model in one server.

    Every amount goes to this server's own counters and to the process-wide series of the metrics page.
    """

    def __init__(self, model: str, version: str) -> None:
        self._own = ModelSeries()
        self._page = SERVING.series(model, version)

    def add(self, **amounts: int) -> None:
        """Adds to counters by name."""
        self._own.add(**amounts)
        self._page.add(**amounts)

    def add_request(self, duration_ns: int, failure: str | None) -> None:
        """Counts a finished request, once."""
        self._own.add_request(duration_ns, failure)
        self._page.add_request(duration_ns, failure)

    def add_batch(self, rows: int, **amounts: int) -> None:
        """Counts an execution of `rows` rows (padding left out)."""
        self._own.add_batch(rows, **amounts)
        self._page.add_batch(rows, **amounts)

    def snapshot(self) -> dict[str, Any]:
        """The counters as a plain dict.

        `rows` were asked for; `rows_executed` (Triton's inference_count) of them went through the model, the others
        came from the cache; for a cached model cache_hits + cache_misses + cache_coalesced == rows.
        """
        counts, failures = self._own.snapshot()
        return {
            "requests": counts.get("request_success", 0) + sum(failures.values()),
            "requests_failed": sum(failures.values()),
            "failures": failures,
            "rows": counts.get("rows", 0),
            "rows_executed": counts.get("inference_count", 0),
            "rows_padding": counts.get("padding_rows", 0),
            "executions": counts.get("exec_count", 0),
            "cache_hits": counts.get("cache_hits", 0),
            "cache_hits_redis": counts.get("cache_hits_redis", 0),
            "cache_misses": counts.get("cache_misses", 0),
            "cache_coalesced": counts.get("cache_coalesced", 0),
            "request_duration_us": counts.get("request_duration_ns", 0) // 1000,
            "queue_duration_us": counts.get("queue_duration_ns", 0) // 1000,
            "compute_infer_duration_us": counts.get("compute_infer_duration_ns", 0) // 1000,
        }
