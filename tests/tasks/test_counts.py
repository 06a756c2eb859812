from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tasks.counts import sum_counts

COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=3).map(
    lambda own: {**own, "inner": dict(own), "words": "left out"}
)


@given(st.lists(COUNTS, max_size=5), st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_the_order_of_workers(counts: list[dict[str, Any]], random: Any) -> None:
    shuffled = random.sample(counts, len(counts))
    assert sum_counts(counts) == sum_counts(shuffled)
    assert sum_counts(counts).get("inner", {}).get("a", 0) == sum(each.get("a", 0) for each in counts)
