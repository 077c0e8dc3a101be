"""What functions recorded while they ran."""

from __future__ import annotations

import json
from typing import Any

from guerdon.results.records import decode


def blob(*items: list[Any]) -> bytes:
    return json.dumps(list(items)).encode()


def test_whole_columns_stay_as_they_are() -> None:
    recorded = decode(
        "f", "batch", 2, 1, [(0, [], blob(["extra", "a", [1, 2]], ["extra", "a", [3, 4]], ["metric", "m", 1.5]))]
    )
    assert recorded.extra == [("a", [1, 2]), ("a", [3, 4])]
    assert recorded.metrics == [("m", 1.5)]


def test_records_become_a_column_in_sample_order() -> None:
    blobs = [
        (0, [], blob(["extra", "a", ["x"]], ["fields", {"why": "no"}])),
        (2, [], blob(["extra", "a", "z"], ["extra", "b", [1, 2]])),
    ]
    recorded = decode("f", "sample", 3, 1, blobs)
    assert recorded.extra == [("a", ["x", None, "z"]), ("f/why", ["no", None, None]), ("b", [None, None, [1, 2]])]


def test_groups_fill_their_samples() -> None:
    recorded = decode("f", "group", 4, 2, [(2, [], blob(["extra", "a", [1, 2]], ["extra", "b", "same"]))])
    assert recorded.extra == [("a", [None, None, 1, 2]), ("b", [None, None, "same", "same"])]


def test_gathered_samples_stand_where_they_belong() -> None:
    blobs = [(1, [1, 3], blob(["extra", "a", [1, 3]], ["extra", "b", "same"])), (2, [2], blob(["extra", "a", [2]]))]
    recorded = decode("f", "sample", 4, 2, blobs)
    assert recorded.extra == [("a", [None, 1, 2, 3]), ("b", [None, "same", None, "same"])]


def test_a_metric_that_is_no_number_is_left_out() -> None:
    recorded = decode("f", "sample", 1, 1, [(0, [], blob(["metric", "m", "high"], ["metric", "m", True]))])
    assert recorded.metrics == [("m", 1.0)]
