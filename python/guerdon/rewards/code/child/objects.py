"""Objects of a program that tests hold by number: kept in the program's process.

Nothing here is trusted: it runs beside the program.
"""

from __future__ import annotations

import builtins
import copy
import importlib
import operator
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from guerdon.rewards.code.child.encoding import Opaque, Source

__all__ = ["Objects"]


class _Kept:
    """A value that is data, held by number."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Objects:
    """The objects of one program, and what tests may do with them."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}  # by id: they live as long as this
        self._functions: dict[str, Any] = {}  # of tests, by their text

    def number(self, value: Any) -> int:
        """The number of an object, the same each time."""
        found = self._numbers.get(id(value))
        if found is None:
            found = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return found

    def held(self, value: Any) -> Any:
        """The value, by number where its class is the program's: one of ``list`` would cross as
        data, without its methods."""
        kind = type(value)
        own = kind.__module__ == self._module.__name__
        return Opaque(kind.__name__, self.number(value)) if own else value

    def given(self, value: Any) -> Any:
        """Returns a value of tests, with objects for their numbers."""
        if isinstance(value, Opaque):
            found = self._objects[value.guerdon_number]
            return found.value if isinstance(found, _Kept) else found
        if isinstance(value, Source):
            if value.text not in self._functions:
                names: dict[str, Any] = {}
                exec(value.text, names)
                self._functions[value.text] = names["function"]
            return self._functions[value.text]
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.given, value))
        if isinstance(value, dict):
            return {key: self.given(one) for key, one in value.items()}
        return value

    def do(self, name: str, *args: Any) -> Any:
        """Performs an act that tests request of an object."""
        if name == "new":
            kind = self._module.__dict__.get(args[0])
            kind = kind if isinstance(kind, type) else type(args[0], (), {})
            return object.__new__(kind)
        act = _ACTS.get(name) or getattr(builtins, name, None) or getattr(operator, f"__{name}__")
        return act(*args)


def _exit(one: Any, raised: str | None) -> Any:
    """Ends a ``with`` of tests, whose exception is here the builtin one without a text."""
    kind = None if raised is None else getattr(builtins, raised)
    return bool(one.__exit__(kind, None if kind is None else kind.__new__(kind), None))


def _seed(module: str, value: int) -> None:
    with suppress(TypeError, ValueError):  # NumPy takes fewer
        if module.partition(".")[0] in sys.modules:
            importlib.import_module(module).seed(value)


def _run(one: Any) -> Any:
    """Runs a coroutine on the one loop of this process: what waits for another has that loop."""
    import asyncio

    if not _loops:
        _loops.append(asyncio.new_event_loop())
    return _loops[0].run_until_complete(one)


_loops: list[Any] = []
# Other acts are builtins and operators.
_ACTS: Final[dict[str, Callable[..., Any]]] = {
    "enter": lambda one: one.__enter__(),
    "exit": _exit,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "slice": lambda one, *parts: one[slice(*parts)],
    "await": _run,
    "call": lambda one, args, kwargs: one(*args, **kwargs),
    "method": lambda one, name, args, kwargs: getattr(one, name)(*args, **kwargs),
    "vars": lambda one: dict(vars(one)),
    "seed": _seed,
    "keep": _Kept,
    "part": lambda one, key, is_item: _Kept(one[key] if is_item else getattr(one, key)),
    "value": lambda one: one,
}
