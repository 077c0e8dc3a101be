"""Hostile functions, and such as end their worker, are findings of a profile, which goes on to the
next function."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from guerdon import reward
from guerdon.profile import Profile, profile
from guerdon.profile.checks import values
from guerdon.profile.checks.survival import CHECK
from guerdon.profile.finding import Check
from guerdon.profile.subject import OutOfTime, Subject
from tests.profile.measuring import few_repeats  # noqa: F401 - for all tests here

ROWS = [{"prompt": f"What is {n} + 5?", "answer": str(n + 5)} for n in range(10, 22)]


def _hang() -> None:
    while True:
        time.sleep(0.01)


def _fail() -> None:
    raise ValueError("no such thing")


HOSTILE: dict[str, Callable[[str, str], object]] = {
    "hangs": lambda completion, answer: answer == "17" and _hang(),
    "exits": lambda completion, answer: answer == "18" and os._exit(3),
    "allocates": lambda completion, answer: answer == "19" and bytearray(10_000_000_000),
    "floods": lambda completion, answer: answer == "20" and print("x\n" * 500_000),
    "leaves": lambda completion, answer: subprocess.Popen(["sleep", "60"]),
    "fails": lambda completion, answer: _fail(),
    "backtracks": lambda completion, answer: time.sleep(len(completion) ** 2 / 1e10),
}


def acting(name: str, act: Callable[[str, str], object]) -> Any:
    """A function that gives each row 1 after it has acted."""

    def acts(completion: str, answer: str) -> float:
        act(completion, answer)
        return 1.0

    return reward(acts, name=name)


@pytest.fixture(scope="module")
def hostile() -> Profile:
    """The profile of functions that hang, crash, flood and leave things behind."""
    functions = [acting(*each) for each in HOSTILE.items()]
    return profile(functions, ROWS, checks=[], prompts=2, generations=2, timeout=1.0, memory_limit=300_000_000)


@pytest.mark.parametrize(
    ("name", "check", "row"),
    [
        ("hangs", "hang", 2),
        ("exits", "crash", 3),
        ("allocates", "memory", 4),
        ("floods", "output", 5),
        ("fails", "exception", 0),
        ("leaves", "processes", None),
        ("backtracks", "long", None),
    ],
)
def test_a_hostile_function_is_a_finding(hostile: Profile, name: str, check: str, row: int | None) -> None:
    findings = [each for each in hostile.functions[name].findings if each.check == check]
    assert findings
    assert row is None or row in [example.row for finding in findings for example in finding.examples]


def test_a_profile_of_hostile_functions_ends_with_its_advice(hostile: Profile) -> None:
    advice = hostile.functions["hangs"].advice
    assert advice is not None
    assert (advice.lane, "only a worker can be killed" in advice.lane_reason) == ("process", True)
    assert hostile.functions["fails"].times is None
    (hang,) = [each for each in hostile.functions["hangs"].findings if each.check == "hang"]
    assert "on 1 of 12 completions" in hang.message
    assert hostile.cut_short is None


SUMS = [{"prompt": "p", "answer": "4", "completion": text} for text in ("4", "end", "5")]


def ending(end: Callable[[], object]) -> Any:
    """A function that ends its worker on the second of the rows."""

    @reward
    def ends(completion: str) -> float:
        if completion == "end":
            end()
        return float(completion == "4")

    return ends


@pytest.mark.parametrize(
    ("end", "how", "advice", "memory"),
    [
        (lambda: os._exit(0), "exited with status 0", "os._exit", False),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "was killed by SIGTERM", "who sends that signal", False),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL", "takes too much memory", True),
        (lambda: ctypes.string_at(0), "was killed by SIGSEGV", "recursion in C", True),
    ],
    ids=["status 0", "SIGTERM", "SIGKILL", "SIGSEGV"],
)
@pytest.mark.fault(
    "a function ends its worker while it is profiled",
    sees="a finding that says how: exit status or signal, and of memory only where a lack of it ends workers so",
)
def test_a_crash_says_how_the_worker_ended(end: Callable[[], object], how: str, advice: str, memory: bool) -> None:
    with Subject(ending(end), SUMS, memory_limit=2_000_000_000) as subject:
        (found,) = [finding for finding in CHECK.run(subject) if finding.check == "crash"]
    assert how in found.message
    assert advice in found.message
    assert ("memory" in found.message) is memory


def test_a_profile_reports_failures_and_crashes_once() -> None:
    def raises(completion: str) -> float:
        return float(completion != "end") / len(completion.strip("end"))

    functions = [reward(raises), ending(lambda: os._exit(0))]
    found = profile(functions, SUMS, checks=[CHECK]).functions
    for name, check in (("raises", "exception"), ("ends", "crash")):
        assert [each.check for each in found[name].findings if each.check in ("fails", check)] == [check]


@pytest.mark.parametrize("place", [3, 500])
def test_a_number_that_is_no_reward_is_reported_wherever_it_is(place: int) -> None:
    def infinite(completion: str) -> float:
        return float("inf") if completion == str(place) else float(len(completion))

    rows = [{"prompt": "p", "completion": str(n)} for n in range(600)]
    found = profile([reward(infinite)], rows, checks=[values.CHECK, CHECK]).functions["infinite"]
    assert {each.severity for each in found.findings if each.check in ("not_finite", "exception")} == {"error"}


@pytest.mark.parametrize(
    ("ended", "why", "advice"),
    [
        (OutOfTime, "Time was up", "Allow more (--time-limit)"),
        (KeyboardInterrupt, "Ctrl-C came", "Run them again"),
    ],
)
def test_checks_that_did_not_end_say_what_to_do(ended: type[BaseException], why: str, advice: str) -> None:
    checks = [Check("cut", Mock(side_effect=ended))]
    one = reward(lambda completion: 1.0, name="one", lane="thread")
    (finding,) = profile([one], [{"completion": "a"}], checks=checks).functions["one"].findings
    assert finding.message == f"{why} before these checks had ended: cut. {advice}, or take fewer rows (--rows)."
