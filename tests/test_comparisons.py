"""`guerdon.pairwise` by a user's function on any lane: its values, and its failures."""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, RegistrationError, StatefulReward, Status, pairwise, reward
from tests.odd_members import LANES, LET_GO, let_go, made  # noqa: F401 - a fixture
from tests.simple import streamed


def text_of(completion: Any) -> str:
    return completion if isinstance(completion, str) else str(completion[-1]["content"])


def verdict(prompt: Any, one: Any, other: Any, bonus: float) -> float | None:
    """The larger number, in a group whose prompt says how large its numbers are."""
    first, second = text_of(one), text_of(other)
    if "fail" in (first, second):
        raise ValueError("no good")
    if "crash" in (first, second):
        os._exit(3)
    if "abstain" in (first, second):
        return None
    numbers = int(first), int(second)
    assert all(number // 10 == int(text_of(prompt)) for number in numbers), "of one group"
    assert bonus == numbers[1], "the second one's own column"
    return 0.5 if numbers[0] == numbers[1] else float(numbers[0] > numbers[1])


def in_turn(prompt: Any, completion_a: Any, completion_b: Any, bonus_b: float) -> float | None:
    if "hang" in (text_of(completion_a), text_of(completion_b)):
        LET_GO.wait(100)
    return verdict(prompt, completion_a, completion_b, bonus_b)


async def at_once(prompt: Any, completion_a: Any, completion_b: Any, bonus_b: float) -> float | None:
    if "hang" in (text_of(completion_a), text_of(completion_b)):
        await asyncio.sleep(100)
    return verdict(prompt, completion_a, completion_b, bonus_b)


class LoadedModel(StatefulReward):
    def setup(self) -> None:
        self.ready = True

    def score(self, prompt: Any, completion_a: Any, completion_b: Any, bonus_b: float) -> float | None:
        assert self.ready
        return in_turn(prompt, completion_a, completion_b, bonus_b)


def better(lane: str) -> Any:
    return made(lane, "better", (in_turn, at_once, LoadedModel))


def said(text: str, *, conversational: bool) -> Any:
    return [{"role": "assistant", "content": text}] if conversational else text


def columns(groups: list[list[str]], *, conversational: bool = False) -> dict[str, Any]:
    flat = [completion for group in groups for completion in group]
    tens = [str(index) for index, group in enumerate(groups) for _ in group]
    return {
        "prompts": [said(prompt, conversational=conversational) for prompt in tens],
        "completions": [said(completion, conversational=conversational) for completion in flat],
        "bonus": [float(completion) if completion.isdigit() else 0.0 for completion in flat],
    }


GROUPS = [["3", "1", "2", "9"], ["14", "18", "11", "12"], ["20", "20", "29", "21"]]


@pytest.mark.parametrize("conversational", [False, True])
@pytest.mark.parametrize("lane", LANES)
def test_a_function_compares_the_samples_of_its_group(lane: str, conversational: bool) -> None:
    with Dispatcher([pairwise(better(lane), schedule="all")], workers=2) as dispatcher:
        result = dispatcher.score(**columns(GROUPS, conversational=conversational), num_generations=4)
        given = columns(GROUPS, conversational=conversational)
        additions = ({name: [values[sample]] for name, values in given.items()} for sample in range(12))
        again = streamed(dispatcher, *additions, num_generations=4)
    for rewards in (result.rewards[:, :, 0], again.rewards[:, :, 0]):
        for scores, group in zip(rewards, GROUPS, strict=True):
            assert (
                np.argsort(scores, kind="stable").tolist() == np.argsort(list(map(int, group)), kind="stable").tolist()
            )
    assert result.rewards[2, 0, 0] == result.rewards[2, 1, 0]
    assert result.extra["pairwise/comparisons"] == [3.0] * 12
    assert result.extra["pairwise/ties"] == [0.0] * 8 + [1.0, 1.0, 0.0, 0.0]


@pytest.mark.fault(
    "a function that compares two completions fails, hangs or loses its worker",
    sees="the pair does not count; a sample without half of its comparisons is an `error` with the reason",
)
@pytest.mark.parametrize("lane", LANES)
def test_pairs_that_fail_do_not_count(lane: str) -> None:
    faults = {"fail": "ValueError: no good", "hang": "1 s", "abstain": "abstained"}
    if lane in ("process", "stateful"):
        faults["crash"] = r"\(after 2 attempts\)"
    groups = [[f"{ten}3", f"{ten}1", fault, f"{ten}9"] for ten, fault in enumerate(faults)]
    groups[0] = ["3", "1", groups[0][2], "9"]
    with Dispatcher([pairwise(better(lane), schedule="all")], workers=4, max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(**columns(groups), num_generations=4)
    reasons = {failure.sample: failure.reason for failure in result.failures()}
    for group, reason in enumerate(faults.values()):
        assert np.argsort(result.rewards[group, [0, 1, 3], 0]).tolist() == [1, 0, 2], reasons
        assert result.status[group, 2, 0] == Status.ERROR
        assert re.search(f"0 of 3 comparisons, too few for a score; .*{reason}", reasons[4 * group + 2]), reasons


def test_a_function_is_taken_as_it_is() -> None:
    def longer(completion_a: str, completion_b: str) -> bool:
        return len(completion_a) > len(completion_b)

    function = pairwise(longer, name="longer", score="win_rate", both_orders=False)
    assert repr(function) == "<pairwise 'longer': longer>"
    with Dispatcher([function]) as dispatcher:
        result = dispatcher.score(completions=["aa", "a", "aaa"], num_generations=3)
    assert result.rewards.ravel().tolist() == [0.5, 0.0, 1.0]


@pytest.mark.parametrize("lane", ["process", "thread"])
def test_other_fields_of_a_comparison_are_kept(lane: str) -> None:
    def explained(completion_a: str, completion_b: str) -> dict[str, Any]:
        return {"score": float(completion_a > completion_b), "reason": f"{completion_a} to {completion_b}"}

    with Dispatcher([pairwise(reward(explained, lane=lane), schedule="all")]) as dispatcher:  # type: ignore[arg-type]
        result = dispatcher.score(completions=["a", "b", "c", "d"], num_generations=2)
    assert result.extra["pairwise/reason"] == [["a to b", "b to a"], None, ["c to d", "d to c"], None]


@pytest.mark.parametrize("returned", ["A", {"winner": "A"}, 2])
def test_the_values_of_a_comparison_are_named(returned: Any) -> None:
    def odd(completion_a: str, completion_b: str) -> Any:
        return returned

    with Dispatcher([pairwise(reward(odd, lane="thread"))], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=["a", "b", "c", "d"], num_generations=2)
    failure = result.failures()[-1]
    assert re.search(r"samples [23] and [23]: .*1 is for the first, 0 for the second, 0\.5 for a tie$", failure.reason)
    assert failure.function == "pairwise"


def late(completion_a: str, completion_b: str, threshold: float = 0.0) -> float:
    return 0.0


def single(completion: str) -> float:
    return 0.0


def whole(completions: list[str]) -> list[float]:
    return [0.0]


def of_rows(completion_a: str, completion_b: str, **row: Any) -> float:
    return 0.0


def recording(completion_a: str, completion_b: str, log_extra: Any) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("function", "options", "problem"),
    [
        (late, {}, "takes threshold, and a comparison gets columns alone"),
        (of_rows, {}, "takes **row"),
        (recording, {}, "takes log_extra"),
        (single, {}, "needs both samples"),
        (whole, {}, "scores the whole batch at once"),
        (late, {"timeout": 3}, "timeout= is for a judge"),
        (late, {"model": "m"}, "model= is for a judge"),
        (None, {}, "expected a function that compares, or model= and prompt="),
    ],
)
def test_odd_functions_are_refused(function: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(problem)):
        pairwise(function, **options)
