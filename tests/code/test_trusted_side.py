"""A program's values can't hang or fill the trusted side."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from guerdon import DataError, Dispatcher, Status
from guerdon.rewards.code.child.encoding import Opaque
from guerdon.rewards.code.factory import CodeReward
from guerdon.rewards.code.trusted.calls import ProgramCalls
from guerdon.rewards.code.trusted.compare import shown
from tests.clock import eventually
from tests.code.programs import block, call, in_process, judged, judgement
from tests.processes import gone


@pytest.mark.fault("tests loop over what a program returned, without end", sees="0.0: the tests did not end")
@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    "test",
    [
        "total = 0\nfor number in range(f()):\n    total += number\nassert total == 3",
        "while True:\n    try:\n        for number in range(f()):\n            pass\n        break\n    except:\n        pass",
    ],
    ids=["loop", "except"],
)
def test_tests_end_whatever_a_program_returns(test: str) -> None:
    with judged(check="test", timeout=1.0, score="share") as reward:
        started = time.monotonic()
        found = judgement(reward, "def f(): return 10**12", test=["assert f() > 1", test, "assert f() > 1"])
        assert (found.passed, found.cases) == (1, 3)
        assert found.reason == "case 1: the tests did not end within 0.5 s with what the program gave"
        assert time.monotonic() - started < 15
        assert judgement(reward, "def f(): return 3", test="assert f() == 3").score == 1.0


# Integers of one hash: a set of them takes quadratic time, in one call into C.
COLLIDING = "(lambda m: [i * m for i in range(1, 200_000)])((1 << 61) - 1)"


@pytest.mark.fault("a program returns keys that all share a hash", sees="0.0: judging did not end")
@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("value", "test"),
    [
        (COLLIDING, "assert set(f()) == {4, 5}"),
        ("1 << 8_000_000", "import math\nassert math.isqrt(f()) == 3"),
    ],
    ids=["list", "integer"],
)
def test_no_call_into_c_is_too_long(value: str, test: str) -> None:
    with judged(check="test", timeout=30.0) as reward:
        found = judgement(reward, f"def f(): return {value}", test=test)
        assert found.score == 0.0
        assert "did not end within 0.5 s with what the program gave" in found.reason
        assert judgement(reward, "def f(): return 3", test="assert f() == 3").score == 1.0


def _crash(candidate: Any) -> bool:
    if candidate() == 10:
        os.kill(os.getpid(), signal.SIGSEGV)
    return True


@pytest.mark.fault("a function check= crashes on a program's value", sees="0.0 with a reason")
def test_a_judge_that_crashes_is_no_escape() -> None:
    with judged(check=_crash) as reward:
        found = judgement(reward, "def f(): return 10", entry_point="f")
        assert (found.score, found.reason) == (0.0, "the tests ended by SIGSEGV with what the program gave")
        assert judgement(reward, "def f(): return 3", entry_point="f").score == 1.0


# Writes to its channel while it is defined: the bytes of a list, as those of a set.
WRITES_EARLY = """
import os, struct, sys
values = [number * ((1 << 61) - 1) for number in range(1, 200_000)]
data = b"e" + sys.modules["guerdon.rewards.code.child.encoding"].encode(values)[1:]
os.write(3, struct.pack("<I", len(data)) + data)
def f(): return 3
"""


@pytest.mark.fault("a program writes to its channel while it is defined", sees="0.0: judging did not end")
@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("by", ["cases", "tests"])
def test_writes_of_a_program_while_it_is_defined_do_not_escape(by: str) -> None:
    with judged(check="test") if by == "tests" else judged() as reward:
        row = {"test": "assert f() == 3"} if by == "tests" else {"cases": [call("f", expected=3)]}
        assert judgement(reward, "def f(): return 3", **row).score == 1.0
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(2):
            found = judgement(reward, WRITES_EARLY, **row)
            assert found.score == 0.0
            assert "did not end within 0.5 s with what the program gave" in found.reason
        assert judgement(reward, "def f(): return 3", **row).score == 1.0
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.fault("a function check= starts processes and hangs", sees="they end with it")
@pytest.mark.usefixtures("soon")
def test_processes_of_a_function_end_with_its_judge(tmp_path: Path) -> None:
    noted = tmp_path / "pid"

    def check(candidate: Any) -> bool:
        noted.write_text(str(subprocess.Popen(["sleep", "600"]).pid))
        while candidate() == 10:
            pass
        return True

    with judged(check=check) as reward:
        assert judgement(reward, "def f(): return 10", entry_point="f").score == 0.0
    eventually(lambda: gone([int(noted.read_text())]), seconds=30)


@pytest.mark.fault("tests make a large value of what a program returned", sees="0.0: MemoryError")
def test_growth_of_a_value_in_tests_is_bounded_in_a_worker() -> None:
    from guerdon import code_reward

    code = code_reward(check="test", timeout=5.0)
    with Dispatcher([code], workers=1) as dispatcher:
        result = dispatcher.score(
            completions=[block(f"def f(): return {count}") for count in (6 << 30, 3)],
            test=["assert 'a' * f() == 'aaa'"] * 2,
            num_generations=2,
        )
    assert result.rewards.ravel().tolist() == [0.0, 1.0]
    assert (result.status == Status.OK).all()
    assert "MemoryError" in result.extra["code/reason"][0]


@pytest.mark.fault("tests hold more of what a program returned than a worker may have", sees="0.0, MemoryError")
def test_values_of_a_program_in_tests_are_its_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ProgramCalls.call
    names: list[str] = []

    def full(self: ProgramCalls, name: str, *given: Any) -> Any:
        answer = made(self, name, *given)
        names.append(name)
        if len(names) == 2:  # as decoding does where there is no room for the value
            raise MemoryError
        return answer

    monkeypatch.setattr(ProgramCalls, "call", full)
    with judged(check="test") as reward:
        in_process(reward)
        held = judgement(reward, "def f(x): return x", test="assert [f(1), f(2)] == [1, 2]", entry_point="f")
        assert held.score == 0.0
        assert "MemoryError" in held.reason
        assert (
            judgement(reward, "def f(x): return x", test="assert [f(1), f(2)] == [1, 2]", entry_point="f").score == 1.0
        )


@pytest.mark.fault("a program returns an integer that is too long for a text", sees="0.0 with a reason")
@pytest.mark.parametrize(
    "test", ["assert {1: 2}[f()] == 3", "raise Exception(f())", "raise SystemExit(f())", "assert f() == 3, f()"]
)
def test_reasons_are_made_of_whatever_a_program_returned(every: CodeReward, all_tested: CodeReward, test: str) -> None:
    for value in ("10**5000", "range(10**5000, 10**5000 + 2)", "[10**5000, range(-(10**5000), 1 - 10**5000)]"):
        found = judgement(all_tested, f"def f(): return {value}", test=test)
        assert (found.score, found.reason != "") == (0.0, True), value
    value = "[range(10**5000, 10**5000 + 2), {10**5000: -10**5000}, 1j, b'', object()]"
    found = judgement(every, f"def f(): return {value}", cases=[call("f", expected=3)])
    assert found.score == 0.0
    assert "an integer of 16610 bits" in found.reason


def test_a_programs_words_are_no_commands_to_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    program = "T = type('\\x1b[2J\\n', (), {})\ndef f(x): return T()"
    with judged(check=lambda candidate: candidate(1)) as reward:
        assert judgement(reward, program, entry_point="f").fields()["reason"].isprintable()
    assert shown([Opaque("\x1b[2J"), "\x1b"]).isprintable()

    def extracted(text: str) -> str:
        raise ValueError(text)

    with judged(extract=extracted) as reward, caplog.at_level(logging.WARNING, logger="guerdon"):
        assert reward(completions=["\x1b[2J"], cases=[[]]) == [0.0]
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_a_completion_that_is_no_text_is_named_without_a_number() -> None:
    """A call knows one sample; which one, the failure says."""
    with judged() as reward, pytest.raises(DataError, match=r"^the completion is an int; expected a str or "):
        in_process(reward).judge({"completion": 3, "cases": []})
