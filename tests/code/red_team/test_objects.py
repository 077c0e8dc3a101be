"""Objects of a program that equal, hold and exceed everything: never 1, and never a NaN that such a
program can choose.

An honest program scores 1 by the same tests, or these tests give no program a score.
"""

from __future__ import annotations

import pytest

from guerdon.errors import DataError
from guerdon.rewards.code.factory import CodeReward
from tests.code.programs import YES, judgement

ONE_STATE = YES.replace("self.args = args", "self.args = ()")  # all objects have one state
SHARED = YES.replace("self.args = args", "self.__dict__ = shared") + "\nshared = {}"
LAST = (
    YES.replace("self.args = args", "made.append(self)").replace(
        "def same(self, *args): return self", "def same(self, *args): return made[-1]"
    )
    + "\nmade = []"
)
HOSTILE = (YES, ONE_STATE, SHARED, LAST)


DATA = {
    "return 3": [
        "assert f(1) == 3",
        "assert 3 == f(1)",
        "assert f(1) != 4 and f(1) == 3",
        "assert f(1) > 2",
        "assert 2 < f(1) < 4",
        "assert f(1) in (1, 2, 3)",
        "x = f(1)\nx += 1\nassert x == 4",
        "assert hash(f(1)) == hash(3)",
        "assert Solve(1) == 3",
        "for x, y in [(1, 3)]:\n    assert Solve(x) == y",
        "assert f(1) + f(1) == 6",
        "assert -f(1) == -3",
        "assert f(1) * 2 == 6",
    ],
    "return 2.5": [
        "assert abs(f(1) - 2.5) < 1e-6",
        "assert abs(2.5 - f(1)) < 1e-6",
        "assert round(f(1) - 2.5, 6) == 0",
        "assert abs(f(1) / 2.5 - 1) < 1e-6",
        "import pytest\nassert f(1) == pytest.approx(2.5)\nassert pytest.approx(2.5) == f(1)",
        "import math\nassert math.isclose(f(1), 2.5)",
        "import unittest\nclass TestF(unittest.TestCase):\n    def test_a(self): self.assertAlmostEqual(f(1), 2.5)",
        "assert abs(Solve(1) - 2.5) < 1e-6",
        "x = Solve(1)\nassert abs(x - 2.5) < 1e-6",
    ],
    "return 6": [
        "assert f(1) % 3 == 0 and f(1) > 5",
        "assert f(1) // 6 == 1",
        "assert f(1) ^ 6 == 0",
        "assert f(1) << 1 == 12",
        "assert 12 >> f(1) == 0",
    ],
    "return [1, 2]": [
        "assert 2 in f(1)",
        "assert all(one in f(1) for one in (1, 2))",
        "assert sum(f(1)) == 3",
        "assert sorted(f(1)) == [1, 2]",
        "assert max(f(1)) == 2",
        "assert f(1)[:1] == [1]",
        "assert len(f(1)) == 2",
        "assert set(f(1)) == {1, 2}",
    ],
    "return 'ab'": [
        "assert str(f(1)) == 'ab'",
        "assert f'{f(1)}' == 'ab'",
    ],
    "return {1: 2}": [
        "assert f(1)[1] == 2",
    ],
    "return None": [
        "assert f(1) is None",
    ],
    "return True": [
        "assert Solve(1) is True",
    ],
}


@pytest.mark.fault(
    "a function returns an object that equals, exceeds, holds and divides everything, where tests expect data",
    sees="0, whatever operator the tests use; a program that returns the data scores 1",
)
@pytest.mark.parametrize("honest", DATA)
def test_an_object_in_place_of_data_scores_0(tested: CodeReward, honest: str) -> None:
    right = judgement(tested, f"def f(x): {honest}\nSolve = f", test=DATA[honest])
    assert (right.score, right.reason) == (1.0, "")
    for program in HOSTILE:
        assert judgement(tested, f"{program}\nSolve = f", test=DATA[honest]).score == 0.0


VECTOR = """
class Vec:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, other): return Vec(self.x + other.x, self.y + other.y)
    def __sub__(self, other): return Vec(self.x - other.x, self.y - other.y)
    def __mul__(self, other): return Vec(self.x * other, self.y * other)
    __rmul__ = __mul__
    def __truediv__(self, other): return Vec(self.x / other, self.y / other)
    def __radd__(self, other): return self
    def __matmul__(self, other): return self.x * other.x + self.y * other.y
    def __eq__(self, other): return (self.x, self.y) == (other.x, other.y)
    def __lt__(self, other): return abs(self) < abs(other)
    def __lshift__(self, other): return Vec(self.x << other, self.y << other)
    def __rshift__(self, other): return Vec(self.x >> other.x, self.y >> other.y)
    def __abs__(self): return abs(self.x) + abs(self.y)
    def __hash__(self): return hash((self.x, self.y))
    def add(self, other): return self + other
def total(vectors): return sum(vectors)
"""
CHEATING = [f"{program.replace('class Yes', 'class Vec').replace('Yes(', 'Vec(')}\ntotal = f" for program in HOSTILE]


