"""Requirements of test code on a program, decided from its text alone: a program can't change it.

- A name that nothing defines is a function of the program, where the tests call it or pass it on.
- ``Solution().add(1)`` is a call of ``Solution.add``: a method of an object that is made for it. A
  method that data have is called here, on data: ``name().upper()``.
- A standard module or a name of ``typing`` that the tests forgot to import is that one.
- A call for its effect on its arguments, whose value is not used, is marked as such.
- ``from solution import first`` is about the program; ``unittest`` and the like are not run here.
- A function that is an argument goes over as its text, where it uses nothing of the tests: a
  lambda, one that they define, a builtin one.
- Any other use of such a name is an error of the tests: no class of a program crosses over.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import typing
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, Final

from guerdon.errors import DataError
from guerdon.rewards.code.child.encoding import Source
from guerdon.rewards.code.trusted.check_objects import ObjectUses
from guerdon.rewards.code.trusted.handles import hash_of, is_same, part_of, silencing

__all__ = ["FILE", "SEED", "CheckCode", "asked_of_program", "check_code", "defined_by"]

FILE: Final = "<check>"
IN_PLACE: Final = " in place"
"""Marks a function that is called for its effect on its arguments."""
_SOURCE: Final = " source"
_SAME: Final = " same"
_PART: Final = " part"
_SILENCING: Final = " silencing"
SEED: Final = " seed"
"""Seeds random numbers of the program as the tests seed theirs."""
_SEEDS: Final = {"random.seed": "random", "np.random.seed": "numpy.random", "numpy.random.seed": "numpy.random"}
# Names that data sets give the file of the program.
_PROGRAM: Final = ("solution", "main", "program", "candidate", "answer", "code", "your_module", "my_module")
MODULES: Final = frozenset(
    (
        *("bisect", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "itertools"),
        *("json", "math", "operator", "random", "re", "statistics", "string", "sys"),
    )
)
_TYPES: Final = frozenset(typing.__all__)
_BUILTIN: Final = frozenset(vars(builtins))
_GIVEN: Final = _BUILTIN | {"__name__", "candidate"}
_DATA: Final = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range, deque, type(None))
_ATTRIBUTES: Final = frozenset(name for kind in _DATA for name in dir(kind)) | {"__name__", "__qualname__"}
_TYPE_CHECKS: Final = ("isinstance", "issubclass")
_EXITS: Final = ("exit", "quit", "sys.exit")
# They are removed at the end of a script; elsewhere a value of the program may have led there.
_ENDS: Final = frozenset(f"{name}({status})" for name in _EXITS for status in ("", "0"))
_RUNNERS: Final = ("unittest.main", "pytest.main")
# Options that choose no tests.
_OF_RUNNERS: Final = frozenset(("argv", "exit", "verbosity"))


@dataclass(frozen=True)
class CheckCode:
    """Test code, ready to run.

    Attributes:
        functions: Of the program: ``"add"``, or ``"Solution.add"``.
        classes: Those that make objects of the program.
        others: What stands for the names that nobody imported.
        held: The classes whose objects stay in the program's process, even those of ``list``.
    """

    code: CodeType
    functions: frozenset[str]
    classes: frozenset[str]
    others: dict[str, Any]
    held: frozenset[str]


@lru_cache(maxsize=512)
def defined_by(text: str) -> frozenset[str]:
    """Returns the names that test code defines."""
    return frozenset(_defined(_parsed(text)))


@lru_cache(maxsize=512)
def check_code(text: str, known: frozenset[str]) -> CheckCode:
    """Test code with its requirements on the program.

    Args:
        known: Names that are defined elsewhere.

    Raises:
        DataError: It is no Python code, or asks for more than calls and their data.
    """
    tree = _parsed(text, known)
    defined = known | _defined(tree)
    known = defined | _GIVEN | _harness(tree, defined)
    methods = _Methods(known)
    names = _Names(text, known, defined)
    try:
        tree = ast.fix_missing_locations(methods.visit(tree))
        names.look(tree)
        functions = methods.found | names.functions
        objects = ObjectUses(tree, functions, _ATTRIBUTES)
        if (found := objects.undecidable()) is not None:
            raise names.wrong(*found)
        for item in objects.silencing(_BUILTIN - defined):
            item.context_expr = ast.Call(ast.Name(_SILENCING, ast.Load()), [item.context_expr], [])
        tree = _OnObjects().visit(tree)
        code = compile(ast.fix_missing_locations(tree), FILE, "exec", dont_inherit=True)
    except DataError:
        raise
    except (SyntaxError, ValueError, RecursionError) as error:
        raise DataError(f"check is no Python code: {error}") from None
    return CheckCode(code, frozenset(functions), frozenset(objects.classes), names.others, objects.held)


def asked_of_program(texts: list[str]) -> set[str]:
    """Returns the functions of the program that tests use."""
    known = frozenset[str]().union(*map(defined_by, texts))
    return {name for text in texts for name in check_code(text, known).functions}


def _harness(tree: ast.Module, defined: Collection[str]) -> set[str]:
    """The name ``check`` where a function is passed to it: the row lacks its definition. A function
    of this name may be the program's otherwise."""

    def is_function(one: ast.expr) -> bool:
        return isinstance(one, (ast.Attribute, ast.Lambda)) or (isinstance(one, ast.Name) and one.id not in defined)

    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="check" as name), args=[ast.Name(id=passed)]) if passed not in defined:
                return {name}
            # The value of a harness is not used; that of a function of the program is.
            case ast.Expr(ast.Call(func=ast.Name(id="check" as name), args=args)) if any(map(is_function, args)):
                return {name}
    return set()


