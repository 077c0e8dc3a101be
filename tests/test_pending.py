"""Pending batches: waiting, groups as they complete, coroutines, Ctrl-C (pending-1)."""

from __future__ import annotations

import asyncio
import copy
import errno
import gc
import os
import pickle
import resource
import select
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from guerdon import ClosedError, DataError, Dispatcher, PendingBatch, RewardFailureError, Status, reward
from tests.clock import eventually
from tests.simple import shared_dispatcher


@reward(lane="thread")
def slow(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@reward(lane="asyncio")
async def sleepy(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


dispatcher = shared_dispatcher([slow, sleepy], max_failure_rate=1.0)


def batch(*seconds: float, size: int = 1) -> dict[str, Any]:
    return {"completions": ["c"] * len(seconds), "seconds": list(seconds), "num_generations": size}


@pytest.fixture
def gates() -> Iterator[Gates]:
    opened = Gates()
    yield opened
    opened.open(*range(20))


class Gates:
    """A dispatcher each of whose samples waits until it may go on."""

    def __init__(self) -> None:
        self._open = [threading.Event() for _ in range(20)]

    def submit(self, made: Dispatcher, *numbers: int, size: int = 1) -> PendingBatch:
        columns = {"completions": ["c"] * len(numbers), "gate": [self._open[number] for number in numbers]}
        return made.submit(**columns, num_generations=size)  # type: ignore[arg-type]

    def open(self, *numbers: int) -> None:
        for number in numbers:
            self._open[number].set()


@reward(lane="thread", timeout=250)
def waits(gate: threading.Event) -> float:
    return float(gate.wait(200))


waiting = shared_dispatcher([waits], max_failure_rate=1.0)


def test_a_pending_batch_is_there_at_once(waiting: Dispatcher, gates: Gates) -> None:
    pending = gates.submit(waiting, 0)
    assert not pending.done
    gates.open(0)
    assert pending.result().rewards.ravel().tolist() == [1.0]
    assert pending.done
    assert pending.result() is pending.result()


def test_groups_that_are_complete_are_listed_without_waiting(waiting: Dispatcher, gates: Gates) -> None:
    pending = gates.submit(waiting, 0, 1)
    gates.open(1)
    assert next(pending.groups()).index == 1
    assert pending.completed() == [1]
    gates.open(0)
    pending.wait()
    assert pending.completed() == [1, 0]
    assert [group.index for group in pending.groups()] == [1, 0]


def test_waiting_may_end_before_the_batch(waiting: Dispatcher, gates: Gates) -> None:
    pending = gates.submit(waiting, 0)
    for wait in (
        lambda: pending.result(timeout=0.05),
        lambda: pending.result(timeout=0),
        lambda: next(pending.groups(timeout=0.05)),
    ):
        with pytest.raises(TimeoutError, match="goes on"):
            wait()

    async def main() -> None:
        with pytest.raises(TimeoutError, match="goes on"):
            await pending.aresult(timeout=0.05)
        with pytest.raises(TimeoutError, match="goes on"):
            await pending.agroups(timeout=0.05).__anext__()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(pending.aresult(), 0.05)
        gates.open(0)
        # whoever waits for a pending batch doesn't own its batch
        assert (await pending.aresult()).status.max() == Status.OK

    asyncio.run(main())


@pytest.mark.parametrize("timeout", ["1", float("nan"), True, [1.0]])
def test_a_timeout_that_is_no_time_is_refused(dispatcher: Dispatcher, timeout: Any) -> None:
    pending = dispatcher.submit(**batch(0.0))

    async def all_of_them() -> None:
        with pytest.raises(DataError, match="expected seconds to wait"):
            await pending.aresult(timeout)
        with pytest.raises(DataError, match="expected seconds to wait"):
            await pending.agroups(timeout).__anext__()

    asyncio.run(all_of_them())
    for waits in (pending.result, lambda timeout: list(pending.groups(timeout))):
        with pytest.raises(DataError, match="expected seconds to wait"):
            waits(timeout)
    assert pending.result(10**400).rewards.shape == (1, 1, 2)


def test_a_pending_batch_says_what_it_is_and_stays_in_its_process(dispatcher: Dispatcher) -> None:
    pending = dispatcher.submit(**batch(0.0, 0.0, size=2))
    pending.wait()
    assert repr(pending) == "<PendingBatch: 1 groups of 2 samples, done>"
    assert "<td>done</td><td>1 of 1</td><td>2</td>" in pending._repr_html_()
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"send what result\(\) gives"):
            copied(pending)


@pytest.mark.fault(
    "the trainer forks while a batch is in flight, and the child waits for it",
    sees="RuntimeError in the child: the batch ends only in the process that submitted it; the trainer gets its result",
)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_nothing_to_wait_for(dispatcher: Dispatcher) -> None:
    pending = dispatcher.stream()
    pending.add(completions=["c"], seconds=[0.3])
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (pending.result, pending.cancel, pending.finish, lambda: list(pending.groups())):
            try:
                use()
            except ClosedError as error:
                refused += isinstance(error, RuntimeError) and "another process" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    pending.finish()
    assert pending.result(60).rewards.shape == (1, 1, 2)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_refuses_to_add_whatever_lock_was_held(dispatcher: Dispatcher) -> None:
    """Another thread adds while the process forks: the child has its locks as they were then."""
    pending = dispatcher.stream(max_pending=1 << 20)
    stop = threading.Event()

    def keep_adding() -> None:
        while not stop.is_set():
            pending.add(completions=["c"], seconds=[0.0])

    adding = threading.Thread(target=keep_adding)
    adding.start()
    try:
        for _ in range(40):
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # it hangs
                try:
                    pending.add(completions=["c"], seconds=[0.0])
                except ClosedError:
                    os._exit(0)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        adding.join()
        pending.cancel()


def test_every_iteration_sees_every_group(waiting: Dispatcher, gates: Gates) -> None:
    pending = gates.submit(waiting, 0, 1, 2)
    first = pending.groups()
    gates.open(2)
    next(first)
    for number in (1, 0):
        gates.open(number)
        eventually(lambda number=number: number in pending.completed())
    assert [group.index for group in pending.groups()] == [2, 1, 0]
    assert [group.index for group in first] == [1, 0]
    pending.result()
    assert [group.index for group in pending.groups()] == [2, 1, 0]


@pytest.mark.parametrize("how", ["aresult", "agroups", "ascore"])
def test_waiting_does_not_block_the_loop(how: str) -> None:
    beaten = threading.Event()

    @reward(lane="thread")
    def waits(completion: str) -> float:
        return float(beaten.wait(60))  # for the loop on which the batch is waited for

    async def beat() -> None:
        for _ in range(20):
            await asyncio.sleep(0.005)
        beaten.set()

    async def main(made: Dispatcher) -> float:
        task = asyncio.create_task(beat())
        if how == "ascore":
            found = (await made.ascore(completions=["c"])).rewards.item()
        else:
            pending = made.submit(completions=["c"])
            groups = [group async for group in pending.agroups()] if how == "agroups" else []
            assert [group.rewards.item() for group in groups] in ([], [1.0])
            found = (await pending.aresult()).rewards.item()
        await task
        return found

    with Dispatcher([waits]) as made:
        assert asyncio.run(main(made)) == 1.0


def test_no_descriptor_stays_behind(dispatcher: Dispatcher) -> None:
    async def main() -> None:
        for _ in range(5):
            pending = dispatcher.submit(**batch(0.01, 0.02))
            _ = [group async for group in pending.agroups()]
            await pending.aresult()

    asyncio.run(main())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        asyncio.run(main())
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_a_cancelled_ascore_cancels_its_batch(dispatcher: Dispatcher) -> None:
    async def main() -> None:
        started = time.monotonic()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(dispatcher.ascore(**batch(*[5.0] * 300)), 0.1)
        assert time.monotonic() - started < 100  # all of it takes minutes

    asyncio.run(main())
    assert dispatcher.score(**batch(0.0)).status.max() == Status.OK


def test_too_many_failures_raise_behind_the_last_group() -> None:
    @reward(lane="thread", name="failing")
    def failing(seconds: float) -> float:
        raise ValueError("no")

    with Dispatcher([failing]) as made:
        pending = made.submit(**batch(*[0.0] * 8))
        groups = pending.groups()
        assert len({next(groups).index for _ in range(8)}) == 8
        with pytest.raises(RewardFailureError, match="8 of 8"):
            next(groups)

        async def collect() -> None:
            agroups = pending.agroups()
            assert len({(await agroups.__anext__()).index for _ in range(8)}) == 8
            with pytest.raises(RewardFailureError, match="8 of 8"):
                await agroups.__anext__()
            with pytest.raises(RewardFailureError, match="8 of 8"):
                await pending.aresult()

        asyncio.run(collect())


@pytest.mark.parametrize("kind", ["groups", "agroups"])
def test_a_group_lost_with_an_exception_is_delivered_all_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    list_group = PendingBatch._list

    def interrupted(pending: PendingBatch, index: int) -> None:
        monkeypatch.setattr(PendingBatch, "_list", list_group)
        raise KeyboardInterrupt

    with Dispatcher([sleepy]) as made:
        pending = made.submit(**batch(0.0, 0.3, 0.3))
        monkeypatch.setattr(PendingBatch, "_list", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(pending.groups())

        async def collect() -> list[int]:
            return [group.index async for group in pending.agroups(timeout=60)]

        indexes = asyncio.run(collect()) if kind == "agroups" else [group.index for group in pending.groups(timeout=60)]
        assert sorted(indexes) == [0, 1, 2]


@pytest.mark.parametrize("how", ["result", "groups"])
def test_ctrl_c_cancels_the_batch_and_leaves_the_dispatcher_usable(how: str) -> None:
    with Dispatcher([sleepy]) as made:
        made.score(**batch(0.0))
        pending_batches: list[PendingBatch] = []

        def wait() -> None:
            timer.start()
            pending_batches.append(made.submit(**batch(200.0, 200.0)))
            _ = pending_batches[0].result() if how == "result" else list(pending_batches[0].groups())

        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            wait()
        assert time.monotonic() - started < 100
        timer.join()
        for pending in pending_batches:
            pending.wait(timeout=100)
            assert (pending._complete().status == Status.CANCELLED).all()
        assert made.score(**batch(0.0)).status.max() == Status.OK


def test_a_batch_that_finds_no_descriptors_says_what_to_do(dispatcher: Dispatcher) -> None:
    dispatcher.score(**batch(0.0))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, before[1]))
    held = []
    try:
        with pytest.raises(OSError, match=r"Too many open files.*\(ulimit -n\), or keep fewer batches"):
            held.extend(dispatcher.submit(**batch(0.0)) for _ in range(9999))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (dispatcher.score(**batch(0.0)).status == Status.OK).all()


