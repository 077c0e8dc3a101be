"""A program's time is that of a processor, on its worker's core; the wall's clock bounds it."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from guerdon.rewards.code.zygote.deadline import Deadline, wall_seconds
from guerdon.rewards.code.zygote.zygote_process import ProgramEnd
from tests.code.programs import CASES, call, in_process, judged, judgement

WAITS = "import time\ntime.sleep({0})\nprint(int(input()) + 1)"
WAITS_IN_CALL = "import time\ndef f(x):\n    time.sleep({0})\n    return x + 1"
BURNS = "import time\ndef f(x):\n    while time.process_time() < {0}: pass\n    return x + 1"
CALLS = [call("f", 1, expected=2)]


@pytest.mark.parametrize(("program", "cases"), [(WAITS, CASES[:1]), (WAITS_IN_CALL, CALLS)], ids=["stdin", "call"])
def test_time_of_the_wall_is_not_the_programs(program: str, cases: list[object]) -> None:
    with judged(timeout=0.5) as reward:
        found = judgement(reward, program.format(0.8), cases=cases)
        assert (found.score, found.reason) == (1.0, "")
        started = time.monotonic()
        found = judgement(reward, program.format(60), cases=cases)
        assert found.score == 0.0
        assert "within 0.5 s" in found.reason or re.search(r"no answer within 0\.[1-5]", found.reason)
        assert time.monotonic() - started < 2 * wall_seconds(0.5) + 5


def test_calls_share_the_time_of_a_processor() -> None:
    with judged(timeout=1.0) as reward:
        cases = [call("f", 1, expected=2)] * 2
        assert judgement(reward, BURNS.format(0.3), cases=cases).score == 1.0
        found = judgement(reward, BURNS.format(5), cases=cases)
        assert found.reason.startswith("case 0: no answer within")


def test_a_deadline_moves_while_others_have_the_processor() -> None:
    deadline = Deadline(30, time.monotonic() + 60)
    assert not deadline.is_over(lambda: 0.001)
    assert deadline.at > time.monotonic()
    assert deadline.is_over(lambda: 30)
    assert Deadline(1.0, time.monotonic()).is_over(lambda: 0.0)


@pytest.mark.fault("others have the processor while a program's time runs out", sees="it is run once more")
def test_a_program_that_was_starved_is_run_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def starved(self: ProgramEnd, deadline: Deadline) -> bool:
        asked.append(deadline.seconds)
        return True

    monkeypatch.setattr(ProgramEnd, "was_starved", starved)
    for program, cases in (("while True: pass", CASES), ("def f(x):\n    while True: pass", CALLS)):
        asked.clear()
        with judged(timeout=0.2) as reward:
            in_process(reward)
            assert judgement(reward, program, cases=cases).score == 0.0
            assert len(asked) == 2


@pytest.mark.parametrize(("seconds", "displaced", "is_starved"), [(0.1, 100, True), (0.9, 100, False), (0.1, 0, False)])
def test_a_program_that_waits_is_not_starved(seconds: float, displaced: int, is_starved: bool) -> None:
    assert ProgramEnd(-9, seconds, displaced).was_starved(Deadline(1.0)) is is_starved


@pytest.mark.parametrize("isolation", ["strict", "none"])
def test_a_program_has_one_core(isolation: str) -> None:
    program = "import os\ndef f(): return len(os.sched_getaffinity(0))"
    with judged(isolation=isolation) as reward:
        assert judgement(reward, program, cases=[call("f", expected=1)]).score == 1.0


TIMEOUT = 0.5
LONG_S = 3 * TIMEOUT + 2


def _slow(candidate: Any) -> float:
    right = candidate(1) == 2
    time.sleep(LONG_S)
    return float(right and candidate(2) == 3)


def _many(candidate: Any) -> float:
    return float(all(candidate(n) == n + 1 for n in range(40)))


def test_a_check_that_takes_longer_than_its_program_may_costs_that_nothing() -> None:
    with judged(check=_slow, timeout=TIMEOUT) as reward:
        assert judgement(reward, "def f(n): return n + 1", entry_point="f").score == 1.0


@pytest.mark.parametrize("seconds", [LONG_S, 0.1], ids=["in one call", "a little in each of many calls"])
def test_a_program_that_sleeps_longer_than_it_may_scores_zero(seconds: float) -> None:
    with judged(check=_many, timeout=TIMEOUT) as reward:
        found = judgement(reward, WAITS_IN_CALL.format(seconds), entry_point="f")
    assert (found.score, "within" in found.reason or "time" in found.reason) == (0.0, True)
