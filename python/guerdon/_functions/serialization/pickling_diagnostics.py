"""Finds what in a function can't be pickled, or is large.

- The path names things as the user wrote them: global, closure variable, default, attribute.
- The end of the path is what fails by itself: none of its parts does.
- A large value is followed as long as one part is half of the whole; many parts that are large
  together are named by their container.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from guerdon._functions.reward_function import RewardFunction
from guerdon._functions.serialization.importable import importable

__all__ = ["find_largest", "find_unpicklable", "format_decimal_size"]

_DEEPEST: Final = 12
_MOST_ITEMS: Final = 1000


def find_unpicklable(value: object, dumps: Callable[[object], bytes]) -> str:
    """The path to the innermost part of `value` that `dumps` fails on, with its type and size."""
    path = _path_to_unpicklable(value, dumps, {id(value)}, 0) or [("it itself", value)]
    unpicklable = path[-1][1]
    return f"{', there '.join(label for label, _ in path)} ({_type_name(unpicklable)}, {format_decimal_size(_size_of(unpicklable))})"


def find_largest(value: object, dumps: Callable[[object], bytes]) -> str | None:
    """The path to the largest part of `value`, with type and size; None without a large one."""
    path: list[str] = []
    whole = size = len(dumps(value))
    while len(path) < _DEEPEST:
        sizes = [(len(dumps(part)), label, part) for label, part in _parts_of(value) if _can_pickle(part, dumps)]
        largest = max(sizes, key=lambda entry: entry[0], default=(0, "", None))
        if largest[0] < whole / 2:
            break
        size, label, value = largest
        path.append(label)
    return f"{', there '.join(path)} ({_type_name(value)}, {format_decimal_size(size)})" if path else None


def format_decimal_size(size: int) -> str:
    """A number of bytes with three digits and a decimal unit."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


def _size_of(value: object) -> int:
    """Bytes of memory: of an array its data, of other objects without the objects they refer to."""
    try:
        whole = None if isinstance(value, type) else getattr(value, "nbytes", None)
        return whole if isinstance(whole, int) else sys.getsizeof(value)
    except Exception:  # a half-made object may raise
        return object.__sizeof__(value)


def _path_to_unpicklable(
    value: object, dumps: Callable[[object], bytes], seen: set[int], depth: int
) -> list[tuple[str, object]] | None:
    """Labels and values from `value` to the unpicklable part.

    Empty if that is `value` itself, None if it was visited before.
    """
    if depth == _DEEPEST:
        return []
    innermost = True
    for label, part in _parts_of(value):
        if _can_pickle(part, dumps):
            continue
        innermost = False
        if id(part) in seen:
            continue
        seen.add(id(part))
        path = _path_to_unpicklable(part, dumps, seen, depth + 1)
        if path is not None:
            return [(label, part), *path]
    return [] if innermost else None


def _can_pickle(value: object, dumps: Callable[[object], bytes]) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True


def _parts_of(value: object) -> list[tuple[str, object]]:
    """Returns the parts that are pickled with `value`; nothing if reading it raises, as proxies
    may."""
    try:
        return list(_parts(value))
    except Exception:
        return []


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    """Yields the parts that are pickled with `value`, each with a label for messages."""
    if isinstance(value, FunctionType):
        yield from _function_parts(value)
    elif isinstance(value, MethodType):
        yield f"its object, the {type(value.__self__).__qualname__}", value.__self__
    elif isinstance(value, functools.partial):
        yield "the partial's function", value.func
        yield from ((f"argument {place} of the partial", part) for place, part in enumerate(value.args))
        yield from ((f"argument {name!r} of the partial", part) for name, part in value.keywords.items())
    elif isinstance(value, Mapping):
        for key, part in list(value.items())[:_MOST_ITEMS]:
            yield f"the value of {_short(key)}", part
    elif isinstance(value, (list, tuple, set, frozenset)):
        for place, part in enumerate(list(value)[:_MOST_ITEMS]):
            yield f"item {place}", part
    elif isinstance(value, type):
        if not importable(value.__module__):
            for name, part in vars(value).items():
                yield f"attribute {name!r} of class {value.__qualname__!r}", getattr(part, "__func__", part)
    elif not isinstance(value, ModuleType):
        yield from _object_parts(value)


def _function_parts(function: FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"the closure variable {name!r}", cell.cell_contents
        except ValueError:  # the cell is empty
            continue
    for name in dict.fromkeys(_global_names(function.__code__)):
        if name in function.__globals__:
            yield f"the global {name!r}", function.__globals__[name]
    for place, part in enumerate(function.__defaults__ or ()):
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        yield f"the default of {names[place - len(function.__defaults__ or ())]!r}", part
    yield from ((f"the default of {name!r}", part) for name, part in (function.__kwdefaults__ or {}).items())
    yield from ((f"its attribute {name!r}", part) for name, part in vars(function).items())


def _object_parts(value: object) -> Iterator[tuple[str, object]]:
    kind = type(value)
    if isinstance(value, RewardFunction):
        yield "its function", value.__guerdon_target__
        return
    named = getattr(value, "__dict__", None)
    state = dict(named) if isinstance(named, dict) else {}
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                state.setdefault(name, getattr(value, name))
    yield from ((f"the attribute {name!r} of the {kind.__qualname__}", part) for name, part in state.items())
    if kind.__module__ and not importable(kind.__module__):
        yield f"the class {kind.__qualname__!r}", kind


def _global_names(code: CodeType) -> Iterator[str]:
    yield from (step.argval for step in dis.get_instructions(code) if step.opname.endswith("_GLOBAL"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _type_name(value: object) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"a {name}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
