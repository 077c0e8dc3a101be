"""Values that users give are let go after their use, and a dropped dispatcher's with it: at once,
without Python's collector.

A batch may hold gigabytes, a dispatcher processes; the collector comes round when enough small
objects were made.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from guerdon import DataError, Dispatcher, GuerdonWarning, RewardFailureError, StatefulReward, Status, reward
from tests.clock import eventually
from tests.processes import without_collector
from tests.simple import on_lane

Refs = list[Callable[[], object]]


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    with without_collector():
        yield


class Thing:
    """Stands for what is large: an environment, a tensor."""


class Texts(list[str]):
    """A list of completions that can be watched."""


def let_go(refs: Refs) -> None:
    """Waits until these are gone; a thread may take a moment to leave its ended call."""
    assert refs
    eventually(lambda: all(ref() is None for ref in refs), str(refs))


def fails(refs: Refs, how: str) -> Callable[..., Any]:
    """A reward function whose exceptions refer to frames with things in them."""

    def function(completion: str, environment: Thing) -> float:
        thing = Thing()
        refs.append(weakref.ref(thing))
        try:
            raise KeyError(completion)
        except KeyError as error:
            raise ValueError(completion) from error

    async def waits(completion: str, environment: Thing) -> float:
        thing = Thing()
        refs.append(weakref.ref(thing))
        await asyncio.sleep(0)
        return function(completion, environment)

    def hands_over(completion: str, environment: Thing) -> Any:
        return waits(completion, environment)

    made = {"thread": function, "asyncio": waits, "awaited on a thread": hands_over}[how]
    return reward(made, name="fails", lane="asyncio" if how == "asyncio" else "thread")


def things(refs: Refs) -> list[Thing]:
    made = [Thing() for _ in range(10)]
    refs.extend(weakref.ref(thing) for thing in made)
    return made


@pytest.mark.filterwarnings("ignore:.*returned an awaitable")
@pytest.mark.parametrize("how", ["thread", "asyncio", "awaited on a thread"])
@pytest.mark.parametrize("way", ["score", "column", "pending", "ascore"])
def test_a_batch_that_failed_keeps_nothing(way: str, how: str) -> None:
    refs: Refs = []

    async def ascore(dispatcher: Dispatcher, columns: dict[str, Any]) -> None:
        try:  # here: what leaves `asyncio.run` is in a circle of asyncio's own
            await dispatcher.ascore(**columns)
        except RewardFailureError as error:
            refs.append(weakref.ref(error.result))

    def batch(dispatcher: Dispatcher) -> None:
        columns: dict[str, Any] = {"completions": Texts("abcdefghij"), "environments": things(refs)}
        refs.append(weakref.ref(columns["completions"]))
        if way == "ascore":
            asyncio.run(ascore(dispatcher, columns))
            return
        calls: dict[str, Callable[[], object]] = {
            "score": lambda: dispatcher.score(**columns),
            "pending": lambda: dispatcher.submit(**columns).result(),
            "column": lambda: dispatcher.reward_funcs[0](prompts=["p"] * 10, **columns),
        }
        try:  # `pytest.raises` makes a circle
            calls[way]()
        except RewardFailureError as error:
            refs.append(weakref.ref(error.result))

    with Dispatcher([fails(refs, how)]) as dispatcher:
        batch(dispatcher)
        assert len(refs) >= 22  # the batch failed
        let_go(refs)


def test_a_refused_sample_keeps_nothing() -> None:
    refs: Refs = []

    @reward(lane="thread")
    def wants(completion: str, answer: int) -> float:
        return 1.0

    async def refused(dispatcher: Dispatcher) -> None:
        thing = Thing()
        refs.append(weakref.ref(thing))
        try:  # here: what leaves `asyncio.run` is in a circle of asyncio's own
            await dispatcher.ascore_one(completion="a", environment=thing)
        except DataError:
            refs.append(weakref.ref(dispatcher))

    asyncio.run(refused(Dispatcher([wants])))
    assert len(refs) == 2  # it was refused
    let_go(refs)


@pytest.mark.parametrize("lane", ["process", "thread", "asyncio"])
def test_a_result_keeps_nothing_of_its_batch(lane: str) -> None:
    texts = Texts("abc")
    refs: Refs = [weakref.ref(texts)]
    with Dispatcher([on_lane(lambda completion: 1.0, lane, name="one")], workers=1) as dispatcher:
        result = dispatcher.score(completions=texts)
        del texts
        let_go(refs)
    assert result.rewards.ravel().tolist() == [1.0] * 3


@pytest.mark.parametrize("lane", ["thread", "asyncio"])
def test_a_setup_that_failed_keeps_nothing(lane: str) -> None:
    refs: Refs = []

    class Broken(StatefulReward):
        def setup(self) -> Any:
            thing = Thing()
            refs.append(weakref.ref(thing))
            if lane == "asyncio":
                return self.asetup()
            raise ValueError("no model here")

        async def asetup(self) -> None:
            thing = Thing()
            refs.append(weakref.ref(thing))
            await asyncio.sleep(0)
            raise ValueError("no model here")

        def score(self, completion: str) -> float:
            return 1.0

    with Dispatcher([reward(Broken(), lane=lane)], max_failure_rate=1.0) as dispatcher:
        assert (dispatcher.score(completions=["a"]).status == Status.ERROR).all()
        let_go(refs)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("lane", ["process", "thread", "asyncio"])
def test_a_dropped_dispatcher_ends_at_once(lane: str, closed: bool) -> None:
    def function(completion: str) -> float:
        return 1.0

    made = Dispatcher([on_lane(function, lane)], workers=1)
    made.score(completions=["a"])
    made.reward_funcs[0](prompts=["p"], completions=["a"])
    engine = made._engine.get()
    refs: Refs = [weakref.ref(made), weakref.ref(function)]
    if closed:
        made.close()
    del made, function
    assert refs[0]() is None
    assert engine.closed
    let_go(refs)


def test_a_column_keeps_its_dispatcher_and_is_the_same_as_long_as_it_is_held() -> None:
    column = Dispatcher([fails([], "thread"), reward(lambda text: 1.0, name="one", lane="thread")]).reward_funcs[-1]
    made = column.dispatcher
    assert made.reward_funcs[1] is column
    assert made.reward_funcs[1] is column
    assert [one.__name__ for one in made.reward_funcs] == ["fails", "one"]
    with pytest.raises(IndexError):
        made.reward_funcs[2]
    del made
    # the other one failed
    with pytest.warns(GuerdonWarning, match="not known to leave out samples"):
        assert column(prompts=["p"], completions=["a"], environments=[None]) == [None]
    column.dispatcher.close()


@pytest.mark.parametrize("lane", ["thread", "asyncio", "stream"])
def test_a_cycle_through_a_batch_that_nobody_collected_is_collected(lane: str) -> None:
    """A value of the batch leads back to it: only the collector can tell."""

    def function(environment: Thing) -> float:
        return 1.0

    async def waits(environment: Thing) -> float:
        return 1.0

    one = reward(waits) if lane == "asyncio" else reward(function, lane="thread")
    with Dispatcher([one]) as dispatcher:
        thing = Thing()
        if lane == "stream":
            pending: Any = dispatcher.stream()
            pending.add(completions=["a"], environments=[thing])
            pending.finish()
        else:
            pending = dispatcher.submit(completions=["a"], environments=[thing])
        thing.pending = pending  # type: ignore[attr-defined]
        pending.wait(60)
        gone = weakref.ref(thing)
        del thing, pending
        # a thread may still have the last call in hand
        eventually(lambda: gc.collect() is not None and gone() is None)
