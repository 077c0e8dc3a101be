"""Checks that a module's file has not changed since this process loaded it.

- Definitions of a changed module are pickled by value: workers run the code that this process has,
  until the user reloads the module. Otherwise a function would give other rewards in workers than
  here.
- A file older than this process costs one `os.stat`.
- Only files read by Python's own source loader are checked; other loaders may change the code.
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

__all__ = ["source_changed", "stamp_of"]

Stamp = tuple[str, int, int]

# The most wrappers of a function that are looked through.
_DEEPEST: Final = 8

# The spec and the file's stamp when a module was first checked, by name: a reload makes a new spec.
# Written by any thread that registers functions; two of them write the same.
_seen: dict[str, tuple[ModuleSpec, Stamp]] = {}


def source_changed(module: ModuleType) -> bool:
    """Returns whether the module's file was changed after this process loaded it."""
    spec, stamp = module.__spec__, stamp_of(module)
    if spec is None or stamp is None or type(spec.loader) is not SourceFileLoader:
        return False
    if stamp[1] < _started_ns():
        return False
    seen = _seen.get(module.__name__)
    if seen is not None and seen[0] is spec:
        return seen[1] != stamp
    if _compiled_from_other(module, stamp) or _code_differs(module, stamp[0]):
        return True
    _seen[module.__name__] = spec, stamp
    return False


def stamp_of(module: ModuleType) -> Stamp | None:
    """The module's source file, its modification time in ns and its size; None without one."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    try:
        found = os.stat(file)
    except OSError:
        return None
    return os.path.abspath(file), found.st_mtime_ns, found.st_size


def _compiled_from_other(module: ModuleType, stamp: Stamp) -> bool:
    """Returns whether the compiled file was made from another version of the source file."""
    try:
        with open(getattr(module.__spec__, "cached", None) or "", "rb") as file:
            header = file.read(16)
    except OSError:
        return False
    if len(header) < 16 or header[4:8] != bytes(4):  # validated by hash, not by time
        return False
    compiled_from = int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")
    return compiled_from != (stamp[1] // 10**9 & 0xFFFFFFFF, stamp[2] & 0xFFFFFFFF)


def _code_differs(module: ModuleType, file: str) -> bool:
    """Returns whether a function or method of the module is missing from the source file.

    This covers installations without compiled files, as in many containers.
    """
    try:
        with open(file, "rb") as source:
            whole = compile(source.read(), file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):  # half edited
        return True
    codes = set(_codes(whole))
    # Generated methods, as of dataclasses, come from no file.
    own = (code for code in _loaded_codes(vars(module), module.__name__) if code.co_filename == module.__file__)
    return any(code not in codes for code in own)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _loaded_codes(scope: Any, module: str) -> Iterator[CodeType]:
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
            yield from _loaded_codes(vars(function), module)


@functools.cache
def _started_ns() -> int:
    """The start of this process in file time, minus 2 s: some file systems count no finer."""
    if sys.platform != "linux":
        return 0
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return int((time.time() - age_s - 2) * 1e9)
