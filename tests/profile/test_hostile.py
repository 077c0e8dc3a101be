"""Hostile functions are findings of a profile, which goes on to the next function."""

from __future__ import annotations

import sys

import pytest

from guerdon.profile import Profile, measurement, profile
from guerdon.profile.load_rewards import load
from tests.cli.conftest import write_rewards

ROWS = [{"prompt": f"What is {n} + 5?", "answer": str(n + 5)} for n in range(10, 22)]

HOSTILE = """
import os, subprocess, sys, time
from guerdon import reward

@reward
def hangs(completion: str, answer: str) -> float:
    while answer == "17":
        time.sleep(0.01)
    return 1.0

@reward
def exits(completion: str, answer: str) -> float:
    if answer == "18":
        os._exit(3)
    return 1.0

@reward
def allocates(completion: str, answer: str) -> float:
    if answer == "19":
        bytearray(10_000_000_000)
    return 1.0

@reward
def floods(completion: str, answer: str) -> float:
    if answer == "20":
        for _ in range(1000):
            print("x" * 1000)
    return 1.0

@reward
def leaves(completion: str, answer: str) -> float:
    subprocess.Popen(["sleep", "60"])
    return 1.0

@reward
def fails(completion: str, answer: str) -> float:
    raise ValueError("no such thing")

@reward
def backtracks(completion: str, answer: str) -> float:
    time.sleep(len(completion) ** 2 / 1e10)
    return 1.0
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """The profile of functions that hang, crash, flood and leave things behind."""
    file, path = write_rewards(tmp_path_factory.mktemp("hostile"), HOSTILE), list(sys.path)
    try:
        with load(str(file)) as dispatcher, pytest.MonkeyPatch.context() as patch:
            patch.setattr(measurement, "_MOST_REPEATS", 16)
            return profile(dispatcher, ROWS, checks=[], prompts=2, generations=2, timeout=1.0, memory_limit=300_000_000)
    finally:
        sys.path[:] = path
        sys.modules.pop(file.stem, None)


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
