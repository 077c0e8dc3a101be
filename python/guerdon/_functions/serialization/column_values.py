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
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from guerdon._functions.serialization import function_pickler
from guerdon._functions.serialization.importable import importable
from guerdon._functions.serialization.tensors import refuse_device, small_copy

__all__ = ["BatchPickler"]

# The loaded modules that workers can import, by name; a reloaded module is checked again. Written
# by any thread that submits a batch; two of them write the same.
_known: dict[str, ModuleType | None] = {}


# Most classes and functions whose pickles a batch keeps: those may be large.
_MOST_KEPT = 16
# Modules that each worker has.
_EVERYWHERE = {"__main__", "builtins", "copyreg"}


class BatchPickler:
    """Pickles the values of one batch. A class or function that workers can't import is pickled
    once for all samples."""

    def __init__(self) -> None:
        # Entries are by identity: the object, which stays alive, its pickle, and the modules that
        # this imports.
        self._by_value: dict[int, tuple[object, bytes, set[str]]] = {}

    def dumps(self, columns: list[list[object]]) -> tuple[list[bytes], list[str]]:
        """Pickles some samples of some columns: together if all values are plain, else each alone.

        Returns:
            What `pickle.loads` reads as `columns`, of all samples or of one each, and the modules
            that it imports.

        Raises:
            Exception: Whatever the pickling of something inside raised.
        """
        file = io.BytesIO()
        try:
            _PlainPickler(file, pickle.HIGHEST_PROTOCOL).dump(columns)
        except _NotPlainError:
            modules: set[str] = set()
            pickles = [self._dumps_sample([[value] for value in row], modules) for row in zip(*columns, strict=True)]
            return pickles, list(modules - _EVERYWHERE)
        return [file.getvalue()], []

    def _dumps_sample(self, columns: list[list[object]], modules: set[str]) -> bytes:
        file = io.BytesIO()
        pickler = _ColumnPickler(file, modules, self._pickled)
        try:
            pickler.dump(columns)
        except Exception:
            if not pickler.by_value:
                raise
            # Values from there may need cloudpickle.
            return function_pickler.dumps(columns, modules)
        return file.getvalue()

    def _pickled(self, value: object, modules: set[str]) -> bytes:
        if id(value) not in self._by_value:
            if len(self._by_value) >= _MOST_KEPT:
                self._by_value.clear()
            imports: set[str] = set()
            self._by_value[id(value)] = value, function_pickler.dumps(value, imports), imports
        _, pickled, imports = self._by_value[id(value)]
        modules |= imports
        return pickled


class _NotPlainError(Exception):
    """The unpickling of a part would run code."""


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # Called for everything but plain values.
        raise _NotPlainError


class _ColumnPickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, modules: set[str], pickled: Callable[[object, set[str]], bytes]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._modules = modules
        self._pickled = pickled
        self.by_value = False  # a class or function was met that workers can't import

    def reducer_override(self, value: Any) -> Any:
        # Called for everything but plain values.
        kind = type(value)
        if kind is FunctionType or issubclass(kind, type):
            if not _can_import(value.__module__):
                self.by_value = True
                return pickle.loads, (self._pickled(value, self._modules),)
            self._note(value)
        elif kind is BuiltinFunctionType:
            self._note(value)
        else:
            refuse_device(value)
            copy = small_copy(value)
            if copy is not None:
                return copy.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented

    def _note(self, value: Any) -> None:
        if isinstance(value.__module__, str):
            self._modules.add(value.__module__)


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
