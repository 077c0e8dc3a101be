"""The cases of a row, from the shapes in which datasets have them.

- ``{"stdin", "stdout"}``, and ``{"fn", "args", "kwargs", "expected"}``, in a list; or such a list
  as JSON text; or a dict with a list for each field. None is as not there, but in JSON text: Arrow
  fills structs up so.
- APPS's and TACO's ``{"inputs", "outputs", "fn_name"}``, in LiveCodeBench's samples with texts of
  JSON; its ``{"input", "output", "testtype"}``; open-r1's with ``"type"`` and ``"fn_name"``.
- The form is decided by these fields, never by what fits.
- A case in none of these shapes is the dataset's fault: a `DataError`, never a program that fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from guerdon.errors import DataError
from guerdon.rewards.code.child.arguments import pack
from guerdon.rewards.code.child.encoding import EncodingError

__all__ = ["BOM", "CallCase", "Case", "StdinCase", "called_by", "function_name", "is_text", "parse_cases"]

BOM: Final = "\ufeff"
"""Bytes that editors of some systems put before a text; no program may begin with it."""
_EXPECTED: Final = (
    'expected {"stdin": …, "stdout": …} or {"fn": …, "args": […], "expected": …}, APPS\'s {"inputs", "outputs"} or '
    'LiveCodeBench\'s {"input", "output"}'
)
# Partner of a field that is there alone.
_PARTNERS: Final = {"stdin": "stdout", "input": "output", "fn": "expected", "args": "expected", "kwargs": "expected"}
# A list in one of them is a list of cases: no case has a list there.
_NO_LISTS: Final = ("fn", "stdout", "output")
# Lists of these are long and hold no object.
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class StdinCase:
    """A text to read and the text to print."""

    stdin: str
    stdout: str


@dataclass(frozen=True)
class CallCase:
    """A call and its return value: one of `expected`.

    Attributes:
        fn: The function's name, or ``Class.method``.
    """

    fn: str
    args: list[Any]
    expected: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


Case = StdinCase | CallCase


def parse_cases(value: Any, entry_point: str | None = None, *, column: str = "cases") -> list[Case]:
    """The cases of a row, at least one.

    Raises:
        DataError: It holds no cases, or something else.
    """
    try:
        value = _plain(value)
        parser = _Parser(entry_point, column, is_json=isinstance(value, str))
        return parser.cases(_from_json(value, column) if isinstance(value, str) else value)
    except RecursionError:
        raise DataError(f"column {column!r}: a value is nested too deeply") from None


def is_text(text: str) -> bool:
    """Returns whether a text can be encoded: half a surrogate pair can't."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def called_by(cases: list[Case]) -> set[str]:
    """Returns the functions that the cases call."""
    return {case.fn for case in cases if isinstance(case, CallCase)}


def function_name(value: str) -> str:
    """The name of a function, or ``Class.method``, also given as ``Class().method``."""
    name = value.strip().replace("().", ".")
    parts = name.split(".")
    if len(parts) <= 2 and all(map(str.isidentifier, parts)):
        return name
    raise DataError(
        f"{value[:80]!r} is not the name of a function: expected 'name', 'Class.method' or 'Class().method'"
    )


