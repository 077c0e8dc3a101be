"""Cascades over members of any lane: which member is called, and whose score counts."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, RegistrationError, Status, cascade, judge, parse, reward
from tests.clock import eventually
from tests.http.server import chat_completion, free_port, question, serving
from tests.journal.written_rows import rows_of
from tests.odd_members import LANES, LET_GO, four, let_go, made  # noqa: F401 - a fixture
from tests.simple import streamed

ENDS = {"small": ["<= 2", ">= 8"]}


def scored(function: Any, completions: list[str], **options: Any) -> Any:
    with Dispatcher([function], max_failure_rate=1.0, **options) as dispatcher:
        return dispatcher.score(completions=completions)


@pytest.mark.parametrize("lane", LANES)
def test_the_next_member_is_called_where_a_score_is_not_accepted(lane: str) -> None:
    asked: list[str] = []

    def large(completion: str) -> dict[str, Any]:
        asked.append(completion)
        return {"score": 10 * float(completion), "seen": completion}

    function = cascade([made(lane, "small"), reward(large, lane="thread")], accept=ENDS)
    result = scored(function, ["1", "2", "2.5", "5", "7.99", "8", "9"], workers=2)
    assert result.rewards.ravel().tolist() == [1.0, 2.0, 25.0, 50.0, pytest.approx(79.9), 8.0, 9.0]
    assert sorted(asked) == ["2.5", "5", "7.99"]
    assert list(result.extra["cascade/by"]) == ["small"] * 2 + ["large"] * 3 + ["small"] * 2
    assert list(result.extra["cascade/small"]) == [1.0, 2.0, 2.5, 5.0, 7.99, 8.0, 9.0]
    assert list(result.extra["cascade/large"])[:3] == [None, None, 25.0]
    assert list(result.extra["cascade/large/seen"])[:3] == [None, None, "2.5"]
    assert "cascade/failed" not in result.extra


@pytest.mark.fault(
    "members of a cascade fail, hang or abstain, on any lane",
    sees="the score of the next one, and the reasons in `extra`; an `error` with every reason where the last one fails",
)
@pytest.mark.parametrize("lane", LANES)
def test_a_member_that_gives_no_score_is_followed_by_the_next(lane: str) -> None:
    first = [made(lane, "small"), four()]
    acts = ["fail", "hang", "abstain", "fields"]
    with Dispatcher(
        [
            cascade(first, name="free"),
            cascade(first, name="strict", accept={"small": ">= 8"}),
            cascade([four(), made(lane, "small")], name="last", accept={"four": "> 4"}),
        ],
        workers=4,
        max_failure_rate=1.0,
    ) as dispatcher:
        result = dispatcher.score(completions=acts)
        LET_GO.set()
    free, strict, last = (result.rewards[:, 0, column].tolist() for column in range(3))
    assert free[:2] + free[3:] == [4.0, 4.0, 6.0]
    assert result.status[2].tolist() == [[Status.ABSTAINED, Status.OK, Status.ABSTAINED]], (
        "an abstention stands if free"
    )
    assert strict == [4.0] * 4
    assert last[3] == 6.0
    assert list(result.extra["free/by"]) == ["four", "four", "small", "small"]
    assert re.search("small: ValueError: no good", result.extra["strict/failed"][0])
    assert re.search("small: .*1 s", result.extra["strict/failed"][1])
    assert result.extra["strict/failed"][2] is None
    reasons = {failure.sample: failure.reason for failure in result.failures() if failure.function == "last"}
    assert reasons[0] == "four: 4 is not accepted; small: ValueError: no good"
    assert reasons[1].startswith("four: 4 is not accepted; small: ")
    assert set(reasons) == {0, 1}


def test_a_chain_of_three_ends_with_the_first_score_that_stands() -> None:
    chain = [made("process", "a"), made("asyncio", "b"), four()]
    result = scored(cascade(chain, accept={"a": "== 1", "b": ["== 2", "== 3"]}), ["1", "2", "3", "5"])
    assert result.rewards.ravel().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert list(result.extra["cascade/by"]) == ["a", "b", "b", "four"]


@pytest.mark.fault(
    "the first judge of a cascade is down",
    sees="the next one's scores at once: nobody waits for the circuit breaker of the first",
)
def test_nobody_waits_for_a_member_that_is_down(tmp_path: Path) -> None:
    ask: dict[str, Any] = {"model": "m", "prompt": "{completion}", "timeout": 20}
    with serving(lambda path, body: chat_completion(str(len(question(body))))) as server:
        down = judge(base_url=f"http://127.0.0.1:{free_port()}", name="small", retries=2, **ask)
        up = judge(base_url=server.url, name="large", keep_answers=True, **ask)
        begun = time.monotonic()
        with Dispatcher([cascade([down, up], accept=ENDS)], journal=tmp_path) as dispatcher:
            result = dispatcher.score(completions=["x" * length for length in range(1, 33)])
            assert dispatcher.endpoints("cascade", member="large")[0].answered == 32
        assert time.monotonic() - begun < 60
    assert result.rewards.ravel().tolist() == list(range(1, 33))
    assert result.usage["cascade"]["requests"] >= 32
    assert result.extra["cascade/large/answer"][4] == "5"
    extra = json.loads(rows_of(tmp_path)[0]["extra"])
    assert (extra["by"], extra["large"], extra["large/answer"]) == ("large", 1.0, "1")


def test_a_judge_with_a_parser_of_the_users_is_followed_too() -> None:
    def read(answer: str) -> float | None:
        return None if answer == "none" else float(answer)

    with serving(lambda path, body: chat_completion(question(body))) as server:
        ask: dict[str, Any] = {"base_url": server.url, "model": "m", "prompt": "{completion}"}
        function = cascade(
            [
                judge(name="small", parse=read, **ask),
                judge(name="large", parse=parse.choice({"none": 1, "5": 2}), **ask),
            ],
            accept=ENDS,
        )
        result = scored(function, ["9", "5", "none"])
    assert result.rewards.ravel().tolist() == [9.0, 2.0, 1.0]


def test_a_cache_keeps_what_no_member_failed_on(tmp_path: Path) -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        return (400, {}) if question(body) == "bad" else chat_completion("5")

    with serving(answer) as small, serving(lambda path, body: chat_completion("7")) as large:
        ask: dict[str, Any] = {"model": "m", "prompt": "{completion}"}
        members = [judge(base_url=small.url, name="small", **ask), judge(base_url=large.url, name="large", **ask)]
        for asked in (2, 3):
            result = scored(cascade(members, accept=ENDS, cache=tmp_path), ["good", "bad"])
            assert result.rewards.ravel().tolist() == [7.0, 7.0]
            assert len(large.bodies) == asked
        result = scored(cascade(members, accept={"small": "== 5"}, cache=tmp_path), ["good"])
        assert result.rewards.item() == 5.0, "other conditions are another function"


def test_a_stream_and_bounds_are_the_cascades() -> None:
    function = cascade([made("asyncio", "small", timeout=None), four()], accept=ENDS, total_timeout=1.0)
    with Dispatcher([function], max_failure_rate=1.0) as dispatcher:
        additions = ({"completions": [one]} for one in ("1", "5", "hang", "9"))
        result = streamed(dispatcher, *additions, num_generations=2)
        assert result.status.ravel().tolist() == [Status.OK, Status.OK, Status.TIMEOUT, Status.OK]
        assert result.rewards.ravel()[[0, 1, 3]].tolist() == [1.0, 4.0, 9.0]
        eventually(lambda: not list(dispatcher.dump()))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: cascade([four()]), "expected a list of 2 to 64 functions"),
        (lambda: cascade([four(), four()]), "two members are called 'four'"),
        (lambda: cascade([four(), made("thread", "by")]), "a member is called 'by'"),
        (lambda: cascade([four(), made("thread")], accept={"odd": "> 1"}), "not on 'odd'"),
        (lambda: cascade([four(), made("thread")], accept={"none": "> 1"}), "not on 'none'"),
        (lambda: cascade([four(), made("thread")], accept={}), "expected conditions by function"),
        (lambda: cascade([four(), made("thread")], accept={"four": "about 3"}), "'about 3' is no condition"),
        (lambda: cascade([four(), made("thread")], cache="/tmp/never-made"), "cache= is for cascades of judges"),
    ],
)
def test_a_cascade_that_can_not_work_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(problem)):
        make()
