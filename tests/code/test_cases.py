"""The shapes of cases, and what is none of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from guerdon import DataError
from guerdon._code.cases import CallCase, StdinCase, parse_cases


def test_own_shapes() -> None:
    stdin = {"stdin": "1\n", "stdout": "2\n"}
    call = {"fn": "f", "args": [1], "kwargs": {"b": 2}, "expected": 3}
    cases = [StdinCase("1\n", "2\n"), CallCase("f", [1], (3,), {"b": 2})]
    assert parse_cases([stdin, call]) == cases
    assert parse_cases(json.dumps([stdin, call])) == cases
    assert parse_cases(stdin) == cases[:1]
    assert parse_cases([{"stdout": "x"}]) == [StdinCase("", "x")]
    assert parse_cases([{"fn": "f", "expected": None}]) == [CallCase("f", [], (None,))]
    assert parse_cases([{"args": [1], "expected": 2}], "g") == [CallCase("g", [1], (2,))]
    # Arrow has one type a field: values of several are JSON, and missing ones None.
    filled = {"stdin": None, "stdout": None, "fn": "f", "args": '[1, "a"]', "kwargs": None, "expected": 3}
    assert parse_cases(np.array([filled], dtype=object)) == [CallCase("f", [1, "a"], (3,))]


def test_apps() -> None:
    assert parse_cases(json.dumps({"inputs": ["1\n", ["2", "3"]], "outputs": ["a", ["b", "c"]]})) == [
        StdinCase("1\n", "a"),
        StdinCase("2\n3", "b\nc"),
    ]
    calls = parse_cases({"fn_name": "f", "inputs": [[1, 2], [[1]]], "outputs": [[3], [1, 2]]})
    assert calls == [CallCase("f", [1, 2], ([3], 3)), CallCase("f", [[1]], ([1, 2],))]


def test_live_code_bench() -> None:
    stdin = {"input": "1\n", "output": "2\n", "testtype": "stdin"}
    call = {"input": '[1, 2]\n"a"', "output": "true", "testtype": "functional"}
    assert parse_cases(json.dumps([stdin])) == [StdinCase("1\n", "2\n")]
    assert parse_cases([call], "twoSum") == [CallCase("twoSum", [[1, 2], "a"], (True,))]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "cases is empty"),
        (None, "cases is a NoneType"),
        (3, "cases is a int"),
        ("[", "not JSON"),
        ("", "not JSON"),
        ([1], "case 0 is a int"),
        ([{"stdout": "a"}, {}], "case 1 has nothing"),
        ([{"stdin": "a"}], "case 0 has stdin"),
        ([{"stdin": 1, "stdout": "a"}], "no text"),
        ([{"args": [1], "expected": 1}], "names no function"),
        ([{"fn": "f", "args": 1, "expected": 1}], "args is a list"),
        ([{"fn": "f", "args": "{", "expected": 1}], "not JSON"),
        ([{"fn": "f", "args": [1]}], "case 0 has fn, args"),
        ({"inputs": ["1"], "outputs": []}, "of one length"),
        ({"inputs": [], "outputs": []}, "cases is empty"),
        ([{"input": "[", "output": "1", "testtype": "functional"}], "not JSON"),
    ],
)
def test_bad_cases_are_refused_with_what_is_wrong(value: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_cases(value, None)
