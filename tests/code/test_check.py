"""Tests of a dataset on the trusted side, with a proxy of the program's function."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guerdon import DataError
from guerdon.rewards.code.factory import CodeReward
from tests.code.programs import judged, judgement


@pytest.fixture(scope="module")
def tested() -> Iterator[CodeReward]:
    with judged(check="test", prelude="starter", score="share") as reward:
        yield reward


def run(reward: CodeReward, program: str, test: Any, entry_point: str | None = None, starter: str = "") -> Any:
    return judgement(reward, program, test=test, entry_point=entry_point, starter=starter)


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


ROW = """
class Row:
    made = 0
    def __init__(self, *parts): self.parts = list(parts)
    def __add__(self, other): return Row(*self.parts, *other.parts)
    def __len__(self): return len(self.parts)
    def __iter__(self): return iter(self.parts)
    def __getitem__(self, place): return self.parts[place]
    def __setitem__(self, place, part): self.parts[place] = part
    def __delitem__(self, place): del self.parts[place]
    def __contains__(self, part): return part in self.parts
    def __reversed__(self): return iter(self.parts[::-1])
    def __str__(self): return f"Row{self.parts}"
    def __format__(self, how): return how + str(self)
    def __bool__(self): return any(self.parts)
    def __int__(self): return sum(self.parts)
    def __hash__(self): return hash(tuple(self.parts))
    def __enter__(self): self.open = True; return self
    def __exit__(self, kind, error, trace): self.open, self.kind = False, kind
    def head(self): return self
    async def size(self): return len(self.parts)
async def size(row): return await row.size()
ONE = Row(1)
def one(): return ONE
def count(): return iter(Row(5, 6))
"""


COPIED = (
    "import copy\nrow = Row(1)\nalike, apart = copy.copy(row), copy.deepcopy(row)\nrow[0] = 2\n"
    "assert alike.parts == [2] and apart.parts == [1] and len(apart + row) == 2 and len(apart) == 1"
)
ASKED = (
    ("*other.parts", "", "assert (Row(1) + Row(2)).parts == [1, 2]"),
    ("return len", "return 1 + len", "assert len(Row(1, 2)) == 2"),
    ("iter(self.parts)", "iter([])", "assert [part + 1 for part in Row(1, 2)] == [2, 3] and list(count()) == [5, 6]"),
    ("self.parts[place]\n", "self.parts\n", "assert Row(1, 2)[1] == 2 and Row(1, 2, 3)[1:] == [2, 3]"),
    ("= part\n", "= 0\n", "row = Row(1, 2)\nrow[0] = 5\ndel row[1]\nassert row.parts == [5]"),
    ("part in", "part not in", "assert 1 in Row(1) and 2 not in Row(1)"),
    ("[::-1]", "", "assert list(reversed(Row(1, 2))) == [2, 1]"),
    ('f"Row', 'f"row', "assert str(Row(1)) == 'Row[1]' and f'{Row(1):>}' == '>Row[1]'"),
    ("any(self", "all(self", "assert Row(0, 1) and not Row(0) and bool(Row(1)) is True"),
    ("sum(", "max(", "assert int(Row(1, 2)) == 3"),
    ("hash(tuple", "len(tuple", "assert hash(Row(1)) == hash(Row(1)) != hash(Row(2))"),
    (
        "True; return self",
        "True; return 1",
        "with Row(1) as row:\n    assert row.open\nassert not row.open and row.kind is None",
    ),
    ("return ONE", "return Row(1)", "assert one() is one() and one() is not Row(1)"),
    ("def head(self): return self", "def head(self): return Row(1)", "row = Row(1)\nassert row.head() is row"),
    ("return Row(*self.parts, *other.parts)", "self.parts += other.parts; return self", COPIED),
    ("return await", "await", "import asyncio\nassert asyncio.run(size(Row(1))) == 1"),
    ("return await", "await", "async def check(_):\n    assert await size(Row(1, 2)) == 2"),
    ("return await", "await", "async def test_a():\n    assert await size(Row(1, 2)) == 2"),
    (
        "async def size(self): return",
        "async def size(self):",
        (
            "import unittest as u\nclass TestRow(u.TestCase):\n    def setUp(self): self.row = Row(1)\n"
            "    def test_a(self): self.assertIs(self.row.head(), self.row)\n"
            "class TestSize(u.IsolatedAsyncioTestCase):\n    async def asyncSetUp(self): self.row = Row(1)\n"
            "    async def test_a(self): self.assertEqual(await size(self.row), 1)"
        ),
    ),
)


def test_values_that_objects_of_a_program_give_are_data(tested: CodeReward) -> None:
    found = run(tested, ROW, [test for *_, test in ASKED])
    assert (found.score, found.reason) == (1.0, "")
    for right, wrong, test in ASKED:
        assert right in ROW
        assert run(tested, ROW.replace(right, wrong), test).score == 0.0, test


def test_attributes_of_any_name_are_the_programs(tested: CodeReward) -> None:
    card = "class Card:\n    def __init__(self):\n        self.kind, self.number, self._ask = 'club', 7, 'who?'"
    test = "card = Card()\nassert (card.kind, card.number, card._ask) == ('club', 7, 'who?')"
    assert run(tested, card, test).score == 1.0
    assert run(tested, card.replace("7", "8"), test).score == 0.0


def test_a_function_of_the_program_may_be_called_check(tested: CodeReward) -> None:
    tests = ["assert check(2) == 2", "import math\nassert check(math.pi) > 3", "assert check(abs(-1)) == 1"]
    assert run(tested, "def check(x): return x", tests, "check").score == 1.0


def test_an_object_without_a_number_is_the_programs_fault(tested: CodeReward) -> None:
    program = (
        "import sys\nsys.modules['guerdon.rewards.code.child.objects'].Objects.number = lambda *_: -1\n"
        "def enc(x):\n    return map(str, [x])\ndef dec(x):\n    return 1"
    )
    assert run(tested, program, "assert dec(enc(1)) == 1").score == 0.0


TEXT = "def text():\n    return ' ab'\ndef number():\n    return 3"
ANYTHING = (
    "class Any:\n    def __getattr__(self, name):\n        return lambda *_, **__: True\ndef text():\n    return Any()"
)


@pytest.mark.parametrize(
    "test",
    [
        "assert text().strip().startswith('a')",
        "assert text().strip() == 'ab'\nassert text().strip().upper().split() == ['AB']",
        "assert number().bit_length() == 2 and text().strip().isalpha()",
        "from math import *\nassert number() < pi",
        "from collections import *\nassert Counter(text()).most_common(1) == [(' ', 1)]",
    ],
    ids=["startswith", "chain", "number", "star of math", "star of collections"],
)
def test_methods_of_data_are_called_here(tested: CodeReward, test: str) -> None:
    right = run(tested, TEXT, test)
    assert (right.score, right.reason) == (1.0, "")
    for entry_point in (None, "text"):
        assert run(tested, ANYTHING + "\nnumber = text", test, entry_point).score == 0.0


@pytest.mark.parametrize("depth", [97, 98, 99, 100, 101])
def test_a_value_that_can_t_be_sent_back_is_the_programs_fault(tested: CodeReward, depth: int) -> None:
    program = f"def deep(x):\n    for _ in range({depth}):\n        x = [x]\n    return x\ndef flat(x):\n    return 1"
    assert run(tested, program, "assert flat([[deep(1)]]) == 2").score == 0.0


APPLY = """
import functools
def apply(f, items):
    return [f(item) for item in items]