def test_a_coroutine_that_finds_no_descriptor_waits_for_nothing(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async def wait() -> None:
        pending = dispatcher.submit(**batch(1.0))
        with monkeypatch.context() as patch:
            patch.setattr(os, "dup", refuse)
            with pytest.raises(OSError, match="Too many"):
                await pending.aresult()
        assert pending._waiters._waiters == []
        assert ((await pending.aresult()).status == Status.OK).all()

    asyncio.run(wait())


def test_a_pending_batch_takes_one_descriptor_and_another_once_its_groups_are_waited_for() -> None:
    def taken() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    with Dispatcher([reward(lambda text: 1.0, lane="thread", name="one")]) as dispatcher:
        dispatcher.score(completions=["a"])
        eventually(lambda: not dispatcher.stats()["open_batches"])
        # Those of earlier tests' engines may go meanwhile.
        looks = [taken() for _ in range(3)]
        end = time.monotonic() + 30
        while len(set(looks[-3:])) > 1 and time.monotonic() < end:
            time.sleep(0.2)
            looks.append(taken())
        before = looks[-1]
        pending_batches = [dispatcher.submit(completions=["a", "b"]) for _ in range(8)]
        for pending in pending_batches:
            pending.result()
        assert taken() == before + 8
        assert select.select([pending_batches[0]._batch.groups_fileno()], [], [], 0)[0]
        assert [group.index for group in pending_batches[0].groups()] == [0, 1]
        assert taken() == before + 9
        del pending_batches, pending
        eventually(lambda: taken() == before)
