"""`Dispatcher.ascore_one`: single samples that are scored together (coalescing-1, coalescing-2)."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from guerdon import (
    ClosedError,
    DataError,
    Dispatcher,
    RewardFailureError,
    SampleResult,
    StatefulReward,
    Status,
    group_reward,
    reward,
)
from tests.clock import eventually

LONG = 60.0
SEEN: list[int] = []  # sizes of the batches that `whole` was called with


@reward(lane="asyncio")
async def slept(pause: float) -> float:
    await asyncio.sleep(pause)
    return pause


@reward(lane="thread")
def length(text: str) -> float | None:
    if text == "bad":
        raise ValueError("a bad text")
    return None if text == "none" else float(len(text))


@reward(lane="process")
def worked(completion: str, extra: Any = None) -> float:
    return 1.0


def whole(completions: list[str], **kwargs: Any) -> list[float]:
    SEEN.append(len(completions))
    return [float(len(completions))] * len(completions)


@group_reward
def rank(completions: list[str]) -> list[float]:
    return [0.0] * len(completions)


class CentredReward(StatefulReward):
    def score(self, completion: str) -> float:
        return 1.0

    def finish_group(self, scores: list[float | None], **columns: Any) -> list[float | None]:
        return scores


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    with Dispatcher([slept, length], weights=[1.0, 0.5]) as made:
        yield made


@pytest.fixture
def batches(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that the dispatcher gets."""
    sizes: list[int] = []
    submit = dispatcher._submitter._submit

    def counting(started: Any, data: Any, *args: Any, **bounds: Any) -> Any:
        batch = submit(started, data, *args, **bounds)
        sizes.append(data.samples)
        return batch

    monkeypatch.setattr(dispatcher._submitter, "_submit", counting)
    return sizes


async def together(dispatcher: Dispatcher, *samples: dict[str, Any]) -> list[Any]:
    """Results, and the exceptions of those that have none."""
    return await asyncio.gather(*(dispatcher.ascore_one(**one) for one in samples), return_exceptions=True)


async def open_batches(dispatcher: Dispatcher, count: int) -> None:
    """Waits until so many batches are open."""
    await asyncio.to_thread(eventually, lambda: dispatcher.stats().get("open_batches") == count)


def test_one_sample_has_rewards_status_reasons_and_total_by_name(dispatcher: Dispatcher) -> None:
    good, bad, none = asyncio.run(
        together(
            dispatcher,
            {"completion": "abcd", "pause": 0.25},
            {"completion": "bad", "pause": 0.0},
            {"completion": [{"role": "assistant", "content": "none"}], "pause": 0.5},
        )
    )
    assert good == SampleResult({"slept": 0.25, "length": 4.0}, {"slept": Status.OK, "length": Status.OK}, {}, 2.25)
    assert bad.status == {"slept": Status.OK, "length": Status.ERROR}
    assert math.isnan(bad.rewards["length"])
    assert list(bad.reasons) == ["length"]
    assert "a bad text" in bad.reasons["length"]
    assert math.isnan(bad.total)
    assert (none.status["length"], none.reasons, none.total) == (Status.ABSTAINED, {}, 0.5)


def test_calls_that_come_together_are_few_batches_of_at_most_256(dispatcher: Dispatcher, batches: list[int]) -> None:
    samples = [{"completion": "x" * (one % 7), "pause": 0.0} for one in range(600)]
    found = asyncio.run(together(dispatcher, *samples))
    assert [one.rewards["length"] for one in found] == [one % 7 for one in range(600)]
    assert sorted(batches) == [88, 256, 256]


