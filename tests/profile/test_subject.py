"""A subject: outcomes in place of exceptions, in other processes, orders and batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from guerdon import DataError, Status, reward
from guerdon.profile import Case, Subject, profile
from guerdon.profile.checks import CHECKS
from guerdon.profile.finding import Check, Finding, excerpt
from tests.profile.functions import asks, exact, fragile, hash_of, plain, sizes

ROWS = [{"prompt": f"{n} + 5 =", "answer": str(n + 5)} for n in range(10, 18)]


@pytest.fixture
def subjects() -> Iterator[list[Subject]]:
    made: list[Subject] = []
    yield made
    for subject in made:
        subject.close()


def test_scores_are_those_of_the_samples_in_their_order(subjects: list[Subject]) -> None:
    subjects.append(subject := Subject(exact, ROWS))
    samples = [Case(3, "18"), Case(0, "15"), Case(3, "15"), Case(1, "16", {"answer": "17"})]
    assert [score.value for score in subject.score(samples)] == [1.0, 1.0, 0.0, 0.0]
    assert [score.value for score in subject.score(samples[::-1], batch=1, workers=1)] == [0.0, 0.0, 1.0, 1.0]


def test_a_function_with_a_client_in_a_global_has_all_checks() -> None:
    checks = [check for check in CHECKS if check.id in ("threads", "clock", "arguments")]
    assert profile([asks], ROWS, checks=checks).functions["asks"].checks == [check.id for check in checks]


def test_checks_without_an_answer_for_one_reason_are_one_finding() -> None:
    def refuses(subject: Subject) -> list[Finding]:
        raise DataError("no such column")

    found = profile([exact], ROWS, checks=[Check("one", refuses), Check("two", refuses)])
    messages = [each.message for each in found.functions["exact"].findings if each.check == "unchecked"]
    assert messages == ["The checks 'one', 'two' had no answer: no such column"]


def test_hangs_crashes_and_exceptions_are_outcomes(subjects: list[Subject]) -> None:
    subjects.append(subject := Subject(fragile, ROWS, timeout=2.0))
    found = subject.score([Case(0, text) for text in ("fine", "hang", "crash", "raise", "fine")])
    assert [score.status.label for score in found] == ["ok", "timeout", "crashed", "error", "ok"]
    assert "cannot read it" in found[3].reason
    assert subject.hangs == 2


def test_after_some_hangs_nothing_more_is_run(subjects: list[Subject]) -> None:
    subjects.append(subject := Subject(fragile, ROWS, timeout=0.1))
    found = subject.score([Case(0, "hang")] * 16)
    assert {score.status for score in found} == {Status.TIMEOUT}
    assert {score.status for score in subject.score([Case(0, "fine")])} == {Status.CANCELLED}


def test_the_row_on_which_a_batch_hangs_is_found(subjects: list[Subject]) -> None:
    subjects.append(subject := Subject(plain, ROWS, timeout=1.5))
    found = subject.score([Case(0, "15"), Case(1, "hang"), Case(2, "0")])
    assert [score.shown for score in found][::2] == [1.0, 0.0]
    assert found[1].status is Status.TIMEOUT


def test_functions_of_other_lanes_run_in_processes_with_the_seed_asked_for(subjects: list[Subject]) -> None:
    subjects.append(subject := Subject(hash_of, ROWS))
    samples = [Case(0, text) for text in ("a", "b", "c", "d")]
    one, again, other = (subject.score(samples, seed=seed, fresh=True) for seed in (1, 1, 2))
    assert all(score.same(twin) for score, twin in zip(one, again, strict=True))
    assert [score.value for score in one] != [score.value for score in other]


def test_groups_stand_together(subjects: list[Subject]) -> None:
    rows = [{"prompt": "p" if n < 4 else "q", "completion": str(n)} for n in range(8)]
    subjects.append(subject := Subject(sizes, rows))
    assert subject.num_generations == subject.group_size == 4
    assert {score.value for score in subject.score(subject.samples(), group=4)} == {4.0}


CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look_up"}}]}


@pytest.mark.parametrize(
    ("message", "shown"),
    [({"content": "2"}, "2"), ({"content": ["2"]}, "['2']"), (CALL, str(CALL)), ({"role": "a"}, "{'role': 'a'}")],
)
def test_an_excerpt_of_a_conversation_is_of_its_last_message(message: dict[str, Any], shown: str) -> None:
    assert excerpt([{"role": "user", "content": "1+1="}, message]) == shown


def test_conversations_are_scored_as_such(subjects: list[Subject]) -> None:
    rows = [{"prompt": [{"role": "user", "content": "1+1="}], "answer": "2"}]
    subjects.append(subject := Subject(reward(lambda text, answer: float(text == answer), name="says"), rows))
    assert subject.completion("2") == [{"role": "assistant", "content": "2"}]
    assert subject.score([Case(0, subject.completion("2"))])[0].value == 1.0
