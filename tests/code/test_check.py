"""Tests of a dataset on the trusted side, with a proxy of the program's function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guerdon import DataError
from guerdon.rewards.code.factory import CodeReward
from tests.code.programs import checked as run
from tests.code.programs import judged, judgement

ADD = "def add(a, b):\n    return a + b"


def test_check_of_a_candidate(tested: CodeReward) -> None:
    test = "METADATA = {}\ndef check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate('a', b='b') == 'ab'\n"
    assert run(tested, ADD, test, "add").score == 1.0
    wrong = run(tested, "def add(a, b): return a - b", test, "add")
    assert (wrong.score, wrong.reason) == (0.0, "case 0: failed: assert candidate(1, 2) == 3")
    assert run(tested, "x = 1", test, "add").reason == "case 0: the program defines no 'add'"


def test_helpers_of_the_prelude_are_at_hand(tested: CodeReward) -> None:
    """In HumanEval/32, 38 and 50 the test uses a function of the prompt, and so may the program."""
    starter = 'TWO = 2\ndef helper(x):\n    return x * TWO\n\n\ndef half(x):\n    """Undo helper."""\n'
    test = "def check(candidate):\n    assert candidate(helper(21)) == 21 == candidate(21 * TWO)\n"
    assert run(tested, "def half(x):\n    assert helper(1) == 2\n    return x // 2", test, "half", starter).score == 1.0
    assert run(tested, "pass", test, "half", starter).score == 0.0


def test_a_completion_that_goes_on_where_the_prelude_ends(tested: CodeReward) -> None:
    starter = 'def half(x):\n    """Half of x."""\n'
    for body in ("    return x // 2", "    y = x\n    return y // 2\n"):
        assert run(tested, body, "def check(candidate):\n    assert candidate(4) == 2", "half", starter).score == 1.0
    assert (
        run(tested, "    return 2", "def check(candidate): assert candidate(4) == 2", "f", "def f(x):\n").score == 1.0
    )


def test_asserts_in_a_list_are_cases(tested: CodeReward) -> None:
    """MBPP's tests name the function."""
    tests = ["assert add(1, 1) == 2", "assert add(2, 2) == 5", "import math\nassert math.isclose(add(0.1, 0.2), 0.3)"]
    found = run(tested, ADD, tests)
    assert (found.score, found.passed, found.cases) == (pytest.approx(2 / 3), 2, 3)
    assert found.reason == "case 1: failed: assert add(2, 2) == 5"
    assert run(tested, ADD, "\n".join(tests[::2])).score == 1.0


def test_a_test_that_hangs_takes_no_time_of_the_others() -> None:
    tests = ["import math", "assert f(0) == 0", "assert f(1) == 1\nassert f(2) == 2", "assert f(3) == 3"]
    program = "import time\ndef f(x):\n    if x in (0, 2): time.sleep(99)\n    return x"
    with judged(check="test", score="share", timeout=4) as reward:
        found = judgement(reward, program, test=tests)
    assert (found.passed, found.cases) == (1, 3)
    assert found.reason.startswith("case 0: no answer within 1")


def test_the_time_of_a_case_is_for_all_calls_of_its_text() -> None:
    tests = ["for _ in range(99): f(0.3)", "assert f(0) == 0"]
    with judged(check="test", score="share", timeout=15, case_timeout=1.0) as reward:
        found = judgement(reward, "import time\ndef f(x):\n    time.sleep(x)\n    return x", test=tests)
    assert (found.passed, found.cases) == (1, 2)
    assert "no answer within" in found.reason or "the time for the case was up" in found.reason


def test_all_stops_at_the_first_failed_text(tmp_path: Path) -> None:
    tests = ["assert add(1, 1) == 2", "assert add(1, 2) == 4", *["assert add('x', 'y') == 'xy'"] * 3]
    calls = tmp_path / "calls"
    with judged(check="test", isolation="none") as reward:
        found = judgement(reward, ADD, test=tests)
        assert (found.score, found.passed, found.cases) == (0.0, 1, 5)
        assert found.reason == "case 1: failed: assert add(1, 2) == 4"
        program = f"def add(a, b):\n    with open({str(calls)!r}, 'a') as calls: calls.write('x')"
        found = judgement(reward, program, test=["assert add(1, 1) == 2"] * 50)
        assert (found.score, found.cases) == (0.0, 50)
        assert calls.read_text() == "x"
        # What is wrong with a text does not depend on the program.
        with pytest.raises(DataError, match="no Python code"):
            judgement(reward, "def add(a, b): return 0", test=[*tests, "assert ("], entry_point="add")


