"""Finding what in a function can't be pickled, or weighs so much.

- B-1  The path names things as the user wrote them: global, closure variable, default, attribute, argument of a
       partial.
- B-2  The end of the path is what fails by itself: none of its parts does.
- B-3  What is large is followed as long as one part makes up half of the whole; many parts that are large together are
       named by what holds them.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from guerdon._serialization.importable import importable
from guerdon.functions import RewardFunction

__all__ = ["find_culprit", "find_heaviest", "shown_size"]

_DEEPEST: Final = 12
_MOST_ITEMS: Final = 1000


def find_culprit(value: object, dumps: Callable[[object], bytes]) -> str:
    """The path to the innermost part of `value` that `dumps` fails on, with its type and size."""
    path = _descend(value, dumps, {id(value)}, 0) or [("it itself", value)]
    culprit = path[-1][1]
    return f"{', there '.join(label for label, _ in path)} ({_type_name(culprit)}, {shown_size(_size_of(culprit))})"


def find_heaviest(value: object, dumps: Callable[[object], bytes]) -> str | None:
    """The path to the part of `value` that most of its pickle is, with type and size; None where no part is that."""
    path: list[str] = []
    whole = size = len(dumps(value))
    while len(path) < _DEEPEST:
        sizes = [(len(dumps(part)), label, part) for label, part in _parts_of(value) if _can_pickle(part, dumps)]
        heaviest = max(sizes, key=lambda entry: entry[0], default=(0, "", None))
        if heaviest[0] < whole / 2:  # B-3
            break
        size, label, value = heaviest
        path.append(label)
    return f"{', there '.join(path)} ({_type_name(value)}, {shown_size(size)})" if path else None


def shown_size(size: int) -> str:
    """Bytes for people."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


def _size_of(value: object) -> int:
    """Bytes of memory that it is known to hold: of an array all of it, of other objects what is theirs alone."""
    try:
        whole = None if isinstance(value, type) else getattr(value, "nbytes", None)
        return whole if isinstance(whole, int) else sys.getsizeof(value)
    except Exception:  # of an object that is in no state to be asked
        return object.__sizeof__(value)


def _descend(
    value: object, dumps: Callable[[object], bytes], seen: set[int], depth: int
) -> list[tuple[str, object]] | None:
    """Labels and values on the way from `value` to the culprit; empty if that is `value`, None if it was met before."""
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
        path = _descend(part, dumps, seen, depth + 1)
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
    """What is pickled with `value`; nothing where that can't be told: to look at a proxy of something may raise anything."""
    try:
        return list(_parts(value))
    except Exception:
        return []


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    """What is pickled with `value`, each with the words for it (B-1)."""
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
        except ValueError:  # not filled yet
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
