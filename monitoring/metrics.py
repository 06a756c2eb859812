"""Counters of the model server on the process's metrics page, under Triton's names.

One `ModelSeries` per model and version lives as long as the process, so that a server that is built a second time
goes on counting where the first one stopped: a Prometheus counter never goes back. Durations are kept in nanoseconds
and shown in microseconds, as Triton does.

Source: Triton Inference Server user guide, "Metrics".
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from monitoring.custom_metrics import CUSTOM

# What is counted -> (name on the page, help). Names that end in _us are counted in nanoseconds.
COUNTERS: Mapping[str, tuple[str, str]] = {
    "request_success": ("nv_inference_request_success", "Number of successful inference requests"),
    "inference_count": ("nv_inference_count", "Number of inferences performed (rows; cached ones do not count)"),
    "exec_count": ("nv_inference_exec_count", "Number of model executions performed"),
    "request_duration_ns": ("nv_inference_request_duration_us", "Cumulative request duration in microseconds"),
    "queue_duration_ns": ("nv_inference_queue_duration_us", "Cumulative queue duration in microseconds"),
    "compute_input_duration_ns": (
        "nv_inference_compute_input_duration_us",
        "Cumulative gathering of inputs, microseconds",
    ),
    "compute_infer_duration_ns": ("nv_inference_compute_infer_duration_us", "Cumulative execution in microseconds"),
    "compute_output_duration_ns": (
        "nv_inference_compute_output_duration_us",
        "Cumulative output handling, microseconds",
    ),
    "cache_hits": ("nv_cache_num_hits_per_model", "Number of cache hits (rows)"),
    "cache_misses": ("nv_cache_num_misses_per_model", "Number of cache misses (rows)"),
    "cache_hit_duration_ns": ("nv_cache_hit_duration_per_model", "Cumulative cache look-up duration, microseconds"),
    "cache_miss_duration_ns": ("nv_cache_miss_duration_per_model", "Cumulative cache insertion duration, microseconds"),
    "cache_coalesced": ("cohortflow_cache_num_coalesced_per_model", "Rows answered by an identical row in flight"),
    "cache_hits_redis": ("cohortflow_cache_num_redis_hits_per_model", "Cache hits (rows) that came from Redis"),
    "padding_rows": ("cohortflow_inference_padding_rows", "Rows executed only to fill a batch"),
    "tokens": ("cohortflow_inference_tokens", "Positions executed, of models that take padded rows; padding left out"),
    "padding_tokens": ("cohortflow_inference_padding_tokens", "Positions executed only to fill a batch"),
    "slot_steps": ("cohortflow_sequence_slot_steps", "Slots at each step of an iterating model while sequences wait"),
    "slot_steps_used": ("cohortflow_sequence_slot_steps_used", "Of those the slots that held a sequence"),
    "shadow_same": ("cohortflow_shadow_same", "Answers of a version in the shadow that were as they should be"),
    "shadow_different": ("cohortflow_shadow_different", "Answers of a version in the shadow that were not"),
    "shadow_failed": ("cohortflow_shadow_failed", "Requests that a version in the shadow refused or failed"),
    "shadow_skipped": ("cohortflow_shadow_skipped", "Requests that a version in the shadow was not asked or compared"),
    "rollbacks": ("cohortflow_rollbacks", "Times that a version on trial broke a bound and was rolled back"),
}
WAITING_GAUGE = "nv_inference_pending_request_count"
DEPTH_GAUGE = "cohortflow_inference_queue_depth"
CACHE_GAUGE = "cohortflow_cache_bytes"
FAILURE_NAME = "nv_inference_request_failure"
DURATION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)

_MOST_NOTED = 4096


class ModelSeries:
    """Everything counted about one version of a model in one server."""

    def __init__(self) -> None:
        # Re-entered when a collection of garbage closes a series.
        self._lock = threading.RLock()
        # Counting happens for each request, in many threads: they only note what there is to count.
        self._noted: deque[tuple[Callable[..., None], Any]] = deque()
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._failures: defaultdict[str, int] = defaultdict(int)
        self._durations_s = _Buckets(DURATION_BUCKETS_S)
        self._batches: dict[int, _Batches] = {}

    def add(self, **amounts: int) -> None:
        """Adds to counters by name (a key of `COUNTERS`, or any other that only `snapshot` shows)."""
        self._note(self._add, amounts)

    def add_request(self, rows: int, duration_ns: int, failure: str | None) -> None:
        """Counts a finished request, once: as a success, or as a failure for this reason."""
        self._note(self._add_request, (rows, duration_ns, failure))

    def add_batch(
        self,
        rows: int,
        num_requests: int,
        *,
        queue_ns: int,
        input_ns: int,
        infer_ns: int,
        output_ns: int,
        **amounts: int,
    ) -> None:
        """Counts an execution of `rows` rows for so many requests, with further amounts as `add` takes them.

        As in Triton each request of a batch counts the whole of the batch's durations as its own; `queue_ns` is the sum
        of theirs.
        """
        self._note(self._add_batch, (rows, num_requests, queue_ns, input_ns, infer_ns, output_ns))
        if amounts:
            self._note(self._add, amounts)

    def _note(self, count: Callable[..., None], amounts: Any) -> None:
        self._noted.append((count, amounts))
        if len(self._noted) > _MOST_NOTED and self._lock.acquire(blocking=False):
            try:
                self._count_noted()
            finally:
                self._lock.release()

    def _count_noted(self) -> None:
        """Counts what was noted; the caller holds the lock."""
        noted = self._noted
        while noted:
            count, amounts = noted.popleft()
            count(amounts)

    def _add(self, amounts: Mapping[str, int]) -> None:
        for name, amount in amounts.items():
            self._counts[name] += amount

    def _add_request(self, request: tuple[int, int, str | None]) -> None:
        rows, duration_ns, failure = request
        counts = self._counts
        counts["rows"] += rows
        if failure is None:
            counts["request_success"] += 1
            counts["request_duration_ns"] += duration_ns
            self._durations_s.observe(duration_ns / 1e9)
        else:
            self._failures[failure] += 1
            counts["fail_duration_ns"] += duration_ns

    def _add_batch(self, amounts: tuple[int, int, int, int, int, int]) -> None:
        rows, num_requests, queue_ns, input_ns, infer_ns, output_ns = amounts
        batch = self._batches.get(rows)
        if batch is None:
            batch = self._batches[rows] = _Batches()
        batch.executions += 1
        batch.input_ns += input_ns
        batch.infer_ns += infer_ns
        batch.output_ns += output_ns
        batch.requests += num_requests
        batch.queue_ns += queue_ns
        batch.requests_input_ns += num_requests * input_ns
        batch.requests_infer_ns += num_requests * infer_ns
        batch.requests_output_ns += num_requests * output_ns

    def snapshot(self) -> tuple[dict[str, int], dict[str, int]]:
        """The counters and the failures by reason, of one moment."""
        with self._lock:
            self._count_noted()
            counts, failures = dict(self._counts), dict(self._failures)
            batches = list(self._batches.items())
            counts["exec_count"] = sum(batch.executions for _, batch in batches)
            counts["inference_count"] = sum(rows * batch.executions for rows, batch in batches)
            counts["computed_requests"] = sum(batch.requests for _, batch in batches)
            counts["queue_duration_ns"] = sum(batch.queue_ns for _, batch in batches)
            counts["compute_input_duration_ns"] = sum(batch.requests_input_ns for _, batch in batches)
            counts["compute_infer_duration_ns"] = sum(batch.requests_infer_ns for _, batch in batches)
            counts["compute_output_duration_ns"] = sum(batch.requests_output_ns for _, batch in batches)
        return counts, failures

    def batches(self) -> dict[int, tuple[int, int, int, int]]:
        """By rows of a batch: executions, and their nanoseconds of gathering, executing and handing out."""
        with self._lock:
            self._count_noted()
            return {
                rows: (batch.executions, batch.input_ns, batch.infer_ns, batch.output_ns)
                for rows, batch in sorted(self._batches.items())
            }

    def histograms(self) -> tuple[_Buckets, _Buckets]:
        """Copies of the histograms of request durations (seconds) and of batch sizes (rows)."""
        batch_rows = _Buckets(BATCH_BUCKETS)
        with self._lock:
            self._count_noted()
            for rows, batch in self._batches.items():
                batch_rows.observe(rows, batch.executions)
            return self._durations_s.copy(), batch_rows


class _Batches:
    """The executions of one batch size: how many, for how many requests, and how long they took."""

    __slots__ = (
        "executions",
        "infer_ns",
        "input_ns",
        "output_ns",
        "queue_ns",
        "requests",
        "requests_infer_ns",
        "requests_input_ns",
        "requests_output_ns",
    )

    def __init__(self) -> None:
        self.executions = self.requests = self.queue_ns = 0
        self.input_ns = self.infer_ns = self.output_ns = 0
        self.requests_input_ns = self.requests_infer_ns = self.requests_output_ns = 0


class VersionSeries:
    """What the metrics page shows of one version of a model: the sum over every server that had it."""

    def __init__(self) -> None:
        # Re-entered when a collection of garbage closes a series.
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._durations_s = _Buckets(DURATION_BUCKETS_S)
        self._batch_rows = _Buckets(BATCH_BUCKETS)
        self._living: dict[int, ModelSeries] = {}

    def open(self, owner: object) -> ModelSeries:
        """A series that counts for `owner`; when that is gone, what it counted stays."""
        series = ModelSeries()
        with self._lock:
            self._living[id(series)] = series
        weakref.finalize(owner, self._close, id(series))
        return series

    def snapshot(self) -> tuple[dict[str, int], dict[str, int]]:
        """The counters and the failures by reason."""
        counts, failures, _, _ = self._total()
        return dict(counts), dict(failures)

    def histograms(self) -> tuple[tuple[list[tuple[str, float]], float], tuple[list[tuple[str, float]], float]]:
        """Cumulative buckets and sum of request durations (seconds) and of batch sizes (rows)."""
        _, _, durations_s, batch_rows = self._total()
        return durations_s.cumulative(), batch_rows.cumulative()

    def _total(self) -> tuple[Counter[str], Counter[str], _Buckets, _Buckets]:
        with self._lock:
            total = (Counter(self._counts), Counter(self._failures), self._durations_s.copy(), self._batch_rows.copy())
            for series in list(self._living.values()):
                _add_series(total, series)
        return total

    def _close(self, key: int) -> None:
        with self._lock:
            _add_series((self._counts, self._failures, self._durations_s, self._batch_rows), self._living.pop(key))


def _add_series(total: tuple[Counter[str], Counter[str], _Buckets, _Buckets], series: ModelSeries) -> None:
    counts, failures = series.snapshot()
    durations_s, batch_rows = series.histograms()
    total[0].update(counts)
    total[1].update(failures)
    total[2].add(durations_s)
    total[3].add(batch_rows)


class _Buckets:
    """A histogram with fixed bounds; two of them can be added, so they merge over workers."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def copy(self) -> _Buckets:
        twin = _Buckets(self._bounds)
        twin.add(self)
        return twin

    def add(self, other: _Buckets) -> None:
        self._counts = [one + more for one, more in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        rows, total = [], 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows, self._sum


class ServingCollector(Collector):
    """Shows every model's series, and gauges that are read when the page is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._series: dict[tuple[str, str], VersionSeries] = {}
        self._gauges: dict[tuple[str, str, str], Callable[[], float | Mapping[str, float]]] = {}
        self.redis = ModelSeries()

    def open_series(self, model: str, version: str, owner: object) -> ModelSeries:
        """A series that counts for a version of a model, as long as `owner` is there; the page keeps its counts."""
        with self._lock:
            series = self._series.setdefault((model, version), VersionSeries())
        return series.open(owner)

    def set_gauge(self, name: str, model: str, version: str, read: Callable[[], float | Mapping[str, float]]) -> None:
        """Shows `read()` as a gauge; the newest server with that model and version is the one that is read.

        What it reads is a number, or for a gauge of `SPLIT_GAUGES` numbers by its further label.
        """
        with self._lock:
            self._gauges[(name, model, version)] = read

    def remove_gauge(
        self, name: str, model: str, version: str, read: Callable[[], float | Mapping[str, float]]
    ) -> None:
        """Stops showing a gauge, unless a newer server has taken its place."""
        with self._lock:
            if self._gauges.get((name, model, version)) == read:
                del self._gauges[(name, model, version)]

    def collect(self) -> Iterator[Metric]:
        """Yields the families of the page (called by prometheus_client for every scrape)."""
        with self._lock:
            series = dict(self._series)
            gauges = dict(self._gauges)
        shots = {key: one.snapshot() for key, one in series.items()}
        for key, (name, text) in COUNTERS.items():
            # prometheus_client names a counter "..._total"; Triton's dashboards ask for the plain name.
            family = Metric(name, text, "unknown")
            for (model, version), (counts, _) in shots.items():
                value = counts.get(key, 0)
                family.add_sample(
                    name, {"model": model, "version": version}, value // 1000 if key.endswith("_ns") else value
                )
            yield family
        failures = Metric(FAILURE_NAME, "Number of failed inference requests, by reason", "unknown")
        for (model, version), (_, reasons) in shots.items():
            for reason, value in reasons.items():
                failures.add_sample(FAILURE_NAME, {"model": model, "version": version, "reason": reason}, value)
        yield failures
        redis = Metric("cohortflow_cache_redis_events", "Rows and events of the cache in Redis", "unknown")
        for event, value in self.redis.snapshot()[0].items():
            redis.add_sample("cohortflow_cache_redis_events", {"event": event}, value)
        yield redis
        duration = HistogramMetricFamily(
            "cohortflow_inference_request_duration_seconds",
            "Durations of successful requests",
            labels=["model", "version"],
        )
        batch = HistogramMetricFamily(
            "cohortflow_inference_batch_rows", "Rows of a batch, padding left out", labels=["model", "version"]
        )
        for (model, version), one in series.items():
            for family_, (buckets, total) in zip((duration, batch), one.histograms(), strict=True):
                family_.add_metric([model, version], buckets, total)
        yield duration
        yield batch
        yield _traffic(shots)
        families: dict[str, GaugeMetricFamily] = {}
        for (name, model, version), read in gauges.items():
            if name not in families:
                labels = ["model", "version", *([SPLIT_GAUGES[name]] if name in SPLIT_GAUGES else [])]
                families[name] = GaugeMetricFamily(name, GAUGES[name], labels=labels)
            value_read = read()
            if isinstance(value_read, Mapping):
                for label, part in value_read.items():
                    families[name].add_metric([model, version, label], part)
            else:
                families[name].add_metric([model, version], value_read)
        yield from families.values()


GAUGES: Mapping[str, str] = {
    WAITING_GAUGE: "Number of requests waiting for an instance",
    DEPTH_GAUGE: "Number of requests waiting for an instance, by priority level",
    CACHE_GAUGE: "Bytes held by the row cache in memory",
}
SPLIT_GAUGES: Mapping[str, str] = {DEPTH_GAUGE: "priority"}
"""Gauges of several numbers, and the label that tells them apart."""


def _traffic(shots: Mapping[tuple[str, str], tuple[Mapping[str, int], Mapping[str, int]]]) -> Metric:
    """Each version's share of the requests that its model finished."""
    finished = {
        key: counts.get("request_success", 0) + sum(failures.values()) for key, (counts, failures) in shots.items()
    }
    totals: Counter[str] = Counter()
    for (model, _), number in finished.items():
        totals[model] += number
    family = GaugeMetricFamily(
        "cohortflow_inference_traffic_share",
        "Share of a model's finished requests that went to a version",
        labels=["model", "version"],
    )
    for (model, version), number in finished.items():
        if totals[model]:
            family.add_metric([model, version], number / totals[model])
    return family


SERVING = ServingCollector()
"""The process's one collector; `register` puts it on a page."""


def register(registry: CollectorRegistry = REGISTRY) -> None:
    """Puts the model server's metrics on a registry's page; a second call changes nothing."""
    registry.register(CUSTOM)
    try:
        registry.register(SERVING)
    except ValueError:
        # Already registered: the names are taken by this very collector.
        return
