"""Tests, and the functions in them that workers call.

Workers import the files of tests for their functions, which hardly ever use pytest. Its import,
0.2 s of processor time, is put off there until something of it is used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Unmarked:
    """Decorators that leave the function as it is, and cases of tests."""

    def __getattr__(self, name: str) -> _Unmarked:
        return self

    def __call__(self, *given: Any, **options: Any) -> Any:
        return given[0] if len(given) == 1 and callable(given[0]) and not options else self


class _Pytest(ModuleType):
    """Marks, fixtures and cases; all else is pytest's own, imported on first use."""

    mark = fixture = param = _Unmarked()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get("pytest") is self:
            del sys.modules["pytest"]
        return getattr(import_module("pytest"), name)


if "_guerdon_worker" in sys.modules:
    stand_in = _Pytest("pytest")
    stand_in.__spec__ = ModuleSpec("pytest", None)  # for who asks whether pytest is there
    sys.modules.setdefault("pytest", stand_in)