def test_exceptions_arrive_as_the_builtin_of_their_name(tested: CodeReward) -> None:
    program = (
        "class Own(Exception): pass\nclass Wrong(ValueError): pass\n"
        "def fail(kind):\n"
        "    raise {'value': ValueError('why'), 'wrong': Wrong('why'), 'own': Own('x'), 'key': KeyError(1), 'stop': StopIteration(),\n"
        "           'exit': SystemExit(0), 'unicode': UnicodeDecodeError('utf-8', b'', 0, 1, 'x')}[kind]"
    )
    test = (
        "def raised(kind):\n    try:\n        fail(kind)\n    except Exception as error:\n"
        "        return type(error).__name__, str(error)\n"
        "assert raised('value') == raised('wrong') == ('ValueError', 'why')\n"
        "assert raised('key')[0] == 'KeyError'\n"
        "for kind in ('own', 'stop', 'exit', 'unicode'):\n    assert raised(kind)[0] == 'CandidateError', raised(kind)\n"
    )
    found = run(tested, program, test)
    assert (found.score, found.reason) == (1.0, "")
    assert run(tested, program, "fail('value')").reason == "case 0: ValueError: why, in: fail('value')"


def test_a_program_that_hangs_passes_no_lenient_test() -> None:
    test = "try:\n    spin(1)\nexcept Exception:\n    pass\ntry:\n    spin(2)\nexcept BaseException:\n    pass\n"
    with judged(check="test", timeout=1.0) as reward:
        for program in (
            "def spin(x):\n    while True: pass",
            "import os\ndef spin(x): os._exit(0)",
            "def other(): pass",
            "1/0",
        ):
            found = judgement(reward, program, test=test)
            assert found.score == 0.0, program
            assert found.reason, program


