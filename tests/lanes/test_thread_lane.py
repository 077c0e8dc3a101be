"""The thread lane, through a dispatcher: its columns, and the values that an abandoned call was the
last to hold."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from typing import Any, ClassVar

import pytest

from guerdon import Dispatcher, Limit, StatefulReward, Status, reward
from guerdon._system.gil import has_gil
from tests.lanes.lane_helpers import eventually, no_new_threads, ours, scored, threaded
from tests.simple import streamed


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
    """That holds as long as none takes long, as any may on a busy machine."""
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
        if has_gil():
            assert warning.filename == __file__, "the line that waits, or a later one"
        assert "past its timeout of 1.5 s" in str(warning.message)
        assert result.status[:, 0, 0].tolist() == [Status.OK] * 3 + [Status.TIMEOUT] + [Status.OK] * 4
        [failure] = result.failures()
        if has_gil():  # else its stack is not readable
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


PICKLED: list[int] = []


class Answer:
    """Counts how often it is pickled."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        PICKLED.append(self.index)
        return Answer, (self.index,)


def first(answer: Answer) -> float:
    return float(answer.index)


def second(answer: Answer) -> float:
    return float(answer.index) + 1000


def both(completion: list[dict[str, str]], answer: Answer) -> float:
    return float(completion[0]["content"]) + answer.index


def other(answer: Answer, weight: list[float]) -> float:
    return answer.index + weight[0]


@pytest.mark.parametrize("how", ["whole", "stream"])
def test_a_column_of_four_functions_is_pickled_once(how: str) -> None:
    """Whatever else each of them gets, and in whatever order."""
    functions = [reward(function) for function in (first, second, both, other)]
    columns: dict[str, Any] = {
        "completions": [[{"role": "assistant", "content": str(index)}] for index in range(50)],
        "answer": [Answer(index) for index in range(50)],
        "weight": [[index / 2] for index in range(50)],
    }
    with Dispatcher(functions, workers=2) as dispatcher:
        PICKLED.clear()
        if how == "whole":
            result = dispatcher.score(**columns)
        else:
            parts = (slice(20), slice(20, None))
            additions = ({name: values[part] for name, values in columns.items()} for part in parts)
            result = streamed(dispatcher, *additions)
    assert sorted(PICKLED) == list(range(50))
    assert (result.status == Status.OK).all(), result.failures()[:1]
    expected = [[index, index + 1000, 2 * index, index * 1.5] for index in range(50)]
    assert result.rewards[:, 0, :].tolist() == expected


ENOUGH = 60.0


class WatchedCall:
    """Tells on which thread it ended."""

    ended: ClassVar[list[str]] = []

    def __del__(self) -> None:
        WatchedCall.ended.append(threading.current_thread().name)


@pytest.mark.parametrize("next_batch", [False, True])
@pytest.mark.filterwarnings("default")
def test_the_last_values_of_a_late_call_end_elsewhere(next_batch: bool) -> None:
    go, names = threading.Event(), []

    def waits(completion: str, **row: Any) -> float:
        del row  # the engine alone holds the value
        names.append(threading.current_thread().name)
        assert go.wait(ENOUGH) or completion
        return 1.0

    WatchedCall.ended.clear()
    with Dispatcher([reward(waits, lane="thread", timeout=0.1, grace=0)], max_failure_rate=1) as dispatcher:
        result = dispatcher.score(completions=["a"], num_generations=1, watched=[WatchedCall()])
        assert result.status.tolist() == [[[Status.TIMEOUT]]]
        go.set()
        deadline = time.monotonic() + ENOUGH
        while not WatchedCall.ended and time.monotonic() < deadline:
            if next_batch:
                dispatcher.score(completions=["b"], num_generations=1, watched=[1])
            gc.collect()
            time.sleep(0.01)
    assert len(WatchedCall.ended) == 1
    assert WatchedCall.ended[0] not in names
