"""Values, objects and functions that cross between the tests of a dataset and a program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from guerdon import DataError
from guerdon.rewards.code.factory import CodeReward
from tests.code.programs import checked as run
from tests.code.programs import judged, judgement


@pytest.fixture(scope="module")
def tested() -> Iterator[CodeReward]:
    with judged(check="test", prelude="starter", score="share") as reward:
        yield reward


ROW = """
class Row:
    made = 0
    def __init__(self, *parts): self.parts = list(parts)
    def __add__(self, other): return Row(*self.parts, *other.parts)
    def __lshift__(self, places): return Row(*self.parts[places:])
    def __rrshift__(self, part): return Row(part, *self.parts)
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
    ("[places:]", "", "assert (Row(1, 2) << 1).parts == [2]"),
    ("Row(part, *self", "Row(*self", "assert (0 >> Row(1)).parts == [0, 1]"),
    ("[places:]", "", "row = Row(1, 2)\nrow <<= 1\nassert row.parts == [2]"),
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
    (
        "return await",
        "await",
        "import asyncio\nasync def both(): return await asyncio.gather(size(Row(1)), size(Row(1, 2)))\nassert asyncio.run(both()) == [1, 2]",
    ),
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


QUIET = """
class Quiet:
    def __enter__(self): return self
    def __exit__(self, kind, error, trace): return kind is not None
def three(): return 3
"""


def test_a_context_silences_only_what_the_tests_raise(tested: CodeReward) -> None:
    test = "with Quiet():\n    int('x')\nwith Quiet() as quiet:\n    1 / 0\nassert three() == 3"
    assert run(tested, QUIET, test).score == 1.0
    assert run(tested, QUIET.replace("kind is not None", "False"), test).score == 0.0
    wrong = QUIET.replace("3", "4")
    asks = "def asks():\n    assert three() == 3\nwith Quiet():\n    asks()"
    for body in ("assert three() == 3", "assert three() == 3\n    int('x')", "assert 3 == 4"):
        assert run(tested, wrong, f"three()\nwith Quiet():\n    {body}").score == 0.0
    assert run(tested, wrong, asks).score == 0.0
    knows = "found = three()\ndef asks():\n    if found != 3: int('x')\nwith Quiet():\n    asks()"
    assert run(tested, wrong, knows).score == 0.0
    assert run(tested, wrong, asks.replace("assert three() == 3", "if three() != 3: raise ValueError")).score == 0.0
    for kept in (
        "found = {}\nfound['a'] = three()",
        "class Found: pass\nfound = Found()\nsetattr(found, 'a', three())",
    ):
        value = "found['a']" if "{}" in kept else "found.a"
        assert run(tested, wrong, f"{kept}\nwith Quiet():\n    assert {value}[0] == 3").score == 0.0


STACK = """
class Stack(list):
    def push(self, one): pass
    def __contains__(self, one): return True
"""


@pytest.mark.parametrize(
    "test",
    [
        "s = Stack()\nassert 5 in s",
        "s = Stack()\ns.push(5)\nassert 5 in s",
        "made = [Stack()]\ns = Stack()\ns.push(5)\nassert 5 in made[0]",
    ],
)
def test_a_class_of_data_does_not_decide_what_it_contains(tested: CodeReward, test: str) -> None:
    assert run(tested, STACK, test).score == 0.0


@pytest.mark.parametrize(
    "tests",
    [
        ["import operator\ns = Stack([1])\ns.push(2)\nassert operator.contains(s, 5)"],
        ["s = Stack([1])\ns.push(2)", "assert 5 in s"],
    ],
)
def test_a_class_of_data_does_not_decide_it_elsewhere(tested: CodeReward, tests: list[str]) -> None:
    assert run(tested, STACK, tests).score != 1.0


@pytest.mark.parametrize(
    "test",
    [
        "import json\nassert json.dumps(Stack([1])) == '[1]' and isinstance(Stack(), list)",
        "s = Stack([2, 1])\ns.sort()\nassert s == [1, 2] and s[::-1] == [2, 1] and 1 in s",
    ],
)
def test_objects_of_a_class_of_data_are_data_where_tests_use_them_so(tested: CodeReward, test: str) -> None:
    assert run(tested, STACK, test).score == 1.0


@pytest.mark.parametrize(
    "test",
    [
        "if three() != 3:\n    exit()",
        "try:\n    assert three() == 3\nexcept AssertionError:\n    exit()",
        "def test_a():\n    assert three() == 3\nthree()\nexit()",
        "import unittest\nthree()\nassert unittest.main(exit=False) and three() == 3",
        (
            "import unittest\ndef run():\n    class TestA(unittest.TestCase):\n        def test_a(self): assert three() == 3\n"
            "    three()\n    unittest.main()\nrun()"
        ),
        (
            "import unittest\nclass TestA(unittest.TestCase):\n    def check_a(self): assert three() == 3\n"
            "three()\nunittest.main(defaultTest='TestA.check_a')"
        ),
        "import pytest\n@pytest.mark.skipif(three() != 3, reason='')\ndef test_a():\n    assert three() == 3",
        "import unittest\nclass TestA(unittest.TestCase):\n    @unittest.expectedFailure\n    def test_a(self):\n        assert three() == 3",
    ],
)
def test_a_wrong_value_ends_or_skips_no_test(tested: CodeReward, test: str) -> None:
    assert run(tested, QUIET.replace("3", "4"), test).score == 0.0


def test_a_function_of_the_tests_is_not_taken_for_that_of_the_programs_module(tested: CodeReward) -> None:
    with pytest.raises(DataError, match="No module named 'solution'"):
        run(tested, QUIET, "import solution\ndef three(): return 3\nassert solution.three() == three()\nQuiet()")
    with pytest.raises(DataError, match="No module named 'solution'"):
        run(tested, QUIET, "import solution\nassert solution.max(1, 2) == 2\nQuiet()")


def test_a_part_that_functions_of_the_tests_change_is_a_copy(tested: CodeReward) -> None:
    program = "class Node:\n    def __init__(self): self.below = [2, 1]"
    data = "import numpy as np\nrows = np.array([[2, 1], [1, 0]])\nrows[:, 0].sort()\nrows[1:, :][0][0] = 7\nassert rows.tolist() == "
    assert run(tested, program, f"{data}[[1, 1], [7, 0]]\nassert Node().below == [2, 1]").score == 1.0
    for change in ("append(lambda: 1)", "insert(0, iter)", "__setitem__(0, int)"):
        assert run(tested, program, f"node = Node()\nnode.below.{change}\nassert node.below == [2, 1]").score == 1.0
    for how in ("lambda one: one", "int"):
        assert (
            run(tested, program, f"node = Node()\nnode.below.sort(key={how})\nassert node.below == [2, 1]").score == 1.0
        )


def test_calls_on_threads_that_wait_for_each_other_give_no_score() -> None:
    program = "import threading\nboth = threading.Barrier(2)\ndef meet():\n    both.wait()"
    test = "import threading\nthread = threading.Thread(target=lambda: meet())\nthread.start()\nmeet()\nthread.join()"
    with judged(check="test", timeout=0.5) as reward, pytest.raises(DataError, match="wait for each other"):
        judgement(reward, program, test=test)


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
