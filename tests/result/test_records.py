"""What functions recorded while they ran, and what is shown of a crash's stack."""

from __future__ import annotations

import ctypes
import json
from typing import Any

from guerdon import Dispatcher, Status, reward
from guerdon.results.crash_text import without_worker_frames
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
    of_samples = [
        (0, [], blob(["extra", "a", ["x"]], ["fields", {"why": "no"}])),
        (2, [], blob(["extra", "a", "z"], ["extra", "b", [1, 2]])),
    ]
    columns = [("a", ["x", None, "z"]), ("f/why", ["no", None, None]), ("b", [None, None, [1, 2]])]
    assert decode("f", "sample", 3, 1, of_samples).extra == columns
    of_groups = [(2, [], blob(["extra", "a", [1, 2]], ["extra", "b", "same"]))]
    columns = [("a", [None, None, 1, 2]), ("b", [None, None, "same", "same"])]
    assert decode("f", "group", 4, 2, of_groups).extra == columns
    gathered = [(1, [1, 3], blob(["extra", "a", [1, 3]], ["extra", "b", "same"])), (2, [2], blob(["extra", "a", [2]]))]
    assert decode("f", "sample", 4, 2, gathered).extra == [("a", [None, 1, 2, 3]), ("b", [None, "same", None, "same"])]


def test_a_metric_that_is_no_number_is_left_out() -> None:
    recorded = decode("f", "sample", 1, 1, [(0, [], blob(["metric", "m", "high"], ["metric", "m", True]))])
    assert recorded.metrics == [("m", 1.0)]


HEAD = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x0007 (most recent call first):\n"
OURS = '  File "/venv/lib/python3.11/site-packages/guerdon/_worker/worker.py", line 212 in _samples\n'
USERS = '  File "/home/me/rewards.py", line 7 in inner\n'


def test_frames_below_the_users_are_dropped() -> None:
    after = "\nExtension modules: numpy.core (total: 1)\n"
    assert without_worker_frames(HEAD + USERS + OURS * 9 + after) == HEAD + USERS + after
    assert without_worker_frames(HEAD + OURS + USERS + OURS) == HEAD + OURS + USERS


def test_a_stack_of_the_package_alone_and_other_texts_stay() -> None:
    for text in (None, "", "Traceback:\n" + OURS, HEAD + OURS * 3):
        assert without_worker_frames(text) == text


@reward
def breaks(completion: str) -> float:
    return float(ctypes.string_at(0)[0])


def test_the_failure_of_a_crash_ends_at_the_users_function() -> None:
    with Dispatcher([breaks], max_failure_rate=1.0) as dispatcher:
        (failure,) = dispatcher.score(completions=["a"]).failures()
    assert failure.status is Status.CRASHED
    assert failure.traceback is not None
    assert "in breaks" in failure.traceback
    assert "_worker" not in failure.traceback
