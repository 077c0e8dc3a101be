"""Pickling of the values that calls get: a column's, for the workers.

- V-1  What workers can import is pickled as any pickle is. A value whose class or function they can't import (a class
       of ``__main__``, of a notebook, of a module loaded by path) brings it along, so that it arrives as what it is.
- V-2  Plain values (texts, numbers, lists, dicts, None) cost nothing more than `pickle.dumps`.
- V-3  A tensor of a device is refused: each worker would open the device to hold it.
"""

from __future__ import annotations

import io
import pickle
import sys
from types import FunctionType, ModuleType
from typing import Any

from guerdon._serialization import function_pickler
from guerdon._serialization.device_tensors import refuse_device
from guerdon._serialization.importable import importable

__all__ = ["dumps"]

# The loaded modules that workers can import, by name; a module that is loaded anew is asked for again. Written by any
# thread that submits a batch: what two of them write is the same.
_known: dict[str, ModuleType | None] = {}


def dumps(value: object) -> bytes:
    """Pickle `value`; `pickle.loads` reads it.

    Raises:
        Exception: Whatever the pickling of something inside raised.
    """
    file = io.BytesIO()
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    except _ByValueError:
        return function_pickler.dumps(value)
    return file.getvalue()


class _ByValueError(Exception):
    """Something inside has to bring its class along."""


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # Asked for all but plain values (V-2).
        kind = type(value)
        if (kind is FunctionType or issubclass(kind, type)) and not _can_import(value.__module__):
            raise _ByValueError
        refuse_device(value)
        return NotImplemented


def _can_import(name: object) -> bool:
    """Whether workers can import the module; what has no module is not ours to judge."""
    if not isinstance(name, str):
        return True
    module = sys.modules.get(name)
    if module is None or _known.get(name) is not module:
        if module is not None and not importable(name):
            return False
        _known[name] = module
    return True