class _WithoutProgram(ast.NodeTransformer):
    """Imports of the program's own file are gone, but for names that they give its functions."""

    def __init__(self, tree: ast.Module, known: frozenset[str]) -> None:
        self.modules: set[str] = set()
        nodes = [one for one in ast.walk(tree) if not isinstance(one, (ast.Import, ast.ImportFrom))]
        self.changed = {name for one in nodes for name in _names_of(one)}
        own = self.changed | known | _GIVEN | {"check"}  # solution.add is not the add of the tests
        parts = [one for one in nodes if isinstance(one, ast.Attribute)]
        parts = [one for one in parts if one.attr in own or not isinstance(one.ctx, ast.Load)]
        self.changed.update(*map(_with_attribute, parts))
        # A module that is used as a value is not only its functions.
        of_parts = {id(one.value) for one in nodes if isinstance(one, ast.Attribute)}
        self.changed |= {one.id for one in nodes if isinstance(one, ast.Name) and id(one) not in of_parts}
        self.changed.add("code")  # a standard module

    def visit_Import(self, node: ast.Import) -> ast.AST:
        own = [one for one in node.names if one.name in _PROGRAM and (one.asname or one.name) not in self.changed]
        self.modules |= {alias.asname or alias.name for alias in own}
        node.names = [alias for alias in node.names if alias not in own]
        return node if node.names else ast.copy_location(ast.Pass(), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        if node.module not in _PROGRAM:
            return node
        named: list[ast.stmt] = [
            ast.Assign([ast.Name(alias.asname, ast.Store())], ast.Name(alias.name, ast.Load()))
            for alias in node.names
            if alias.asname not in (None, alias.name)
        ]
        return [ast.copy_location(one, node) for one in named or [ast.Pass()]]


def _parsed(text: str, known: frozenset[str] = frozenset()) -> ast.Module:
    try:
        tree: ast.Module = ast.parse(text, FILE)
        tree = _WithoutProgram(tree, known).visit(tree)
        last = tree.body[-1:]
        while last and isinstance(last[0], ast.If) and ast.unparse(last[0].test) == "__name__ == '__main__'":
            last = last[0].body if len(last[0].body) == 1 and not last[0].orelse else []
        if last and isinstance(last[0], ast.Expr) and _ends(last[0].value, tree):
            del tree.body[-1]
        return ast.fix_missing_locations(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"check is no Python code: {error}") from None


def _ends(node: ast.expr, tree: ast.Module) -> bool:
    """True if the last statement of a script just runs its tests, or exits."""
    if ast.unparse(node) in _ENDS:
        return True
    if isinstance(node, ast.Call) and ast.unparse(node.func) in _EXITS and len(node.args) == 1:
        node = node.args[0]
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in _RUNNERS:
        return False
    chosen = re.search(r"'-[km]|::", ast.unparse(node)) or {one.arg for one in node.keywords} - _OF_RUNNERS
    return not chosen and "load_tests" not in _defined(tree)


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    """The defaults of parameters."""
    return [*arguments.defaults, *(one for one in arguments.kw_defaults if one is not None)]


def _defined(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) for name in _names_of(node)}


