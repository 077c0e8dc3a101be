"""When an output is the expected one, by rule."""

from __future__ import annotations

import math
from collections import deque
from fractions import Fraction

import pytest

from guerdon.rewards.code.child.encoding import Opaque
from guerdon.rewards.code.trusted.compare import Compare, outputs_match, shown, values_match

SAME = {
    "exact": [("a\n", "a"), ("a", "a \n\n"), ("a\nb", "a  \nb\t\n"), ("", "\n")],
    "tokens": [("1 2\n3", "1\n2 3"), ("", " \n"), ("1 2", " 1\n\n2\x1c")],
    "numbers": [
        ("0.1", "0.10000000001"),
        ("1 x", "1.0 x"),
        ("1e3", "1000"),
        ("nan", "NaN"),
        ("inf", "inf"),
        ("+07", "7"),
        ("-Infinity", "-inf"),
        (".5", "0.50"),
        ("1.", "1"),
        ("1e400", "1e400"),
        ("1000000.0", "1000001"),
        ("007", "+7"),
        ("-0", "0"),
        ("nan inf", "NaN Infinity"),
    ],
}
DIFFERENT = {
    "exact": [("a", "b"), ("a\nb", "a\n\nb"), ("a", " a"), ("1", "1.0"), ("a", "")],
    "tokens": [("1 2", "12"), ("1", "1.0"), ("1", "1 2")],
    "numbers": [
        *[("1", "1.001"), ("x", "y"), ("1 2", "1"), ("1", "x"), ("1", "nan"), ("1" * 500, "2" * 500)],
        ("1000000007", "1000000008"),
        *[
            ("1e400", "1e500"),
            ("1e400", "1.0e400"),
            ("1e400", "inf"),
            ("inf", "1e308"),
            ("1" * 390 + ".5", "inf"),
            ("inf", "-inf"),
        ],
        *[("1_0", "10"), ("\u0663", "3"), ("1_0.0", "10"), ("0x10", "16"), ("in", "inf")],
    ],
}


@pytest.mark.parametrize("rule", ["exact", "tokens", "numbers"])
def test_printed_texts(rule: Compare) -> None:
    for expected, printed in SAME[str(rule)]:
        assert outputs_match(expected, printed, rule), (expected, printed)
    for expected, printed in DIFFERENT[str(rule)]:
        assert not outputs_match(expected, printed, rule), (expected, printed)


@pytest.mark.parametrize(
    ("expected", "value", "same"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, True),
        (1, "1", False),
        ([1, [2]], (1, (2,)), True),
        ([1], [1, 2], False),
        ({"a": (1,)}, {"a": [1]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({1, 2}, {2, 1}, True),
        ({1}, [1], False),
        (math.nan, math.nan, True),
        (None, None, True),
        (None, 0, False),
        (0.1 + 0.2, 0.3, False),
        (1, Opaque("Always"), False),
        (10**400, 1.0, False),
    ],
)
def test_returned_values(expected: object, value: object, same: bool) -> None:
    assert values_match(expected, value, "exact") is same


def test_half_surrogates_are_compared_as_they_are() -> None:
    for rule in ("exact", "tokens", "numbers"):
        assert not outputs_match("\ufffd", "\udcff", rule)  # type: ignore[arg-type]
        assert outputs_match("a \ud800 b", "a \ud800 b\n", rule)  # type: ignore[arg-type]
        assert not outputs_match("a \ud800 b", "a \ud801 b\n", rule)  # type: ignore[arg-type]


def test_numbers_in_values_may_differ_a_little() -> None:
    assert values_match([0.1 + 0.2, {"x": 1.0}], [0.3, {"x": 1.0000000001}], "numbers")
    assert not values_match([0.3], [0.31], "numbers")
    assert not values_match(3, 4, "numbers")
    assert not values_match(10**400, 1.0, "numbers")


def test_a_function_decides() -> None:
    assert outputs_match("b a", "a b", lambda expected, printed: sorted(expected.split()) == sorted(printed.split()))
    assert not values_match([1], [2], lambda expected, value: expected == value)


def test_reasons_are_short() -> None:
    for value in (
        "x" * 10**6,
        10**10**5,
        [[1] * 100] * 100,
        {"a": "b" * 10**6},
        Opaque("x" * 100),
        {1.5},
        (),
        b"a" * 999,
    ):
        assert len(shown(value)) <= 81, value
    assert shown([1, "a"]) == "[1, 'a']"
    assert shown((1,)) == "(1)"
    assert shown((deque([1]), range(3), Fraction(1, 3))) == "(deque([1]), range(0, 3), Fraction(1, 3))"
    assert shown({"a": None}) == "{'a': None}"
    assert shown([[[[1]], []], {"a": {"b": ()}}]) == "[[[[…]], []], {'a': {'b': ()}}]"
