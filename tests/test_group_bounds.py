"""Quorums and timeouts of groups, and backpressure."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from guerdon import (
    ClosedError,
    DataError,
    Dispatcher,
    RewardBatch,
    RewardFailureError,
    StatefulReward,
    Status,
    group_reward,
    reward,
)
from tests.clock import eventually
from tests.processes import eventfds
from tests.simple import shared_dispatcher, streamed

LONG = 200.0


@reward(lane="asyncio", timeout=500)
async def slept(pause: float) -> float:
    await asyncio.sleep(pause)
    return 1.0


@reward(lane="thread")
def plain(completion: str) -> float:
    return 2.0


@reward(timeout=500)
def worked(pause: float) -> float:
    until = time.monotonic() + pause
    while time.monotonic() < until:
        pass
    return 3.0


@group_reward(lane="asyncio")
async def ranked(pause: list[float]) -> list[float]:
    await asyncio.sleep(max(pause) if max(pause) < LONG else 0)
    return [4.0] * len(pause)


def whole(completions: list[str], **kwargs: Any) -> list[float]:
    return [5.0] * len(completions)


class ShapedReward(StatefulReward):
    async def score(self, pause: float) -> float:
        await asyncio.sleep(pause)
        return 1.0

    async def finish_group(self, scores: list[float | None], pause: list[float]) -> list[float]:
        assert len(scores) == len(pause)
        return [float(sum(score is not None for score in scores))] * len(scores)


dispatcher = shared_dispatcher([slept, plain], max_failure_rate=0.0)


def batch(*pauses: float) -> dict[str, Any]:
    return {"completions": ["c"] * len(pauses), "pause": list(pauses)}


def test_samples_left_by_a_quorum_do_not_count_as_failures(dispatcher: Dispatcher) -> None:
    pauses = [0.0, LONG, 0.0, 0.0] * 4
    pending = dispatcher.submit(**batch(*pauses), num_generations=4, group_quorum=3)
    assert sorted(group.index for group in pending.groups(timeout=100)) == [0, 1, 2, 3]
    result = pending.result()  # though not one failure is allowed
    assert (result.status[:, :, 0] == [[0, Status.CANCELLED, 0, 0]] * 4).all()
    assert (result.status[:, :, 1] == Status.OK).all()
    assert {(failure.reason, failure.sample % 4) for failure in result.failures()} == {("quorum", 1)}
    assert result.unscorable[:, 1].all()
    assert result.unscorable.sum() == 4


def test_a_deadline_of_a_group_counts_as_failure(dispatcher: Dispatcher) -> None:
    given = {**batch(*[0.0, LONG] * 32), "num_generations": 2, "group_timeout": 3.0}
    with pytest.raises(RewardFailureError, match=r"(?s)'slept' failed on 32 of .*group timeout") as raised:
        dispatcher.score(**given)
    result = raised.value.result
    assert result is not None
    assert (result.status[:, :, 0] == [[0, Status.TIMEOUT]] * 32).all()
    assert asyncio.run(dispatcher.ascore(**{**given, "pause": [0.0] * 64})).status.max() == Status.OK


def test_a_quorum_and_a_timeout_together_whichever_comes_first() -> None:
    # the first group has its quorum of two, the second never
    pauses = [0.0, 0.0, LONG, 0.0, LONG, LONG]
    with Dispatcher([slept], max_failure_rate=1.0) as made:
        result = made.score(**batch(*pauses), num_generations=3, group_quorum=2, group_timeout=3.0)
    assert result.status[:, :, 0].tolist() == [[0, 0, Status.CANCELLED], [0, Status.TIMEOUT, Status.TIMEOUT]]
    assert [failure.reason for failure in result.failures()] == ["quorum", "group timeout", "group timeout"]


def test_a_straggler_in_a_worker_is_stopped() -> None:
    with Dispatcher([worked], workers=2) as made:
        started = time.monotonic()
        result = made.score(**batch(0.0, LONG), num_generations=2, group_quorum=1)
        assert result.status.ravel().tolist() == [Status.OK, Status.CANCELLED]
        # with both workers
        assert made.score(**batch(0.0, 0.0), num_generations=2).status.max() == Status.OK
        assert time.monotonic() - started < 40


def test_a_group_waits_for_its_group_function() -> None:
    with Dispatcher([slept, ranked]) as made:
        result = made.score(**batch(0.0, 0.3, LONG), num_generations=3, group_quorum=2)
        assert result.status[0].tolist() == [[0, 0], [0, 0], [Status.CANCELLED, 0]]


@pytest.mark.parametrize("bound", [{"group_quorum": 2}, {"group_timeout": 3.0}])
def test_finish_group_gets_the_scores_that_there_are(bound: Any) -> None:
    with Dispatcher([ShapedReward()]) as made:
        result = made.score(**batch(0.0, LONG, 0.0), num_generations=3, **bound)
        assert result.rewards[0, [0, 2], 0].tolist() == [2.0, 2.0]
        assert result.status[0, 1, 0] in (Status.CANCELLED, Status.TIMEOUT)


def test_a_stream_may_go_on_without_the_last_samples_of_a_group(dispatcher: Dispatcher) -> None:
    pending = dispatcher.stream(num_generations=3, group_quorum=2)
    groups = pending.groups(timeout=100)
    pending.add(**batch(0.0, 0.0), group=0)
    assert next(groups).status[:, 0].tolist() == [0, 0, Status.CANCELLED]
    pending.add(**batch(LONG), group=0)  # too late: it is neither run nor refused
    pending.add(**batch(0.0, 0.0), group=1)
    pending.finish()
    assert [group.index for group in groups] == [1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"group_quorum": 3}, "group_quorum=3: a group has fewer samples, num_generations=2"),
        ({"group_quorum": 0}, "group_quorum=0: expected a whole number"),
        ({"group_quorum": True}, "group_quorum=True"),
        ({"group_quorum": 2.0}, "group_quorum=2.0"),
        ({"group_timeout": float("nan")}, "group_timeout=nan"),
        ({"group_timeout": True}, "group_timeout=True"),
        ({"group_timeout": -1}, "group_timeout=-1: expected seconds"),
        ({"group_timeout": "all"}, "group_timeout='all'"),
        ({"batch_timeout": "1"}, "batch_timeout='1'"),
        ({"max_pending": 0}, "max_pending=0"),
    ],
)
def test_invalid_options_are_refused(dispatcher: Dispatcher, given: dict[str, Any], message: str) -> None:
    submit = dispatcher.stream if "max_pending" in given else partial(dispatcher.submit, **batch(0.0, 0.0))
    with pytest.raises(DataError, match=message):
        submit(num_generations=2, **given)
    assert dispatcher.stats().get("open_batches", 0) == 0  # none too where no engine was started


def test_options_are_refused_for_a_function_of_the_whole_batch() -> None:
    with Dispatcher([slept, whole]) as made:
        with pytest.raises(DataError, match="can't hold with 'whole'"):
            made.submit(**batch(0.0), group_timeout=1.0)
        with pytest.raises(DataError, match="'whole', which sees the whole batch"):
            made.stream(max_pending=1)


def test_add_waits_while_too_many_samples_are_pending(dispatcher: Dispatcher) -> None:
    pending = dispatcher.stream(num_generations=2, max_pending=4)
    pending.add(**batch(0.0))  # a group that lacks samples is not waited for
    pending.add(**batch(LONG, LONG, LONG, 0.0, 0.0))

    async def wait_for_room() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(pending.aadd(**batch(0.0, 0.0)), 0.2)
        waiting = asyncio.create_task(pending.aadd(**batch(0.0, 0.0)))
        await asyncio.sleep(0.1)
        pending.cancel()
        with pytest.raises(ClosedError, match="cancelled by the caller"):
            await waiting

    with ThreadPoolExecutor(1) as producer:
        adding = producer.submit(pending.add, **batch(0.0, 0.0))
        with pytest.raises(TimeoutError):
            adding.result(0.5)
        asyncio.run(wait_for_room())
        with pytest.raises(ClosedError):  # the cancel woke it
            adding.result(100)


def test_a_producer_goes_on_as_groups_complete(dispatcher: Dispatcher) -> None:
    pending = dispatcher.stream(num_generations=2, max_pending=4)

    def produce() -> None:
        for _ in range(60):
            pending.add(**batch(0.002, 0.002))
        pending.finish()

    async def aproduce() -> int:
        other = dispatcher.stream(num_generations=2, max_pending=4)
        for _ in range(30):
            await other.aadd(**batch(0.002, 0.002))
        other.finish()
        return len((await other.aresult(timeout=60)).rewards)

    with ThreadPoolExecutor(1) as producer:
        producing = producer.submit(produce)
        assert len(list(pending.groups(timeout=60))) == 60
        producing.result(100)
    assert asyncio.run(aproduce()) == 30


@pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc tells of")
def test_a_result_that_is_kept_holds_no_descriptor(dispatcher: Dispatcher) -> None:
    """Nor the one of ``max_pending``."""

    def scored() -> RewardBatch:
        return streamed(dispatcher, *[batch(0.0, 0.0)] * 3, num_generations=2, max_pending=2)

    scored()  # the runtime's own descriptors are there from now on
    before = eventfds()
    kept = [scored() for _ in range(3)]
    eventually(lambda: eventfds() <= before)
    assert [len(result) for result in kept] == [6, 6, 6]


def test_values_that_come_to_a_group_that_was_cut_are_let_go() -> None:
    class Value:
        pass

    @reward(lane="asyncio")
    async def of_object(thing: Any, pause: float) -> float:
        await asyncio.sleep(pause)
        return 1.0

    with Dispatcher([of_object]) as made:
        pending = made.stream(num_generations=3, group_quorum=1)
        pending.add(**batch(0.0), thing=[Value()], group=0)
        pending.add(**batch(LONG), thing=[Value()], group=0)
        assert next(pending.groups(timeout=100)).index == 0
        late = Value()
        alive = weakref.ref(late)
        pending.add(**batch(LONG), thing=[late], group=0)
        del late
        pending.add(**batch(0.0), thing=[Value()], group=1)
        gc.collect()
        assert alive() is None
        pending.cancel()


def test_ctrl_c_ends_a_wait_for_room(dispatcher: Dispatcher) -> None:
    pending = dispatcher.stream(max_pending=1)
    pending.add(**batch(LONG))
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    started = time.monotonic()

    def add() -> None:
        timer.start()
        pending.add(**batch(0.0))

    with pytest.raises(KeyboardInterrupt):
        add()
    timer.join()
    assert time.monotonic() - started < 100
    assert pending.result(timeout=100).status[0, 0].tolist() == [Status.CANCELLED, Status.OK]


@pytest.mark.parametrize("end", [lambda made, pending: made.close(), lambda made, pending: pending.finish()])
def test_callers_waiting_for_room_return_at_the_end(end: Callable[[Dispatcher, Any], None]) -> None:
    with Dispatcher([slept]) as made:
        pending = made.stream(max_pending=1)
        pending.add(**batch(LONG))
        with ThreadPoolExecutor(1) as producer:
            adding = producer.submit(pending.add, **batch(0.0))
            time.sleep(0.1)
            end(made, pending)
            with pytest.raises(ClosedError):
                adding.result(100)