def test_a_slow_sample_holds_up_no_other(dispatcher: Dispatcher) -> None:
    async def main() -> None:
        slow = asyncio.create_task(dispatcher.ascore_one(completion="a", pause=LONG))
        quick = await asyncio.wait_for(dispatcher.ascore_one(completion="b", pause=0.0), 30)
        assert quick.total == 0.5
        assert not slow.done()
        slow.cancel()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"completion": "a"}, "asks for the column 'pause'"),
        ({"completion": 3, "pause": 0.0}, "completion of sample 0 is an int"),
        ({"completion": None, "pause": 0.0}, "no completion: give completion="),
        ({"completion": "a", "pause": 0.0, "completions": ["a"]}, "give completion= instead of completions="),
        ({"completion": "a", "pause": 0.0, "prompts": ["a"]}, "give prompt= instead of prompts="),
        ({"completion": "a", "pause": 0.0, "batch_timeout": 1.0}, "takes no batch_timeout=.*ascore()"),
        ({"completion": "a", "pause": 0.0, "num_generations": 2}, "takes no num_generations="),
    ],
)
def test_a_bad_argument_fails_its_caller_alone(dispatcher: Dispatcher, wrong: dict[str, Any], message: str) -> None:
    samples = [{"completion": "ab", "pause": 0.0} for _ in range(9)]
    found = asyncio.run(together(dispatcher, *samples[:4], wrong, *samples[4:]))
    error = found.pop(4)
    assert isinstance(error, DataError)
    with pytest.raises(DataError, match=message):
        raise error
    assert [one.total for one in found] == [1.0] * 9
    assert dispatcher.stats()["open_batches"] == 0


def test_a_value_that_no_worker_can_get_fails_its_caller_alone() -> None:
    with Dispatcher([worked], workers=1) as made:
        samples = [{"completion": "a", "extra": extra} for extra in (1, threading.Lock(), 2)]
        first, second, third = asyncio.run(together(made, *samples))
    assert isinstance(second, DataError)
    assert isinstance(first, SampleResult)
    assert isinstance(third, SampleResult)


def test_a_missing_prompt_is_asked_for_by_the_name_that_one_sample_has() -> None:
    asks = reward(lambda prompt, completion: 1.0, name="asks", lane="thread")
    with Dispatcher([asks]) as made, pytest.raises(DataError, match="prompt= for one sample"):
        asyncio.run(made.ascore_one(completion="a"))


def test_a_function_of_groups_is_refused_with_the_reason() -> None:
    for function in (rank, CentredReward()):
        with Dispatcher([function], num_generations=2) as made:
            with pytest.raises(DataError, match=r"works on whole groups, .*use ascore\(\)"):
                asyncio.run(made.ascore_one(completion="a"))
            assert made.stats() == {}


def test_a_function_of_the_batch_contract_runs_on_the_batch_of_calls_that_came_together() -> None:
    SEEN.clear()
    with Dispatcher([reward(whole, rowwise=True, lane="thread", name="rows"), whole]) as made:
        found = asyncio.run(together(made, *({"completion": "a"} for _ in range(5))))
    assert [one.rewards for one in found] == [{"rows": 1.0, "whole": 5.0}] * 5


def test_failures_are_in_the_result_and_not_raised(dispatcher: Dispatcher) -> None:
    found = asyncio.run(together(dispatcher, *({"completion": "bad", "pause": 0.0} for _ in range(64))))
    assert all(one.status["length"] is Status.ERROR for one in found)


@pytest.mark.parametrize("lane", ["thread", "process"])
def test_a_sample_reads_its_own_notes_however_many_others_failed(lane: Any) -> None:
    """If each sample listed the failures of its batch, the loop would be blocked for seconds."""

    def fails(completion: str) -> float:
        raise ValueError(completion)

    def operations(count: int) -> Counter[str]:
        """Calls of functions on the loop's thread, by their names."""
        called: Counter[str] = Counter()

        def note(frame: FrameType, event: str, function: Any) -> None:
            if event == "c_call":
                called[function.__qualname__] += 1
            elif event == "call":
                called[frame.f_code.co_qualname] += 1

        async def main() -> list[Any]:
            sys.setprofile(note)
            try:
                return await together(made, *({"completion": str(index)} for index in range(count)))
            finally:
                sys.setprofile(None)

        for index, one in enumerate(asyncio.run(main())):
            assert one.reasons["fails"] == f"ValueError: {index}"
        return called

    with Dispatcher([reward(fails, lane=lane)], workers=1, max_failure_rate=1.0) as made:
        made.score(completions=["warm"] * 8)
        few, many = operations(16), operations(256)
    assert (few["Batch.reasons"], many["Batch.reasons"]) == (16, 256)
    assert few["BatchResult.failures"] == many["BatchResult.failures"] == 0
    assert many.total() / 256 < 1.5 * few.total() / 16


