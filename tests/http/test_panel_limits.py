"""Limits and endpoints of votes, panels, rubrics and comparisons, which make several requests."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, Limit, RegistrationError, Status, Votes, judge, pairwise, panel, rubric
from tests.http.scoring import scored
from tests.http.server import RequestCounter, Server, chat_completion, free_port, question, serving

ASK: dict[str, Any] = {"model": "m", "timeout": 20, "retries": 0}
CRITERIA = {"correct": "The answer is right.", "clear": "A child understands it."}


def fitting(path: str, body: dict[str, Any]) -> Any:
    """An answer of the kind that is asked for."""
    asked = question(body)
    if "Rate the answer" in asked:
        named = [name for name in CRITERIA if f"{name}: " in asked]
        return chat_completion(json.dumps({name: {"reason": "so", "score": 5} for name in named}))
    return chat_completion("[[A]]" if "<" in asked else "5")


def made(kind: str, server: Server, **options: Any) -> Any:
    ask = {"base_url": server.url, **ASK, **options}
    if kind == "votes":
        return judge(prompt="{completion}", votes=Votes(3, by="mean"), temperature=1.0, name="f", **ask)
    if kind == "pairwise":
        return pairwise(prompt="<{completion_a}> <{completion_b}>", schedule="all", name="f", **ask)
    return rubric(CRITERIA, per_call="one" if kind == "criteria" else "all", name="f", **ask)


@pytest.mark.parametrize(
    ("kind", "requests", "tokens"),
    # A comparison takes the tokens of both; three pairs of 10, 20 and 30 in both orders.
    [("votes", 9, 3 * 60), ("rubric", 3, 60), ("criteria", 6, 2 * 60), ("pairwise", 6, 2 * 2 * 60)],
)
def test_a_function_counts_the_tokens_of_each_request(kind: str, requests: int, tokens: int) -> None:
    """These tokens take a second; by the usual guess, a thousand each, it would be 25 and more. The
    server says nothing of what was used."""
    counted: list[str] = []

    def count(completion: str) -> float:
        counted.append(completion)
        return float(completion)

    def silent(path: str, body: dict[str, Any]) -> Any:
        return {**fitting(path, body), "usage": None}

    limit = Limit(tpm=60 * tokens, tokens=count)
    with serving(silent) as server, Dispatcher([made(kind, server, limit=limit)]) as dispatcher:
        begun = time.monotonic()
        result = dispatcher.score(prompts=["p"] * 3, completions=["10", "20", "30"], num_generations=3)
        took = time.monotonic() - begun
        assert not np.isnan(result.rewards).any()
        assert len(server.bodies) == requests
    assert sorted(counted) == ["10", "20", "30"], "once a sample, before the requests"
    # The first one goes at once, and the last one's tokens are waited for by the next.
    largest = 50 if kind == "pairwise" else 30
    assert 1 - largest / tokens - 0.1 <= took < 20


@pytest.mark.fault(
    "a request of several of a sample has more tokens than its limit allows in a minute",
    sees="it fails at once with the numbers, and nobody waits behind it",
)
@pytest.mark.parametrize("kind", ["votes", "rubric", "criteria"])
def test_a_request_with_more_tokens_than_a_minute_allows_fails_at_once(kind: str) -> None:
    limit = Limit(tpm=60_000, tokens=lambda completion: float(completion))
    with serving(fitting) as server:
        result = scored(made(kind, server, limit=limit), ["60001", "5"], prompts=["p"] * 2)
    assert (result.status[0] == Status.ERROR).all()
    assert (result.status[1] == Status.OK).all()
    reason = result.failures()[0].reason
    assert "this request takes 60001 tokens, as Limit(tokens=) counts them, and tpm=60000" in reason


def test_a_member_counts_the_tokens_of_its_requests() -> None:
    limit = Limit(tpm=60_000, tokens=lambda completion: float(completion))
    with serving(fitting) as server:
        ask = {"base_url": server.url, "prompt": "{completion}", **ASK}
        both = panel([judge(name="a", **ask), judge(name="b", limit=limit, **ask)], min_members=1)
        result = scored(both, ["60001", "5"])
    assert result.rewards.ravel().tolist() == [5.0, 5.0]
    assert result.extra["panel/b"] == [None, 5.0]


@pytest.mark.parametrize("where", ["another function", "another member", "votes"])
def test_a_key_alone_means_the_limit_that_another_gives(where: str) -> None:
    load, key = RequestCounter(fitting), f"key alone, {where}"
    whole, alone = Limit(concurrency=2, key=key), Limit(key=key)
    with serving(load) as server:
        ask = {"base_url": server.url, "prompt": "{completion}", **ASK}
        one, other = (judge(name=name, limit=alone, **ask) for name in "ab")
        plain = judge(name="plain", limit=whole, **ask)
        functions = {
            "another function": lambda: [panel([one, other]), plain],
            "another member": lambda: [panel([one, plain])],
            "votes": lambda: [made("votes", server, limit=alone), plain],
        }[where]()
        result = scored(functions, [f"x{index}" for index in range(20)])
    assert not np.isnan(result.rewards).any()
    assert load.most <= 2


def test_members_that_disagree_about_a_key_are_refused() -> None:
    ask = {"base_url": "http://127.0.0.1:9/v1", "prompt": "{completion}", **ASK}
    one = judge(name="one", limit=Limit(rpm=10, key="disagree"), **ask)
    two = judge(name="two", limit=Limit(rpm=20, key="disagree"), **ask)
    with pytest.raises(
        RegistrationError, match=r"'panel/one' and 'panel/two' give different limits for the key 'disagree'"
    ):
        Dispatcher([panel([one, two])])
    with pytest.raises(RegistrationError, match="different limits for the key"):
        Dispatcher([panel([one, judge(name="three", **ask)]), two])


def test_the_endpoints_of_a_panel_are_its_members() -> None:
    with serving(fitting) as small, serving(fitting) as large, serving(fitting) as other:
        ask = {"prompt": "{completion}", **ASK}
        members = [judge(name=name, base_url=url.url, **ask) for name, url in (("small", small), ("large", large))]
        with Dispatcher([panel(members)]) as dispatcher:
            configured = dispatcher.endpoints("panel", member="large")
            assert [one.address for one in configured] == [large.url]
            dispatcher.score(completions=["a", "b"])
            assert [one.answered for one in configured] == [2]
            configured.set([large.url, other.url])
            assert len(dispatcher.endpoints("panel", member="small")) == 1
            assert str(configured).startswith("endpoints of 'panel/large':\n  http://127.0.0.1:")
            dispatcher.score(completions=[f"x{index}" for index in range(40)])
            assert len(other.bodies) > 5
            assert (len(small.bodies), len(large.bodies) + len(other.bodies)) == (42, 42)
            assert list(dispatcher.dump().endpoints) == ["panel/large"], "of functions with several"
            for wrong, why in (
                ({}, "is a panel, and each of its members has endpoints of its own: pass member='small'"),
                ({"member": "huge"}, "its members are 'small', 'large'"),
            ):
                with pytest.raises(ValueError, match=re.escape(why)):
                    dispatcher.endpoints("panel", **wrong)


@pytest.mark.parametrize("kind", ["votes", "rubric", "criteria", "pairwise"])
def test_the_endpoints_of_functions_that_ask_one_judge(kind: str) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with serving(fitting) as server, Dispatcher([made(kind, server)]) as dispatcher:
        name = "f/clear" if kind in ("rubric", "criteria") else "f"
        endpoints = dispatcher.endpoints(name)
        assert [one.address for one in endpoints] == [server.url]
        dispatcher.score(prompts=["p"] * 3, completions=["1", "2", "3"], num_generations=3)
        assert [one.answered for one in endpoints] == [len(server.bodies)]
        endpoints.set({server.url: 1.0, nowhere: 0.01})
        assert [one.address for one in endpoints] == [server.url, nowhere]
        with pytest.raises(ValueError, match="it has no members"):
            dispatcher.endpoints(name, member="a")