class _Parser:
    """Reads the cases of one row.

    Args:
        is_json: Whether they were JSON text, in which None was written and not filled in.
    """

    def __init__(self, entry_point: str | None, column: str, *, is_json: bool) -> None:
        self._entry_point = entry_point
        self._column = column
        self._is_json = is_json

    def cases(self, value: Any) -> list[Case]:
        if isinstance(value, Mapping):
            if isinstance(value.get("test_cases"), (list, tuple)):  # open-r1's verification_info
                return self.cases(value["test_cases"])
            if value.get("inputs") is not None:
                cases = self._of_apps(value)
            elif any(isinstance(value.get(field), (list, tuple)) for field in _NO_LISTS):
                cases = [self._case(one, place) for place, one in enumerate(_rows(value, self._column))]
            else:
                cases = [self._case(value, 0)]
        elif isinstance(value, (list, tuple)):
            cases = [self._case(one, place) for place, one in enumerate(value)]
        elif self._is_json and isinstance(value, str):
            raise DataError(
                f"column {self._column!r} is JSON of a text: read it with json.loads once, and give what that returns"
            )
        else:
            raise DataError(f"column {self._column!r} is {_a(value)}: {_EXPECTED}, in a list")
        if not cases:
            raise DataError(f"column {self._column!r} is empty: a program can't be judged without a case")
        return cases

    def _case(self, value: Any, place: int) -> Case:
        if not isinstance(value, Mapping):
            raise DataError(f"case {place} is {_a(value)}: {_EXPECTED}")
        given = {key: one for key, one in value.items() if one is not None}
        if "testtype" in given and "input" in given and "output" in given:
            if given["testtype"] != "functional":
                return StdinCase(_text(given["input"], place, "input"), _printed(given["output"], place, "output"))
            named = given.get("metadata")  # by DeepCoder
            name = given.get("fn") or (named.get("func_name") if isinstance(named, Mapping) else None)
            return self._function(name, str(given["input"]), given["output"], place, lines=True)
        if given.get("type") == "function_call" or ("fn_name" in given and given.get("type") != "stdin_stdout"):
            if "input" not in given or "output" not in given:
                raise DataError(f'case {place} calls a function and lacks "input" or "output"')
            return self._function(given.get("fn_name"), given["input"], given["output"], place, lines=False)
        if "stdout" in given or "output" in given:
            read = "stdin" if "stdin" in given else "input"
            printed = "stdout" if "stdout" in given else "output"
            return StdinCase(_text(given.get(read, ""), place, read), _printed(given[printed], place, printed))
        if "expected" in value and ("args" in given or "kwargs" in given or "fn" in given):
            args, kwargs = given.get("args", []), given.get("kwargs", {})
            filled = not self._is_json and not isinstance(kwargs, str)
            args = _json(args, place) if isinstance(args, str) else args
            kwargs = _json(kwargs, place) if isinstance(kwargs, str) else kwargs
            if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
                raise DataError(f"case {place}: kwargs is a dict with the names of arguments, not {kwargs!r:.80}")
            kwargs = {name: one for name, one in kwargs.items() if one is not None or not filled}
            return self._call(given.get("fn"), args, kwargs, [value["expected"]], place)
        has = ", ".join(map(str, given)) or "nothing"
        lacks = next((other for key, other in _PARTNERS.items() if key in given), None)
        if lacks is not None:
            raise DataError(f'case {place} lacks "{lacks}": it has {has}')
        raise DataError(f"case {place} has {has}: {_EXPECTED}")

    def _of_apps(self, value: Mapping[str, Any]) -> list[Case]:
        inputs, outputs = value["inputs"], value.get("outputs")
        if (
            not isinstance(inputs, (list, tuple))
            or not isinstance(outputs, (list, tuple))
            or len(inputs) != len(outputs)
        ):
            raise DataError(f'column {self._column!r}: "inputs" and "outputs" are lists of one length')
        rows = enumerate(zip(inputs, outputs, strict=True))
        name = value.get("fn_name")
        if name is not None:
            return [self._function(name, one, other, place, lines=True) for place, (one, other) in rows]
        return [
            StdinCase(
                _joined(one, place, "its input"), _printed(_joined(other, place, "its output"), place, "its output")
            )
            for place, (one, other) in rows
        ]

    def _function(self, name: Any, args: Any, output: Any, place: int, *, lines: bool) -> CallCase:
        """A call as data sets have it: its arguments in a list, or as JSON.

        Args:
            lines: Of JSON, each argument is a line, as LiveCodeBench and APPS have it; else all are
                a list, as Arrow has open-r1's.
        """
        if isinstance(args, str):
            args = _json_lines(args, place) if lines else _json(args, place)
            output = _json(output, place) if isinstance(output, str) else output
            if lines:
                return self._call(name, args, {}, [output], place)
        if isinstance(args, (list, tuple)) and lines:
            # Does as APPS's own harness: JSON has no other keys than texts.
            args = [_integer_keys(one) if isinstance(one, dict) else one for one in args]
        elif not isinstance(args, (list, tuple)) and not lines:
            args = [args]
        # APPS and open-r1 wrap some outputs in a list, and not others.
        wrapped = isinstance(output, (list, tuple)) and len(output) == 1
        return self._call(name, args, {}, [output, output[0]] if wrapped else [output], place)

    def _call(self, name: Any, args: Any, kwargs: dict[str, Any], expected: list[Any], place: int) -> CallCase:
        if not isinstance(args, (list, tuple)):
            raise DataError(f"case {place}: the arguments of a call are a list, not {args!r:.80}")
        name = self._entry_point if name is None else name
        if not isinstance(name, str) or not name.strip():
            raise DataError(f'case {place} names no function: give it "fn", or the row an entry point')
        try:
            pack(expected)
        except EncodingError as error:
            raise DataError(f"case {place}: no program can return what is expected: {error}") from None
        # JSON has no other keys than texts, and Arrow neither.
        also = [found for one in expected if (found := _with_integer_keys(one)) is not one and found != one]
        return CallCase(function_name(name), list(args), (*expected, *also), kwargs)


