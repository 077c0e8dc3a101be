"""Turns the GIL of a free-threaded Python on where code of the engine needs it."""

from __future__ import annotations

import sys
import warnings
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from typing import Final

from guerdon._system.gil import has_gil, keep_gil
from guerdon._system.warning import warn
from guerdon.errors import GuerdonError

__all__ = ["need_gil"]

_SAFE: Final = (3, 14)


def is_mended(version: tuple[int | str, ...] = sys.version_info) -> bool:
    """Returns whether this CPython has the fixes of July 2026.

    - gh-153809: a thread that frees a task of another thread's loop crashes while one collects.
      `asyncio.run` takes references to the tasks of all loops, and its own may be the last.
    - gh-146452: pickling a dict crashes while another thread changes it.
    """
    return (3, 14, 7) <= version < (3, 15) or version >= (3, 15, 0, "final")


def need_gil(*, beyond_threads: bool) -> None:
    """Turns the GIL on, with a warning, if this Python is not safe without it.

    Args:
        beyond_threads: Whether more will run than sync functions on threads: event loops on
            several threads, or C code that makes pickles or JSON of the user's values.

    Raises:
        GuerdonError: PYTHON_GIL=0 or -X gil=0 keeps it off.
    """
    if has_gil() or (sys.version_info >= _SAFE and (is_mended() or not beyond_threads)):
        return
    why = (
        "before CPython 3.14.7, several event loops (gh-153809), and pickling what another thread changes "
        "(gh-146452), can crash it"
    )
    if sys.version_info < _SAFE:
        why = "before CPython 3.14, threads can't share its objects"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        from guerdon import _native

        # The interpreter turns it on for a module that does not declare to do without.
        loader = ExtensionFileLoader("guerdon._with_gil", _native.__file__)
        module_from_spec(ModuleSpec(loader.name, loader, origin=loader.path))
    keep_gil()
    if not has_gil():
        raise GuerdonError(
            f"Guerdon can't run this without the GIL: {why}. Leave out PYTHON_GIL=0 and -X gil=0, which keep the GIL off, "
            "or take CPython 3.14.7 or later."
        )
    warn(f"the GIL is on from now, and threads take turns: {why}. Take CPython 3.14.7 or later to do without it.")
