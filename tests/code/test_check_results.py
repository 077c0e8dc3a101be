"""The return value of a check is a score, whatever a program returned."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from guerdon.rewards.code.factory import CodeReward
from tests.code.programs import judged, judgement


def _distance(candidate: Any) -> float:
    return 1.0 - abs(candidate(2) - 4)


@pytest.mark.fault("a function check= makes NaN or infinity of what a program returned", sees="0.0 with a reason")
def test_a_program_can_not_choose_that_there_is_no_score() -> None:
    with judged(check=_distance) as reward:
        assert judgement(reward, "def f(x): return 4", entry_point="f").score == 1.0
        for value in ("nan", "inf", "-inf", "1e308"):
            found = judgement(reward, f"def f(x): return float('{value}')", entry_point="f")
            assert found.score == 0.0, value
            assert "which counts as 0" in found.reason, value


@pytest.mark.fault("a function check= returns what is no score, after calls of the program", sees="0.0 with a reason")
def test_any_return_value_of_a_check_is_a_score() -> None:
    with judged(check=lambda candidate: candidate(2)) as reward:
        for value in ("5", "1j", "'yes'", "object()", "10**5000", "[10**5000]", "{}"):
            found = judgement(reward, f"def f(x): return {value}", entry_point="f")
            assert found.score == 0.0, value
            assert "which counts as 0" in found.reason, value


def _both(candidate: Any) -> Any:
    return candidate(7) and candidate(11)


def _either(candidate: Any) -> Any:
    return candidate(7) or None


def _inside(candidate: Any) -> Any:
    return candidate(7).get("prime")


def _asserts(candidate: Any, least: int = 0) -> None:
    assert candidate(7) is None
    if least:
        return
    assert candidate(11) is None


class _Checker:
    def __call__(self, candidate: Any) -> Any:
        return candidate(7)


def _true_at_the_end(candidate: Any) -> bool | None:
    for value in (7, 11):
        if not candidate(value):
            return  # noqa: RET502 - as users write it
    return True


def _true_or_nothing(candidate: Any) -> bool | None:
    return True if candidate(7) else None


def _true_within(candidate: Any) -> bool | None:  # noqa: RET503 - as users write it
    if candidate(7):
        return True


def _false_or_nothing(candidate: Any) -> bool | None:
    if candidate(7) != 8:
        return False
    return None


@pytest.mark.fault("a function check= returns what a program returned, and that is None", sees="0.0; never 1.0")
@pytest.mark.fault("a function check= returns True, or nothing where a program fails", sees="1.0 and 0.0")
@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        *((check, "True", "None") for check in (_both, _either, lambda candidate: candidate(7), _Checker())),
        (functools.partial(_both), "True", "None"),
        *((check, "True", "False") for check in (_true_at_the_end, _true_or_nothing, _true_within)),
        (_inside, "{'prime': True}", "{}"),
        (_false_or_nothing, "8", "7"),
    ],
)
def test_nothing_that_a_check_returns_is_judged_by_its_values(
    check: Callable[..., Any], right: str, wrong: str
) -> None:
    with judged(check=check) as reward:
        assert judgement(reward, f"def f(x): return {right}", entry_point="f").score == 1.0
        found = judgement(reward, f"def f(x): return {wrong}", entry_point="f")
        assert found.score == 0.0
        assert wrong != "None" or "check returned None: return True where it passes" in found.reason


@pytest.mark.parametrize("check", [_asserts, functools.partial(_asserts, least=1)])
def test_a_check_that_returns_nothing_passes(check: Callable[..., Any]) -> None:
    with judged(check=check) as reward:
        assert judgement(reward, "def f(x): pass", entry_point="f").score == 1.0


@pytest.mark.fault("the function check of a row's tests returns a verdict", sees="that verdict")
@pytest.mark.parametrize(
    ("returned", "score"),
    [("candidate(1) == 2", 1.0), ("candidate(1) == 3", 0.0), ("[]", 0.0), ("None", 1.0), ("", 1.0)],
)
def test_return_value_of_a_rows_check_counts(all_tested: CodeReward, returned: str, score: float) -> None:
    test = f"def check(candidate):\n    assert candidate(0) == 1\n    return {returned}"
    found = judgement(all_tested, "def f(x): return x + 1", test=test, entry_point="f")
    assert found.score == score
    assert ("check returned" in found.reason) == (score == 0.0)