def _names_of(node: ast.AST) -> Iterable[str]:
    """The names that a node defines."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.arg(arg=name):
            return [name]
        case ast.ImportFrom(names=[ast.alias(name="*")]):
            with suppress(Exception):  # it will fail in the tests, too
                return dir(importlib.import_module(node.module or ""))
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return [(alias.asname or alias.name).partition(".")[0] for alias in aliases]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
    return []


def _with_attribute(node: ast.AST) -> list[str]:
    """The name of which a node is an attribute."""
    return [node.value.id] if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else []


def _defined_once(tree: ast.AST) -> dict[str, ast.FunctionDef]:
    """The functions whose names mean nothing else in the tests."""
    nodes = list(ast.walk(tree))
    times = Counter(name for node in nodes for name in _names_of(node))
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef) and times[node.name] == 1}


class _Methods(ast.NodeTransformer):
    """``X().method`` becomes a name, ``X.method``, where nothing defines ``X``."""

    def __init__(self, known: frozenset[str]) -> None:
        self.known = known
        self.found: set[str] = set()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id=made), args=[], keywords=[]), attr=attr):
                is_object = made[:1].isupper() or attr not in _ATTRIBUTES
                if is_object and "." not in made and made not in self.known:
                    name = f"{made}.{attr}"
                    self.found.add(name)
                    node.func = ast.copy_location(ast.Name(name, ast.Load()), node.func)
        return node


class _OnObjects(ast.NodeTransformer):
    """``is`` compares objects of the program by their numbers. A change of a part of an object, as
    ``node.children.append(one)``, happens in the program's process: the tests have copies."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        match node.value:
            case ast.Call(func=ast.Attribute() as function, args=[ast.Constant() | ast.Name() as seed]):
                if (module := _SEEDS.get(ast.unparse(function))) is not None:
                    again: ast.expr = ast.Call(ast.Name(SEED, ast.Load()), [ast.Constant(module), seed], [])
                    return [node, ast.copy_location(ast.Expr(again), node)]
        self.generic_visit(node)
        match node.value:
            case ast.Call(func=ast.Attribute(value=part) as method):
                method.value = self._part(part)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            node.value = self._part(node.value)
        return node

    def _part(self, node: ast.expr) -> ast.expr:
        """The expression for a part that is changed."""
        match node:
            case ast.Attribute(value=value, attr=attr) if not attr.startswith("__"):  # mangled
                key: ast.expr = ast.Constant(attr)
            case ast.Subscript(value=value, slice=key) if not any(isinstance(one, ast.Slice) for one in ast.walk(key)):
                pass
            case _:
                return node
        is_item = ast.Constant(isinstance(node, ast.Subscript))
        made = ast.Call(ast.Name(_PART, ast.Load()), [self._part(value), key, is_item], [])
        return ast.copy_location(made, node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(attr="assertIs" | "assertIsNot" as attr) if len(node.args) > 1:
                node.func.attr = "assertTrue" if attr == "assertIs" else "assertFalse"
                node.args[:2] = [ast.Call(ast.Name(_SAME, ast.Load()), node.args[:2], [])]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot() as op], comparators=[other]) if not isinstance(
                other, ast.Constant
            ):
                same: ast.expr = ast.Call(ast.Name(_SAME, ast.Load()), [node.left, other], [])
                return ast.copy_location(ast.UnaryOp(ast.Not(), same) if isinstance(op, ast.IsNot) else same, node)
        return node