@pytest.mark.fault(
    "tests compare objects of the program's class by value, so that the class decides whether they pass",
    sees="NaN with what to do, for each program: also one that is right, or whose class equals everything",
)
@pytest.mark.parametrize(
    "test",
    [
        "assert Vec(1, 2) + Vec(3, 4) == Vec(4, 6)",
        "assert Vec(4, 6) == Vec(1, 2).add(Vec(3, 4))",
        "assert not Vec(1, 2) == Vec(1, 3)",
        "assert abs(Vec(1, 2) + Vec(3, 4) - Vec(4, 6)) < 1e-9",
        "a, b = Vec(1, 2), Vec(1, 2)\nd = a - b\nassert abs(d) == 0",
        "a, b = Vec(1, 2), Vec(1, 2)\nd = a - b\nassert not d",
        "assert Vec(1, 2) != Vec(1, 3)",
        "assert Vec(1, 2) < Vec(3, 4)",
        "a = Vec(1, 2)\nb = Vec(3, 4)\nassert b > a",
        "assert total([Vec(1, 2), Vec(3, 4)]) == Vec(4, 6)",
        "assert [Vec(1, 2) * 2] == [Vec(2, 4)]",
        "for a, b, c in [(Vec(1, 2), Vec(3, 4), Vec(4, 6))]:\n    assert a + b == c",
        "for a, b in zip([Vec(1, 2)], [Vec(1, 2)]):\n    assert a == b",
        "assert sorted([Vec(3, 4), Vec(1, 2)])[0].x == 1",
        "vectors = [Vec(3, 4), Vec(1, 2)]\nassert min(vectors).x == 1",
        "vectors = [Vec(n, n) for n in (1, 2)]\nfor v in vectors:\n    assert total([v]) == v",
        "seen = set()\nfor v in [Vec(1, 2)]:\n    seen.add(v)\nassert len(seen) == 1",
        "vectors = [Vec(3, 4), Vec(1, 2)]\nvectors.sort()\nassert vectors[0].x == 1",
        "assert len({Vec(1, 2), Vec(1, 2)}) == 1",
        "assert Vec(1, 2) in [Vec(1, 2)]",
        "expected = Vec(4, 6)\nassert Vec(1, 2) + Vec(3, 4) == expected",
        "def same(a, b): assert a == b\nsame(Vec(1, 2) + Vec(3, 4), Vec(4, 6))",
        (
            "import unittest as u\nclass TestVec(u.TestCase):\n    def setUp(self): self.v = Vec(1, 2)\n"
            "    def test_a(self): self.assertEqual(self.v.add(self.v), Vec(2, 4))"
        ),
        "import pytest\n@pytest.mark.parametrize('a, b', [(Vec(1, 2), Vec(2, 4))])\ndef test_a(a, b): assert a + a == b",
        "assert Vec(1, 2).x == 1 and Vec(1, 2) == (1, 2)",
        "assert Vec(1, 2) is not None and Vec(1, 2).y == 2 and Vec(2, 2) != 7",
        "assert abs(Vec(1, 2) @ Vec(3, 4) - 11) < 1e-6",
        "assert ((Vec(1, 2) + Vec(3, 4)) / 2).x == 2",
        "for v in (lambda: [Vec(2, 4)])():\n    assert (v / 2).x == 1",
        "assert 0 == Vec(1, 2) - Vec(1, 2)",
        "with Vec(1, 2):\n    raise ValueError",
    ],
)
def test_objects_that_are_compared_by_value_have_no_score(tested: CodeReward, test: str) -> None:
    for program in (VECTOR, *CHEATING):
        with pytest.raises(DataError, match="of the program"):
            judgement(tested, program, test=test)


GIVEN = [
    "v = Vec(1, 2) + Vec(3, 4)\nassert (v.x, v.y) == (4, 6)",
    "assert (2 * Vec(1, 2)).y == 4 and (Vec(1, 2) * 2).x == 2",
    "assert (2 * Vec(1, 2) * 3 + Vec(0, 1)).y == 13",
    "assert Vec(1, 2) @ Vec(3, 4) == 11",
    "assert (Vec(1, 2) << 1).y == 4 and (Vec(1, 2) >> Vec(0, 1)).y == 1",
    "assert abs(Vec(1, -2)) == 3",
    "assert total([Vec(1, 2), Vec(3, 4)]).x == 4 and sum([Vec(1, 2), Vec(3, 4)]).y == 6",
    "v = Vec(1, 2)\nv += Vec(1, 1)\nassert v.x == 2",
    "assert hash(Vec(1, 2)) == hash(Vec(1, 2)) != hash(Vec(1, 3))",
    "assert sorted([Vec(3, 4), Vec(1, 2)], key=lambda v: v.x)[0].y == 2",
    "for a, b, x in [(Vec(1, 2), Vec(3, 4), 4)]:\n    assert (a + b).x == x",
    "assert (Vec(3, 4) - Vec(1, 1)).x == 2",
]


@pytest.mark.fault(
    "tests ask what an object of the program gives: its operators, text, items, length and truth",
    sees="1 for a right program and 0 for one that says yes to everything",
)
def test_values_that_objects_give_are_compared(tested: CodeReward) -> None:
    right = judgement(tested, VECTOR, test=GIVEN)
    assert (right.score, right.reason) == (1.0, "")
    for program in CHEATING:
        assert judgement(tested, program, test=GIVEN).score == 0.0
