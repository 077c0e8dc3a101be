"""Whether a module's file still holds what this process loaded from it.

- E-1  A module whose file was edited since it was imported is not what another process would import: what it defines
       goes by value, so that workers run the code that this process has, until the user reloads it.
- E-2  Files that are older than this process cost one `os.stat`.
- E-3  Only what Python's own loader read from a source file is judged; other loaders may change code on the way.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

__all__ = ["edited", "stamp_of"]

Stamp = tuple[str, int, int]

# The most wrappers around a function.
_DEEPEST: Final = 8

# How its file looked when a module was first judged, by name: a reload gives a module another spec. Written by any
# thread that registers functions: what two of them write is the same.
_seen: dict[str, tuple[ModuleSpec, Stamp]] = {}


def edited(module: ModuleType) -> bool:
    """Whether the module's file was changed after this process loaded it (E-1)."""
    spec, stamp = module.__spec__, stamp_of(module)
    if spec is None or stamp is None or type(spec.loader) is not SourceFileLoader:  # E-3
        return False
    if stamp[1] < _started_ns():  # E-2
        return False
    seen = _seen.get(module.__name__)
    if seen is not None and seen[0] is spec:
        return seen[1] != stamp
    if _cache_is_older(module, stamp) or _code_differs(module, stamp[0]):
        return True
    _seen[module.__name__] = spec, stamp
    return False


def stamp_of(module: ModuleType) -> Stamp | None:
    """The module's source file, its time of change in ns and its size; None if it has none."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    try:
        found = os.stat(file)
    except OSError:
        return None
    return os.path.abspath(file), found.st_mtime_ns, found.st_size


def _cache_is_older(module: ModuleType, stamp: Stamp) -> bool:
    """Whether the compiled file is of another source than there is now."""
    try:
        with open(getattr(module, "__cached__", None) or "", "rb") as file:
            header = file.read(16)
    except OSError:
        return False
    if len(header) < 16 or header[4:8] != bytes(4):  # checked by its hash, not by its time
        return False
    made_of = int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")
    return made_of != (stamp[1] // 10**9 & 0xFFFFFFFF, stamp[2] & 0xFFFFFFFF)


def _code_differs(module: ModuleType, file: str) -> bool:
    """Whether a function or method of the module is not in the source that there is now."""
    try:
        with open(file, "rb") as source:
            whole = compile(source.read(), file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):  # an edit under way
        return True
    there = set(_codes(whole))
    # What a decorator generated (a dataclass's methods) is of no file.
    own = (code for code in _loaded(vars(module), module.__name__) if code.co_filename == module.__file__)
    return any(code not in there for code in own)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _loaded(scope: Any, module: str) -> Iterator[CodeType]:
    """The code of the functions and methods that a module or class defines."""
    for value in list(scope.values()):
        function = getattr(value, "__guerdon_target__", value)
        function = getattr(function, "__func__", function)  # static and class methods
        if isinstance(function, FunctionType):
            wrapped: Any = function
            for _ in range(_DEEPEST):
                if isinstance(wrapped, FunctionType) and wrapped.__module__ == module:
                    yield wrapped.__code__
                wrapped = getattr(wrapped, "__wrapped__", None)
        elif isinstance(function, type) and function.__module__ == module:
            yield from _loaded(vars(function), module)


@functools.cache
def _started_ns() -> int:
    """When this process began, as files' times are counted, two seconds early: some file systems count no finer."""
    if sys.platform != "linux":
        return 0
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return int((time.time() - age_s - 2) * 1e9)
