"""A program's values can't hang or fill the trusted side, nor choose that there is no score."""

from __future__ import annotations

import errno
import functools
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guerdon import DataError, Dispatcher, Status
from guerdon.rewards.code.child.encoding import Opaque
from guerdon.rewards.code.trusted import judge
from guerdon.rewards.code.trusted.calls import ProgramCalls
from guerdon.rewards.code.trusted.compare import shown
from guerdon.rewards.code.zygote.zygote_process import ZygoteLostError
from tests.code.programs import CASES, INCREMENT, block, call, in_process, judged, judgement


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trusted side has half a second beside a program's time."""
    monkeypatch.setattr(judge, "BESIDE_S", 0.5)
    monkeypatch.setattr(judge, "REFERENCE_S", 0.5)


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
    started = Path("/proc", noted.read_text(), "stat")
    end = time.monotonic() + 30
    while started.exists() and " Z " not in started.read_text():  # whose parent is gone
        assert time.monotonic() < end
        time.sleep(0.02)


class _OnlyHere:
    """A function that can be sent, and not be loaded elsewhere."""

    def __call__(self, candidate: Any) -> bool:
        return bool(candidate() == 3)

    def __reduce__(self) -> Any:
        return _loaded, (os.getpid(),)


def _loaded(where: int) -> _OnlyHere:
    if where != os.getpid():
        raise RuntimeError("only in its own process")
    return _OnlyHere()


def test_a_function_that_can_not_be_loaded_elsewhere_judges_here(caplog: pytest.LogCaptureFixture) -> None:
    with judged(check=_OnlyHere()) as reward:
        assert judgement(reward, "def f(): return 3", entry_point="f").score == 1.0
    assert "only in its own process, so it runs in this process" in caplog.text


def _hangs(expected: object, value: object) -> bool:
    while True:
        pass


@pytest.mark.fault("a function compare= hangs on whatever it is given", sees="no score: it fails on what is expected")
@pytest.mark.usefixtures("soon")
def test_a_compare_that_hangs_on_what_is_expected_gives_no_score() -> None:
    with judged(compare=_hangs) as reward, pytest.raises(DataError, match="fails on what is expected, too"):
        judgement(reward, "def f(): return 3", cases=[call("f", expected=3)])


@pytest.mark.fault("a function extract= hangs on a completion", sees="0.0 with a reason")
@pytest.mark.usefixtures("soon")
def test_an_extract_that_hangs_is_no_escape() -> None:
    def extract(text: str) -> str:
        while "hang" in text:
            pass
        return text

    with judged(extract=extract) as reward:
        assert reward(completions=["hang", INCREMENT], cases=[CASES, CASES]) == [0.0, 1.0]


@pytest.mark.fault("tests of a row hang before they call the program", sees="no score: the tests did not end")
@pytest.mark.usefixtures("soon")
def test_tests_that_hang_by_themselves_give_no_score() -> None:
    with (
        judged(check="test", timeout=1.0) as reward,
        pytest.raises(DataError, match=r"did not end within 0\.5 s before it called"),
    ):
        judgement(reward, "def f(): return 3", test="while True: pass\nassert f() == 3")


def _spin(expected: object, value: Any) -> bool:
    while value == 10:
        pass
    return value == expected


def _repeat(candidate: Any) -> bool:
    return sum(1 for _ in range(candidate())) == 3


@pytest.mark.fault("a function check= or compare= never ends on a program's value", sees="0.0 with a reason")
@pytest.mark.usefixtures("soon")
def test_functions_of_the_users_end() -> None:
    with judged(check=_repeat, timeout=1.0) as reward:
        assert judgement(reward, "def f(): return 3", entry_point="f").score == 1.0
        found = judgement(reward, "def f(): return 10**12", entry_point="f")
        assert (found.score, found.reason) == (0.0, "the tests did not end within 0.5 s with what the program gave")
    with judged(compare=_spin, timeout=1.0) as reward:
        cases = [call("f", expected=3)]
        assert judgement(reward, "def f(): return 3", cases=cases).score == 1.0
        found = judgement(reward, "def f(): return 10", cases=cases)
        assert (found.score, found.reason) == (
            0.0,
            "case 0: compare did not end within 0.5 s with what the program gave",
        )


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