@pytest.mark.fault("the tests of a row can't be run", sees="no score, with what is wrong with them")
@pytest.mark.parametrize(
    ("test", "entry_point", "message"),
    [
        ("def check(candidate:", "add", "check is no Python code"),
        ("import no_such_module\nassert add(1, 1) == 2", "add", "before it called the program: ModuleNotFoundError"),
        ("assert False", "add", "before it called the program: AssertionError"),
        ("assert 1 == 1", None, "no function"),
        ("", "add", "holds no tests"),
        ([], "add", "holds no tests"),
        (3, "add", "holds no tests"),
        ("check(add)", "add", "before it called the program: NameError"),
        ("check(Solution().add)", "add", "before it called the program: NameError"),
        ("assert add(1, 1) == 2\ndef test_a():\n    yield add(1, 1) == 3", "add", "the test test_a yields"),
        (
            "import unittest as u\nadd(1, 1)\nclass TestA(u.TestCase):\n    async def test_a(self): assert add(1, 1) == 3",
            "add",
            "TestA.test_a is not run by unittest",
        ),
        ("add(lambda: add)", "add", "with what can't be sent: a function is no data"),
        ("def tests_add():\n    assert add(1, 1) == 2", "add", "the tests never called the program"),
        (["import math", "x = 1"], "add", "the tests never called the program"),
        ("raise SystemExit", "add", "before it called the program: SystemExit"),
    ],
)
def test_tests_that_are_at_fault_give_no_score(tested: CodeReward, test: Any, entry_point: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        run(tested, ADD, test, entry_point)


def test_a_prelude_that_fails_is_no_fault_of_the_program(tested: CodeReward) -> None:
    with pytest.raises(DataError, match="prelude can't be run: ZeroDivisionError"):
        run(tested, ADD, "assert add(1, 1) == 2", "add", "1 / 0")
    with pytest.raises(DataError, match="prelude can't be run: SystemExit"):
        run(tested, ADD, "assert add(1, 1) == 2", "add", "raise SystemExit")


def test_opaque_objects_can_be_passed_on(tested: CodeReward) -> None:
    test = "assert decode([encode('x')]) == 'x'"
    encode = "def encode(x): return (y for y in x)\n"
    assert run(tested, encode + "def decode(x): return next(x[0])", test).score == 1.0
    assert run(tested, encode + "def decode(x): return x", test).score == 0.0


@pytest.mark.parametrize("inner", ["[]", "range(3)", "{1: b''}", "1 << 8_000_000"])
def test_any_value_of_a_program_can_be_passed_on(inner: str, tested: CodeReward) -> None:
    program = (
        f"def encode(x):\n    value = {inner}\n    for _ in range(98): value = [value]\n    return value\n"
        "def decode(x, y): return 0"
    )
    found = run(tested, program, "assert decode({'a': [encode('x')]}, range(3)) == 'x'")
    assert (found.score, found.passed, found.cases) == (0.0, 0, 1)
    large = "def encode(x): return 1 << 8_300_000\ndef decode(x, y): return 0"
    assert run(tested, large, "assert decode(encode('x') ** 2, range(3)) == 'x'").score == 0.0


def test_tests_that_exit_because_of_a_value_fail(tested: CodeReward) -> None:
    test = "import sys\nif add(1, 1) != 2:\n    sys.exit('wrong')"
    assert (
        run(tested, "def add(a, b): return 0", test, "add").reason == "case 0: SystemExit: wrong, in: sys.exit('wrong')"
    )


def test_a_function_test_runs_once(tested: CodeReward) -> None:
    count = "calls = []\ndef add(a, b):\n    calls.append(1)\n    return a + b if len(calls) == 1 else 0"
    test = "def test():\n    assert add(1, 1) == 2"
    for text in (test, f"{test}\ntest()"):
        assert run(tested, count, text).score == 1.0
        assert run(tested, "def add(a, b): return 3", text).score == 0.0
    several = run(tested, ADD, [test, "assert add(1, 2) == 3", "def test():\n    assert add(1, 1) == 3"])
    assert (several.passed, several.cases) == (2, 3)
    assert run(tested, "def add(a, b):\n    raise SystemExit", test).score == 0.0
    with pytest.raises(DataError, match="the tests never called the program"):
        run(tested, ADD, "def test(number):\n    assert add(1, number) == 3")


def test_a_function_test_that_helps_others_stays(tested: CodeReward) -> None:
    helper = "def test(a, b):\n    return a + b\n"
    assert run(tested, ADD, helper + "assert add(1, 2) == test(1, 2)").score == 1.0
    assert run(tested, ADD, [helper + "assert add(1, 1) == 2", "assert add(1, 2) == test(1, 2)"]).score == 1.0
    assert run(tested, ADD, helper + "def test_a():\n    assert add(1, 2) == test(1, 2)").score == 1.0
    beside = "zero = add(0, 0)\ndef test():\n    assert add(1, 1) == 2"
    assert run(tested, "def add(a, b):\n    return 0", beside).score == 0.0


def _two_of_three(candidate: Any, limit: int) -> float:
    return sum(candidate(number, number) == 2 * number for number in range(limit)) / limit


def test_a_function_of_the_users_own() -> None:
    with judged(check=_two_of_three, score="share") as reward:
        scores = reward(
            completions=[f"```python\n{program}\n```" for program in (ADD, "def add(a, b): return 0", "def f(): pass")],
            entry_point=["add"] * 3,
            limit=[4] * 3,
        )
        assert scores == [1.0, 0.25, 0.0]
        assert reward(completions=[f"```\n{ADD}\n```"], entry_point=[""], limit=[4]) == [None]
    with judged(check=lambda candidate: "yes") as reward, pytest.raises(DataError, match="check returned 'yes'"):
        judgement(reward, ADD, entry_point="add")
    with judged(check=lambda candidate: 10**400) as reward, pytest.raises(DataError, match="an integer of 1329 bits"):
        judgement(reward, ADD, entry_point="add")
    with judged(check=lambda candidate: None) as reward, pytest.raises(DataError, match="never called the program"):
        judgement(reward, ADD, entry_point="add")
    with judged(check=lambda candidate: candidate.function("other")() == 1) as reward:
        assert judgement(reward, "def other(): return 1", entry_point="add").score == 1.0


SOLUTION = "class Solution:\n    def add(self, a, b):\n        return a + b"
POINT = (
    "class Point:\n    def __init__(self, x):\n        self.x = x\n\n    def double(self):\n        return 2 * self.x"
)


@pytest.mark.parametrize(
    ("program", "test"),
    [
        (SOLUTION, "assert Solution().add(1, 2) == 3"),
        (SOLUTION, "def check(candidate):\n    assert Solution().add(1, b=2) == 3"),
        (ADD, "assert add(1, 2) == 3\nassert math.isclose(add(1, 2), 3)\nassert re.match('3', str(add(1, 2)))"),
        (ADD, "def ask(xs: List[int]) -> Optional[int]:\n    return add(*xs)\nassert ask([1, 2]) == 3"),
        (
            ADD,
            "assert add('A', 'b').lower() == 'ab'\nwords = add(['a'], ['b'])\nwords.sort()\nassert words == ['a', 'b']",
        ),
        (ADD, "from functools import reduce\nfor f in [add]:\n    assert reduce(f, [1, 2, 3]) == 6"),
        (ADD, ["class Twice:\n    def of(self, x):\n        return 2 * x", "assert add(1, 1) == Twice().of(1)"]),
        (
            "class Solution:\n    def text(self):\n        return ' ab'",
            "assert Solution().text().strip() == 'ab'",
        ),
        (
            "from datetime import *\ndef next_day(day): return day + timedelta(1)",
            "from datetime import date\nassert next_day(date(2027, 12, 31)) == date(2028, 1, 1)",
        ),
        ("kept = []\ndef put(x): kept.append(x)\ndef get(): return kept", "put(1)\nput(2)\nassert get() == [1, 2]"),
        # A test calls the entry point by its own name (HumanEval/33), and functions beside it.
        (
            ADD + "\n\ndef twice(x):\n    return 2 * x",
            "def check(candidate):\n    assert candidate(1, 1) == add(1, 1) == twice(1) == 2\n",
        ),
    ],
    ids=[
        *("method", "method in check", "modules", "typing", "data", "passed on", "class of the tests"),
        *("method of a method's value", "dates", "several functions", "own name"),
    ],
)
def test_tests_may_use_the_documented_calls(tested: CodeReward, program: str, test: object) -> None:
    found = run(tested, program, test, "add" if "candidate" in test and program is not SOLUTION else None)
    assert (found.score, found.reason) == (1.0, "")


@pytest.mark.fault(
    "tests of a dataset ask for more than calls and data: a constant, an exception or a class of the program",
    sees="NaN, DataError with the line, whatever the program gives; never 0.0",
)
@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("assert add(1, 2) == N + 1", "check takes 'N' for a value, in: assert add(1, 2) == N + 1"),
        ("try:\n    add(1, 2)\nexcept TooLarge:\n    pass", "check takes 'TooLarge' for a value, in: except TooLarge:"),
        ("assert isinstance(add(1, 2), Point)", "check takes 'Point' for a value"),
        ("assert np.allclose(add(1, 2), 3)", "check takes 'np' for a value"),
        ("class Mine(Point):\n    pass\nassert add(1, 2) == 3", "check takes 'Point' for a value"),
        ("import sys, io\nsys.stdout = io.StringIO()\nadd(1, 2)", "check reads what the program prints"),
        ("from contextlib import *\nwith redirect_stdout(None):\n    add(1, 2)", "check reads what the program prints"),
        ("assert " + "(" * 250 + "add(1, 2)" + ")" * 250, "check is no Python code"),
    ],
    ids=["constant", "exception", "type", "module", "base", "stdout", "redirected", "deep"],
)
def test_untransferable_values_are_not_the_programs_fault(tested: CodeReward, test: str, reason: str) -> None:
    for program in (ADD + "\nN = 2\nclass TooLarge(Exception): pass\n" + POINT, "x = 1"):
        with pytest.raises(DataError) as raised:
            run(tested, program, test)
        assert reason in str(raised.value)


def test_tests_may_ask_an_object_of_the_program(tested: CodeReward) -> None:
    test = (
        "assert Point(1).x == 1\np = Point(2)\nassert p.double() == 4\np.x = 3\nassert p.double() == 6\nassert p == p"
    )
    assert run(tested, POINT, test).score == 1.0
    assert run(tested, POINT.replace("2", "3"), test).score == 0.0
