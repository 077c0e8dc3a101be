"""Test code that would give each program the same verdict, found from its text alone.

- Tests and a program have a process each: they share no files, streams, environment, warnings or
  replaced functions, and few classes.
- A comparison without ``assert`` passes every program.
"""

from __future__ import annotations

import ast
import builtins
import importlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

__all__ = ["files_used", "refused"]

Found = tuple[ast.expr | ast.stmt, str] | None

_REPLACES: Final = "replaces functions of modules"
_PRINTS: Final = "reads what the program prints"
_CLASS: Final = "asks for the class of a value"
# Names that are looked at, or assigned.
_LOOKED_AT: Final = {
    "contextlib.redirect_stdout": _PRINTS,
    "contextlib.redirect_stderr": _PRINTS,
    "os.environ": "sets variables of an environment that the program does not have",
    "os.putenv": "sets variables of an environment that the program does not have",
    "os.chdir": "changes the folder of a process that is not the program's",
}
_ASSIGNED: Final = {
    "sys.stdout": _PRINTS,
    "sys.stderr": _PRINTS,
    "sys.stdin": "gives input to a process that is not the program's",
    "sys.argv": "gives arguments to a process that is not the program's",
    "builtins.input": _REPLACES,
    "builtins.print": _REPLACES,
    "builtins.open": _REPLACES,
}
_WARNS: Final = ("assertWarns", "assertWarnsRegex", "assertLogs", "assertNoLogs")
_RAISES: Final = ("raises", "assertRaises", "assertRaisesRegex")
_CHECKS: Final = ("assertTrue", "assertFalse", "assertIsInstance", "assertNotIsInstance")
# Classes whose objects cross over, by module.
_CROSSING: Final = ("builtins", "datetime", "decimal", "fractions", "numbers", "typing", "collections.abc")
_NOT_CROSSING: Final = ("Generator", "Coroutine", "Awaitable", "AsyncIterator", "AsyncIterable", "AsyncGenerator")
_FILE_MODULES: Final = ("tempfile", "shutil", "glob")
_FILE_ACTS: Final = frozenset(
    f"os.{name}"
    for name in (
        *("listdir", "scandir", "walk", "mkdir", "makedirs", "rmdir", "removedirs", "remove", "unlink", "rename"),
        *("replace", "stat", "chmod", "path.exists", "path.isfile", "path.isdir", "path.getsize", "path.getmtime"),
    )
) | {"io.open", "open"}
_PATH_ACTS: Final = frozenset(
    ("exists", "is_file", "is_dir", "iterdir", "mkdir", "rmdir", "touch", "unlink", "open")
) | {f"{act}_{kind}" for act in ("read", "write") for kind in ("text", "bytes")}


class _Origins:
    """The modules that the names of test code are from."""

    def __init__(self, tree: ast.AST, defined: Collection[str]) -> None:
        self._own = defined
        self.names: dict[str, str] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=aliases):
                    self.names |= {one.asname or one.name.partition(".")[0]: one.name for one in aliases if one.asname}
                    self.names |= {(first := one.name.partition(".")[0]): first for one in aliases if not one.asname}
                case ast.ImportFrom(module=str(module), names=aliases, level=0):
                    self.names |= {one.asname or one.name: f"{module}.{one.name}" for one in aliases}

    def of(self, node: ast.AST) -> str:
        """The dotted name of what a node stands for; "" where that is not known."""
        match node:
            case ast.Name(id=name):
                return self.names.get(name, "" if name in self._own else name)
            case ast.Attribute(value=value, attr=attr):
                found = self.of(value)
                return f"{found}.{attr}" if found else ""
        return ""


