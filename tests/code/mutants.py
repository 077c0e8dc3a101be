"""Wrong programs from right ones: one operator, constant, return or bound changed at a time.

Some are right all the same; `wrong` runs them with their tests in a plain interpreter to find
which are not, as a reference that shares nothing with the package.
"""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def mutants(program: str, function: str) -> list[str]:
    """Programs with one change in `function`, each once, spread over the kinds of changes."""
    tree = ast.parse(program)
    found: dict[str, None] = {}
    for place, node in enumerate(ast.walk(tree)):
        for change in _changes(node):
            changed = copy.deepcopy(tree)
            target = next(each for number, each in enumerate(ast.walk(changed)) if number == place)
            change(target)
            if _body(changed, function) != _body(tree, function):
                found[ast.unparse(changed)] = None
    return list(found)


def _body(tree: ast.Module, function: str) -> str:
    last = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function][-1]
    return ast.dump(last)


def _changes(node: ast.AST) -> Iterator[Any]:
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in _OPERATORS:
        yield lambda target: setattr(target, "op", _OPERATORS[type(target.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPERATORS:
        yield lambda target: target.ops.__setitem__(0, _OPERATORS[type(target.ops[0])]())
    if isinstance(node, ast.Constant) and not isinstance(node.value, str):
        if type(node.value) in (int, float):
            yield lambda target: setattr(target, "value", target.value + 1)
        elif type(node.value) is bool:
            yield lambda target: setattr(target, "value", not target.value)
    if isinstance(node, ast.Return) and node.value is not None:
        yield lambda target: setattr(target, "value", ast.Constant(None))
        yield lambda target: setattr(target, "value", ast.List([target.value], ast.Load()))
        yield lambda target: setattr(target, "value", ast.UnaryOp(ast.Not(), target.value))
        yield lambda target: setattr(target, "value", ast.Tuple([target.value, target.value], ast.Load()))
        yield lambda target: setattr(
            target, "value", ast.Call(ast.Name("str", ast.Load()), [target.value, ast.Constant("x")], [])
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        yield lambda target: target.args.__setitem__(-1, ast.BinOp(target.args[-1], ast.Sub(), ast.Constant(1)))
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield lambda target: setattr(target, "test", ast.UnaryOp(ast.Not(), target.test))


def wrong(problems: list[tuple[list[str], str, str]], count: int) -> list[list[str]]:
    """Returns the first `count` programs of each problem that fail, by forks of an interpreter.

    Args:
        problems: The programs, the text of the tests and the name of the function of each.
    """
    given = json.dumps([problems, count])
    ended = subprocess.run([sys.executable, "-c", _REFERENCE], input=given, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)  # type: ignore[no-any-return]


_REFERENCE = """
import json, os, resource, sys
def passes(program, test, entry_point):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            names = {"__name__": "reference"}
            exec(program + "\\n" + test, names)
            names["check"](names[entry_point])
            status = 0
        except BaseException:
            pass
        os._exit(status)
    return os.waitpid(pid, 0)[1] == 0
problems, count = json.load(sys.stdin)
found = [[] for _ in problems]
for (programs, *tests), wrong in zip(problems, found):
    for program in programs:
        if len(wrong) < count and not passes(program, *tests):
            wrong.append(program)
print(json.dumps(found))
"""
