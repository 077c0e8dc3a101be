"""Checks that another process would import the same module under the same name.

- True means: a new interpreter with this ``sys.path`` imports the module from the same file, which
  still holds what this process loaded.
- Nothing is imported to find out, and no finder is used that a new interpreter would not have.

A module in ``sys.modules`` may have been loaded by path (a test module, a notebook) or made at run
time: what it defines has to be pickled by value.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from typing import Any, Final

from guerdon._functions.serialization.source_check import source_changed

__all__ = ["importable"]

_MAINS: Final = frozenset({"__main__", "__mp_main__"})


def importable(name: str) -> bool:
    """Returns whether the loaded module `name` can be imported by another process."""
    if name in _MAINS:
        return False
    module = sys.modules.get(name)
    if module is None:
        return False
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    file = getattr(module, "__file__", None)
    parent = name.rpartition(".")[0]
    if parent and not importable(parent):
        return False
    spec = _find(name, getattr(sys.modules[parent], "__path__", None) if parent else None)
    if not isinstance(file, str):
        # A namespace package, or a module that an importable package makes when it is imported
        # (torch.ops, six.moves).
        return bool(parent) or spec is not None
    return spec is not None and spec.origin is not None and _same_file(spec.origin, file) and not source_changed(module)


def _find(name: str, path: list[str] | None) -> ModuleSpec | None:
    """Ask the finders of any interpreter, and those of editable installations (``.pth`` files)."""
    editable = [
        finder
        for finder in sys.meta_path
        if "editable" in (finder.__module__ if isinstance(finder, type) else type(finder).__module__)
    ]
    finders: list[Any] = [BuiltinImporter, FrozenImporter, *editable, PathFinder]
    for finder in finders:
        try:
            spec: ModuleSpec | None = finder.find_spec(name, path)
        except (ImportError, AttributeError, ValueError, OSError):
            continue
        if spec is not None:
            return spec
    return None


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # in an archive, or deleted since
        return os.path.abspath(one) == os.path.abspath(other)
