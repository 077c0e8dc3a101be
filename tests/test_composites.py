"""Panels and votes over members of any lane: what becomes of a member's ends."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from guerdon import (
    Dispatcher,
    Limit,
    RegistrationError,
    StatefulReward,
    Status,
    Votes,
    cascade,
    group_reward,
    judge,
    pairwise,
    panel,
    reward,
)
from tests.clock import eventually
from tests.http.server import chat_completion, serving
from tests.journal.written_rows import rows_of
from tests.monitor import reading
from tests.odd_members import LANES, LET_GO, check_end, four, let_go, made, steady  # noqa: F401 - a fixture
from tests.simple import streamed


def of_lists(completions: list[str]) -> list[float]:
    return [4.0] * len(completions)


# What the odd member does: the scores of a strict panel, of one that needs one member, and of three
# votes; or a status, and the reason of the strict panel and of the votes.
FAULTS: dict[str, tuple[Any, Any, Any]] = {
    "6": (5.0, 5.0, 6.0),
    "fail": (r"2 must give a score; odd: ValueError: no good", 4.0, r"2 of 3 votes failed, .*ValueError: no good"),
    "abstain": (Status.ABSTAINED, 4.0, Status.ABSTAINED),
    "hang": (r"2 must give a score; odd: .*1 s", 4.0, r"2 of 3 votes failed, .*1 s"),
    "busy": (5.0, 5.0, 6.0),
    "fields": (5.0, 5.0, 6.0),
    "crash": (r"2 must give a score; odd: .*\(after 2 attempts\)", 4.0, r"2 of 3 votes failed"),
}


@pytest.mark.fault(
    "a member of a panel, or a vote, fails, hangs or loses its worker, on any lane",
    sees="an `error` that names the member and its reason, or, with `min_members=`, the score of the others",
)
@pytest.mark.parametrize("lane", LANES)
def test_the_ends_of_a_member_on_any_lane(lane: str, tmp_path: Path) -> None:
    acts = {name: ends for name, ends in FAULTS.items() if name != "crash" or lane in ("process", "stateful")}
    functions = [
        panel([made(lane), four()], name="strict", reduce="mean"),
        panel([made(lane), four()], name="lenient", reduce="mean", min_members=1),
        made(lane, name="votes", votes=3),
    ]
    with ExitStack() as stack:
        pending = []
        for function in functions:
            completions = [f"busy:{tmp_path / function.spec.name}" if name == "busy" else name for name in acts]
            dispatcher = stack.enter_context(Dispatcher([function], workers=4, max_failure_rate=1.0))
            pending.append(dispatcher.submit(completions=completions))
        results = [one.result() for one in pending]
        LET_GO.set()
    for which, result in enumerate(results):
        for sample, ends in enumerate(acts.values()):
            check_end(result, sample, *result.functions, ends[which])
        if which == 0:
            shown = [6.0 if isinstance(ends[0], float) else None for ends in acts.values()]
            assert result.extra["strict/odd"] == shown
            assert result.extra["strict/odd/length"][list(acts).index("fields")] == 6
        if which == 2:
            assert result.extra["votes/votes"][0] == [6.0, 6.0], "two that agree decide"
            assert result.extra["votes/length"][list(acts).index("fields")] == [6, 6]


def test_a_total_timeout_ends_the_calls_of_members() -> None:
    panels = [panel([made(lane, timeout=None), four()], total_timeout=8, name=lane) for lane in LANES]
    with Dispatcher(panels, workers=4, max_failure_rate=1.0) as dispatcher:
        dispatcher.score(completions=["6"])  # starts up
        result = dispatcher.score(completions=["hang", "6"])
        assert result.status.reshape(2, -1).tolist() == [[Status.TIMEOUT] * 4, [Status.OK] * 4]
        assert [failure.reason for failure in result.failures()] == ["total timeout"] * 4
        # A thread can't be ended.
        eventually(lambda: not {call.function for call in dispatcher.dump()} - {"thread/odd"})
        LET_GO.set()


def test_a_judge_and_local_functions_in_one_panel() -> None:
    with serving(lambda *_: chat_completion("9")) as server:
        asked = judge(base_url=server.url, model="m", prompt="{completion}", name="asked")
        both = panel([asked, made("process"), made("asyncio", "other")], reduce="median", name="both")
        plain = reward(steady, name="plain")
        with Dispatcher([both, plain], workers=2) as dispatcher:
            result = dispatcher.score(completions=["1", "2", "3", "4"], num_generations=2)
            assert result.functions == ("both", "plain")
            assert result.rewards[..., 0].ravel().tolist() == [1.0, 2.0, 3.0, 4.0]
            assert result.extra["both/asked"] == [9.0] * 4
            assert result.usage["both"]["requests"] == 4
            assert len(dispatcher.endpoints("both", member="asked")) == 1
            with pytest.raises(ValueError, match="its members are 'asked'"):
                dispatcher.endpoints("both", member="odd")


def test_members_are_called_as_samples_come() -> None:
    with Dispatcher([panel([made("asyncio"), four()], reduce="mean"), made("thread", "thrice", votes=3)]) as dispatcher:
        result = streamed(dispatcher, *({"completions": [one]} for one in "2468"), num_generations=2)
        assert result.rewards[..., 0].ravel().tolist() == [3.0, 4.0, 5.0, 6.0]
        assert result.rewards[..., 1].ravel().tolist() == [2.0, 4.0, 6.0, 8.0]


def test_metrics_and_a_journal_have_the_panel_alone(tmp_path: Path) -> None:
    both = panel([made("asyncio"), four()], reduce="mean", name="both")
    folder = tmp_path / "journal"
    with Dispatcher([both, reward(steady, lane="thread", name="plain")], metrics_port=0, journal=folder) as dispatcher:
        for _ in range(2):
            dispatcher.score(completions=["2", "fields"])
        body = reading.text(dispatcher)
        stats = dispatcher.stats()
    found = reading.series(reading.families(body))
    for name in ("both", "plain"):
        assert reading.value(found, "guerdon_calls_total", function=name, status="ok") == 4
    assert "both/odd" not in body
    assert (stats["late_outcomes"], stats["open_batches"]) == (0, 0)
    rows = rows_of(folder)
    first = rows[0]["batch"]
    assert {(row["function"], row["batch"] - first) for row in rows} == {
        (name, batch) for name in ("both", "plain") for batch in range(2)
    }
    extras = [json.loads(row["extra"]) for row in rows if row["function"] == "both" and row["extra"]]
    assert {"odd": 6.0, "four": 4.0, "odd/length": 6} in extras


def test_gates_and_bounds_are_the_panels() -> None:
    first = reward(lambda completion: float(completion), lane="thread", name="first")
    gated = panel([made("asyncio"), four()], run_if={"first": "> 3"}, otherwise=-1.0, reduce="mean")
    with Dispatcher([first, gated]) as dispatcher:
        assert dispatcher.score(completions=["2", "6"]).rewards[..., 1].ravel().tolist() == [-1.0, 5.0]


def test_no_more_votes_than_can_decide_within_the_limit() -> None:
    now, most, calls = 0, 0, 0
    lock = threading.Lock()

    def count(completion: str) -> float:
        nonlocal now, most, calls
        with lock:
            now, calls = now + 1, calls + 1
            most = max(most, now)
        time.sleep(0.005)
        with lock:
            now -= 1
        return float(completion)

    five = reward(count, lane="thread", votes=Votes(5, by="majority"), limit=Limit(concurrency=3))
    with Dispatcher([five]) as dispatcher:
        result = dispatcher.score(completions=[str(place) for place in range(40)])
    assert result.rewards.ravel().tolist() == list(range(40))
    assert (calls, result.extra["count/agreement"]) == (120, [1.0] * 40)
    assert 1 < most <= 3


def graded_text(completion: str) -> float:
    return float(len(completion))


def test_members_are_functions_of_lists_too() -> None:
    def lengths(completions: list[str], **columns: Any) -> list[float]:
        return [float(len(each)) for each in completions]

    row = reward(lengths, rowwise=True, lane="thread", name="lengths")
    with Dispatcher([panel([row, reward(graded_text, name="text")], reduce="mean")]) as dispatcher:
        assert dispatcher.score(completions=["ab", "abcd"]).rewards.ravel().tolist() == [2.0, 4.0]


def test_a_vote_that_can_not_be_read_is_asked_again_with_what_was_wrong() -> None:
    def answer(path: str, body: dict[str, Any]) -> dict[str, Any]:
        return chat_completion("no idea" if len(body["messages"]) == 1 else "7")

    with serving(answer) as server:
        voted = judge(
            base_url=server.url, model="m", prompt="{completion}", votes=3, retries=1, temperature=0.7, name="voted"
        )
        with Dispatcher([voted]) as dispatcher:
            result = dispatcher.score(completions=["x"])
    assert result.rewards.item() == 7.0
    assert result.extra["voted/votes"][0] == [7.0, 7.0]


def test_records_of_votes_are_lists(tmp_path: Path) -> None:
    async def graded(completion: str, log_extra: Any) -> dict[str, Any]:
        log_extra("seen", completion)
        return {"score": 1.0, "why": completion}

    with Dispatcher([reward(graded, votes=3)], journal=tmp_path) as dispatcher:
        result = dispatcher.score(completions=["a", "b"])
    assert list(result.extra["graded/why"]) == [["a", "a"], ["b", "b"]]
    assert list(result.extra["seen"]) == [["a", "a"], ["b", "b"]]
    (row, _) = rows_of(tmp_path)
    assert json.loads(row["extra"])["why"] == ["a", "a"]


def test_a_failed_vote_has_its_own_retries() -> None:
    asked: list[str] = []

    def flaky(completion: str) -> float:
        asked.append(completion)
        if len(asked) == 1:
            raise ValueError("once")
        return 1.0

    with Dispatcher([reward(flaky, lane="thread", votes=3, retries=1, limit=Limit(concurrency=1))]) as dispatcher:
        result = dispatcher.score(completions=["a"])
    assert (result.rewards.item(), len(asked), result.timings["flaky"]["retries"]) == (1.0, 3, 1)


def test_a_setup_that_fails_fails_its_member_alone() -> None:
    class Broken(StatefulReward):
        def setup(self) -> None:
            raise RuntimeError("no weights")

        def score(self, completion: str) -> float:
            return 1.0

    broken = reward(Broken(), lane="thread", name="broken")
    with Dispatcher([panel([broken, four()], min_members=1)], max_failure_rate=1.0) as dispatcher:
        for _ in range(2):
            result = dispatcher.score(completions=["a"] * 20)
            assert result.rewards.ravel().tolist() == [4.0] * 20
            assert result.extra["panel/broken"] == [None] * 20


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: panel([four(), steady]), "can't be a member"),
        (lambda: panel([four(), group_reward(of_lists, name="g")]), "scores a whole group"),
        (lambda: panel([four(), reward(of_lists, name="b", batch_size=4)]), "has a batch_size"),
        (lambda: cascade([four(), pairwise(compared, name="c")]), "Put it into the dispatcher's list itself"),
        (lambda: pairwise(reward(compared, votes=3)), "a comparison takes a function that makes one"),
        (lambda: panel([four(), panel([four(), made("thread")], name="p", on_failure=0.0)]), "has a on_failure"),
        (lambda: panel([four(), panel(many("a"), name="a")]), "they call 65 functions, more than 64"),
        (lambda: panel([four(), reward(steady, name="b", pure=True)]), "has pure=True"),
        (lambda: panel([four(), reward(steady, name="b", on_failure=0.0)]), "has a on_failure"),
        (lambda: panel([four(), made("thread")], cache="/tmp/never-made"), "cache= is for panels of judges"),
        (lambda: reward(of_lists, votes=3, batch_size=4), "votes are about one sample at a time"),
        (lambda: reward(steady, votes=3, pure=True), "no vote stands for another"),
        (lambda: reward(of_lists, name="b", votes=3), "score one sample alone"),
    ],
)
def test_functions_that_can_not_be_members_are_refused(make: Any, problem: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(problem)):
        make()


def compared(completion_a: str, completion_b: str) -> float:
    return 0.5


def many(name: str) -> list[Any]:
    return [made("thread", f"{name}{number}") for number in range(64)]


def test_a_function_with_votes_is_called_as_itself() -> None:
    thrice = reward(steady, votes=3)
    assert thrice("a") == 4.0
