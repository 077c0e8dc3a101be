"""How a reward function is called, and what it records, whatever the lane."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from guerdon._worker.invoke.awaiter import Awaiter
from guerdon._worker.invoke.call import Call
from guerdon._worker.invoke.returned_values import InvalidValue


def recipe(**changes: Any) -> dict[str, Any]:
    base = {"name": "f", "shape": "sample", "rowwise": False, "records": [], "stateful": False}
    return {**base, **changes}


def recorded(call: Call) -> Any:
    data = call.records()
    return None if data is None else json.loads(data)


def test_a_positional_call_is_the_function_itself() -> None:
    def score(prompt: str, completion: str) -> float:
        return 1.0

    call = Call(score, recipe())
    assert call.bind(None) is score
    assert call.name == "f"
    assert not call.is_async
    assert call.records() is None


def test_keywords_follow_the_names() -> None:
    def score(**row: object) -> object:
        return row

    call = Call(score, recipe())
    bound = call.bind(("a", "b"))
    assert bound(1, 2) == {"a": 1, "b": 2}
    assert call.bind(("a", "b")) is bound
    assert call.bind(())() == {}


def test_rowwise_gets_lists_of_one() -> None:
    with pytest.raises(InvalidValue, match="rowwise"):
        Call(lambda completions: 1.0, recipe(rowwise=True)).bind(("completions",))("x")

    async def later(completions: list[str]) -> list[float]:
        return [float(len(completions))]

    assert asyncio.run(Call(later, recipe(rowwise=True)).bind(("completions",))("x")) == 1.0


def test_records_belong_to_their_call() -> None:
    kept = []

    def score(completion: str, log_extra: Any, log_metric: Any) -> float:
        kept.append(log_extra)
        log_extra("seen", [completion])
        log_metric("length", len(completion))
        return 0.0

    call = Call(score, recipe(records=["log_extra", "log_metric"]))
    bound = call.bind(None)
    bound("ab")
    assert recorded(call) == [["extra", "seen", ["ab"]], ["metric", "length", 2]]
    assert call.records() is None
    bound("abc")
    kept[0]("late", ["x"])
    call.add_fields({"why": "because"})
    assert recorded(call) == [
        ["extra", "seen", ["abc"]],
        ["metric", "length", 3],
        ["fields", {"why": "because"}],
    ]
    kept[1]("late", ["x"])
    bound("x")
    call.drop_records()
    assert call.records() is None
    assert recorded(call.clone()) is None


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_odd_records_never_fail() -> None:
    torch = pytest.importorskip("torch")
    call = Call(len, recipe())
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    call.add_fields({"np": np.float32(0.5), "array": np.arange(2), "torch": torch.tensor(2.0), "nan": float("nan")})
    [[_, fields]] = recorded(call)
    assert fields["np"] == 0.5
    assert fields["array"] == [0, 1]
    assert fields["torch"] == 2.0
    assert fields["nan"] != fields["nan"]
    call.add_fields({"object": object, "lone": "\ud83d"})
    [[_, fields]] = recorded(call)
    assert fields == {"object": "<class 'object'>", "lone": "\ud83d"}
    for odd in ({("a", 1): 1}, {"cycle": cyclic}, {"set": {1, 2}}):
        call.add_fields(odd)
        assert recorded(call) is not None
    call.add_fields({"fine": 1})
    call.add_fields({"bad": Unprintable()})
    assert recorded(call) == [["fields", {"fine": 1}]]


def test_rowwise_leaves_the_trainer_state_as_it_is() -> None:
    def score(completions: list[str], trainer_state: dict[str, int]) -> list[float]:
        assert completions == ["x"]
        return [float(trainer_state["global_step"])]

    bound = Call(score, recipe(rowwise=True)).bind(("completions", "trainer_state"))
    assert bound("x", {"global_step": 3}) == 3.0


def test_awaiter_awaits_and_warns_once() -> None:
    warnings: list[str] = []
    awaiter = Awaiter(warnings.append)
    loops = []

    async def score() -> float:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return 2.0

    call = Call(lambda: score(), recipe(name="f"))
    assert awaiter.result(call, 1.0) == 1.0
    assert awaiter.result(call, score()) == 2.0
    assert awaiter.result(call, score()) == 2.0
    assert loops[0] is loops[1]
    assert len(warnings) == 1
    assert "'f'" in warnings[0]
    assert "lane='asyncio'" in warnings[0]
    with pytest.raises(KeyError):
        awaiter.result(call, _failing())
    assert awaiter.result(call, score()) == 2.0
    assert loops[2] is loops[0]
    assert awaiter.result(Call(score, recipe(name="g")), score()) == 2.0
    assert len(warnings) == 1, "an async function is no surprise"
    awaiter.close()
    assert loops[0].is_closed()
    awaiter.close()


async def _failing() -> float:
    raise KeyError("x")


@pytest.mark.filterwarnings("error")
def test_awaiter_leaves_no_task_when_interrupted() -> None:
    awaiter = Awaiter(lambda message: None)
    cleaned = []

    async def hang() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, _raise)
        try:
            await asyncio.sleep(100)
        finally:
            cleaned.append(True)
        return 1.0

    def _raise() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        awaiter.run(hang())
    assert cleaned == [True]
