"""A profile says how functions end their worker, and speaks of memory only where a lack of it ends
workers so."""

from __future__ import annotations

import ctypes
import os
import signal

import pytest

from guerdon import reward
from guerdon.profile import audit, measurement, profile
from guerdon.profile.checks import values
from guerdon.profile.checks.survival import CHECK
from guerdon.profile.subject import Subject

ROWS = [{"prompt": "p", "answer": "4", "completion": text} for text in ("4", "end", "5")]


@pytest.fixture(autouse=True)
def few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short calls are watched a few times, not two thousand: no test here is about their CPU."""
    monkeypatch.setattr(measurement, "_MOST_REPEATS", 16)


@reward
def exits(completion: str) -> float:
    if completion == "end":
        os._exit(0)
    return float(completion == "4")


@reward
def terminates(completion: str) -> float:
    if completion == "end":
        os.kill(os.getpid(), signal.SIGTERM)
    return float(completion == "4")


@reward
def killed(completion: str) -> float:
    if completion == "end":
        os.kill(os.getpid(), signal.SIGKILL)
    return float(completion == "4")


@reward
def breaks(completion: str) -> float:
    if completion == "end":
        ctypes.string_at(0)
    return float(completion == "4")


@pytest.mark.parametrize(
    ("function", "how", "advice", "memory"),
    [
        pytest.param(exits, "exited with status 0", "os._exit", False, id="status 0"),
        pytest.param(terminates, "was killed by SIGTERM", "who sends that signal", False, id="SIGTERM"),
        pytest.param(killed, "was killed by SIGKILL", "takes too much memory", True, id="SIGKILL"),
        pytest.param(breaks, "was killed by SIGSEGV", "recursion in C", True, id="SIGSEGV"),
    ],
)
@pytest.mark.fault(
    "a function ends its worker while it is profiled",
    sees="a finding that says how: exit status or signal, and of memory only where a lack of it ends workers so",
)
def test_a_crash_says_how_the_worker_ended(function: object, how: str, advice: str, memory: bool) -> None:
    with Subject(function, ROWS, memory_limit=2_000_000_000) as subject:
        (found,) = [finding for finding in CHECK.run(subject) if finding.check == "crash"]
    assert how in found.message
    assert advice in found.message
    assert ("memory" in found.message) is memory


def test_a_profile_reports_a_failure_once() -> None:
    def raises(completion: str) -> float:
        return float(completion != "a") / len(completion.strip("a"))

    rows = [{"prompt": "p", "completion": "a" if row == 2 else "b"} for row in range(8)]
    found = profile([reward(raises)], rows, checks=[CHECK]).functions["raises"]
    assert [each.check for each in found.findings if each.check in ("fails", "exception")] == ["exception"]


def test_a_number_that_is_no_reward_is_reported_once() -> None:
    def infinite(completion: str) -> float:
        return float("inf") if completion == "0" else float(len(completion))

    rows = [{"prompt": "p", "completion": str(n)} for n in range(8)]
    found = [each.check for each in audit(reward(infinite), rows, checks=[values.CHECK, CHECK])]
    assert "not_finite" in found
    assert not {"exception", "crash", "hang"} & set(found)


def test_a_profile_reports_a_crash_once() -> None:
    rows = [{"prompt": "p", **each} for each in ROWS]
    findings = profile([exits], rows, checks=[CHECK]).functions[exits.name].findings
    assert [each.check for each in findings if each.check == "crash"] == ["crash"]