def logged(f):
    @functools.wraps(f)
    def inner(*args):
        return f(*args)
    return inner
known = []
def on(f):
    known.append(f)
def off(f):
    known.remove(f)
"""


@pytest.mark.parametrize(
    "test",
    [
        "assert apply(lambda x: x * 2, [1, 2]) == [2, 4]",
        "def double(x, by=2):\n    return x * by\nassert apply(items=[1, 2], f=double) == [2, 4]",
        "assert apply(str, (1, 2)) == ['1', '2']",
        "def double(x):\n    return 2 * x\ntwice = logged(double)\nassert (twice(2), twice.__name__) == (4, 'double')",
        "def seen(x): return x\non(seen)\noff(seen)",
        "def bad(x): raise ValueError('no')\nimport pytest\nwith pytest.raises(ValueError, match='no'):\n    apply(bad, [1])",
    ],
)
def test_functions_of_tests_are_arguments(tested: CodeReward, test: str) -> None:
    assert run(tested, APPLY, test).score == 1.0
    assert run(tested, "def apply(f, items): return items\ndef logged(f): return lambda x: 5", test).score == 0.0


@pytest.mark.parametrize(
    "test",
    [
        "seen = []\napply(lambda x: seen.append(x), [1])\nassert seen == [1]",
        "n = 0\ndef count(x):\n    global n\n    n += 1\napply(count, [1])\nassert n == 1",
        "def key(x): return x\ndef key(x): return -x\nassert apply(key, [1]) == [-1]",
        "str = lambda x: 3\nassert apply(str, [1]) == [3]",
        "for n in (1, 2):\n    assert apply(lambda x, n=n: x * n, [3]) == [3 * n]",
        "def seen(x):\n    seen.calls += 1\nseen.calls = 0\napply(seen, [1])\nassert seen.calls == 1",
    ],
    ids=["list", "global", "twice", "builtin", "default", "attribute"],
)
def test_functions_that_need_the_tests_are_no_arguments(tested: CodeReward, test: str) -> None:
    with pytest.raises(DataError, match="a function is no data"):
        run(tested, APPLY, test)
