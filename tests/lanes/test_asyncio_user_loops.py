"""The asyncio lane and user code that changes the loop itself, or what asyncio is made of."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from guerdon import Dispatcher, Status
from tests.lanes import lane_helpers
from tests.lanes.lane_helpers import eventually, looped, scored
from tests.processes import run_python

PATIENCE_S = 60.0
# asyncio's policies go in Python 3.16; until then users have them.
WITH_A_POLICY = pytest.mark.filterwarnings("ignore:'?asyncio\\..*[pP]olicy.* is deprecated:DeprecationWarning")


@pytest.fixture(autouse=True)
def no_new_threads() -> Iterator[None]:
    with lane_helpers.no_new_threads():
        yield


def checked(function: Any, count: int = 40, batches: int = 2, **options: Any) -> None:
    """All calls of a few batches are made."""
    with Dispatcher([looped(function, **options)], max_failure_rate=1.0) as dispatcher:
        for _ in range(batches):
            pending = dispatcher.submit(completions=[str(index) for index in range(count)])
            result = pending.result(timeout=PATIENCE_S)
            assert (result.status == Status.OK).all(), result.failures()[:2]


def test_a_loop_that_user_code_stops_goes_on() -> None:
    async def function(completion: str) -> float:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.001)
        asyncio.get_running_loop().stop()
        return 1.0

    checked(function)


def test_a_running_loop_can_not_be_closed_nor_run_again() -> None:
    async def function(completion: str) -> float:
        loop = asyncio.get_running_loop()
        if completion == "0":
            loop.close()
        if completion == "1":
            loop.run_until_complete(loop.create_future())
        if completion == "2":
            work = asyncio.sleep(0)
            with contextlib.closing(work):
                asyncio.run(work)
        await asyncio.sleep(0)
        return 1.0

    result = scored(looped(function), 10)
    assert result.status[:, 0, 0].tolist() == [Status.ERROR] * 3 + [Status.OK] * 7
    assert all("RuntimeError" in failure.reason for failure in result.failures())


@pytest.mark.filterwarnings("ignore::guerdon.GuerdonWarning")
def test_a_loop_that_user_code_closes_is_followed_by_another() -> None:
    """What was in flight on it fails; what comes later is made."""
    loops = []

    def close(loop: asyncio.AbstractEventLoop) -> None:
        """Behind the back of the thread that runs it."""
        loop.stop()
        loop.is_running = lambda: False  # type: ignore[method-assign]
        loop.close()

    async def function(completion: str) -> float:
        loop = asyncio.get_running_loop()
        loops.append(loop)
        if completion == "closes":
            loop.call_soon(close, loop)
            await asyncio.sleep(60)
        return 1.0

    with Dispatcher([looped(function)], max_failure_rate=1.0) as dispatcher:
        for _ in range(2):
            result = dispatcher.submit(completions=["closes"]).result(timeout=PATIENCE_S)
            assert result.status.item() == Status.ERROR
            assert "its event loop ended before it did" in result.failures()[0].reason
            result = dispatcher.submit(completions=[""] * 20).result(timeout=PATIENCE_S)
            assert (result.status == Status.OK).all()
    assert len(set(loops)) == 3


@WITH_A_POLICY
def test_a_policy_that_makes_no_loop_fails_the_batch_and_only_that() -> None:
    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            raise OSError(24, "Too many open files")

    async def function(completion: str) -> float:
        return 1.0

    before = asyncio.get_event_loop_policy()
    with Dispatcher([looped(function)], max_failure_rate=1.0) as dispatcher:
        asyncio.set_event_loop_policy(Policy())
        try:
            for _ in range(2):
                result = dispatcher.submit(completions=[""] * 20).result(timeout=PATIENCE_S)
                assert (result.status == Status.ERROR).all()
                assert "no event loop could be started: OSError" in result.failures()[0].reason
        finally:
            asyncio.set_event_loop_policy(before)
        assert (dispatcher.submit(completions=[""] * 20).result(timeout=PATIENCE_S).status == Status.OK).all()


@WITH_A_POLICY
def test_loops_of_a_policy_of_the_users_are_used() -> None:
    class Loop(asyncio.SelectorEventLoop):
        tasks = 0

        def create_task(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
            Loop.tasks += 1
            return super().create_task(*args, **options)

    class Policy(asyncio.DefaultEventLoopPolicy):
        _loop_factory = Loop

    async def function(completion: str) -> float:
        assert type(asyncio.get_running_loop()) is Loop
        await asyncio.create_task(asyncio.sleep(0))
        return 1.0

    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(Policy())
    try:
        checked(function)
    finally:
        asyncio.set_event_loop_policy(before)
    assert Loop.tasks >= 80


def test_a_task_factory_of_the_users_makes_its_tasks_and_not_ours() -> None:
    made = []

    class Odd(asyncio.Task[Any]):
        pass

    def factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(work)
        return Odd(work, loop=loop, **options)

    async def child() -> bool:
        await asyncio.sleep(0)
        return isinstance(asyncio.current_task(), Odd)

    async def function(completion: str) -> float:
        asyncio.get_running_loop().set_task_factory(factory)
        assert await asyncio.create_task(child())
        assert not isinstance(asyncio.current_task(), Odd)
        return 1.0

    checked(function)
    assert len(made) >= 80


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 has eager tasks")
def test_eager_tasks() -> None:
    async def child(value: float) -> float:
        await asyncio.sleep(0)
        return value

    async def function(completion: str) -> float:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
        assert sum(await asyncio.gather(child(1.0), child(2.0))) == 3.0
        return 1.0

    checked(function)


def test_an_exception_handler_of_the_users_hears_of_its_tasks_and_of_nothing_else() -> None:
    heard: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def fails(text: str) -> None:
        raise ValueError(text)

    async def function(completion: str) -> float:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: heard.append(str(what["exception"])))
        tasks.append(asyncio.create_task(fails(completion)))
        await asyncio.sleep(0.001)
        if completion == "3":
            raise LookupError
        return 1.0

    with Dispatcher([looped(function)], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=[str(index) for index in range(10)])
    assert result.status[:, 0, 0].tolist().count(Status.OK) == 9
    tasks.clear()
    gc.collect()
    eventually(lambda: sorted(heard) == [str(index) for index in range(10)])


def test_current_task_that_is_replaced() -> None:
    true = asyncio.current_task

    async def function(completion: str) -> float:
        await asyncio.sleep(0)
        return 1.0

    asyncio.current_task = lambda loop=None: None
    try:
        checked(function)
    finally:
        asyncio.current_task = true


def test_objects_of_another_loop() -> None:
    """One that waits on another loop fails its call, as in a task; one that is done is fine."""
    other = asyncio.new_event_loop()
    waits, done = other.create_future(), other.create_future()
    done.set_result(2.0)

    async def function(completion: str) -> float:
        if completion == "1":
            return float(await done)
        if completion == "2":
            await waits
        return 1.0

    result = scored(looped(function), 6)
    other.close()
    assert result.rewards[1, 0, 0] == 2.0
    [failure] = result.failures()
    assert failure.sample == 2
    assert "attached to a different loop" in failure.reason


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_call_that_forks() -> None:
    """Children of the user's end by themselves; the loop goes on in the parent."""

    async def function(completion: str) -> float:
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        return float(os.waitstatus_to_exitcode(status))

    assert scored(looped(function), 4).rewards[:, 0, 0].tolist() == [7.0] * 4


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the patch is installed where notebooks are tested")
def test_nested_loops() -> None:
    """`nest_asyncio` patches asyncio for good: in a process of its own."""
    pytest.importorskip("nest_asyncio2")
    code = """
import asyncio, nest_asyncio2
from guerdon import Dispatcher, Status, reward
async def inner(completion):
    await asyncio.sleep(0.001)
    return float(completion)
async def function(completion):
    nest_asyncio2.apply()
    await asyncio.sleep(0)
    return asyncio.get_event_loop().run_until_complete(inner(completion))
nest_asyncio2.apply()
async def main():
    with Dispatcher([reward(function)]) as dispatcher:
        for _ in range(2):
            result = dispatcher.score(completions=[str(index) for index in range(20)])
            assert result.rewards[:, 0, 0].tolist() == list(range(20)), result.failures()[:2]
        assert (await dispatcher.ascore(completions=["1"])).rewards.item() == 1.0
asyncio.run(main())
"""
    assert run_python(code).stderr == ""
