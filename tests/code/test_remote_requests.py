"""The requests of one program in a sandbox elsewhere, without a server: their time, and the faults
that are the program's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from guerdon import DataError
from guerdon.rewards.code.remote.requests import ProgramRequests
from guerdon.rewards.code.trusted.case_judge import JudgingRules
from guerdon.rewards.code.trusted.cases import CallCase, Case, StdinCase
from guerdon.rewards.code.trusted.compare import Compare, outputs_match, printable, shown
from guerdon.rewards.code.trusted.judgement import Judgement, Score, of_cases
from guerdon.rewards.code.trusted.sandbox_output import CaseRun, SandboxRun
from guerdon.rewards.code.zygote.command_run import compile_fault
from guerdon.rewards.code.zygote.script_run import exit_fault

PRINTS: list[Case] = [StdinCase(str(number), "") for number in range(3)]
CALLS: list[Case] = [CallCase("f", [number], (number,)) for number in range(2)]


def requests(cases: list[Case], score: Score = "all", case_timeout: float | None = None) -> ProgramRequests:
    rules = JudgingRules(10.0, case_timeout, "exact", score, 100)
    return ProgramRequests("pass", "", cases, rules, {"language": "python"})


def printed(run: CaseRun, used: float) -> str:
    return run.run.stdout


def limit(program: ProgramRequests) -> float:
    step = program.next()
    assert isinstance(step, str)
    return float(json.loads(step)["run_timeout"])


def ran(seconds: float, fault: str = "", end: str = "exit", status: int = 0) -> SandboxRun:
    return SandboxRun(end, status, seconds, fault, "no")


def test_the_time_that_is_left_is_divided_where_the_share_counts() -> None:
    program = requests(PRINTS)
    assert limit(program) == 10.0
    program.take(ran(4.0), printed)
    assert limit(program) == limit(program) == 6.0
    program.take(ran(6.0), printed)
    assert program.next() == Judgement(0.0, 2, 3, "case 2: the time for all cases was up")
    program = requests(PRINTS, "share")
    assert limit(program) == 3.333
    program.take(ran(99.0, "wrong", "time limit"), printed)
    assert limit(program) == 3.333
    program.take(ran(1.0), printed)
    assert limit(program) == 5.667
    program.take(ran(1.0), printed)
    assert program.next() == Judgement(2 / 3, 2, 3, "case 0: wrong")
    program = requests(PRINTS, "share", case_timeout=4.5)
    for left in (4.5, 4.5, 1.0):
        assert limit(program) == left
        program.take(ran(9.0), printed)
    assert program.next() == Judgement(1.0, 3, 3, "")
    program = requests(PRINTS)
    limit(program)
    program.take(ran(1.0, "wrong"), printed)
    assert program.next() == Judgement(0.0, 0, 3, "case 0: wrong"), "a failed case ends it where all count"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("not compiled", "it does not compile: no"),
        ("compiler time limit", "it does not compile: it did not end within 30 s"),
    ],
)
def test_a_program_that_does_not_compile_fails_all_cases(end: str, reason: str) -> None:
    program = requests(PRINTS, "share")
    limit(program)
    program.take(ran(1.0), printed)
    limit(program)
    program.take(ran(1.0, end=end), printed)
    assert program.next() == Judgement(0.0, 0, 3, reason)


@pytest.mark.parametrize(
    ("run", "used", "reason"),
    [
        (ran(0.1, "n ready\n", status=1), 0.0, ""),
        (ran(0.1, "[DecodeError] 'utf-8' codec can't decode"), 0.0, ""),
        (ran(0.1, end="too long"), 0.0, ""),
        (ran(0.1, end="time limit"), 9.95, ""),
        (ran(0.1, "\n", status=1), 0.0, "exit status 1: no"),
        (ran(0.1, end="time limit"), 0.0, "its time was up"),
        (ran(0.1, status=1), 9.95, "exit status 1: no"),
    ],
)
def test_an_end_before_the_program_is_not_its_fault(run: Any, used: float, reason: str) -> None:
    program = requests(CALLS, "share", case_timeout=9.95)
    limit(program)
    program.take(ran(used, "n ready\n"), printed)
    limit(program)
    if not reason:
        program.take(run, printed)
        assert isinstance(program.next(), Judgement)
        return
    with pytest.raises(DataError, match=f"case 1: the sandbox did not come to the program: {reason}"):
        program.take(run, printed)


def test_reasons_tell_which_cases_failed() -> None:
    faults = ["", "a", "b", "", "c", "d", "e", "f", "g"]
    found = of_cases(faults, 9, "share")
    assert found.reason == "case 1: a; case 2: b; case 4: c; case 5: d; case 6: e; and 2 more"
    assert of_cases([""], 1, "all").reason == ""
    assert exit_fault(-9, "x") == "it was ended by SIGKILL"
    assert exit_fault(-60, "") == "it was ended by signal 60"
    assert exit_fault(1, "Traceback\nValueError: no \n") == "exit status 1: ValueError: no"
    assert compile_fault("in file\na.cpp:1: error: x\n", "") == "it does not compile: a.cpp:1: error: x"
    assert shown("\x1b[2J\u202eä") == r"'\x1b[2J\u202eä'"
    assert printable("a\x07\u2028b") == r"a\x07\u2028b"


@given(some.text(), some.sampled_from(["exact", "tokens", "numbers"]))
def test_a_text_matches_itself(text: str, rule: Compare) -> None:
    assert outputs_match(text, text, rule)
    assert outputs_match(text, f"{text} \n", rule)
    assert len(shown(text)) <= 81
    assert printable(text).isprintable()
