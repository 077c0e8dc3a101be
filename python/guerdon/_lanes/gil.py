"""Turns the GIL of a free-threaded Python on where code of the engine needs it."""

from __future__ import annotations

import sys
import warnings
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from typing import Final

from guerdon._system.gil import has_gil
from guerdon._system.warning import warn
from guerdon.errors import GuerdonError

__all__ = ["need_gil"]

_SAFE: Final = (3, 14)
# Mends gh-153809: a thread that frees a task of another thread's loop crashes while one collects.
# `asyncio.run` takes references to the tasks of all loops, and its own may be the last.
_SAFE_LOOPS: Final = (3, 14, 7)


def need_gil(*, loops: bool) -> None:
    """Turns the GIL on, with a warning, if this Python is not safe without it.

    Args:
        loops: Whether event loops will run on other threads than the caller's.

    Raises:
        GuerdonError: PYTHON_GIL=0 or -X gil=0 keeps it off.
    """
    if has_gil() or sys.version_info >= (_SAFE_LOOPS if loops else _SAFE):
        return
    why = "before CPython 3.14.7, event loops on several threads can crash it (gh-153809)"
    if sys.version_info < _SAFE:
        why = "before CPython 3.14, threads can't share its objects"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        from guerdon import _native

        # The interpreter turns it on for a module that does not declare to do without.
        loader = ExtensionFileLoader("guerdon._with_gil", _native.__file__)
        module_from_spec(ModuleSpec(loader.name, loader, origin=loader.path))
    if not has_gil():
        raise GuerdonError(
            f"Guerdon can't run this without the GIL: {why}. Leave out PYTHON_GIL=0 and -X gil=0, which keep the GIL off, "
            "or take CPython 3.14.7 or later."
        )
    warn(f"the GIL is on from now, and threads take turns: {why}. Take CPython 3.14.7 or later to do without it.")
