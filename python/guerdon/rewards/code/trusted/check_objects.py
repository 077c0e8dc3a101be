"""The objects of a program in test code, found from its text alone: a program can't change it.

- A name makes objects where it is written as a class, unless the tests use its value as data only.
- Two objects are compared by the program's own methods, and so by the program. Such tests get no
  score, whatever the program is. Nor do tests that subtract data from an object: a program could
  have the difference be zero.
- Assignments and parameters are followed, whatever their order and scope. `Handle` refuses others.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import Final

__all__ = ["ObjectUses"]

# Kinds of an expression: the classes of its objects, with "" for whatever a program gave.
Kinds = frozenset[str]
_DATA: Final[Kinds] = frozenset()
_GIVEN: Final[Kinds] = frozenset({""})
_MAKES_DATA: Final = ("all", "any", "bool", "callable", "float", "hash", "int", "isinstance", "len", "repr", "str")
_MEASURES: Final = ("abs", "bool", "float", "int")
_COMPARE_ITEMS: Final = ("frozenset", "max", "min", "set", "sorted")
_IDENTITY: Final = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_DIFFERENCES: Final = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod)
_COMPARES: Final = ("Equal", "Less", "Greater")
_ASSERTS_TRUTH: Final = ("assertTrue", "assertFalse")
_REACHES_NAMES: Final = frozenset(("eval", "exec", "globals", "locals", "vars", "__import__"))
_ROUNDS: Final = 4  # through which assignments are followed
_DISPLAYS: Final = (ast.List, ast.Tuple, ast.Set)


class ObjectUses:
    """Uses that tests make of the program's objects.

    Attributes:
        classes: The names that make objects.
        held: Those whose objects have attributes that no data have. Tests that ask what such an
            object contains are left out: of a list, say, its class does not decide that.
    """

    def __init__(self, tree: ast.Module, functions: Collection[str], of_data: Collection[str]) -> None:
        self._nodes = list(ast.walk(tree))
        self._functions = {*functions, "candidate"}
        self._kinds: dict[str, Kinds] = {}
        self._bound_to_data: set[str] = set()
        self._also_data: set[str] = set()  # once all is followed
        self.classes = {name for name in functions if name[:1].isupper() and "." not in name}
        self._follow()
        self.held: frozenset[str] = frozenset()
        if self.classes:
            used = self._used_as_objects(of_data)
            self.classes -= self._used_as_data() - used
            self._follow()
            self.held = frozenset(self.classes & (used - self._asked_for_items()))

    def undecidable(self) -> tuple[ast.expr | ast.stmt, str] | None:
        """Returns a part of the tests that the program would decide, and the reason; or None."""
        for node in self._nodes:
            match node:
                case ast.With(items=items, body=body) if any(self.kinds(one.context_expr) for one in items):
                    if any(isinstance(one, ast.Raise) for part in body for one in ast.walk(part)):
                        return node, "raises in a 'with' of the program, which may silence that"
                case ast.AsyncWith(items=[ast.withitem(context_expr=one), *_]) | ast.AsyncFor(iter=one) if self.kinds(
                    one
                ):
                    return node, "asks an object of the program asynchronously"
                case ast.comprehension(iter=ast.Call(func=ast.Name(id=name)) as one, is_async=1) if (
                    name in self._functions
                ):
                    return one, "asks an object of the program asynchronously"
                case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _DIFFERENCES):
                    if (self._is_object(left) and not self.kinds(right)) or (
                        self._is_object(right) and not self.kinds(left)
                    ):
                        return node, "subtracts data from an object of the program, or divides it"
                case ast.expr() | ast.Assert() if self._measures_difference(node):
                    return node, "finds whether the difference of two objects of the program is zero, which they decide"
                case ast.expr() if self._compares_objects(node):
                    return node, "compares objects of the program"
        return None

    def silencing(self, builtin: frozenset[str]) -> list[ast.withitem]:
        """Returns the contexts of the program whose bodies name only builtins: another name may
        hold a value of the program."""
        return [
            item
            for node in self._nodes
            if isinstance(node, ast.With) and not _names_more(node.body, builtin - _REACHES_NAMES)
            for item in node.items
            if self.kinds(item.context_expr)
        ]

    def kinds(self, node: ast.AST) -> Kinds:
        """The kinds of an expression's value; of a container those of its items."""
        match node:
            case ast.Name(id=name):
                kinds = self._kinds.get(name, _DATA)
                return _GIVEN if kinds and name in self._also_data else kinds
            case ast.Call(func=ast.Name(id=called)):
                name = called.partition(" ")[0]
                if name in self.classes:
                    return frozenset({name})
                if name in self._functions:
                    return _GIVEN
                return _DATA if name in _MAKES_DATA else self._kinds.get(name, _DATA) | self._given(node)
            case ast.Attribute(attr=attr):
                return self._kinds.get(f".{attr}", _DATA) | self._given(node)
            case ast.Call() | ast.Subscript() | ast.Await():
                return self._given(node)
            case ast.Compare() | ast.Lambda() | ast.JoinedStr():
                return _DATA
            case ast.ListComp(elt=one) | ast.SetComp(elt=one) | ast.GeneratorExp(elt=one) | ast.DictComp(value=one):
                return self.kinds(one)
        return _DATA.union(*map(self.kinds, ast.iter_child_nodes(node)))

    def _given(self, node: ast.AST) -> Kinds:
        return _GIVEN if any(map(self.kinds, ast.iter_child_nodes(node))) else _DATA

    def _is_object(self, node: ast.expr) -> bool:
        """Returns whether it is one, and nothing else."""
        kinds = self.kinds(node)
        return bool(kinds) and "" not in kinds

    def _measures_difference(self, node: ast.AST) -> bool:
        """Returns whether it finds the size or the truth of a difference of two objects."""
        match node:
            case ast.Call(func=ast.Name(id=name), args=[one]) if name in _MEASURES:
                return self._is_difference(one)
            case ast.UnaryOp(op=ast.Not(), operand=one) | ast.Assert(test=one):
                return self._is_difference(one)
            case (
                ast.Compare(left=one, comparators=[ast.Constant(value=0)])
                | ast.Compare(left=ast.Constant(value=0), comparators=[one])
            ):
                return self._is_difference(one)
        return False

    def _is_difference(self, node: ast.expr) -> bool:
        match node:
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _DIFFERENCES):
                return bool(self.kinds(left) and self.kinds(right))
            case ast.Name(id=name):
                return any(
                    isinstance(one, ast.Assign)
                    and isinstance(one.value, ast.BinOp)
                    and any(isinstance(target, ast.Name) and target.id == name for target in one.targets)
                    and self._is_difference(one.value)
                    for one in self._nodes
                )
        return False

    def _compares_objects(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(func=ast.Name(id=name), args=args) if name in _COMPARE_ITEMS:
                items = args[0].elts if len(args) == 1 and isinstance(args[0], _DISPLAYS) else args[1:] and args
                return not node.keywords and any(map(self._is_object, items))
            case ast.Set(elts=items):
                return len(items) > 1 and any(map(self._is_object, items))
        for one, op, other in _compared(node):
            itself = isinstance(one, ast.Name) and isinstance(other, ast.Name) and one.id == other.id
            if isinstance(op, _IDENTITY) or _is_none(one) or _is_none(other) or itself:
                continue
            for a, b in ((one, other), (other, one)):
                # An operator may return data: only a call of a class is sure to make an object.
                if self._is_object(a) and (self.kinds(b) or self._direct(a)):
                    return True
        return False

    def _used_as_objects(self, of_data: Collection[str]) -> set[str]:
        found = _DATA
        for node in self._nodes:
            match node:
                case ast.Attribute(value=value, attr=attr) if attr not in of_data:
                    found |= self.kinds(value)
                case ast.withitem(context_expr=value):
                    found |= self.kinds(value)
        return set(found)

    def _asked_for_items(self) -> set[str]:
        found = _DATA
        for node in self._nodes:
            match node:
                case ast.Compare(ops=ops, comparators=others):
                    asked = [one for op, one in zip(ops, others, strict=True) if isinstance(op, (ast.In, ast.NotIn))]
                case ast.Call(func=ast.Attribute(attr="assertIn" | "assertNotIn"), args=[_, one, *_]):
                    asked = [one]
                case ast.Call(func=ast.Attribute(attr="contains" | "countOf" | "indexOf"), args=[one, *_]):
                    asked = [one]
                case _:
                    continue
            for one in asked:
                while isinstance(one, ast.Subscript):
                    one = one.value
                found |= self.kinds(one)
        return set(found)

    def _used_as_data(self) -> set[str]:
        found = _DATA
        for node in self._nodes:
            match node:
                case ast.Assert(test=value) | ast.UnaryOp(op=ast.Not(), operand=value):
                    found |= self._direct(value)
                case ast.Call(func=ast.Attribute(attr=attr), args=[value, *_]) if attr in _ASSERTS_TRUTH:
                    found |= self._direct(value)
                case ast.BinOp(left=one, op=op, right=other) if isinstance(op, _DIFFERENCES):
                    found |= self._direct(one) if not self.kinds(other) else _DATA
                    found |= self._direct(other) if not self.kinds(one) else _DATA
            for first, how, second in _compared(node):
                found |= self._direct(first) if not self.kinds(second) and not _is_none(second) else _DATA
                found |= self._direct(second) if not self.kinds(first) and not isinstance(how, _IDENTITY) else _DATA
        return set(found)

    def _direct(self, node: ast.expr) -> Kinds:
        """Returns its kinds if it is a call or a name, else none."""
        return self.kinds(node) if isinstance(node, (ast.Call, ast.Name)) else _DATA

    def _follow(self) -> None:
        """Finds the kinds of all names."""
        functions = {node.name: node for node in self._nodes if isinstance(node, ast.FunctionDef)}
        self._kinds, self._also_data = {}, set()
        for _ in range(_ROUNDS):
            before, self._bound_to_data = dict(self._kinds), set()
            for node in self._nodes:
                self._bind_names(node, functions)
            if self._kinds == before:
                break
        self._also_data = self._bound_to_data

    def _bind_names(self, node: ast.AST, functions: dict[str, ast.FunctionDef]) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                self._bind(target, value)
            case (
                ast.AugAssign(target=target, value=value)
                | ast.withitem(context_expr=value, optional_vars=ast.expr() as target)
            ):
                self._bind(target, value)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                self._bind(ast.Starred(target), value)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in functions:
                of = functions[name].args
                names = [one.arg for one in (*of.posonlyargs, *of.args)]
                given = dict(zip(names[names[:1] == ["self"] :], node.args, strict=False))
                given |= {one.arg: one.value for one in node.keywords if one.arg}
                for parameter, value in given.items():
                    self._bind(ast.Name(parameter), value)
            case ast.FunctionDef(name=name):
                for one in ast.walk(node):
                    if isinstance(one, ast.Return) and one.value is not None:
                        self._add(name, self.kinds(one.value))

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self._add(name, self.kinds(value))
            case ast.Attribute(attr=name), _:
                self._add(f".{name}", self.kinds(value))
            case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), (ast.Tuple(elts=values) | ast.List(elts=values))):
                for one, other in zip(targets, values, strict=False):
                    self._bind(one, other)
            case ((ast.Tuple() | ast.List() | ast.Starred()), _):
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        self._add(part.id, _GIVEN if self.kinds(value) else _DATA)

    def _add(self, name: str, kinds: Kinds) -> None:
        if not kinds:
            self._bound_to_data.add(name)
        self._kinds[name] = self._kinds.get(name, _DATA) | kinds


def _compared(node: ast.AST) -> Iterator[tuple[ast.expr, ast.cmpop, ast.expr]]:
    """Yields the pairs that an expression compares, also by a method of `unittest`."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            yield from zip([left, *others], ops, others, strict=False)
        case ast.Call(func=ast.Attribute(attr=name), args=[one, other, *_]):
            if name.startswith("assert") and any(part in name for part in _COMPARES):
                yield one, ast.Eq(), other


def _names_more(body: list[ast.stmt], names: frozenset[str]) -> bool:
    return any(
        isinstance(one, (ast.Attribute, ast.Import, ast.ImportFrom))
        or (isinstance(one, ast.Name) and one.id not in names)
        for statement in body
        for one in ast.walk(statement)
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
