"""The asyncio lane and user code that cancels, keeps, stops or configures its loop and tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, StatefulReward, Status
from tests.lanes import lane_helpers
from tests.lanes.lane_helpers import looped

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def no_new_threads() -> Iterator[None]:
    with lane_helpers.no_new_threads():
        yield


class CancelsAll(StatefulReward):
    """While `on`, a task of its own cancels every other task of the loop, at every turn of it."""

    def __init__(self) -> None:
        self.on = True
        self.turns = 0
        self.task: asyncio.Task[None] | None = None

    async def meddle(self) -> None:
        while True:
            if self.on:
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
            self.turns += 1
            await asyncio.sleep(0)

    async def score(self, completion: str) -> float:
        if self.task is None:
            self.task = asyncio.create_task(self.meddle())
        if completion == "suspends":
            await asyncio.sleep(60)
        return 1.0


@pytest.mark.parametrize("concurrency", [1, 3, 256])
def test_user_code_that_cancels_all_tasks_at_every_turn_strands_no_call(concurrency: int) -> None:
    """What was to be cancelled are calls that wait: each of these fails, and each other is made."""
    meddler = CancelsAll()
    dispatcher = Dispatcher([looped(meddler, limit=Limit(concurrency=concurrency))], max_failure_rate=1.0)
    with dispatcher:
        for _ in range(3):
            completions = ["", *(["suspends", ""] * 50)]
            result = dispatcher.submit(completions=completions).result(timeout=PATIENCE_S)
            expected = [Status.ERROR if completion == "suspends" else Status.OK for completion in completions]
            assert result.status[:, 0, 0].tolist() == expected
            assert {failure.reason for failure in result.failures()} == {"CancelledError"}
        meddler.on = False
        assert (dispatcher.submit(completions=[""] * 300).result(timeout=PATIENCE_S).status == Status.OK).all()
    assert meddler.turns > 100


def test_calls_that_leave_their_task_changed_go_on_beside_one_that_cancels_all() -> None:
    """Each ends its runner, so that every call begins with a fresh one."""
    names: list[str] = []

    async def named(completion: str) -> float:
        task = asyncio.current_task()
        assert task is not None
        names.append(task.get_name())
        task.set_name(f"named {completion}")
        return 1.0

    functions = [looped(CancelsAll(), name="meddler", loop="one"), looped(named, name="named", loop="one")]
    with Dispatcher(functions) as dispatcher:
        result = dispatcher.submit(completions=[str(index) for index in range(100)]).result(timeout=PATIENCE_S)
    assert (result.status == Status.OK).all()
    assert len(set(names)) == 100


class Late(StatefulReward):
    """Its `setup()` waits as long as `waits` says so."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.waits = True

    async def setup(self) -> None:
        if self.waits:
            await asyncio.sleep(60)
        self.did.append("setup")

    def close(self) -> None:
        self.did.append("close")

    async def score(self, completion: str) -> float:
        return 1.0


def test_setup_and_the_end_of_the_loop_beside_one_that_cancels_all() -> None:
    """The user's `setup()` is cancelled; what runs it is not, nor what ends the loop."""
    meddler, late = CancelsAll(), Late()
    functions = [looped(meddler, name="meddler", loop="one"), looped(late, name="late", loop="one")]
    with Dispatcher(functions, max_failure_rate=1.0) as dispatcher:
        result = dispatcher.submit(completions=[""] * 20).result(timeout=PATIENCE_S)
        assert (result.status[:, 0, 0] == Status.OK).all()
        assert (result.status[:, 0, 1] == Status.ERROR).all()
        assert {failure.reason for failure in result.failures()} == {"setup() failed: CancelledError"}
        meddler.on = late.waits = False
        assert (dispatcher.submit(completions=[""] * 20).result(timeout=PATIENCE_S).status == Status.OK).all()
        meddler.on = True
    assert late.did == ["setup", "close"]


def test_task_state_belongs_to_one_call() -> None:
    """Values by task (a session), a name and a callback: none reaches the next call."""
    store: dict[asyncio.Task[Any], str] = {}
    ended: list[str] = []

    async def function(completion: str) -> float:
        task = asyncio.current_task()
        assert task is not None
        kind = completion.split()[0]
        if kind == "stores":
            assert store.setdefault(task, completion) == completion
        elif kind == "names":
            assert not task.get_name().startswith("names")
            task.set_name(completion)
        elif kind == "calls":
            task.add_done_callback(lambda _: ended.append(completion))
        return 1.0

    completions = [f"{kind} {number}" for number in range(20) for kind in ("stores", "names", "calls")]
    with Dispatcher([looped(function)], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=completions)
    assert (result.status == Status.OK).all(), result.failures()[:2]
    assert len(store) == 20
    assert sorted(ended) == sorted(f"calls {number}" for number in range(20))


def test_a_task_that_another_call_awaits_gives_what_its_call_gave() -> None:
    """Calls on the same text that share the first one's task."""
    under_way: dict[str, asyncio.Task[Any]] = {}

    async def function(completion: str) -> float:
        text, _, place = completion.partition(" ")
        task = asyncio.current_task()
        assert task is not None
        if place == "first":
            under_way[text] = task
            await asyncio.sleep(0.02)
            if text == "bad":
                raise ValueError(text)
            return float(text)
        return float(await under_way[text])

    with Dispatcher([looped(function)], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=["3 first", "bad first", "3 later", "bad later", "3 later"])
    assert result.rewards[:, 0, 0].tolist()[::2] == [3.0, 3.0, 3.0]
    assert [failure.reason for failure in result.failures()] == ["ValueError: bad"] * 2