def _distance(candidate: Any) -> float:
    return 1.0 - abs(candidate(2) - 4)


@pytest.mark.fault("a function check= makes NaN or infinity of what a program returned", sees="0.0 with a reason")
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e308"])
def test_a_program_can_not_choose_that_there_is_no_score(value: str) -> None:
    with judged(check=_distance) as reward:
        assert judgement(reward, "def f(x): return 4", entry_point="f").score == 1.0
        found = judgement(reward, f"def f(x): return float('{value}')", entry_point="f")
        assert found.score == 0.0
        assert "which counts as 0" in found.reason


@pytest.mark.fault("a function check= returns what is no score, after calls of the program", sees="0.0 with a reason")
@pytest.mark.parametrize("value", ["5", "1j", "'yes'", "object()", "10**5000", "[10**5000]", "{}"])
def test_any_return_value_of_a_check_is_a_score(value: str) -> None:
    with judged(check=lambda candidate: candidate(2)) as reward:
        found = judgement(reward, f"def f(x): return {value}", entry_point="f")
        assert found.score == 0.0
        assert "which counts as 0" in found.reason


@pytest.mark.fault("a program returns an integer that is too long for a text", sees="0.0 with a reason")
@pytest.mark.parametrize(
    "test", ["assert {1: 2}[f()] == 3", "raise Exception(f())", "raise SystemExit(f())", "assert f() == 3, f()"]
)
def test_reasons_are_made_of_whatever_a_program_returned(test: str) -> None:
    with judged(check="test") as reward:
        for value in ("10**5000", "range(10**5000, 10**5000 + 2)", "[10**5000, range(-(10**5000), 1 - 10**5000)]"):
            found = judgement(reward, f"def f(): return {value}", test=test)
            assert (found.score, found.reason != "") == (0.0, True), value
    with judged() as reward:
        value = "[range(10**5000, 10**5000 + 2), {10**5000: -10**5000}, 1j, b'', object()]"
        found = judgement(reward, f"def f(): return {value}", cases=[call("f", expected=3)])
        assert found.score == 0.0
        assert "an integer of 16610 bits" in found.reason


LENIENT = "try:\n    f(1)\n    f(2)\nexcept Exception:\n    pass\nexcept BaseException:\n    pass"


def _lenient(candidate: Any) -> float:
    try:
        return float(candidate(1) == 1 and candidate(2) == 2)
    except BaseException:
        return 0.5