def test_on_failure_raise_raises_for_the_sample_that_failed() -> None:
    strict = reward(length.__wrapped__, lane="thread", name="strict", on_failure="raise")
    with Dispatcher([strict]) as made:
        good, bad = asyncio.run(together(made, {"completion": "a"}, {"completion": "bad"}))
    assert isinstance(good, SampleResult)
    assert isinstance(bad, RewardFailureError)
    assert "'strict' failed" in str(bad)


def test_cancelling_one_caller_harms_no_other(dispatcher: Dispatcher) -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(dispatcher.ascore_one(completion="ab", pause=2.0)) for _ in range(6)
        ]
        await asyncio.sleep(0)
        tasks[0].cancel()  # before there is a batch
        await asyncio.sleep(0.1)
        tasks[1].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in found] == [True, True] + [False] * 4
        assert [one.total for one in found[2:]] == [pytest.approx(3.0)] * 4

    asyncio.run(main())


def test_the_call_of_a_cancelled_caller_ends_alone() -> None:
    ended: list[float] = []
    begins, ends, go_on = threading.Semaphore(0), threading.Semaphore(0), threading.Event()

    @reward
    async def waits(pause: float) -> float:
        begins.release()
        try:
            await (asyncio.sleep(pause) if pause == LONG else asyncio.to_thread(go_on.wait, LONG))
        finally:
            ended.append(pause)
            ends.release()
        return pause

    async def main(dispatcher: Dispatcher) -> None:
        one = asyncio.create_task(dispatcher.ascore_one(completion="a", pause=LONG))
        other = asyncio.create_task(dispatcher.ascore_one(completion="a", pause=6.0))
        for _ in range(2):
            await asyncio.to_thread(begins.acquire, timeout=60)
        one.cancel()
        await asyncio.to_thread(ends.acquire, timeout=60)
        assert ended == [LONG]
        go_on.set()
        assert (await other).total == 6.0
        assert one.cancelled()

    with Dispatcher([waits]) as dispatcher:
        asyncio.run(main(dispatcher))


def test_a_batch_that_nobody_waits_for_is_cancelled(dispatcher: Dispatcher) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(dispatcher.ascore_one(completion="a", pause=LONG)) for _ in range(3)]
        await open_batches(dispatcher, 1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await open_batches(dispatcher, 0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_many_loops_in_many_threads(dispatcher: Dispatcher) -> None:
    def loop(number: int) -> list[float]:
        samples = [{"completion": "x" * number, "pause": 0.0}] * 40
        found = asyncio.run(together(dispatcher, *samples))
        return [one.total for one in found]

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(loop, range(6))) == [[number / 2] * 40 for number in range(6)]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts what /proc tells of")
def test_no_descriptor_task_or_dispatcher_is_left() -> None:
    gone: list[weakref.ref[Dispatcher]] = []
    _scores_many(gone)
    gc.collect()
    assert gone[0]() is None


def _scores_many(gone: list[weakref.ref[Dispatcher]]) -> None:
    made = Dispatcher([reward(length.__wrapped__, lane="thread", name="length")])

    async def main() -> int:
        await together(made, *({"completion": "a"} for _ in range(10)))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            await together(made, *({"completion": "a"} for _ in range(300)))
        gc.collect()
        assert len(asyncio.all_tasks()) == 1
        return len(os.listdir("/proc/self/fd")) - before

    assert asyncio.run(main()) <= 0
    gone.append(weakref.ref(made))


def test_a_closed_dispatcher_says_so(dispatcher: Dispatcher) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(dispatcher.ascore_one(completion="a", pause=LONG))
        await open_batches(dispatcher, 1)
        dispatcher.close()
        with pytest.raises(ClosedError, match="closed while this sample"):
            await waiting
        with pytest.raises(ClosedError, match="this dispatcher is closed"):
            await dispatcher.ascore_one(completion="a", pause=0.0)

    asyncio.run(main())
