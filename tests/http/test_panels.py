"""Votes and panels against real servers, and what they have in common with comparisons: what is
sent, what counts, what fails."""

from __future__ import annotations

import itertools
import pickle
import re
import threading
import time
from typing import Any

import numpy as np
import pytest

from guerdon import (
    Dispatcher,
    GuerdonWarning,
    Limit,
    RegistrationError,
    Status,
    Votes,
    http_reward,
    judge,
    pairwise,
    panel,
    parse,
    rubric,
)
from tests.clock import eventually
from tests.http.comparisons import comparing, fair
from tests.http.scoring import judging, only, scored
from tests.http.server import RequestCounter, Server, chat_completion, free_port, question, serving, silent

NOWHERE: dict[str, Any] = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}


class Sequence:
    """A judge whose answers to each question come in this order; the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self._answers = answers
        self._asked: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, path: str, body: dict[str, Any]) -> Any:
        # What a repair says comes after the question.
        asked = next(str(message["content"]) for message in body["messages"] if message["role"] == "user")
        with self._lock:
            turn = self._asked.get(asked, 0)
            self._asked[asked] = turn + 1
        answer = self._answers[min(turn, len(self._answers) - 1)]
        return chat_completion(answer) if isinstance(answer, str) else answer


def member(server: Server, name: str, **options: Any) -> Any:
    return judging(server.url, name=name, **{"timeout": 20, "retries": 1, **options})


def votes(server: Server, **options: Any) -> Any:
    return member(server, "judge", temperature=1.0, **{"votes": 5, **options})


@pytest.mark.parametrize(
    ("vote", "answers", "expected", "sent"),
    [
        ("majority", ["1", "1", "1", "0", "0"], 1.0, 3),
        ("majority", ["1", "0", "1", "1", "0"], 1.0, 4),
        ("majority", ["1", "0", "1", "0", "1"], 1.0, 5),
        ("median", ["7", "7", "7", "1", "1"], 7.0, 3),
        ("median", ["7", "1", "9", "5", "3"], 5.0, 5),
        ("mean", ["1", "2", "3", "4", "5"], 3.0, 5),
    ],
)
def test_votes_stop_when_they_are_decided(vote: Any, answers: list[str], expected: float, sent: int) -> None:
    with serving(Sequence(*answers)) as server:
        result = scored(votes(server, votes=Votes(5, by=vote), limit=Limit(concurrency=1)), ["a", "b"])
        assert result.rewards.ravel().tolist() == [expected] * 2
        assert len(server.bodies) == 2 * sent
        seen = [float(answer) for answer in answers[:sent]]
        assert result.extra["judge/votes"] == [seen, seen]
        share = max(map(seen.count, seen)) / sent
        assert result.extra["judge/agreement"] == [pytest.approx(share)] * 2


def test_votes_that_can_not_matter_are_cancelled() -> None:
    """Three disagree while two hang: no five can agree to 90 %, and nobody waits for the two."""
    turn = itertools.count()

    def answer(path: str, body: dict[str, Any]) -> Any:
        mine = next(turn)
        return silent if mine > 2 else chat_completion(str(mine))

    with serving(answer) as server:
        started = time.monotonic()
        result = scored(votes(server, timeout=100, votes=Votes(5, by="mean", min_agreement=0.9)))
        assert result.status.item() == Status.ABSTAINED
        assert time.monotonic() - started < 60
        assert sorted(result.extra["judge/votes"][0]) == [0.0, 1.0, 2.0]


@pytest.mark.fault(
    "one of several votes is answered with 500",
    sees="nothing: that vote is asked again, by itself, and counts",
)
def test_a_vote_has_its_own_retries() -> None:
    broken = (500, {"error": "no"})
    with serving(Sequence(broken, "1", "1", broken, "1")) as server:
        result = scored(votes(server, votes=Votes(5, by="majority"), limit=Limit(concurrency=1)))
        assert result.rewards.item() == 1.0
        assert len(server.bodies) == 5
        assert result.timings["judge"]["retries"] == 1


@pytest.mark.fault(
    "most votes of a sample fail",
    sees="an `error` with how many failed, how many are needed and the last reason; votes that could not help are not sent",
)
def test_too_few_votes_are_an_error_that_says_so() -> None:
    broken = (400, {"error": "never"})
    with serving(Sequence("1", broken, broken, broken)) as server:
        result = scored(votes(server, limit=Limit(concurrency=1)))
        (failure,) = result.failures()
        assert failure.status == Status.ERROR
        assert "3 of 5 votes failed, and 3 scores are needed; the last: " in failure.reason
        assert "400 Bad Request" in failure.reason
        assert len(server.bodies) == 4, "the fifth could not help"
        assert result.extra["judge/votes"] == [[1.0, None, None, None]]


def test_votes_without_agreement_abstain() -> None:
    with serving(Sequence("1", "2", "3", "1", "2")) as server:
        result = scored(votes(server, votes=Votes(5, by="mean", min_agreement=0.6)))
        assert np.isnan(result.rewards).all()
        assert result.status.item() == Status.ABSTAINED
        assert not result.failures()


def test_votes_at_temperature_0_warn() -> None:
    with pytest.warns(GuerdonWarning, match=r"votes=5 at temperature 0"):
        judge(**NOWHERE, prompt="{completion}", votes=5)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"votes": 0}, "votes=0: expected a whole number from 1 to 64"),
        ({"votes": 2.5}, "votes=2.5"),
        ({"votes": Votes(3, by="best")}, "by='best'"),
        ({"votes": Votes(1, min_agreement=0.6)}, "with a single vote"),
        ({"votes": Votes(3, min_agreement=60)}, "expected a share of the votes"),
        ({"votes": 3, "pure": True}, "votes are requests of their own"),
    ],
)
def test_odd_votes_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(problem)):
        judge(**NOWHERE, prompt="{completion}", temperature=1.0, **options)


@pytest.mark.parametrize(
    ("reduce", "weights", "expected"),
    [
        ("median", None, 5.0),
        ("mean", None, 4.0),
        ("mean", [2, 1, 1], 3.25),
        ("min", None, 1.0),
        ("max", None, 6.0),
        ("median", [5, 1, 1], 1.0),
    ],
)
def test_a_panel_reduces_its_members(reduce: Any, weights: Any, expected: float) -> None:
    with (
        serving(lambda *_: chat_completion("1")) as one,
        serving(lambda *_: chat_completion("<score>5</score>")) as two,
        serving(lambda *_: {"score": 6}) as three,
    ):
        members = [
            member(one, "one"),
            member(two, "two", parse=parse.tag("score"), prompt="{prompt} {completion}"),
            http_reward(three.url, columns=["completion"], name="three"),
        ]
        result = scored(panel(members, reduce=reduce, weights=weights), ["a", "b"], prompts=["p", "q"])
        assert result.functions == ("panel",)
        assert result.rewards.ravel().tolist() == pytest.approx([expected] * 2)
        assert {name: values for name, values in result.extra.items() if "/" in name} == {
            "panel/one": [1.0, 1.0],
            "panel/two": [5.0, 5.0],
            "panel/three": [6.0, 6.0],
        }
        assert sorted(map(question, two.bodies)) == ["p a", "q b"]
        assert sorted(body["completion"] for body in three.bodies) == ["a", "b"]


@pytest.mark.fault(
    "a member of a panel is down",
    sees="its samples are an `error` that names the member, or, with `min_members=`, have the score of the others",
)
def test_a_member_that_fails_is_named() -> None:
    with serving(lambda *_: chat_completion("4")) as server:
        members = [member(server, "good"), judging(f"http://127.0.0.1:{free_port()}", name="dead", retries=0)]
        failure = only(scored(panel(members)))
        assert "of 2 members 2 must give a score; dead: ConnectionError" in failure.reason
        lenient = scored(panel(members, min_members=1))
        assert lenient.rewards.item() == 4.0
        assert lenient.extra == {"panel/good": [4.0], "panel/dead": [None]}


@pytest.mark.fault(
    "a member of a panel never answers",
    sees="with `min_members=` the others give the score, after that member's own timeout",
)
def test_a_member_that_hangs_costs_its_own_timeout() -> None:
    with serving(lambda *_: chat_completion("4")) as server, serving(lambda *_: silent) as hung:
        members = [member(server, "good"), member(hung, "hung", timeout=0.3, retries=0)]
        started = time.monotonic()
        result = scored(panel(members, min_members=1), ["a", "b"])
        assert result.rewards.ravel().tolist() == [4.0, 4.0]
        assert time.monotonic() - started < 60


def test_a_member_answering_rubbish_is_tried_again_alone() -> None:
    with serving(lambda *_: chat_completion("4")) as good, serving(Sequence("no idea", "8")) as odd:
        result = scored(panel([member(good, "good"), member(odd, "odd")], reduce="mean"))
        assert result.rewards.item() == 6.0
        assert (len(good.bodies), len(odd.bodies)) == (1, 2)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda a, b: panel([a]), "expected a list of 2 to 64 functions"),
        (lambda a, b: panel([a, "b"]), "'b' can't be a member"),
        (lambda a, b: panel([a, a]), "two members are called 'a'"),
        (lambda a, b: panel([a, b], reduce="best"), "reduce='best'"),
        (lambda a, b: panel([a, b], weights=[1]), "expected one number a member, 2 in all"),
        (lambda a, b: panel([a, b], reduce="max", weights=[1, 2]), "has no use for them"),
        (lambda a, b: panel([a, b], weights=[1, 0]), "expected numbers above 0"),
        (lambda a, b: panel([a, b], min_members=3), "min_members=3"),
        (lambda a, b: panel([a, judging("http://x", name="c", total_timeout=3)]), "has a total_timeout"),
        (lambda a, b: panel([a, http_reward("http://x", batch_size=2)]), "batch_size"),
        (lambda a, b: panel([a, judging("http://x", name="c", pure=True)]), "'c' has pure=True"),
        (
            lambda a, b: panel([a, pairwise(**NOWHERE, prompt="{completion_a} {completion_b}", name="c")]),
            "the member 'c' scores a whole group at once: a panel is about one sample. Put it into the dispatcher's list",
        ),
        (
            lambda a, b: panel([a, rubric({"right": "It is."}, **NOWHERE).columns[0]]),
            "the member 'rubric/right' scores several columns at once",
        ),
    ],
)
def test_odd_panels_are_refused(make: Any, problem: str) -> None:
    members = [judge(**NOWHERE, prompt="{completion}", name=name) for name in "ab"]
    with pytest.raises(RegistrationError, match=re.escape(problem)):
        make(*members)


def of_several_requests(kind: str, server: Server) -> Any:
    limit = Limit(concurrency=4)
    if kind == "votes":
        return votes(server, limit=limit, votes=Votes(5, by="mean"))
    if kind == "panel":
        return panel([member(server, "a", limit=limit), member(server, "b", limit=Limit(concurrency=1))])
    return comparing(server, limit=limit, schedule="all")


@pytest.mark.parametrize("kind", ["votes", "panel", "pairwise"])
def test_requests_stay_within_the_limit_and_are_seen(kind: str) -> None:
    load = RequestCounter(lambda path, body: fair(path, body) if "<" in question(body) else chat_completion("1"))
    load.release.clear()
    with serving(load) as server, Dispatcher([of_several_requests(kind, server)]) as dispatcher:
        pending = dispatcher.submit(completions=["1", "2", "3", "4"] * 4, prompts=["p"] * 16, num_generations=4)
        seen = 0
        while not pending.done:
            seen = max(seen, len(dispatcher.dump(timeout=0.1)))
            if seen > 1:
                load.release.set()
            time.sleep(0.005)
        assert not np.isnan(pending.result().rewards).any()
    assert 1 < load.most <= (5 if kind == "panel" else 4)
    assert 1 < seen <= 5


@pytest.mark.parametrize("kind", ["votes", "panel", "pairwise"])
def test_closing_in_the_middle_leaves_nothing(kind: str) -> None:
    with serving(lambda *_: silent) as server:
        dispatcher = Dispatcher([of_several_requests(kind, server)], max_failure_rate=1.0)
        pending = dispatcher.submit(completions=["1", "2"], prompts=["p"] * 2, num_generations=2)
        eventually(lambda: server.bodies)
        dispatcher.close()
        assert (pending.result().status == Status.CANCELLED).all()


def test_a_total_timeout_in_the_middle_cancels_what_is_left() -> None:
    with serving(lambda *_: silent if len(server.bodies) > 1 else chat_completion("1")) as server:
        result = scored(votes(server, total_timeout=4.0, limit=Limit(concurrency=1)))
        assert result.status.item() == Status.TIMEOUT
        assert result.failures()[0].reason == "total timeout"
        assert len(server.bodies) == 2


def test_they_are_what_they_were_after_pickling() -> None:
    members = [judge(**NOWHERE, prompt="{completion}", name=name) for name in "ab"]
    for function in (
        panel(members, weights=[1, 2], reduce="mean"),
        pairwise(**NOWHERE, prompt="{completion_a} {completion_b}", schedule="swiss", rounds=2),
        judge(**NOWHERE, prompt="{completion}", votes=3, temperature=1.0),
    ):
        again = pickle.loads(pickle.dumps(function))
        assert repr(again) == repr(function)
        assert again.spec.composition.identity() == function.spec.composition.identity()
