"""The cases of a row, from the shapes in which datasets have them.

- ``{"stdin", "stdout"}``, and ``{"fn", "args", "kwargs", "expected"}``, in a list; or such a list
  as JSON text. Fields that are None are as not there: Arrow fills structs up so.
- APPS's and TACO's ``{"inputs", "outputs", "fn_name"}``, LiveCodeBench's
  ``{"input", "output", "testtype"}``.
- What is none of these is the dataset's fault: a `DataError`, never a program that fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from guerdon.errors import DataError

__all__ = ["CallCase", "Case", "StdinCase", "parse_cases"]

_EXPECTED = (
    'expected {"stdin": …, "stdout": …} or {"fn": …, "args": […], "expected": …}, APPS\'s {"inputs", "outputs"} or '
    'LiveCodeBench\'s {"input", "output"}'
)


@dataclass(frozen=True)
class StdinCase:
    """A text to read and the text to print."""

    stdin: str
    stdout: str


@dataclass(frozen=True)
class CallCase:
    """A call and what it returns: one of `expected`.

    Attributes:
        fn: The function's name, or ``Class.method``.
    """

    fn: str
    args: list[Any]
    expected: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


Case = StdinCase | CallCase


def parse_cases(value: Any, entry_point: str | None = None) -> list[Case]:
    """The cases of a row, at least one.

    Args:
        value: Of the column ``cases``.
        entry_point: The function of cases that name none.

    Raises:
        DataError: It holds no cases, or what is none.
    """
    value = _plain(value)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise DataError(f"cases is a text that is not JSON: {error}") from None
    if isinstance(value, Mapping):
        cases = _of_lists(value, entry_point) if value.get("inputs") is not None else [_case(value, entry_point, 0)]
    elif isinstance(value, (list, tuple)):
        cases = [_case(one, entry_point, place) for place, one in enumerate(value)]
    else:
        raise DataError(f"cases is a {type(value).__name__}: {_EXPECTED}, in a list")
    if not cases:
        raise DataError("cases is empty: a program can't be judged without one")
    return cases


def _case(value: Any, entry_point: str | None, place: int) -> Case:
    if not isinstance(value, Mapping):
        raise DataError(f"case {place} is a {type(value).__name__}: {_EXPECTED}")
    given = {key: one for key, one in value.items() if one is not None}
    if "testtype" in given and "input" in given and "output" in given:
        if given["testtype"] != "functional":
            return StdinCase(_text(given["input"], place), _text(given["output"], place))
        args = [_json(line, place) for line in str(given["input"]).split("\n") if line.strip()]
        return CallCase(_name(given.get("fn", entry_point), place), args, (_json(given["output"], place),))
    if "stdout" in given or "output" in given:
        stdin = given.get("stdin", given.get("input", ""))
        return StdinCase(_text(stdin, place), _text(given.get("stdout", given.get("output")), place))
    if "expected" in value and ("args" in given or "kwargs" in given or "fn" in given):
        args, kwargs = given.get("args", []), given.get("kwargs", {})
        args = _json(args, place) if isinstance(args, str) else args
        kwargs = _json(kwargs, place) if isinstance(kwargs, str) else kwargs
        if not isinstance(args, (list, tuple)) or not isinstance(kwargs, Mapping):
            raise DataError(f"case {place}: args is a list and kwargs a dict, not {type(args).__name__}")
        return CallCase(_name(given.get("fn", entry_point), place), list(args), (value["expected"],), dict(kwargs))
    raise DataError(f"case {place} has {', '.join(map(str, given)) or 'nothing'}: {_EXPECTED}")


def _of_lists(value: Mapping[str, Any], entry_point: str | None) -> list[Case]:
    inputs, outputs = value["inputs"], value.get("outputs")
    if not isinstance(inputs, Sequence) or not isinstance(outputs, Sequence) or len(inputs) != len(outputs):
        raise DataError('cases: "inputs" and "outputs" are lists of one length')
    name = value.get("fn_name")
    if name is None:
        return [
            StdinCase(_joined(one, place), _joined(other, place))
            for place, (one, other) in enumerate(zip(inputs, outputs, strict=True))
        ]
    cases: list[Case] = []
    for place, (args, output) in enumerate(zip(inputs, outputs, strict=True)):
        # APPS wraps some outputs in a list, and not others.
        wrapped = isinstance(output, list) and len(output) == 1
        cases.append(CallCase(_name(name, place), list(args), (output, output[0]) if wrapped else (output,)))
    return cases


def _joined(value: Any, place: int) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else _text(value, place)


def _text(value: Any, place: int) -> str:
    if isinstance(value, str):
        return value
    raise DataError(f"case {place}: a {type(value).__name__} is no text to read or print")


def _name(value: Any, place: int) -> str:
    if isinstance(value, str) and value:
        return value
    raise DataError(f'case {place} names no function: give it "fn", or the row an entry point')


def _json(text: Any, place: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError) as error:
        raise DataError(f"case {place}: {str(text)[:80]!r} is not JSON: {error}") from None


def _plain(value: Any) -> Any:
    """Arrays, as Arrow's readers make them, as lists; also inside."""
    if hasattr(value, "tolist") and not isinstance(value, (str, bytes)):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value