@pytest.mark.fault(
    "the zygote is killed between the calls of tests, whatever they catch",
    sees="the program is run again; never 0 or 1",
)
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize(
    "check",
    ["assert f(1) == 1\nassert f(2) == 2", LENIENT, ["assert f(1) == 1", "assert f(2) == 2"], _lenient],
    ids=["text", "lenient text", "list", "function"],
)
def test_loss_between_calls_is_not_a_score(
    check: Any, always: bool, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, calls = 0, ProgramCalls.call

    def lost(self: ProgramCalls, *arguments: Any) -> Any:
        nonlocal made
        made += 1
        if made == place or (always and made > place):
            raise ZygoteLostError("lost by a test")
        return calls(self, *arguments)

    monkeypatch.setattr(ProgramCalls, "call", lost)
    own = callable(check)
    row = {"entry_point": "f"} if own else {"entry_point": "f", "test": check}
    with judged(check=check if own else "test", isolation="none") as reward:
        in_process(reward)
        if always:
            with pytest.raises(ZygoteLostError, match="lost by a test"):
                judgement(reward, "def f(x): return x", **row)
        else:
            assert judgement(reward, "def f(x): return x", **row).score == 1.0


@pytest.mark.fault("the zygote stands still for longer than a short case", sees="the case is run again")
def test_a_zygote_that_stands_still_is_no_fault_of_a_program() -> None:
    with judged(timeout=5.0, case_timeout=0.3, isolation="none") as reward:
        scorer = in_process(reward)
        scorer.setup()
        assert scorer._zygote is not None
        process = scorer._zygote._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        timer = threading.Timer(0.6, os.kill, (process.pid, signal.SIGCONT))
        timer.start()
        found = judgement(reward, "print(1)", cases=[{"stdin": "", "stdout": "1"}])
        timer.join()
    assert (found.score, found.reason) == (1.0, "")


@pytest.mark.fault("no descriptors are left in the middle of a run", sees="an error, and none is leaked")
def test_descriptors_that_run_out_are_not_leaked(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes, made = os.pipe2, 0

    def few(flags: int) -> tuple[int, int]:
        nonlocal made
        made += 1
        if made == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return pipes(flags)

    with judged(isolation="none") as reward:
        in_process(reward)
        cases = [{"stdin": "", "stdout": "1"}]
        assert judgement(reward, "print(1)", cases=cases).score == 1.0
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(os, "pipe2", few)
        with pytest.raises(OSError, match="Too many open files"):
            judgement(reward, "print(1)", cases=cases)
        assert len(os.listdir("/proc/self/fd")) == before
        assert judgement(reward, "print(1)", cases=cases).score == 1.0


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
def test_return_value_of_a_rows_check_counts(returned: str, score: float) -> None:
    test = f"def check(candidate):\n    assert candidate(0) == 1\n    return {returned}"
    with judged(check="test") as reward:
        found = judgement(reward, "def f(x): return x + 1", test=test, entry_point="f")
        assert found.score == score
        assert ("check returned" in found.reason) == (score == 0.0)


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


@pytest.mark.fault("the prelude of a row fails where programs run", sees="no score: prelude can't be run")
@pytest.mark.parametrize(
    ("prelude", "message"),
    [
        ("import no_such_module", "prelude can't be run: ModuleNotFoundError"),
        ("raise SystemExit(0)", "prelude can't be run: SystemExit"),
        ("x = '\ud800'", "column 'before' holds half a surrogate pair"),
        ("x = '\0'", "column 'before' holds a null character"),
    ],
)
def test_a_prelude_that_fails_is_no_fault_of_the_program(prelude: str, message: str) -> None:
    cases = [{"stdin": "", "stdout": "1"}], [call("f", expected=1)]
    program = "def f(): return 1\nif __name__ == '__main__': print(1)"
    with judged(prelude="before") as reward:
        for case in cases:
            assert judgement(reward, program, cases=case, before="x = 1").score == 1.0
            with pytest.raises(DataError) as raised:
                judgement(reward, program, cases=case, before=prelude)
            assert str(raised.value).startswith(message)
            # Not what the program itself does, nor what it says of the prelude.
            forged = "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'1Pno')\n    except OSError: pass\n1/0"
            assert judgement(reward, forged, cases=case, before="x = 1").score == 0.0


def test_a_prelude_that_fails_and_that_the_program_continues_is_no_fault_of_it() -> None:
    body = "    return x + 1"
    with judged(prelude="before") as reward:
        for first, score in (("import math", 1.0), ("import no_such_module", None)):
            before = f'{first}\ndef f(x):\n    """Add one."""\n'
            if score is None:
                with pytest.raises(DataError, match="prelude can't be run: ModuleNotFoundError"):
                    judgement(reward, body, cases=[call("f", 1, expected=2)], before=before)
            else:
                assert judgement(reward, body, cases=[call("f", 1, expected=2)], before=before).score == score
        wrong = judgement(reward, "    return x +", cases=[call("f", 1, expected=2)], before=before.replace(first, ""))
        assert wrong.score == 0.0
        assert "SyntaxError" in wrong.reason


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


def test_a_completion_that_is_no_text_is_named_without_a_number() -> None:
    """A call knows one sample; which one, the failure says."""
    with judged() as reward, pytest.raises(DataError, match=r"^the completion is an int; expected a str or "):
        in_process(reward).judge({"completion": 3, "cases": []})
