"""`guerdon.pairwise` against real servers: what is asked, what counts, what fails."""

from __future__ import annotations

import random
import re
import threading
import time
from typing import Any

import numpy as np
import pytest

from guerdon import DataError, Dispatcher, RegistrationError, RewardBatch, Status, judge, pairwise, parse
from tests.http.comparisons import COMPARES, comparing, fair, numbers
from tests.http.scoring import asked, scored
from tests.http.server import Server, chat_completion, question, serving, silent

NOWHERE: dict[str, Any] = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}


def compared(answer: Any, completions: list[str], groups: int = 1, **options: Any) -> tuple[RewardBatch, Server]:
    """Groups whose completions a judge compares, which answers so, and its server."""
    size = len(completions) // groups
    of_batch = {name: options.pop(name) for name in ("batch_timeout", "group_timeout") if name in options}
    columns = {"prompts": [prompt for prompt in "pqrstuvwxyz!"[:groups] for _ in range(size)], "num_generations": size}
    return asked(answer, completions, make=pairwise, columns={**columns, **of_batch}, **{**COMPARES, **options})


def test_groups_of_a_stream_are_compared_as_they_come() -> None:
    """The first group has its scores while the second one's comparisons hang."""
    let_go = threading.Event()

    def slow(path: str, body: dict[str, Any]) -> Any:
        if 13 in numbers(body):
            let_go.wait(30)
        return fair(path, body)

    with serving(slow) as server, Dispatcher([comparing(server, schedule="all")]) as dispatcher:
        stream = dispatcher.stream(num_generations=3)
        try:
            stream.add(prompts=["p"] * 3, completions=["3", "1", "2"])
            stream.add(prompts=["q"] * 3, completions=["13", "5", "20"])
            stream.finish()
            groups = stream.groups()
            first = next(groups)
            assert first.index == 0
            assert np.argsort(first.rewards.ravel()).tolist() == [1, 2, 0]
        finally:
            let_go.set()
        assert [group.index for group in groups] == [1]
        assert np.argsort(stream.result().rewards[1, :, 0]).tolist() == [1, 0, 2]


@pytest.mark.parametrize("both_orders", [True, False])
@pytest.mark.parametrize(("schedule", "pairs"), [("circular", 4), ("all", 6), ("swiss", None)])
def test_a_group_is_ordered_by_comparisons(schedule: Any, pairs: int | None, both_orders: bool) -> None:
    result, server = compared(fair, ["3", "1", "2", "9"] * 2, groups=2, schedule=schedule, both_orders=both_orders)
    for rewards in result.rewards[:, :, 0]:
        assert rewards[3] == rewards.max()
        assert rewards[1] == rewards.min()
        assert (rewards >= 0).all()
    if pairs is not None:
        assert len(server.bodies) == 2 * pairs * (1 + both_orders)
    if schedule == "all":
        assert result.extra["pairwise/comparisons"] == [3.0] * 8
        assert np.argsort(result.rewards[0, :, 0]).tolist() == [1, 2, 0, 3]
    assert result.extra["pairwise/flips"] == [0.0] * 8
    assert {question(body)[0] for body in server.bodies} == {"p", "q"}


def test_answers_are_in_the_order_of_pairs_whichever_ends_first() -> None:
    def answers(*, larger_first: bool) -> list[str]:
        def answer(path: str, body: dict[str, Any]) -> Any:
            one, other = numbers(body)
            time.sleep(0.3 if (one > other) == larger_first else 0)
            return chat_completion(f"{one} or {other}: [[C]]")

        result, _ = compared(answer, ["3", "1", "2"], schedule="all", keep_answers=True)
        (first, *others) = result.extra["pairwise/answer"]
        assert others == [None, None]
        return list(first)

    found = answers(larger_first=True)
    assert [set(re.findall(r"\d", answer)) for answer in found] == [
        {"1", "3"}, {"1", "3"}, {"2", "3"}, {"2", "3"}, {"1", "2"}, {"1", "2"}
    ]  # fmt: skip
    assert len(set(found)) == 6
    assert answers(larger_first=False) == found


def test_win_rates_are_shares() -> None:
    result, _ = compared(fair, ["3", "1", "3"], schedule="all", score="win_rate")
    assert result.rewards.ravel().tolist() == [0.75, 0.0, 0.75]
    assert result.extra["pairwise/ties"] == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("parser", [parse.choice(["A", "C", "B"]), lambda answer: float(answer.endswith("A"))])
def test_another_parser_reads_answers_without_brackets(parser: Any) -> None:
    def worded(path: str, body: dict[str, Any]) -> Any:
        one, other = numbers(body)
        return chat_completion(f"A is long.\nVerdict: {'A' if one > other else 'B'}")

    result, _ = compared(worded, ["3", "1", "2"], schedule="all", parse=parser)
    assert np.argsort(result.rewards.ravel()).tolist() == [1, 2, 0]


