"""The thread lane, through a dispatcher."""

from __future__ import annotations

import threading
import time
import warnings

from guerdon import Dispatcher, Limit, StatefulReward, Status
from tests.lanes.lane_helpers import eventually, no_new_threads, ours, scored, threaded


def test_keywords_defaults_and_rows() -> None:
    def function(completion: str, answer: int, *, scale: float = 2.0, **row: object) -> float:
        assert set(row) == {"extra"}
        return float(completion) + answer * scale

    with Dispatcher([threaded(function)]) as dispatcher:
        result = dispatcher.score(completions=["1", "2"], answer=[10, 20], extra=[None, None])
        assert result.rewards[:, 0, 0].tolist() == [21.0, 42.0]
        result = dispatcher.score(completions=["1", "2"], answer=[10, 20], scale=[0.0, 1.0], extra=[None, None])
        assert result.rewards[:, 0, 0].tolist() == [1.0, 22.0]


def test_live_objects_are_passed_as_they_are() -> None:
    environments = [object(), object()]
    seen = []

    def function(environment: object) -> float:
        seen.append(environment)
        return 1.0

    with Dispatcher([threaded(function)]) as dispatcher:
        dispatcher.score(completions=["", ""], environments=environments)
    assert {id(one) for one in seen} == {id(one) for one in environments}


def test_cheap_functions_keep_to_one_thread() -> None:
    """As long as none of them takes long, which a busy machine may make of any."""
    threads = set()

    def function(completion: str) -> float:
        threads.add(threading.get_ident())
        return 1.0

    end, longest = time.monotonic() + 60, 1.0
    while longest >= 0.0001 and time.monotonic() < end:
        threads.clear()
        longest = scored(threaded(function), 1000).run_s.max()
    assert longest < 0.0001
    assert len(threads) <= 2


@no_new_threads()
def test_a_call_past_its_timeout_is_abandoned() -> None:
    """The others go on, the late answer is dropped, the leak is counted and warned of."""
    release = threading.Event()

    def function(completion: str) -> float:
        if completion == "3":
            release.wait(100)
        return 1.0

    with Dispatcher([threaded(function, timeout=1.5, limit=Limit(concurrency=1))]) as dispatcher:
        start = time.monotonic()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = dispatcher.score(completions=[str(index) for index in range(8)])
            assert time.monotonic() - start < 60
            eventually(lambda: ours(caught))
        [warning] = ours(caught)
        assert warning.filename == __file__, "the line that waits, or a later one"
        assert "past its timeout of 1.5 s" in str(warning.message)
        assert result.status[:, 0, 0].tolist() == [Status.OK] * 3 + [Status.TIMEOUT] + [Status.OK] * 4
        [failure] = result.failures()
        assert "1.5 s; last seen in function (" in failure.reason
        assert "test_thread_lane.py:" in failure.reason
        assert "release.wait(100)" in (failure.traceback or "")
        assert 1.5 <= failure.run_s < 60
        assert dispatcher.stats()["abandoned_threads"] == 1
        release.set()
        eventually(lambda: dispatcher.stats()["abandoned_threads"] == 0)
        assert dispatcher.score(completions=["1"]).rewards.item() == 1.0


def test_calls_behind_a_slow_one_are_taken_back() -> None:
    """Slow calls in one frame run side by side."""
    slow = threading.Barrier(3)  # none of them ends before all have begun

    def function(completion: str) -> float:
        if completion in {"10", "20", "30"}:
            slow.wait(60)
        return float(completion)

    with Dispatcher([threaded(function)]) as dispatcher:
        dispatcher.score(completions=["0"] * 500)  # cheap so far: chunks are long, on one thread
        result = dispatcher.score(completions=[str(index) for index in range(64)])
    assert result.rewards[:, 0, 0].tolist() == list(range(64))


def test_ended_calls_are_reported_while_the_next_one_is_slow() -> None:
    go_on = threading.Event()

    def function(completion: str) -> float:
        if completion == "50":
            go_on.wait(60)
        return float(completion)

    with Dispatcher([threaded(function)]) as dispatcher:
        dispatcher.score(completions=["1"] * 100)  # known to be cheap: what comes now is one chunk
        pending = dispatcher.submit(completions=[str(index) for index in range(100)])
        groups = pending.groups()
        assert {next(groups).index for _ in range(99)} == {*range(100)} - {50}
        go_on.set()
        assert next(groups).index == 50


@no_new_threads()
def test_a_setup_that_hangs_is_abandoned() -> None:
    release = threading.Event()

    class Hangs(StatefulReward):
        def setup(self) -> None:
            release.wait(100)

        def score(self, completion: str) -> float:
            return 1.0

    with Dispatcher([threaded(Hangs(), setup_timeout=0.2)], max_failure_rate=1.0) as dispatcher:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = dispatcher.score(completions=[""] * 10)
            eventually(lambda: ours(caught))
        assert (result.status == Status.ERROR).all()
        assert result.failures()[0].reason == "setup() did not end within the setup_timeout of 0.2 s"
        release.set()