class _Names:
    """Collects the uses of names that nothing defines."""

    def __init__(self, text: str, known: frozenset[str], defined: frozenset[str]) -> None:
        self.lines = text.split("\n")
        self.known = known
        self.defined = defined
        self.functions: set[str] = set()
        self.others: dict[str, Any] = {_SOURCE: Source, _SAME: is_same, _PART: part_of, _SILENCING: silencing}
        if "hash" not in defined:
            self.others["hash"] = hash_of

    def look(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            for field, child in _children(node):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load) and child.id not in self.known:
                    self._used(child, node, field)
        attributes = {name for node in ast.walk(tree) for name in _with_attribute(node)}
        made = {name: one for name, one in _defined_once(tree).items() if name not in attributes}
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name.removesuffix(IN_PLACE) in {*self.functions, "candidate"}:
                    node.args = [self._passed(one, made) for one in node.args]
                    for keyword in node.keywords:
                        keyword.value = self._passed(keyword.value, made)
                case ast.Expr(value=ast.Call(func=ast.Name(id=name) as function)) if name in self.functions | {
                    "candidate"
                }:
                    function.id = f"{name}{IN_PLACE}"
                case ast.Assert(test=ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Attribute()])):
                    raise self.wrong(node.test, "asks for the class of a value")
                case ast.Call(func=ast.Attribute(attr="assertIsInstance"), args=[_, ast.Attribute(), *_]):
                    raise self.wrong(node, "asks for the class of a value")
                case (
                    ast.Name(id="redirect_stdout")
                    | ast.Attribute(attr="redirect_stdout")
                    | ast.Attribute(value=ast.Name(id="sys"), attr="stdout", ctx=ast.Store())
                ):
                    raise self.wrong(node, "reads what the program prints")
                case ast.ImportFrom(module="unittest.mock") | ast.Import(names=[ast.alias(name="unittest.mock")]):
                    raise self.wrong(node, "replaces functions of modules")

    def _passed(self, node: ast.expr, made: Mapping[str, ast.FunctionDef]) -> ast.expr:
        """Returns the replacement of an argument: a function's text, if that is all of it."""
        name = node.id if isinstance(node, ast.Name) else ""
        function = made.get(name, node)
        if function is node and not isinstance(node, ast.Lambda) and not callable(getattr(builtins, name, None)):
            return node
        inside = list(ast.walk(function))
        used = {one.id for one in inside if isinstance(one, ast.Name)} - _defined(function)
        own = any(isinstance(one, (ast.Global, ast.Nonlocal)) for one in inside)
        defaults = [one for part in inside if isinstance(part, ast.arguments) for one in _defaults(part)]
        used |= {one.id for part in defaults for one in ast.walk(part) if isinstance(one, ast.Name)}
        if own or used & self.defined or not used <= _BUILTIN:
            return node
        before = "" if function is node else f"{ast.unparse(function)}\n"
        text = ast.Constant(f"{before}function = {ast.unparse(node)}")
        return ast.Call(ast.Name(_SOURCE, ast.Load()), [text], [])

    def _used(self, name: ast.Name, by: ast.AST, field: str) -> None:
        if isinstance(by, ast.Attribute) and name.id in MODULES:
            self.others[name.id] = importlib.import_module(name.id)
        elif name.id in _TYPES and not (isinstance(by, ast.Call) and field == "func"):
            self.others[name.id] = getattr(typing, name.id)
        elif self._is_of_a_function(by, field):
            self.functions.add(name.id)
        else:
            raise self.wrong(name, f"takes {name.id!r} for a value")

    @staticmethod
    def _is_of_a_function(by: ast.AST, field: str) -> bool:
        match by:
            case ast.Call(func=ast.Name(id=called)) if field == "args":
                return called not in _TYPE_CHECKS
            case ast.Call() | ast.keyword() | ast.List() | ast.Tuple() | ast.Dict() | ast.Expr() | ast.Return():
                return True
            case ast.Lambda() | ast.IfExp():
                return field != "test"
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                return field == "value"
            case ast.Attribute(attr=attr):
                return attr in ("__name__", "__qualname__")
        return False

    def wrong(self, node: ast.expr | ast.stmt, what: str) -> DataError:
        line = self.lines[node.lineno - 1].strip()[:200] if node.lineno <= len(self.lines) else ""
        return DataError(
            f"check {what}, in: {line}: only calls and plain data cross over from a program. Define or import in the tests, or "
            "in prelude=, what is not the program's; compare what methods and attributes of its objects give, or use is; where the "
            "program prints what is asked for, use cases"
        )


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield field, child
