"""``panel(reduce=function)``: a user's function makes one score of the members' scores."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, RegistrationError, Status, judge, panel, reward, rewards
from tests.clock import eventually
from tests.cluster.test_same_elsewhere import WHERE, dispatcher_on
from tests.http.server import chat_completion, serving
from tests.odd_members import LET_GO, check_end, four, let_go, made, steady  # noqa: F401 - a fixture
from tests.simple import streamed


def reduced(scores: list[float | None]) -> Any:
    """The range of the scores, or what the first of them stands for."""
    there = [score for score in scores if score is not None]
    match scores[0]:
        case 11.0:
            raise ValueError("no way to reduce it")
        case 12.0:
            LET_GO.wait(100)
        case 13.0:
            return float("nan")
        case 14.0:
            return "much"
        case 15.0:
            return None
        case 16.0:
            return {"score": 1.0, "least": min(there)}
        case 17.0:
            os._exit(3)
    return max(there) - min(there)


async def reduced_at_once(scores: list[float | None]) -> Any:
    if scores[0] == 12.0:
        await asyncio.sleep(100)
    return reduced(scores)


REDUCED: dict[str, Any] = {
    "6": 2.0,
    "11": r"reduce: ValueError: no way to reduce it",
    "12": r"reduce: .*0\.5 s",
    "13": r"reduce: .*NaN|nan",
    "14": r"reduce: .*not a reward",
    "15": Status.ABSTAINED,
    "16": 1.0,
    "17": r"reduce: .*status 3.*\(after 2 attempts\)",
    "fail": 0.0,
    "abstain": 0.0,
}


@pytest.mark.fault(
    "a user's function that reduces the scores of a panel raises, hangs, dies or returns no number, on any lane",
    sees="an `error` of that sample, with the traceback if it raised; the members' scores are in `result.extra`",
)
@pytest.mark.parametrize("lane", ["process", "thread", "asyncio"])
def test_the_ends_of_a_reduce_on_any_lane(lane: str) -> None:
    ends = {name: end for name, end in REDUCED.items() if name != "17" or lane == "process"}
    function = reward(reduced_at_once if lane == "asyncio" else reduced, lane=lane, timeout=0.5, grace=0.2)
    mixed = panel([made("process", "one"), made("asyncio", "two"), four()], reduce=function, min_members=1)
    with Dispatcher([mixed], workers=2, max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=list(ends))
        LET_GO.set()
    for sample, end in enumerate(ends.values()):
        check_end(result, sample, "panel", end)
    (failure,) = (one for one in result.failures() if one.sample == list(ends).index("11"))
    assert "in reduced" in (failure.traceback or "")
    assert result.extra["panel/four"] == [4.0] * len(ends)
    assert result.extra["panel/one"][:2] == [6.0, 11.0]
    assert result.extra["panel/one"][-2:] == [None, None]
    assert result.extra["panel/reduce/least"][list(ends).index("16")] == 4.0


def test_a_reduce_is_not_called_without_enough_scores() -> None:
    called: list[Any] = []

    def count(scores: list[float | None]) -> int:
        called.append(scores)
        return len(scores)

    members = [made("thread"), four()]
    functions = [panel(members, reduce=reward(count, lane="thread")), reward(steady, lane="thread", name="plain")]
    with Dispatcher(functions, max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=["6", "fail", "abstain", "7"])
        later = streamed(dispatcher, *({"completions": [one]} for one in "1234"), num_generations=2)
        assert (later.rewards[..., 0] == 2.0).all()
    assert result.status[:, 0, 0].tolist() == [Status.OK, Status.ERROR, Status.ABSTAINED, Status.OK]
    assert [failure.reason for failure in result.failures()] == [
        "of 2 members 2 must give a score; odd: ValueError: no good"
    ]
    assert sorted(called) == [[float(first), 4.0] for first in (1, 2, 3, 4, 6, 7)]


@pytest.mark.filterwarnings("ignore:debug=True")
@pytest.mark.parametrize("where", [*WHERE, "debug"])
def test_builtins_and_closures_reduce_anywhere(where: str, tmp_path: Path) -> None:
    half = 0.5
    functions = [
        panel([made("process"), four()], reduce=max, name="most"),
        panel([made("asyncio"), four()], reduce=lambda scores: half * sum(scores), name="halved"),
    ]
    with Dispatcher(functions, debug=True) if where == "debug" else dispatcher_on(where, functions) as dispatcher:
        result = dispatcher.score(completions=[str(number) for number in range(100)])
    assert result.rewards[:, 0, 0].tolist() == [max(4.0, number) for number in range(100)]
    assert result.rewards[:, 0, 1].tolist() == [0.5 * (4 + number) for number in range(100)]


def test_a_pure_function_reduces() -> None:
    with Dispatcher([panel([made("thread"), four()], reduce=reward(reduced, pure=True))]) as dispatcher:
        assert dispatcher.score(completions=["6"]).rewards.item() == 2.0


def test_a_cancelled_batch_leaves_no_calls_of_a_reduce() -> None:
    hanging = panel([made("asyncio"), four()], reduce=reward(reduced, timeout=None))
    with Dispatcher([hanging], workers=1, max_failure_rate=1.0) as dispatcher:
        pending = dispatcher.submit(completions=["12"] * 3)
        eventually(lambda: any(call.function == "panel/reduce" for call in dispatcher.dump()), seconds=30)
        pending.cancel()
        assert (pending.result().status == Status.CANCELLED).all()
        eventually(lambda: not list(dispatcher.dump()), seconds=30)


def test_a_cache_knows_the_source_of_the_reduce(tmp_path: Path) -> None:
    with serving(lambda path, body: chat_completion("3")) as server:
        ask: dict[str, Any] = {"base_url": server.url, "model": "m", "prompt": "{completion}"}
        for function, expected in ((sum, 6.0), (sum, 6.0), (lambda scores: 9.0, 9.0)):
            both = panel([judge(name="a", **ask), judge(name="b", **ask)], reduce=function, cache=tmp_path)
            with Dispatcher([both]) as dispatcher:
                assert dispatcher.score(completions=["x"]).rewards.item() == expected
        assert len(server.bodies) == 4


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"reduce": reduced_at_once}, "it is async, and a worker has no loop: pass guerdon.reward(function)"),
        ({"reduce": lambda: 0.0}, "called with the list of scores alone"),
        ({"reduce": made("stateful")}, "on a lane for Python functions"),
        ({"reduce": reward(reduced, total_timeout=3)}, "it has total_timeout=, which is for 'panel'"),
        ({"reduce": reward(reduced, cache="folder")}, "it has cache=, which is for 'panel'"),
        (
            {"reduce": reward(reduced, limit=Limit(tpm=6000, tokens=len))},
            "it has Limit(tokens=function), which counts columns",
        ),
        ({"reduce": reward(reduced, rowwise=True)}, "on a lane for Python functions"),
        ({"reduce": rewards.exact_match()}, "expected a plain function"),
        ({"reduce": panel([four(), made("thread")], name="inner")}, "expected a plain function"),
        ({"reduce": max, "weights": [1, 2]}, "has no use for them"),
        ({"reduce": "most"}, "or a function of the scores"),
        ({"reduce": max, "members": [four(), made("thread", "reduce")]}, "a member is called 'reduce'"),
    ],
)
def test_a_function_that_can_not_reduce_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(problem)):
        panel(**{"members": [four(), made("thread")], **options})
