"""The shapes of cases, and what is none of them."""

from __future__ import annotations

import datetime
import json
import re

import numpy as np
import pytest

from guerdon import DataError
from guerdon.rewards.code.trusted.cases import CallCase, StdinCase, function_name, parse_cases


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


def test_nulls_filled_in_by_arrow_are_absent() -> None:
    case = {"fn": "f", "args": [None], "kwargs": {"x": 1, "y": None}, "expected": None}
    assert parse_cases([case]) == [CallCase("f", [None], (None,), {"x": 1})]
    # None that was written is None: in JSON nothing is filled in.
    written = {**case, "kwargs": json.dumps(case["kwargs"])}
    for value in (json.dumps([case]), [written]):
        assert parse_cases(value) == [CallCase("f", [None], (None,), {"x": 1, "y": None})]


def test_a_list_for_each_field() -> None:
    both = [StdinCase("1", "2"), StdinCase("3", "4")]
    # As of code_contests, and of Arrow's lists of structs.
    assert parse_cases({"input": ["1", "3"], "output": ["2", "4"]}) == both
    assert parse_cases({"stdin": np.array(["1", "3"]), "stdout": np.array(["2", "4"]), "fn": None}) == both
    assert parse_cases(json.dumps({"stdin": ["1", "3"], "stdout": ["2", "4"]})) == both
    calls = {"fn": ["f", "g"], "args": [[1], [2]], "expected": [3, 4]}
    assert parse_cases(calls) == [CallCase("f", [1], (3,)), CallCase("g", [2], (4,))]
    assert parse_cases({"fn": "f", "args": [[1], [2]], "expected": [3, 4]}) == [CallCase("f", [[1], [2]], ([3, 4],))]


def test_keys_of_json_are_texts_and_may_mean_integers() -> None:
    assert parse_cases([{"fn": "f", "expected": {"2": 2}}]) == [CallCase("f", [], ({"2": 2}, {2: 2}))]
    nested = parse_cases('{"inputs": [[{"1": 2}]], "outputs": [[{"-1": {"0": 1}}]], "fn_name": "f"}')
    assert nested[0].args == [{1: 2}]  # type: ignore[union-attr]
    assert {-1: {0: 1}} in nested[0].expected  # type: ignore[union-attr]
    assert {"-1": {"0": 1}} in nested[0].expected  # type: ignore[union-attr]
    for other in ({"a": 1, "2": 2}, {"01": 1}, {2: 2}, {}):
        assert parse_cases([{"fn": "f", "expected": other}]) == [CallCase("f", [], (other,))]


def test_numbers_of_numpy_are_builtin_ones_also_in_tuples() -> None:
    given = {"fn": "f", "args": [(np.int64(1), {np.int64(2): np.array([3.0])})], "expected": (np.bool_(True),)}
    (case,) = parse_cases([given])
    assert case == CallCase("f", [(1, {2: [3.0]})], ((True,),))
    assert type(case.args[0][0]) is int  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("f", "f"),
        (" f\n", "f"),
        ("Solution.twoSum", "Solution.twoSum"),
        ("Solution().twoSum", "Solution.twoSum"),
        ("größe", "größe"),
    ],
)
def test_names_of_functions(given: str, name: str) -> None:
    assert function_name(given) == name
    assert parse_cases([{"args": [], "expected": 1}], given) == [CallCase(name, [], (1,))]
    assert parse_cases([{"fn": given, "expected": 1}]) == [CallCase(name, [], (1,))]


@pytest.mark.parametrize("given", ["f()", "f(x)", "a.b.c", "a b", ".f", "f.", "2f", "lambda: 1", "()", "f; g"])
def test_invalid_names_are_refused(given: str) -> None:
    with pytest.raises(DataError, match="is not the name of a function"):
        function_name(given)
    # Cases that call nothing have no use for it.
    assert parse_cases([{"stdout": "a"}], given) == [StdinCase("", "a")]


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
        ([], "column 'cases' is empty"),
        (None, "column 'cases' is None: expected"),
        (3, "column 'cases' is an int"),
        ("[", r"column 'cases': a string that is not JSON, '\[': .*; write it with json.dumps"),
        ("", "not JSON"),
        ([1], "case 0 is an int"),
        ([{"stdout": "a"}, {}], "case 1 has nothing"),
        ([{"stdin": "a"}], 'case 0 lacks "stdout": it has stdin'),
        ([{"input": "a"}], 'case 0 lacks "output": it has input'),
        ([{"in": "a", "out": "b"}], "case 0 has in, out: expected"),
        ([{"stdin": 1, "stdout": "a"}], r'case 0: stdin is an int \(1\), expected a string: "1"'),
        (
            [{"input": "1", "output": ["a"], "testtype": "stdin"}],
            r"case 0: output is a list \(\['a'\]\), expected a string$",
        ),
        ({"inputs": [None], "outputs": ["1"]}, r"case 0: its input is None, expected a string$"),
        ([{"args": [1], "expected": 1}], "names no function"),
        ([{"fn": "f", "args": 1, "expected": 1}], "arguments of a call are a list, not 1"),
        ([{"fn": "f", "kwargs": [], "expected": 1}], "kwargs is a dict"),
        ([{"fn": "f", "kwargs": {1: 2}, "expected": 1}], "kwargs is a dict with the names"),
        ([{"fn": "f()", "expected": 1}], r"'f\(\)' is not the name of a function"),
        ([{"fn": 3, "expected": 1}], "names no function"),
        ([{"fn": "f", "expected": datetime.UTC}], "case 0: no program can return .*: a timezone is no data"),
        ([{"fn": "f", "expected": [object()]}], "a object is no data"),
        ([{"fn": "f", "expected": re.compile("a")}], "a Pattern is no data"),
        ([{"stdin": "", "stdout": "\ud800"}], "half a surrogate pair"),
        ({"inputs": "12", "outputs": "24"}, "of one length"),
        ({"inputs": ["abc"], "outputs": ["abc"], "fn_name": "f"}, "case 0: 'abc' is not JSON"),
        ({"inputs": [1], "outputs": [1], "fn_name": "f"}, "arguments of a call are a list, not 1"),
        ({"input": ["1", "2"], "output": ["1"]}, "column 'cases' is a dict of input, output, which are not all lists"),
        ({"input": "1", "output": ["1"]}, "which are not all lists of one length"),
        ({"input": [], "output": []}, "column 'cases' is empty"),
        ("[" * 100_000, "nested too deeply"),
        ([{"fn": "f", "expected": "[" * 100_000, "args": "[" * 100_000}], "nested too deeply"),
        (json.dumps(json.dumps([{"stdout": "a"}])), "JSON of a text: read it with json.loads once"),
        ([{"fn": "f", "args": "{", "expected": 1}], "not JSON"),
        ([{"fn": "f", "args": [1]}], 'case 0 lacks "expected": it has fn, args'),
        ({"inputs": ["1"], "outputs": []}, "of one length"),
        ({"inputs": [], "outputs": []}, "column 'cases' is empty"),
        ([{"input": "[", "output": "1", "testtype": "functional"}], "not JSON"),
    ],
)
def test_bad_cases_are_refused_with_what_is_wrong(value: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_cases(value, None)


def test_messages_name_the_column() -> None:
    with pytest.raises(DataError, match="column 'tests' is None"):
        parse_cases(None, column="tests")
