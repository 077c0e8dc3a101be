"""What is shown of a crash's stack: the user's frames."""

from __future__ import annotations

import ctypes

from guerdon import Dispatcher, Status, reward
from guerdon.results.crash_text import without_worker_frames

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
