"""Tests as pytest and unittest collect them: functions ``test_…``, classes ``Test…``, `TestCase`.

- They are called here, one after the other, and the first that fails ends them; no runner, plugin
  or fixture is there.
- A function ``test`` without parameters is one where nothing else is collected or names it.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from typing import Any

from guerdon.errors import DataError

__all__ = ["collected", "ended", "only_test", "outcomes", "run_collected"]


@contextmanager
def outcomes() -> Iterator[None]:
    """Makes pytest's outcomes, which are not `Exception`s, fail a test or skip its rest."""
    try:
        yield
    except BaseException as error:
        # It is not imported for this; its classes say that they are builtin ones.
        if not any(base.__name__ == "OutcomeException" for base in type(error).__mro__):
            raise
        if type(error).__name__ != "Skipped":
            raise AssertionError(str(error)) from None


def collected(namespace: dict[str, Any]) -> list[str]:
    """Returns the names of the collected tests, and of ``check``."""
    return [name for name, one in namespace.items() if name == "check" or _is_collected(name, one)]


def run_collected(namespace: dict[str, Any]) -> None:
    """Runs the tests that pytest would collect."""
    for name, one in list(namespace.items()):
        if not _is_collected(name, one):
            continue
        if isinstance(one, type):
            _run_class(one)
        else:
            for arguments in _parameters(one):
                _run(one, arguments)


def _is_collected(name: str, one: Any) -> bool:
    if isinstance(one, type):
        return one.__module__ == "check" and (issubclass(one, unittest.TestCase) or name.startswith("Test"))
    return name.startswith("test_") and inspect.isfunction(one)


def only_test(text: str, namespace: dict[str, Any]) -> Callable[[], Any] | None:
    """The function ``test`` of a text, unless it helps other tests."""
    if "def test(" not in text or collected(namespace):
        return None
    tree = ast.parse(text)
    found = [
        one for one in tree.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name == "test"
    ]
    named = any(isinstance(one, ast.Name) and one.id == "test" for one in ast.walk(tree))
    is_alone = any(not ast.unparse(one.args) for one in found) and not named
    return namespace.get("test") if is_alone else None


def _run_class(one: type) -> None:
    if issubclass(one, unittest.TestCase):
        names = unittest.defaultTestLoader.getTestCaseNames(one)
        is_async = issubclass(one, unittest.IsolatedAsyncioTestCase)
        for name in names:
            test = getattr(one, name)
            if inspect.isgeneratorfunction(test) or (inspect.iscoroutinefunction(test) and not is_async):
                raise DataError(
                    f"check: {one.__name__}.{name} is not run by unittest: it needs no yield, and async an IsolatedAsyncioTestCase"
                )
        one.setUpClass()
        for case in unittest.defaultTestLoader.loadTestsFromTestCase(one):
            with suppress(unittest.SkipTest), outcomes():
                case.debug()
        return
    getattr(one, "setup_class", lambda: None)()
    for name in sorted(name for name in dir(one) if name.startswith("test") and callable(getattr(one, name))):
        for arguments in _parameters(getattr(one, name)):
            made = one()
            _call_hook(made, "setup_method", name)
            try:
                _run(getattr(made, name), arguments)
            finally:
                _call_hook(made, "teardown_method", name)


def _call_hook(made: Any, hook: str, test: str) -> None:
    """Calls what pytest calls beside a test, with the test where it takes that."""
    function = getattr(made, hook, lambda: None)
    takes_test = inspect.isroutine(function) and inspect.signature(function).parameters
    function(*[getattr(made, test)] if takes_test else ())


def _run(test: Callable[..., Any], arguments: dict[str, Any]) -> None:
    lacks = [
        name
        for name, one in inspect.signature(test).parameters.items()
        if one.default is one.empty and name not in arguments
    ]
    if lacks:
        raise DataError(
            f"check: {test.__name__} takes {', '.join(lacks)}, which are fixtures of pytest: there are none here. Give a "
            "function check= that makes them"
        )
    with suppress(unittest.SkipTest), outcomes():
        ended(test(**arguments))


def ended(found: Any) -> Any:
    """Returns the value of a test, which runs to its end if it is async.

    Raises:
        DataError: It is a generator, of which nothing has run.
    """
    if inspect.iscoroutine(found):
        return asyncio.run(found)
    if inspect.isgenerator(found) or inspect.isasyncgen(found):
        raise DataError(
            f"check: the test {found.__name__} yields, so that a call runs nothing of it: write it without yield"
        )
    return found


def _parameters(test: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """The arguments of each call that ``pytest.mark.parametrize`` asks for."""
    rows: list[list[dict[str, Any]]] = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names, values = mark.args[:2]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        values = [getattr(one, "values", (one,) if len(names) == 1 else one) for one in values]
        rows.append([dict(zip(names, one, strict=True)) for one in values])
    for combined in product(*rows):
        yield {name: value for row in combined for name, value in row.items()}
