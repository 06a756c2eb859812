"""A Python model's own metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from monitoring.custom_metrics import CUSTOM, CustomFamily, CustomSeries, Kind
from serving.backends.python.error import TritonModelException


class Metric:
    """One labelled metric of a family."""

    def __init__(self, family: CustomFamily, series: CustomSeries) -> None:
        # A metric keeps its family on the page.
        self._family = family
        self._series = series

    def increment(self, value: float) -> None:
        """Adds to a counter or a gauge."""
        try:
            self._series.add(value)
        except ValueError as error:
            raise TritonModelException(f"metric {self._family.name!r}: {error}") from error

    def set(self, value: float) -> None:
        """Sets a gauge."""
        try:
            self._series.set(value)
        except ValueError as error:
            raise TritonModelException(f"metric {self._family.name!r}: {error}") from error

    def observe(self, value: float) -> None:
        """Counts an observation into a histogram."""
        try:
            self._series.observe(value)
        except ValueError as error:
            raise TritonModelException(f"metric {self._family.name!r}: {error}") from error

    def value(self) -> float:
        """The number; the sum of what a histogram observed."""
        return self._series.value


class MetricFamily:
    """Metrics of one name (Triton's ``pb_utils.MetricFamily``)."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2
    _KINDS: ClassVar[Mapping[int, Kind]] = {COUNTER: "counter", GAUGE: "gauge", HISTOGRAM: "histogram"}

    def __init__(self, name: str, description: str, kind: int) -> None:
        if kind not in self._KINDS:
            raise TritonModelException(f"metric {name!r}: there is no kind {kind!r}")
        try:
            self._family = CUSTOM.family(name, description, self._KINDS[kind])
        except ValueError as error:
            raise TritonModelException(str(error)) from error

    def Metric(  # noqa: N802 - Triton's name
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> Metric:
        """The metric with these labels."""
        try:
            return Metric(self._family, self._family.series(labels or {}, buckets or ()))
        except ValueError as error:
            raise TritonModelException(str(error)) from error
