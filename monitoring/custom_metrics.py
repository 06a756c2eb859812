"""Metrics of models' own, on the process's metrics page.

A family is there as long as someone holds it; models that name the same one share it, if they agree what it is.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal
from weakref import WeakValueDictionary

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Kind = Literal["counter", "gauge", "histogram"]

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OURS = ("nv_", "cohortflow_")


class CustomSeries:
    """One labelled number, or histogram, of a family."""

    def __init__(self, kind: Kind, bounds: Sequence[float] = ()) -> None:
        self._kind = kind
        self._bounds = list(bounds)
        self._lock = threading.Lock()
        self._value = 0.0
        self._counts = [0] * (len(self._bounds) + 1)

    @property
    def value(self) -> float:
        """The number; the sum of what a histogram observed."""
        return self._value

    def add(self, amount: float) -> None:
        """Adds to a counter (not below 0) or a gauge.

        Raises:
            ValueError: The family is no such thing.
        """
        if self._kind == "histogram" or (self._kind == "counter" and amount < 0):
            raise ValueError(f"a {self._kind} cannot be changed by {amount}")
        with self._lock:
            self._value += amount

    def set(self, value: float) -> None:
        """Sets a gauge.

        Raises:
            ValueError: The family is no gauge.
        """
        if self._kind != "gauge":
            raise ValueError(f"a {self._kind} cannot be set")
        with self._lock:
            self._value = value

    def observe(self, value: float) -> None:
        """Counts an observation into a histogram.

        Raises:
            ValueError: The family is no histogram.
        """
        if self._kind != "histogram":
            raise ValueError(f"a {self._kind} observes nothing")
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._value += value

    def add_samples(self, name: str, labels: Mapping[str, str], metric: Metric) -> None:
        """Adds what the page shows of it."""
        with self._lock:
            value, counts = self._value, list(self._counts)
        if self._kind != "histogram":
            metric.add_sample(name, dict(labels), value)
            return
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
            total += count
            metric.add_sample(f"{name}_bucket", {**labels, "le": bound}, total)
        metric.add_sample(f"{name}_count", dict(labels), total)
        metric.add_sample(f"{name}_sum", dict(labels), value)


class CustomFamily:
    """Series of one name that differ in their labels; a series is there as long as someone holds it."""

    def __init__(self, name: str, description: str, kind: Kind) -> None:
        self.name = name
        self.description = description
        self.kind: Kind = kind
        self._lock = threading.Lock()
        self._series: WeakValueDictionary[tuple[tuple[str, str], ...], CustomSeries] = WeakValueDictionary()

    def series(self, labels: Mapping[str, str], bounds: Sequence[float] = ()) -> CustomSeries:
        """The series with these labels, made when it is first asked for.

        Raises:
            ValueError: A label's name is not one, or `bounds` are not rising.
        """
        for label in labels:
            if not _LABEL.fullmatch(label) or label == "le":
                raise ValueError(f"metric {self.name!r}: {label!r} is no label")
        if list(bounds) != sorted(set(bounds)) or (bounds and self.kind != "histogram"):
            raise ValueError(f"metric {self.name!r}: buckets {list(bounds)} are not rising, or not of a histogram")
        key = tuple(sorted((label, str(value)) for label, value in labels.items()))
        with self._lock:
            series = self._series.get(key)
            if series is None:
                series = CustomSeries(self.kind, bounds)
                self._series[key] = series
            return series

    def metric(self) -> Metric:
        """What the page shows."""
        metric = Metric(self.name, self.description, self.kind if self.kind != "counter" else "unknown")
        with self._lock:
            series = sorted(self._series.items())
        for labels, one in series:
            one.add_samples(self.name, dict(labels), metric)
        return metric


class CustomCollector(Collector):
    """Shows the families that exist."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: WeakValueDictionary[str, CustomFamily] = WeakValueDictionary()

    def family(self, name: str, description: str, kind: Kind) -> CustomFamily:
        """The family of a name, made when it is first asked for.

        Raises:
            ValueError: No name for a metric, one of this server's own, or one that is already something else.
        """
        if not _NAME.fullmatch(name) or name.startswith(_OURS):
            raise ValueError(f"metric {name!r}: not a metric's name, or one that begins with {' or '.join(_OURS)}")
        with self._lock:
            family = self._families.get(name)
            if family is None:
                family = CustomFamily(name, description, kind)
                self._families[name] = family
        if (family.description, family.kind) != (description, kind):
            raise ValueError(f"metric {name!r} is already a {family.kind}, {family.description!r}")
        return family

    def describe(self) -> list[Metric]:
        """Nothing: families come and go, and no registry need know their names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields the families of the page (called by prometheus_client for every scrape)."""
        with self._lock:
            families = sorted(self._families.items())
        for _, family in families:
            yield family.metric()


CUSTOM = CustomCollector()
"""The process's one collector; `monitoring.metrics.register` puts it on a page."""