def refused(tree: ast.Module, defined: Collection[str], functions: Collection[str]) -> Found:
    """Returns a part of the tests that decides nothing, and the reason; or None.

    Args:
        defined: Names that the tests and the prelude define.
        functions: Of the program.
    """
    origins = _Origins(tree, defined)
    for name in origins.names.values():
        if name.startswith(("mock", "unittest.mock")):
            return tree.body[0], _REPLACES
    for node in ast.walk(tree):
        match node:
            case ast.Name() | ast.Attribute():
                known = _LOOKED_AT if isinstance(node.ctx, ast.Load) else _ASSIGNED
                name = origins.of(node)
                if name in known:
                    return node, known[name]
                if isinstance(node, ast.Name) and node.id == "redirect_stdout":  # of a star
                    return node, _PRINTS
            case ast.Call(func=ast.Attribute(attr=attr) | ast.Name(id=attr), args=args, keywords=keywords):
                if (
                    attr in _WARNS
                    or origins.of(node.func) in ("pytest.warns", "pytest.deprecated_call")
                    or (attr == "catch_warnings" and any(one.arg == "record" for one in keywords))
                ):
                    return node, "looks at warnings or logs of a process that is not the program's"
                if attr in _RAISES and args and not _is_builtin(origins.of(args[0])):
                    return node, "expects an exception that is not a builtin one"
                if attr in _CHECKS and _asks_for_class(node, origins):
                    return node, _CLASS
            case ast.Assert(test=test) if _asks_for_class(test, origins):
                return test, _CLASS
            case ast.Try(body=body, handlers=handlers) if _swallows(body, handlers):
                return node, "goes on where an assertion fails"
            case ast.FunctionDef(name=name) if name.startswith("test_") and _only_returns(node):
                return node, "returns a comparison, which no test looks at, in place of an assert"
    for statement in _plain_statements(tree.body):
        match statement:
            case ast.Expr(value=ast.Compare() as value):
                names = {one.id for one in ast.walk(value) if isinstance(one, ast.Name)}
                if not names.isdisjoint(functions):
                    return statement, "compares without an assert"
    return None


def files_used(tree: ast.Module, defined: Collection[str]) -> Found:
    """Returns a part of the tests that uses files, which fences keep from a program, and the
    reason; or None."""
    origins = _Origins(tree, defined)
    paths = any(name.partition(".")[0] == "pathlib" for name in origins.names.values())
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = origins.of(node.func)
        acts = paths and isinstance(node.func, ast.Attribute) and node.func.attr in _PATH_ACTS
        if acts or name in _FILE_ACTS or name.partition(".")[0] in _FILE_MODULES:
            return node, "uses files, which tests and a program do not share"
    return None


def _is_builtin(name: str) -> bool:
    """Returns whether an exception is builtin, or unknown."""
    module, _, last = name.rpartition(".")
    if not module:
        return True
    with suppress(ImportError, ValueError):
        kind = getattr(importlib.import_module(module), last, None)
        return kind is None or getattr(builtins, getattr(kind, "__name__", ""), None) is kind
    return True


def _asks_for_class(node: ast.expr, origins: _Origins) -> bool:
    """Returns whether an expression checks for a class whose objects do not cross over."""
    for one in ast.walk(node):
        match one:
            case ast.Call(
                func=ast.Name(id="isinstance") | ast.Attribute(attr="assertIsInstance" | "assertNotIsInstance"),
                args=[_, kinds, *_],
            ):
                asked = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
                if not any(_crosses(kind, origins) for kind in asked):
                    return True
    return False


def _crosses(kind: ast.expr, origins: _Origins) -> bool:
    name = origins.of(kind)
    module, _, last = name.rpartition(".")
    if not module:
        return not isinstance(kind, ast.Attribute)
    return (module in _CROSSING and last not in _NOT_CROSSING) or name == "collections.deque"


def _only_returns(function: ast.FunctionDef) -> bool:
    """Returns whether a test returns its comparison and asserts nothing."""
    inside = list(ast.walk(function))
    compared = (ast.Compare, ast.BoolOp)
    returns = [one for one in inside if isinstance(one, ast.Return) and isinstance(one.value, compared)]
    asserts = any(isinstance(one, (ast.Assert, ast.Raise, ast.With)) for one in inside) or any(
        isinstance(one, ast.Attribute) and one.attr.startswith(("assert", "fail")) for one in inside
    )
    return bool(returns) and not asserts


def _swallows(body: list[ast.stmt], handlers: list[ast.ExceptHandler]) -> bool:
    """Returns whether an assertion that fails is only printed, or not even that."""
    if not any(isinstance(one, ast.Assert) for one in body):
        return False
    for handler in handlers:
        kinds = [ast.unparse(one) for one in ast.walk(handler.type)] if handler.type else ["Exception"]
        if not {"AssertionError", "Exception", "BaseException"}.isdisjoint(kinds):
            return all(
                isinstance(one, ast.Pass) or (isinstance(one, ast.Expr) and "print(" in ast.unparse(one))
                for one in handler.body
            )
    return False


def _plain_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements outside of ``with`` and ``try``, which may expect that they raise."""
    for one in body:
        yield one
        if isinstance(one, (ast.FunctionDef, ast.ClassDef, ast.For, ast.If, ast.While)):
            yield from _plain_statements(one.body)
