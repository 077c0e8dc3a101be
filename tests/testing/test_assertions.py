"""The assertions take decorated and plain functions alike, and name the row that broke them."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from guerdon import DataError, RegistrationError, StatefulReward, group_reward, reward
from guerdon.profile import profile
from guerdon.testing import (
    assert_bounded,
    assert_deterministic,
    assert_reference_scores,
    assert_rejects,
    assert_row_independent,
)

ROWS = [{"prompt": f"{n} + 5 =", "answer": str(n + 5)} for n in range(10, 22)]


@reward
def exact(completion: str, answer: str) -> float:
    return float(bool(answer) and completion.strip() == answer)


def plain(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [float(bool(right) and text.strip() == right) for text, right in zip(completions, answer, strict=True)]


def ranked(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [float(text == right) - place for place, (text, right) in enumerate(zip(completions, answer, strict=True))]


@reward
def substring(completion: str, answer: str) -> float:
    return float(answer in completion)


@reward
def unbounded(completion: str, answer: str) -> float:
    return float(len(completion))


@reward(timeout=0.3)
def hangs(completion: str) -> float:
    while "sorry" in completion:
        time.sleep(0.01)
    return 0.0


@pytest.mark.parametrize(
    ("check", "function"),
    [
        (assert_bounded, plain),
        (assert_deterministic, exact),
        (assert_reference_scores, plain),
        (assert_rejects, exact),
        (assert_row_independent, plain),
    ],
)
def test_a_sound_function_passes(check: Callable[[Any, Any], None], function: Any) -> None:
    check(function, ROWS)


@pytest.mark.parametrize(
    ("check", "function", "message"),
    [
        (
            assert_deterministic,
            reward(lambda text: random.random(), name="lucky"),
            r"'lucky' scores \d+ of \d+ .*\n  row \d+, .* first 0\.\d+, second 0\.",
        ),
        (assert_row_independent, ranked, r"\[order\] 'ranked'.*\n  row 0"),
        (
            partial(assert_bounded, low=0.0, high=1.0),
            unbounded,
            r"'unbounded' gives \d+ on row 0, .*: not within 0 to 1",
        ),
        (assert_bounded, hangs, r"'hangs' gives no score on row \d+, .*sorry.*: timeout"),
        (
            assert_reference_scores,
            reward(lambda completion, answer: float(completion == answer != "17"), name="not_seventeen"),
            r"'not_seventeen' .* 1 of 12 rows.*\n  row 2, '17', reference 0",
        ),
        (
            assert_reference_scores,
            reward(lambda completion: 1.0, name="constant"),
            "'constant' does not use the column 'answer'",
        ),
        (assert_rejects, substring, r"\[probe:all_answers\] 'substring' rewards .*\n  row \d+, '.*1[5-9]"),
    ],
    ids=["repeat", "order", "bounds", "hang", "reference", "no reference", "probe"],
)
def test_a_broken_function_is_named_with_its_row(
    check: Callable[[Any, Any], None], function: Any, message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        check(function, ROWS)


def test_a_reference_in_a_form_of_its_own() -> None:
    @reward
    def therefore(completion: str, result: str) -> float:
        return float(completion == f"Therefore {result}")

    rows = [{"prompt": row["prompt"], "result": row["answer"]} for row in ROWS]
    assert_reference_scores(therefore, rows, answer="result", reference="Therefore {result}")
    with pytest.raises(AssertionError, match=r"gives no reference answer more|the same score, in any form"):
        assert_reference_scores(therefore, rows, answer="result")


def test_probes_of_ones_own(tmp_path: Any) -> None:
    path = tmp_path / "probes.json"
    path.write_text(
        '{"version": 1, "probes": [{"id": "shout", "about": "a shout", "template": "{final}!!!", "do": "Hush."}]}'
    )

    @reward
    def shouted(completion: str, answer: str) -> float:
        return float(re.sub(r"!+$", "", completion) == answer)

    assert_rejects(shouted, ROWS, probes=["empty"])
    assert_rejects(substring, ROWS, probes=["empty", "refusal"])
    with pytest.raises(AssertionError, match=r"\[probe:shout\] 'shouted' rewards a shout: on 12 of 12 rows.* Hush\."):
        assert_rejects(shouted, ROWS, probes=path)


def test_missing_names_are_refused() -> None:
    with pytest.raises(DataError, match="there is no probe 'emtpy'"):
        assert_rejects(exact, ROWS, probes=["emtpy"])
    with pytest.raises(DataError, match=r"To try the probe of that name: probes=\['empty'\]"):
        assert_rejects(exact, ROWS, probes="empty")
    with pytest.raises(DataError, match="names none"):
        assert_rejects(exact, ROWS, probes=[])
    with pytest.raises(RegistrationError, match="timeout=0: expected"):
        assert_deterministic(exact, ROWS, timeout=0)
    with pytest.raises(DataError, match="no column 'gold'"):
        assert_reference_scores(exact, ROWS, answer="gold")
    with pytest.raises(DataError, match="names no column in braces"):
        assert_reference_scores(exact, ROWS, reference="Therefore")
    with pytest.raises(AssertionError, match="gives no reference answer more than a wrong one"):
        assert_rejects(unbounded, [{"prompt": "p", "answer": "5"}] * 3, answer="answer")


@reward
def exits(completion: str, answer: str) -> float:
    raise SystemExit(3)


@reward(timeout=0.3)
def never_ends(completion: str, answer: str) -> float:
    time.sleep(60)
    return 1.0


@group_reward
def one_too_few(completions: list[str], answer: list[str]) -> list[float]:
    return [1.0] * (len(completions) - 1)


class WithoutModel(StatefulReward):
    def setup(self) -> None:
        raise RuntimeError("there is no model")

    def score(self, completion: str, answer: str) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("check", "function"),
    [
        (assert_bounded, exits),
        (assert_reference_scores, exits),
        (assert_rejects, never_ends),
        (assert_row_independent, exits),
        (assert_deterministic, one_too_few),
        (assert_deterministic, WithoutModel()),
    ],
)
def test_a_function_that_never_scores_passes_nothing(check: Callable[[Any, Any], None], function: Any) -> None:
    with pytest.raises(AssertionError, match=r"gives no score on row 0|fails on every reference answer"):
        check(function, ROWS[:2])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least one row"),
        (None, "rows are NoneType"),
        (ROWS[0], "rows are one mapping"),
        (["a row"], "row 0 is of type str"),
        ([ROWS[0], {7: "seven"}], "row 1 has a column named 7"),
    ],
)
def test_rows_that_are_none(rows: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        assert_deterministic(exact, rows)
    with pytest.raises(DataError, match=message):
        profile([exact], rows)
