"""Pickling the values of calls for the workers.

- A value whose unpickling runs code is never pickled together with those of other samples: it may
  raise, hang or end the process, and only its own call must fail.
- A value whose class or function workers can't import (of ``__main__``, a notebook, a module loaded
  by path) is pickled with it, so that it arrives as the same type.
- Plain values (strings, numbers, lists, dicts, None) cost no more than `pickle.dumps`.
- A tensor of a device is refused: each worker would open the device to hold it. A view is sent with
  its elements only, not with the whole tensor behind it.
"""

from __future__ import annotations

import io
import pickle
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

from guerdon._functions.serialization import function_pickler
from guerdon._functions.serialization.importable import importable
from guerdon._functions.serialization.tensors import refuse_device, small_copy

__all__ = ["dumps"]

# The loaded modules that workers can import, by name; a reloaded module is checked again. Written
# by any thread that submits a batch; two of them write the same.
_known: dict[str, ModuleType | None] = {}


# Modules that each worker has.
_EVERYWHERE = {"__main__", "builtins", "copyreg"}


def dumps(columns: list[list[object]]) -> tuple[list[bytes], list[str]]:
    """Pickles some samples of some columns: together if all values are plain, else each alone.

    Returns:
        What `pickle.loads` reads as `columns`, of all samples or of one each, and the modules that
        it imports.

    Raises:
        Exception: Whatever the pickling of something inside raised.
    """
    file = io.BytesIO()
    try:
        _PlainPickler(file, pickle.HIGHEST_PROTOCOL).dump(columns)
    except _NotPlainError:
        found = _BlockNotes(set(), {})
        pickles = [_dumps_sample([[value] for value in row], found) for row in zip(*columns, strict=True)]
        return pickles, list(found.modules - _EVERYWHERE)
    return [file.getvalue()], []


class _BlockNotes(NamedTuple):
    """Facts about a block's samples: the modules that unpickling imports, and, by identity, the
    pickles of classes and functions that workers can't import."""

    modules: set[str]
    by_value: dict[int, bytes]


def _dumps_sample(columns: list[list[object]], found: _BlockNotes) -> bytes:
    file = io.BytesIO()
    pickler = _ColumnPickler(file, found)
    try:
        pickler.dump(columns)
    except Exception:
        if not pickler.by_value:
            raise
        # Values from there may need cloudpickle.
        return function_pickler.dumps(columns, found.modules)
    return file.getvalue()


class _NotPlainError(Exception):
    """The unpickling of a part would run code."""


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # Called for everything but plain values.
        raise _NotPlainError


class _ColumnPickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, found: _BlockNotes) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._found = found
        self.by_value = False  # a class or function was met that workers can't import

    def reducer_override(self, value: Any) -> Any:
        # Called for everything but plain values.
        kind = type(value)
        if kind is FunctionType or issubclass(kind, type):
            if not _can_import(value.__module__):
                self.by_value = True
                return pickle.loads, (self._pickled(value),)
            self._note(value)
        elif kind is BuiltinFunctionType:
            self._note(value)
        else:
            refuse_device(value)
            copy = small_copy(value)
            if copy is not None:
                return copy.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented

    def _pickled(self, value: object) -> bytes:
        known = self._found.by_value.get(id(value))
        if known is None:
            known = self._found.by_value[id(value)] = function_pickler.dumps(value, self._found.modules)
        return known

    def _note(self, value: Any) -> None:
        if isinstance(value.__module__, str):
            self._found.modules.add(value.__module__)


def _can_import(name: object) -> bool:
    """Returns whether workers can import the module; True also if `name` is not a string."""
    if not isinstance(name, str):
        return True
    module = sys.modules.get(name)
    if module is None or _known.get(name) is not module:
        if module is not None and not importable(name):
            return False
        _known[name] = module
    return True
