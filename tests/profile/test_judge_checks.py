"""Biases planted into a judge are found; a judge without them is not accused of any."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from guerdon import Server, judge, pairwise, panel, parse
from guerdon._lanes.http import endpoints
from guerdon.cli.profile_table import judge_lines
from guerdon.profile.function_profile import FunctionProfile
from guerdon.profile.judge_checks import _changed, check_judge, longer
from guerdon.profile.judge_plan import JudgePlan, plan_judge
from guerdon.profile.judge_statistics import shift_of, sign_test
from guerdon.profile.subject import Subject
from tests.http.server import Answer, chat_completion, free_port, question, serving

# Answers whose quality is the number at their beginning.
ROWS = [{"completion": f"[{row * 7 % 20}] an answer to question {row}"} for row in range(20)]
Rate = Callable[[str], float]


def facts_of(asked: Any, wanted: int = 20, rows: Sequence[dict[str, Any]] = ROWS) -> dict[str, FunctionProfile]:
    """The facts about a judge that is asked about so many of the rows."""
    with Subject(asked, rows) as subject:
        found = check_judge([asked.spec], subject, subject.samples(), wanted, None, 60.0)
        return {each.name: each for each in found}


def planned(asked: Any, max_cost: float | None = None) -> JudgePlan:
    with Subject(asked, ROWS) as subject:
        return plan_judge(subject, subject.samples(), 20, max_cost)


def quality(text: str) -> int:
    return int(text.split("[", 1)[1].split("]", 1)[0])


def rating(rate: Rate) -> Answer:
    return lambda path, body: chat_completion(f"{rate(question(body)):.2f}")


def asked_of(
    answer: Answer, wanted: int = 20, rows: Sequence[dict[str, Any]] = ROWS, **options: Any
) -> tuple[FunctionProfile, int]:
    """The facts about a judge whose server answers so, and the number of its requests."""
    with serving(answer) as server:
        asked = judge(base_url=server.url, model="m", prompt="Rate: {completion}", **options)
        return facts_of(asked, wanted, rows)["judge"], len(server.bodies)


def rated(rate: Rate, **options: Any) -> tuple[FunctionProfile, int]:
    """The facts about a judge that rates so, and the number of its requests."""
    return asked_of(rating(rate), parse=parse.number(range=(-99, 99)), temperature=None, **options)


def checks(facts: FunctionProfile) -> list[tuple[str, str]]:
    return [(finding.check, finding.severity) for finding in facts.findings]


def test_a_judge_without_bias_is_clean() -> None:
    facts, requests = rated(quality)
    assert facts.findings == []
    assert requests == 4 * 20
    assert facts.judge["flips"] == {"rows": 20, "share": 0.0, "spread_share_of_range": 0.0}


@pytest.mark.parametrize("parts", [False, True])
def test_conversations_are_padded_in_their_text(parts: bool) -> None:
    """A bracket or quote of the message around it would be part of the answer."""
    seen: list[str] = []

    def rate(text: str) -> float:
        seen.append(text)
        return quality(text)

    def said(text: str) -> list[dict[str, Any]]:
        pieces = [{"type": "text", "text": text[:9]}, {"type": "text", "text": text[9:]}]
        return [{"role": "assistant", "content": pieces if parts else text}]

    found, _ = rated(rate, rows=[{"completion": said(row["completion"])} for row in ROWS])
    assert found.findings == []
    assert {longer(row["completion"]) for row in ROWS} <= {text.removeprefix("Rate: ") for text in seen}


@pytest.mark.parametrize(
    ("content", "changed"),
    [
        (None, "!"),
        ([{"type": "image"}, {"type": "text", "text": "a"}], [{"type": "image"}, {"type": "text", "text": "a!"}]),
        ([], [{"type": "text", "text": "!"}]),
    ],
)
def test_other_parts_of_a_message_stay(content: Any, changed: Any) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": content}]
    assert _changed(messages, lambda text: text + "!") == [messages[0], {"role": "assistant", "content": changed}]
    assert _changed(7, lambda text: text + "!") == "7!"


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_no_bias(seed: int) -> None:
    noise = random.Random(seed)
    facts, _ = rated(lambda text: quality(text) + noise.gauss(0, 2))
    assert {check for check, _ in checks(facts)} <= {"flips"}


@pytest.mark.parametrize(
    ("rate", "severity"),
    [
        pytest.param(lambda text: quality(text) + len(text) / 200, "warning", id="long"),
        pytest.param(lambda text: quality(text) + 4 * ("In other words" in text), "warning", id="repetition"),
        pytest.param(lambda text: quality(text) - len(text) / 200, "info", id="short"),
    ],
)
def test_a_bias_by_length_is_found(rate: Rate, severity: str) -> None:
    facts, _ = rated(rate)
    assert checks(facts) == [("length-bias", severity)]
    (finding,) = facts.findings
    if severity == "warning":
        assert "20 of 20 rows up" in finding.message
        assert finding.examples[0].values["changed"] > finding.examples[0].values["as it is"]


def test_a_judge_that_changes_its_mind() -> None:
    noise = random.Random(1)
    facts, _ = rated(lambda text: noise.uniform(0, 20))
    (finding,) = [each for each in facts.findings if each.check == "flips"]
    assert finding.severity == "warning"
    assert set(finding.examples[0].values) == {"time 1", "time 2", "time 3"}


@pytest.mark.parametrize(
    ("answer", "options", "says"),
    [
        (chat_completion("no number"), {"wanted": 4, "retries": 0}, "no number"),
        ((500, {"error": "no memory"}), {}, "500"),
        ((401, {"error": {"message": "wrong key"}}), {"wanted": 4, "retries": 0}, "401"),
    ],
    ids=["no number", "server error", "refusal"],
)
def test_a_judge_that_fails_is_given_up_early(answer: Any, options: dict[str, Any], says: str) -> None:
    start = time.monotonic()
    facts, requests = asked_of(lambda path, body: answer, **options)
    assert time.monotonic() - start < 40  # a single form would take 60 s
    assert checks(facts) == [("fails", "error")]
    assert "No request got a score" in facts.findings[0].message
    assert says in facts.findings[0].message
    assert requests <= 3 * 4 + 1 or "wanted" not in options


def test_a_judge_that_is_throttled_is_not_clean() -> None:
    asked: list[str] = []

    def answer(path: str, body: dict[str, Any]) -> Any:
        asked.append(question(body))
        if len(asked) == 30:
            return 429, {"error": "too many requests"}
        return chat_completion(str(quality(question(body))))

    facts, _ = asked_of(answer, parse=parse.number(range=(-99, 99)), temperature=None)
    (finding,) = facts.findings
    assert (finding.check, finding.severity) == ("throttled", "warning")
    assert "put off 1 requests (429" in finding.message


def test_check_without_answers_is_not_clean() -> None:
    def rate(path: str, body: dict[str, Any]) -> Any:
        text = question(body)
        return chat_completion("Too long for me." if len(text) > 300 else f"{quality(text):.2f}")

    facts, requests = asked_of(rate, retries=3)
    assert requests == 4 * 20, "not more than announced"
    (finding,) = facts.findings
    assert (finding.check, finding.severity) == ("unchecked", "warning")
    assert "length-bias had an answer for 0 of 20 rows only" in finding.message
    assert facts.checks == ["flips"]


def test_flips_without_answers_are_not_clean() -> None:
    asked: set[str] = set()

    def rate(path: str, body: dict[str, Any]) -> Any:
        text = question(body)
        again = text in asked
        asked.add(text)
        return chat_completion("I said so." if again else f"{quality(text):.2f}")

    facts, _ = asked_of(rate)
    assert checks(facts) == [("fails", "error"), ("unchecked", "warning")]
    assert "flips had an answer for 0 of 20 rows only" in facts.findings[1].message
    assert facts.checks == ["length-bias"]


def test_judge_is_timed_at_two_levels_of_concurrency() -> None:
    busy = threading.Semaphore(1)

    def rate(path: str, body: dict[str, Any]) -> Any:
        with busy:
            time.sleep(0.01)
        return chat_completion("1")

    facts, _ = asked_of(rate)
    (few, quick), (many, slow) = facts.judge["levels"]
    assert (few, many) == (2, 20)
    assert slow > 2 * quick


def test_a_judge_without_a_server_is_given_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "_STARTS_S", 0.5)
    address = f"http://127.0.0.1:{free_port()}/v1"
    for asked in (
        judge(base_url=address, model="m", prompt="{completion}"),
        pairwise(base_url=address, model="m", prompt="{completion_a} {completion_b}"),
        panel([judge(base_url=address, model="m", prompt="{completion}", name=name) for name in "ab"], name="both"),
    ):
        start = time.monotonic()
        (facts,) = facts_of(asked).values()
        assert time.monotonic() - start < 40  # a single form would take 60 s
        (finding,) = facts.findings
        assert (finding.check, finding.severity) == ("fails", "error")
        assert "No request got a score" in finding.message
        assert "Connection refused" in finding.message
        assert facts.judge == {}


def compared(prefers: Callable[[str, str], float]) -> FunctionProfile:
    """The facts about a judge that prefers the first text by so much."""

    def answer(path: str, body: dict[str, Any]) -> Any:
        one, other = question(body).split("\n@@\n")
        by = prefers(one, other)
        return chat_completion("[[A]]" if by > 0 else "[[B]]" if by < 0 else "[[C]]")

    with serving(answer) as server:
        asked = pairwise(base_url=server.url, model="m", prompt="{completion_a}\n@@\n{completion_b}")
        facts = facts_of(asked, 15)["pairwise"]
        assert len(server.bodies) == 5 * 15
    return facts


def test_comparisons_without_bias_are_clean() -> None:
    facts = compared(lambda one, other: quality(one) - quality(other))
    assert facts.findings == []
    assert facts.judge["position"] == {"pairs": 15, "first": 0, "second": 0, "p": 1.0}


@pytest.mark.parametrize(("bonus", "side"), [(30, "first"), (-30, "second")])
def test_comparisons_by_place(bonus: int, side: str) -> None:
    facts = compared(lambda one, other: quality(one) - quality(other) + bonus)
    (finding,) = [each for each in facts.findings if each.check == "position-bias"]
    assert f"prefers what it sees {side}" in finding.message
    assert facts.judge["position"][side] == 15


def test_comparisons_that_end_differently_are_of_pairs() -> None:
    seen: set[tuple[str, str]] = set()

    def prefers(one: str, other: str) -> float:
        again = (one, other) in seen
        seen.add((one, other))
        return -1.0 if again else 1.0

    facts = compared(prefers)
    (finding,) = [each for each in facts.findings if each.check == "flips"]
    assert finding.message.startswith("The same comparison, 2 times, gets different scores on 100% of 15 pairs, apart")
    facts.judge["rows"] = 15
    lines = judge_lines(facts)
    assert {"75 requests about 15 pairs", "repeated: 100% of pairs get another score"} <= set(lines)
    assert not [line for line in lines if "row" in line]
    assert "95 requests about 19 pairs" in str(planned(facts.spec.item))


def test_comparisons_by_length() -> None:
    facts = compared(lambda one, other: quality(one) - quality(other) + (len(one) - len(other)) / 50)
    assert ("length-bias", "warning") in checks(facts)


def test_the_plan_is_kept_below_the_cap() -> None:
    def priced(output: float) -> Any:
        server = Server("http://localhost:1", price={"input": 1.0, "output": output})
        return judge(server=server, model="m", prompt="{completion}", max_tokens=100)

    whole, dearer = planned(priced(1.0)), planned(priced(3.0))
    assert dearer.cost is not None
    assert (whole.rows, whole.requests, whole.lowered) == (20, 80, False)
    assert whole.cost is not None
    assert dearer.cost - whole.cost == pytest.approx(80 * 100 * 2.0 / 1e6), "eighty answers of a hundred tokens"
    half = planned(priced(1.0), whole.cost / 2)
    assert (half.rows, half.requests, half.lowered) == (10, 40, True)
    assert "fewer rows" in str(half)
    votes = judge(base_url="http://localhost:1", model="m", prompt="{completion}", votes=3, temperature=1.0)
    assert planned(votes, 1.0).requests == 240
    assert "cost unknown" in str(planned(votes))


def test_statistics() -> None:
    assert sign_test(0, 0) == sign_test(5, 5) == sign_test(1000, 1000) == 1.0
    assert sign_test(8, 0) == pytest.approx(2 / 2**8)
    assert sign_test(1100, 900) == pytest.approx(8.5e-6, rel=0.1)
    assert 0.0 <= sign_test(5000, 0) < 1e-300
    shift = shift_of([1.0, 2.0, float("nan")], [2.0, 2.0, 5.0])
    assert (shift.rows, shift.mean, shift.up, shift.down, shift.share) == (2, 0.5, 1, 0, 0.5)
    assert not shift_of([], []).clear


def reported(**facts: Any) -> list[str]:
    """The lines of the table on a judge with these facts."""
    asked = judge(base_url="http://localhost:1", model="m", prompt="{completion}")
    return judge_lines(FunctionProfile(asked.spec, judge={"rows": 20, **facts}))


def test_the_table_tells_a_bias_from_chance() -> None:
    ones = [1.0] * 20
    for shift, line in (
        (
            shift_of(ones, [2.0] * 3 + [0.5] + [1.0] * 16),
            "+0.125 on average, 3 of 20 rows up and 1 down, which could be chance",
        ),
        (shift_of(ones, [2.0] * 20), "+1 on average, 20 of 20 rows up and 0 down"),
        (shift_of(ones, ones), "no row's score changes"),
    ):
        assert reported(length_bias=shift.to_dict()) == [f"longer: {line}"]
    assert reported(length_bias=shift_of([], []).to_dict()) == []