def test_a_group_of_one_abstains() -> None:
    result, server = compared(fair, ["3", "1"], groups=2)
    assert (result.status == Status.ABSTAINED).all()
    assert not server.bodies


@pytest.mark.fault(
    "a judge takes the completion that it sees first, whatever it says",
    sees="each pair is a tie, counted in `pairwise/flips`",
)
def test_a_pair_that_flips_is_a_tie() -> None:
    result, _ = compared(lambda *_: chat_completion("[[A]]"), ["1", "2", "3"], schedule="all")
    np.testing.assert_allclose(result.rewards.ravel(), 0.5)
    assert result.extra["pairwise/flips"] == [2.0] * 3
    assert result.extra["pairwise/ties"] == [2.0] * 3


def _spearman(one: Any, other: Any) -> float:
    # equals share their mean rank
    ranks = [
        [np.mean(np.flatnonzero(np.sort(each) == score)) for score in each] for each in map(np.asarray, (one, other))
    ]
    return float(np.corrcoef(*ranks)[0, 1])


def test_position_bias_is_removed() -> None:
    """A judge that takes the first of two that are close: the figures of docs/judges.md."""

    def biased(path: str, body: dict[str, Any]) -> Any:
        one, other = numbers(body)
        return chat_completion("[[A]]" if one + 20 > other else "[[B]]")

    rolls = random.Random(7)
    groups, size = 12, 8
    qualities = [rolls.sample(range(100), size) for _ in range(groups)]
    completions = [str(quality) for group in qualities for quality in group]
    found = {}
    for both_orders in (False, True):
        result, _ = compared(biased, completions, groups, schedule="all", both_orders=both_orders)
        pairs = zip(result.rewards[:, :, 0], qualities, strict=True)
        found[both_orders] = float(np.mean([_spearman(rewards, quality) for rewards, quality in pairs]))
    same, _ = compared(biased, ["5"] * 6, schedule="all")
    once, _ = compared(biased, ["5"] * 6, schedule="all", both_orders=False)
    print(found)
    assert found[True] > max(0.95, found[False] + 0.05)
    np.testing.assert_allclose(same.rewards.ravel(), 0.5)
    assert once.rewards.max() - once.rewards.min() > 0.5, "all by their places"


@pytest.mark.fault(
    "all comparisons of one sample fail",
    sees="that sample is an `error` with the number of its comparisons and the last reason; the others are scored",
)
def test_members_without_half_of_their_comparisons_fail() -> None:
    def refusing(path: str, body: dict[str, Any]) -> Any:
        return (400, {"error": "blocked"}) if 13 in numbers(body) else fair(path, body)

    result, _ = compared(refusing, ["3", "13", "2", "9"], schedule="all")
    rewards = result.rewards.ravel()
    assert np.isnan(rewards).tolist() == [False, True, False, False]
    assert rewards[3] == np.nanmax(rewards)
    (failure,) = result.failures()
    assert failure.sample == 1
    assert "0 of 3 comparisons, too few for a score; the last that failed: " in failure.reason
    assert "400 Bad Request" in failure.reason
    assert result.extra["pairwise/comparisons"] == [2.0, 0.0, 2.0, 2.0]


@pytest.mark.fault(
    "comparisons of a group hang until its time is up",
    sees="samples with half of theirs are scored, just before the end",
)
@pytest.mark.parametrize("bound", ["total_timeout", "batch_timeout", "group_timeout"])
def test_a_group_that_runs_out_of_time_has_the_scores_that_there_are(bound: str) -> None:
    def slow(path: str, body: dict[str, Any]) -> Any:
        return silent if 13 in numbers(body) else fair(path, body)

    result, _ = compared(slow, ["3", "13", "2", "9"], schedule="all", **{bound: 1.5})
    assert np.isnan(result.rewards.ravel()).tolist() == [False, True, False, False]
    (failure,) = result.failures()
    assert "0 of 3 comparisons, too few for a score; the time was up" in failure.reason


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"schedule": "round"}, "schedule='round'"),
        ({"score": "elo"}, "score='elo'"),
        ({"both_orders": "yes"}, "both_orders='yes'"),
        ({"rounds": 3}, "for schedule='swiss' alone"),
        ({"schedule": "swiss", "rounds": 0}, "rounds=0"),
        ({"votes": 3}, "votes= is for guerdon.judge alone"),
        ({"prompt": "{completion_a}"}, "needs both samples"),
        ({"fallback": judge(**NOWHERE, prompt="{completion}")}, "fallback= is for others"),
    ],
)
def test_odd_comparisons_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(problem)):
        pairwise(**{**NOWHERE, "prompt": "{completion_a} {completion_b}", **options})


def test_groups_must_be_known() -> None:
    with pytest.raises(DataError, match="works on whole groups"):
        scored(pairwise(**NOWHERE, prompt="{completion_a} {completion_b}"), ["a", "b"])
    with pytest.raises(DataError, match="'other'"):
        scored(pairwise(**NOWHERE, prompt="{completion_a} {other_b}"), ["a", "b"], num_generations=2)