def _rows(value: Mapping[str, Any], column: str) -> list[dict[str, Any]]:
    """The cases of a dict of lists, one a field."""
    lists = {key: one for key, one in value.items() if one is not None}
    lengths = {len(one) if isinstance(one, (list, tuple)) else -1 for one in lists.values()}
    if lengths != {max(lengths)}:
        raise DataError(
            f"column {column!r} is a dict of {', '.join(map(str, lists))}, which are not all lists of one length"
        )
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _joined(value: Any, place: int, what: str) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else _text(value, place, what)


def _text(value: Any, place: int, what: str) -> str:
    if isinstance(value, str):
        return value
    shown = f': "{value}"' if isinstance(value, (int, float)) else ""
    given = "" if value is None else f" ({value!r:.80})"
    raise DataError(f"case {place}: {what} is {_a(value)}{given}, expected a string{shown}")


def _a(value: Any) -> str:
    """The kind of a value, for messages."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _printed(value: Any, place: int, what: str) -> str:
    text = _text(value, place, what)
    if not is_text(text):
        raise DataError(f"case {place}: no program can print {text[:80]!r}: it holds half a surrogate pair")
    return text


def _json_lines(text: str, place: int) -> list[Any]:
    """Arguments, JSON texts of one line each."""
    return [_json(line, place) for line in text.split("\n") if line.strip()]


def _json(text: Any, place: int) -> Any:
    try:
        return _loaded(text)
    except (ValueError, TypeError) as error:
        raise DataError(f"case {place}: {str(text)[:80]!r} is not JSON: {error}") from None


def _loaded(text: Any) -> Any:
    """JSON, with integers of any length."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # more digits than Python reads by itself
        return json.loads(text, parse_int=lambda digits: int(Decimal(digits)))


def _from_json(text: str, column: str) -> Any:
    try:
        return _loaded(text)
    except ValueError as error:
        raise DataError(
            f"column {column!r}: a string that is not JSON, {text[:80]!r}: {error}; write it with json.dumps"
        ) from None


def _with_integer_keys(value: Any) -> Any:
    """The value, with integers for the keys of its dicts that are integers as texts."""
    if isinstance(value, dict):
        return _integer_keys({key: _with_integer_keys(one) for key, one in value.items()})
    if isinstance(value, (list, tuple)):
        if set(map(type, value)) <= _SCALARS:
            return value
        inside = map(_with_integer_keys, value)
        return list(inside) if isinstance(value, list) else tuple(inside)
    return value


def _integer_keys(value: dict[Any, Any]) -> dict[Any, Any]:
    if value and all(isinstance(key, str) and _INTEGER.fullmatch(key) for key in value):
        return {int(key): one for key, one in value.items()}
    return value


def _plain(value: Any) -> Any:
    """Arrays and numbers of NumPy, as Arrow's readers make them, as builtin ones; also inside."""
    if hasattr(value, "tolist") and not isinstance(value, (str, bytes)):
        value = value.tolist()
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)) and set(map(type, value)) <= _SCALARS:
        return value
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if type(value) is tuple:
        return tuple(map(_plain, value))
    return value
