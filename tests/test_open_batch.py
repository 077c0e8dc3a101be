"""Open batches: `stream`, `add`, `finish`."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from guerdon import (
    ClosedError,
    DataError,
    Dispatcher,
    RegistrationError,
    StatefulReward,
    Status,
    group_reward,
    judge,
    reward,
)
from tests.clock import eventually
from tests.http.server import chat_completion, question, serving
from tests.simple import shared_dispatcher, streamed

CALLS: list[int] = []


@reward(lane="thread")
def doubled(completion: str, value: float) -> float:
    return 2 * value


@reward(lane="asyncio")
async def slept(value: float, pause: float = 0.0) -> float:
    await asyncio.sleep(pause)
    return value


@reward
def shipped(completion: Any, value: float) -> float:
    return value + len(completion)


@group_reward
def shipped_ranks(completions: list[Any], value: list[float]) -> list[float]:
    return [float(sorted(value).index(one)) for one in value]


def whole(completions: list[Any], value: list[float], **kwargs: Any) -> list[float]:
    return [sum(value) - one for one in value]


async def awhole(completions: list[Any], value: list[float], **kwargs: Any) -> list[float]:
    CALLS.append(len(completions))
    return [float(len(completions))] * len(completions)


class CentredReward(StatefulReward):
    def score(self, value: float) -> float:
        return value

    def finish_group(self, scores: list[float | None], value: list[float]) -> list[float]:
        return [score - max(value) for score in scores if score is not None]


every = shared_dispatcher([doubled, slept, shipped, shipped_ranks, whole, awhole, CentredReward()], workers=2)
plain = shared_dispatcher([doubled, slept])


def rows(*values: float) -> dict[str, Any]:
    return {"completions": [f"c{value}" for value in values], "value": list(values)}


def test_a_stream_gives_what_the_batch_gives(every: Dispatcher) -> None:
    CALLS.clear()
    values = [float(value * 7 % 12) for value in range(12)]
    expected = every.score(**rows(*values), num_generations=4)
    stream = every.stream(num_generations=4)
    assert stream.open
    assert stream.add(**rows(*values[:5])) == [0, 1, 2, 3, 4]
    assert stream.add(**rows(values[9], values[8]), indices=[9, 8]) == [9, 8]
    assert stream.add(**rows(*values[5:8]), group=1) == [5, 6, 7]
    assert not stream.done
    assert stream.add(**rows(*values[10:])) == [10, 11]
    stream.finish()
    assert not stream.open
    result = stream.result(timeout=60)
    np.testing.assert_array_equal(result.rewards, expected.rewards)
    assert (result.status == Status.OK).all()
    assert CALLS == [12, 12]


def test_texts_and_other_values_of_several_additions_meet_in_one_call() -> None:
    """One column is text in one addition, a list in the next, wide text in a third; the lane is
    the process lane."""
    with Dispatcher([shipped, shipped_ranks, whole], workers=1) as made:
        completions: list[Any] = ["plain", [1, 2, 3], "\u0416\ud800", "", [], "x"]
        expected = made.score(completions=completions, value=[3.0, 1.0, 2.0, 5.0, 4.0, 6.0], num_generations=3)
        rows = zip(completions, [3.0, 1.0, 2.0, 5.0, 4.0, 6.0], strict=True)
        additions = ({"completions": [completion], "value": [value]} for completion, value in rows)
        np.testing.assert_array_equal(streamed(made, *additions, num_generations=3).rewards, expected.rewards)


def test_refused_additions_leave_the_batch_unchanged(plain: Dispatcher) -> None:
    stream = plain.stream(num_generations=2)
    stream.add(**rows(1.0))
    for wrong, message in [
        ({**rows(2.0), "indices": [0]}, "sample 0 was already added"),
        ({**rows(2.0, 3.0), "indices": [3, 3]}, "sample 3 was already added"),
        ({**rows(2.0, 3.0), "group": 0}, "group 0 has room for 1 of the 2"),
        ({**rows(2.0), "indices": [1, 2]}, "indices= has 2 entries, but there are 1"),
        ({**rows(2.0), "indices": [-1]}, "at least 0"),
        ({**rows(2.0), "indices": [10**15]}, "far beyond"),
        ({**rows(2.0), "indices": ["1"]}, "expected an index"),
        ({**rows(2.0), "indices": [None]}, "the index of each sample"),
        ({"completions": (text for text in "ab"), "value": [1.0]}, r"list\(…\) of it makes one"),
        ({**rows(2.0), "group": True}, "expected an index"),
        ({**rows(2.0), "group": 0, "indices": [1]}, "leave group= out"),
        ({**rows(2.0), "prompt": ["p"]}, "no argument prompt="),
        ({**rows(2.0), "trainer_state": object()}, "give it to stream"),
        ({**rows(2.0), "num_generations": [2]}, "num_generations= is for the whole batch: give it to stream"),
        ({**rows(2.0), "batch_timeout": 1.0}, "batch_timeout= is for the whole batch"),
        ({**rows(2.0), "budget": 1.0}, "column 'budget' is a float, not a list, and there is no option of that name"),
        ({**rows(2.0), "num_generation": 2}, r"'num_generation' is an int, .* \(did you mean num_generations=\?\)"),
        ({**rows(2.0), "indices": [1 << 62]}, "below 2"),
        ({"completions": ["c"]}, "asks for the column 'value'"),
        ({"completions": ["c", "d"], "value": [1.0]}, "column 'value' has 1 value,"),
        ({**rows(2.0), "pause": [0.0]}, "the same columns with every add"),
    ]:
        with pytest.raises(DataError, match=message):
            stream.add(**wrong)
    with pytest.raises(DataError, match=r"1 group lacks samples: group 0 has 1 of 2 samples.*still open"):
        stream.finish()
    assert stream.open
    assert stream.add(**rows(2.0)) == [1]
    stream.finish()
    stream.finish()
    assert stream.result(timeout=100).rewards[:, :, 0].tolist() == [[2.0, 4.0]]


def test_indices_may_be_an_array(plain: Dispatcher) -> None:
    stream = plain.stream(num_generations=np.int64(2))  # type: ignore[arg-type]
    assert stream.add(**rows(1.0, 2.0), indices=np.array([1, 0])) == [1, 0]
    with pytest.raises(DataError, match="expected an index"):
        stream.add(**rows(1.0, 2.0), indices=np.array([2.0, 3.0]))
    stream.finish()
    assert stream.result(timeout=100).rewards[:, :, 0].tolist() == [[4.0, 2.0]]


def test_waiting_for_a_batch_that_is_open_names_finish(plain: Dispatcher) -> None:
    stream = plain.stream()
    with pytest.raises(TimeoutError, match=r"still open: finish\(\) ends it"):
        stream.result(timeout=0.01)
    with pytest.raises(TimeoutError, match=r"still open: finish\(\) ends it"):
        asyncio.run(stream.aresult(timeout=0.01))
    stream.cancel()


def test_a_value_that_no_worker_can_get_is_refused_by_name() -> None:
    with Dispatcher([shipped], workers=1) as made:
        stream = made.stream()
        stream.add(completions=["a"], value=[1.0])
        with pytest.raises(DataError, match="column 'completions' of sample 1 can't be sent"):
            stream.add(completions=["b", threading.Lock()], value=[1.0, 2.0])
        stream.finish()
        assert stream.result(timeout=60).rewards.ravel().tolist() == [2.0]


class Interrupting:
    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


def test_ctrl_c_while_values_are_pickled_is_no_fault_of_theirs() -> None:
    with Dispatcher([shipped], workers=1) as made:
        stream = made.stream()
        with pytest.raises(KeyboardInterrupt):
            stream.add(completions=["a", Interrupting()], value=[1.0, 2.0])
        assert stream.add(completions=["a"], value=[1.0]) == [0]
        stream.finish()
        assert stream.result(timeout=60).rewards.ravel().tolist() == [2.0]


def test_a_batch_that_is_closed_says_so(plain: Dispatcher) -> None:
    assert not hasattr(plain.submit(**rows(1.0)), "add")
    stream = plain.stream()
    stream.add(**rows(1.0))
    stream.finish()
    with pytest.raises(ClosedError, match="takes no more samples: it was finished"):
        stream.add(**rows(1.0))
    stream = plain.stream(num_generations=2)
    stream.add(**rows(1.0, 2.0, 3.0))
    stream.cancel()
    with pytest.raises(ClosedError, match="takes no more samples: cancelled by the caller"):
        stream.add(**rows(1.0))
    result = stream.result(timeout=100)
    assert result.status[1, 1].tolist() == [Status.CANCELLED] * 2
    made = Dispatcher([slept])
    stream = made.stream()
    made.close()
    with pytest.raises(ClosedError, match="the engine"):
        stream.add(**rows(1.0))
    with pytest.raises(ClosedError):
        made.stream()


def test_an_empty_stream_is_an_empty_batch(plain: Dispatcher) -> None:
    stream = plain.stream(num_generations=4)
    stream.finish()
    assert list(stream.groups()) == []
    result = stream.result(timeout=100)
    assert result.rewards.shape == (0, 4, 2)
    assert len(result) == 0
    assert "0 prompts" in repr(result)


def test_columns_without_completions_are_refused(plain: Dispatcher) -> None:
    with pytest.raises(DataError, match="there are no completions"):
        plain.stream().add(completions=None, value=[1.0])
    # all memory, with the first sample
    with pytest.raises(DataError, match=r"num_generations=.*at most"):
        plain.stream(num_generations=1 << 62)
    with pytest.raises(RegistrationError, match=r"num_generations=.*at most"):
        Dispatcher([slept], num_generations=1 << 62)
    with pytest.raises(DataError, match="batch_timeout="):
        plain.submit(**rows(1.0), batch_timeout=-1)
    with pytest.raises(DataError, match=r"batch_timeout=1e\+300: expected at most"):
        plain.submit(**rows(1.0), batch_timeout=1e300)
    gc.collect()  # the streams that were given up
    assert plain.stats().get("open_batches", 0) == 0


def test_a_budget_of_one_batch_ends_it(plain: Dispatcher) -> None:
    stream = plain.stream(num_generations=2, batch_timeout=6.0)
    stream.add(**rows(1.0, 2.0, 3.0))
    result = stream.result(timeout=100)
    assert result.status[:, :, 0].tolist() == [[0, 0], [0, Status.TIMEOUT]]
    assert [failure.reason for failure in result.failures()] == ["batch timeout"] * 2
    with pytest.raises(ClosedError, match="no more samples: batch timeout"):
        stream.add(**rows(1.0))
    assert (
        plain.score(completions=["c"], value=[1.0], pause=[100.0], batch_timeout=0.2).status[0, 0, 1] == Status.TIMEOUT
    )


def test_every_group_reaches_every_consumer_once_wherever_they_are(plain: Dispatcher) -> None:
    stream = plain.stream(num_generations=2)
    seen: dict[str, list[int]] = {}

    def iterate(name: str) -> None:
        seen[name] = [group.index for group in stream.groups(timeout=60)]

    async def aiterate(name: str) -> None:
        seen[name] = [group.index async for group in stream.agroups(timeout=60)]

    async def both() -> None:
        await asyncio.gather(aiterate("a1"), aiterate("a2"), stream.aresult())

    def produce(offset: int) -> None:
        for sample in range(offset, 80, 2):
            stream.add(**rows(float(sample)), indices=[sample])

    consumers = [threading.Thread(target=iterate, args=("t1",)), threading.Thread(target=iterate, args=("t2",))]
    consumers.append(threading.Thread(target=lambda: asyncio.run(both())))
    producers = [threading.Thread(target=produce, args=(offset,)) for offset in (0, 1)]
    for thread in (*consumers, *producers):
        thread.start()
    for thread in producers:
        thread.join(60)
    stream.finish()
    for thread in consumers:
        thread.join(60)
    assert sorted(seen) == ["a1", "a2", "t1", "t2"]
    assert all(sorted(order) == list(range(40)) for order in seen.values())
    assert all(order == seen["t1"] for order in seen.values())
    assert stream.result().rewards[:, :, 1].ravel().tolist() == [float(sample) for sample in range(80)]


class Value:
    """Can be referred to weakly."""


@reward(lane="thread")
def of_object(thing: Any) -> float:
    return 1.0


def test_delivered_groups_are_released() -> None:
    with Dispatcher([of_object]) as made:
        stream = made.stream(num_generations=2)
        alive: list[weakref.ref[Value]] = []
        groups = stream.groups(timeout=100)
        for _ in range(5):
            things = [Value(), Value()]
            alive += map(weakref.ref, things)
            stream.add(completions=["a", "b"], thing=things)
            del things
            assert next(groups).rewards.tolist() == [[1.0], [1.0]]
        stream.add(completions=["a"], thing=[Value()])
        eventually(lambda: gc.collect() is not None and [one() for one in alive] == [None] * 10)
        stream.cancel()


def test_a_stream_that_nobody_holds_ends(plain: Dispatcher) -> None:
    stream = plain.stream(num_generations=2)
    stream.add(**rows(1.0))
    del stream
    gc.collect()
    eventually(lambda: plain.stats()["open_batches"] == 0)


def test_the_trainers_state_is_that_of_submit() -> None:
    @reward(lane="thread", name="step")
    def step(trainer_state: Any, value: float) -> float:
        return float(trainer_state["step"]) + value

    with Dispatcher([step]) as made:
        result = streamed(made, rows(1.0), rows(2.0), trainer_state={"step": 40})
        assert result.rewards.ravel().tolist() == [41.0, 42.0]


def test_requests_of_several_additions_are_each_asked_in_its_own_words() -> None:
    with (
        serving(lambda path, body: chat_completion(f"Score: {len(question(body))}")) as server,
        Dispatcher([judge(base_url=server.url + "/v1/", model="m", prompt="{completion}")]) as made,
    ):
        result = streamed(made, *({"completions": ["x" * length]} for length in range(6)), num_generations=2)
        assert result.rewards.ravel().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
