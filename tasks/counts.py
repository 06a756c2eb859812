"""Counts of units of work, added up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def sum_counts(counts: Iterable[Json]) -> Json:
    """Adds dictionaries of numbers up, key by key, at any depth; what is not a number is left out."""
    total: Json = {}
    for each in counts:
        for key, value in each.items():
            if isinstance(value, dict):
                total[key] = sum_counts([total.get(key, {}), value])
            elif isinstance(value, (int, float)):
                total[key] = total.get(key, 0) + value
    return total
