"""Composites as members of composites: votes in a panel, a panel in a cascade, and so on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, RegistrationError, Server, Status, cascade, judge, panel, reward
from tests.clock import eventually
from tests.cluster.test_same_elsewhere import WHERE, dispatcher_on
from tests.http.server import chat_completion, free_port, question, serving
from tests.odd_members import LANES, LET_GO, check_end, four, let_go, made, steady  # noqa: F401 - a fixture


def nine(completion: str) -> float:
    return 9.0


def in_digits(scores: list[float | None]) -> Any:
    return {
        "score": sum(10.0**place * (score or 0) for place, score in enumerate(reversed(scores))),
        "seen": len(scores),
    }


def nested(lane: str, **options: Any) -> list[Any]:
    """A panel in a cascade, votes and a panel in a panel, and both of them in a panel."""
    inner = panel([made(lane, **options), four()], reduce="mean", name="inner")
    thrice = made(lane, "thrice", votes=3, **options)
    sure = cascade([inner, reward(nine, lane="thread")], accept={"inner": ">= 5"}, name="sure")
    both = panel([thrice, inner], reduce="min", name="both", min_members=1)
    return [sure, both, panel([sure, both, four()], reduce=in_digits, name="digits", min_members=2)]


_TOO_FEW = r"of 2 members 1 must give a score; thrice: 2 of 3 votes failed, .*; inner: of 2 members 2 must .* odd: "
# The odd member's act: the scores of the three functions, or a status, or a reason.
ENDS: dict[str, tuple[Any, Any, Any]] = {
    "6": (5.0, 5.0, 554.0),
    "2": (9.0, 2.0, 924.0),
    "fields": (5.0, 5.0, 554.0),
    "fail": (9.0, _TOO_FEW + "ValueError: no good", 904.0),
    "abstain": (9.0, Status.ABSTAINED, 904.0),
    "hang": (9.0, _TOO_FEW + ".*1 s", 904.0),
    "crash": (9.0, _TOO_FEW + r".*\(after 2 attempts\)", 904.0),
}


@pytest.mark.fault(
    "a member of a panel within a cascade, or a vote within a panel, fails, hangs or loses its worker, on any lane",
    sees="the score of the outer function's other members, or an `error` with the reasons of all levels",
)
@pytest.mark.parametrize("lane", LANES)
def test_the_ends_of_nested_members_on_any_lane(lane: str) -> None:
    acts = [name for name in ENDS if name != "crash" or lane in ("process", "stateful")]
    with Dispatcher(nested(lane), workers=4, max_failure_rate=1.0) as dispatcher:
        assert [spec.name for spec in dispatcher._specs] == ["sure", "both", "digits"]
        result = dispatcher.score(completions=acts)
        LET_GO.set()
    for sample, name in enumerate(acts):
        for function, expected in zip(result.functions, ENDS[name], strict=True):
            check_end(result, sample, function, expected)
    extra, fields = result.extra, acts.index("fields")
    assert list(extra["sure/inner"])[:3] == list(extra["digits/sure/inner"])[:3] == [5.0, 3.0, 5.0]
    assert list(extra["sure/inner/odd"])[:4] == [6.0, 2.0, 6.0, None]
    assert list(extra["sure/by"])[:4] == list(extra["digits/sure/by"])[:4] == ["inner", "nine", "inner", "nine"]
    assert extra["both/thrice/votes"][0] == extra["digits/both/thrice/votes"][0] == [6.0, 6.0]
    assert extra["both/thrice/agreement"][0] == 1.0
    assert (extra["sure/inner/odd/length"][fields], extra["both/thrice/length"][fields]) == (6, [6, 6])
    assert "odd: ValueError: no good" in extra["digits/sure/failed"][acts.index("fail")]
    assert list(extra["digits/reduce/seen"]) == [3] * len(acts)


@pytest.mark.filterwarnings("ignore:debug=True")
@pytest.mark.parametrize("where", [*WHERE, "debug"])
def test_nested_composites_are_the_same_elsewhere(where: str) -> None:
    functions = [*nested("process")[:2], nested("asyncio")[2]]
    with Dispatcher(functions, debug=True) if where == "debug" else dispatcher_on(where, functions) as dispatcher:
        result = dispatcher.score(completions=["6", "2"] * 20)
    assert result.rewards[:, 0].tolist() == [list(ENDS["6"]), list(ENDS["2"])] * 20


@contextmanager
def ended(dispatcher: Dispatcher, name: str) -> Iterator[None]:
    """Waits for a call of a nested member, and that it is ended in the block."""
    eventually(lambda: any(call.function == name for call in dispatcher.dump()), seconds=30)
    yield
    eventually(lambda: not list(dispatcher.dump()), seconds=30)


@pytest.mark.parametrize("lane", ["process", "asyncio"])
def test_calls_of_nested_members_end_with_the_batch(lane: str) -> None:
    inner = panel([made(lane, timeout=None, votes=3), four()], name="inner")
    outer = cascade([inner, four()], name="outer", total_timeout=8)
    with Dispatcher([outer], workers=2, max_failure_rate=1.0) as dispatcher:
        dispatcher.score(completions=["6"])  # starts up
        pending = dispatcher.submit(completions=["hang"] * 3)
        with ended(dispatcher, "outer/inner/odd"):
            pending.cancel()
            assert (pending.result().status == Status.CANCELLED).all()
        assert dispatcher.score(completions=["6"]).rewards.item() == 5.0, "the next batch has its places"
        stream = dispatcher.stream(num_generations=2)
        for completion in ("6", "hang"):
            stream.add(completions=[completion])
        stream.finish()
        with ended(dispatcher, "outer/inner/odd"):
            result = stream.result()
        assert result.status.ravel().tolist() == [Status.OK, Status.TIMEOUT]
        assert [failure.reason for failure in result.failures()] == ["total timeout"]


ASK: dict[str, Any] = {"model": "m", "prompt": "{completion}", "timeout": 20}


def test_requests_of_nested_judges_count_for_the_outermost(tmp_path: Path) -> None:
    broken: list[str] = []

    def answer(path: str, body: dict[str, Any]) -> Any:
        if question(body) == "bb" and not broken:
            broken.append("once")
            return (500, {})
        return chat_completion(str(len(question(body))))

    def read(text: str) -> float:
        return 10 * float(text)

    with serving(answer) as server:
        priced = Server(server.url, price={"input": 1.0, "output": 1.0})
        there = {"server": priced, **ASK, "retries": 2, "max_tokens": 10}
        voted = judge(name="voted", votes=3, temperature=1.0, parse=read, **there)
        away = judge(
            name="away",
            base_url=f"http://127.0.0.1:{free_port()}",
            retries=0,
            fallback=judge(name="near", **there),
            **ASK,
        )
        outer = panel([voted, away, reward(steady, lane="thread")], reduce=in_digits, name="outer")
        with Dispatcher([outer], max_cost=1.0, journal=tmp_path) as dispatcher:
            result = dispatcher.score(completions=["a", "bb"])
            endpoints = {
                member: dispatcher.endpoints("outer", member=member)[0].answered for member in ("voted", "away/near")
            }
            with pytest.raises(ValueError, match="its members are 'voted', 'away/away', 'away/near'"):
                dispatcher.endpoints("outer", member="away")
    assert result.rewards.ravel().tolist() == [1014.0, 2024.0]
    assert list(result.extra["outer/away/by"]) == ["near"] * 2
    assert result.extra["outer/voted/votes"][1] == [20.0, 20.0]
    usage = result.usage["outer"]
    assert (endpoints, result.timings["outer"]["retries"]) == ({"voted": 4, "away/near": 2}, 1)
    assert usage["requests"] >= 7


def test_a_cache_keeps_nested_opinions_that_are_complete(tmp_path: Path) -> None:
    with (
        serving(lambda path, body: (400, {}) if question(body) == "bad" else chat_completion("5")) as first,
        serving(lambda path, body: chat_completion("7")) as second,
    ):

        def outer(accept: str) -> Any:
            small, large = (
                judge(name=f"j{place}", base_url=server.url, **ASK) for place, server in enumerate((first, second))
            )
            inner = cascade([small, large], name="inner", accept={"j0": accept})
            return panel([inner, judge(name="other", base_url=second.url, **ASK)], reduce="mean", cache=tmp_path)

        for asked in (3, 5):  # the bad one twice
            with Dispatcher([outer(">= 5")]) as dispatcher:
                assert dispatcher.score(completions=["good", "bad"]).rewards.ravel().tolist() == [6.0, 7.0]
            assert len(second.bodies) == asked
        with Dispatcher([outer(">= 6")]) as dispatcher:
            assert dispatcher.score(completions=["good"]).rewards.item() == 7.0, "another condition, another function"


@pytest.mark.fault(
    "the judges of a panel that is a cascade's first member are down",
    sees="the next member's scores at once: nobody waits for their circuit breakers",
)
def test_nobody_waits_for_a_nested_member_that_is_down() -> None:
    down = [judge(name=name, base_url=f"http://127.0.0.1:{free_port()}", retries=2, **ASK) for name in "ab"]
    begun = time.monotonic()
    with Dispatcher([cascade([panel(down), four()])]) as dispatcher:
        result = dispatcher.score(completions=["x"] * 32)
    assert time.monotonic() - begun < 60
    assert result.rewards.ravel().tolist() == [4.0] * 32


def test_a_panel_fails_where_a_member_failed_whichever_ends_first() -> None:
    def late(completion: str) -> float | None:
        time.sleep(0.3 if completion == "late" else 0.0)
        return None

    def odd(completion: str) -> float:
        time.sleep(0.0 if completion == "late" else 0.3)
        raise ValueError("no good")

    members = [reward(late, lane="thread"), reward(odd, lane="thread")]
    with Dispatcher([panel(members)], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=["late", "early"])
    assert result.status.ravel().tolist() == [Status.ERROR] * 2
    assert {failure.reason for failure in result.failures()} == {
        "of 2 members 2 must give a score; odd: ValueError: no good"
    }


def test_members_whose_values_would_share_a_key_are_refused() -> None:
    inner = panel([reward(nine, name="y", lane="thread"), four()], name="x")
    with pytest.raises(RegistrationError, match="two members are called 'x/y'"):
        panel([inner, reward(nine, name="x/y", lane="thread")], name="n")
    with pytest.raises(RegistrationError, match="a member of its fallback is called 'by'"):
        judge(
            base_url="http://127.0.0.1:9/v1",
            model="m",
            prompt="{completion}",
            fallback=panel([reward(nine, name="by", lane="thread"), four()], name="second"),
        )
