"""The totals: values, outcomes, times and reasons over any number of batches."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import Dispatcher, Status, reward
from guerdon._insight.diagnostics.score_totals import ScoreTotals


@reward(lane="thread", max_failure_rate=1.0)
def number(completion: str) -> float | None:
    return None if completion == "none" else float(completion)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(["1", "2.5", "-3", "none", "oops", "worse"]), min_size=1, max_size=9), max_size=5)
)
def test_many_batches_count_as_one(batches: list[list[str]]) -> None:
    totals = ScoreTotals(["number"])
    with Dispatcher([number]) as dispatcher:
        for batch in batches:
            totals.add(dispatcher.score(completions=batch))
    [row] = totals.rows()
    texts = [text for batch in batches for text in batch]
    values = [float(text) for text in texts if text not in ("none", "oops", "worse")]
    assert totals.samples == row.samples == len(texts)
    assert row.counts[Status.OK] == len(values)
    assert row.counts[Status.ABSTAINED] == texts.count("none")
    assert row.failed == row.counts[Status.ERROR] == texts.count("oops") + texts.count("worse")
    assert row.mean == pytest.approx(statistics.mean(values)) if values else np.isnan(row.mean)
    assert row.std == pytest.approx(statistics.stdev(values)) if len(values) > 1 else np.isnan(row.std)
    assert row.p50 <= row.p90 <= row.p99 if texts else np.isnan(row.p50)
    assert row.rate > 0 if texts else np.isnan(row.rate)
    expected = {text: texts.count(text) for text in ("oops", "worse") if text in texts}
    assert {why.reason.split("'")[1]: why.count for why in totals.reasons("number")} == expected
    for why in totals.reasons("number"):
        assert texts[why.first] in why.reason
    assert "number" in totals.table()


def test_reasons_come_commonest_first_and_bounded() -> None:
    totals = ScoreTotals(["number"])
    with Dispatcher([number]) as dispatcher:
        for first in range(0, 3000, 500):
            totals.add(dispatcher.score(completions=["bad", *(f"x{first + i}" for i in range(499))]))
    whys = totals.reasons("number")
    assert (whys[0].count, whys[0].first) == (6, 0)
    assert len(whys) == 1000
    assert totals.failures().splitlines()[0] == "number: 3000 of 3000 failed"
    assert totals.failures().splitlines()[-1] == "  2992 for other reasons"


def test_the_table_shows_only_outcomes_that_happened() -> None:
    totals = ScoreTotals(["number"])
    with Dispatcher([number]) as dispatcher:
        totals.add(dispatcher.score(completions=["1", "none"]))
    header = "function mean std ok abstained p50 p90 p99 samples/s"
    assert totals.table().splitlines()[0].split() == header.split()
    assert totals.failures() == ""
