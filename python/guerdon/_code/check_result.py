"""What a function ``check`` returned, as a verdict.

- Nothing stands for True. None that came from a program is not nothing: whether a function may
  return a value is read off its code, whatever the program does.
"""

from __future__ import annotations

import dis
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, Final

from guerdon._code.compare import shown
from guerdon.errors import DataError

__all__ = ["fault_of", "score_of"]

_CONSTANTS: Final = ("LOAD_CONST", "LOAD_SMALL_INT")
_DO: Final = "return True where it passes"


def score_of(check: Callable[..., Any], result: Any, *, calls: int, nones: int) -> float | str:
    """The score from 0 to 1 that a function of the user's own returned, or why it is 0.

    Args:
        calls: Of the program's functions that were made.
        nones: Calls that returned None.

    Raises:
        DataError: It returned no score.
    """
    if result is None:
        if not calls:
            raise DataError("check returned None, which stands for True, and never called the program")
        return _fault_of_none(check, nones) or 1.0
    try:
        score = float(result)
    except Exception:
        score = math.nan
    if 0.0 <= score <= 1.0:
        return score
    if calls:  # as `1 - abs(candidate(2) - 4)` or `candidate(2)` itself can be
        return f"check returned {shown(result)}, which counts as 0"
    raise DataError(f"check returned {shown(result)}: return True or False, a number from 0 to 1, or None for True")


def fault_of(check: Callable[..., Any], result: Any, *, nones: int) -> str:
    """Why the function ``check`` of a row's tests does not pass a program; "" if it does.

    Raises:
        DataError: It returned no verdict.
    """
    if result is None:
        return _fault_of_none(check, nones)
    return "" if result else f"check returned {shown(result)}"


def _fault_of_none(check: Callable[..., Any], nones: int) -> str:
    if not _may_return_a_value(check):
        return ""
    if nones:
        return f"check returned None, as the program did: {_DO}"
    raise DataError(f"check returned None, as a value: {_DO}")


def _may_return_a_value(check: Callable[..., Any]) -> bool:
    """Whether it returns anything but constants."""
    check = inspect.unwrap(check)
    while isinstance(check, functools.partial):
        check = inspect.unwrap(check.func)
    function: Any = getattr(check, "__func__", check)  # of a method
    if not hasattr(function, "__code__"):
        function = getattr(type(check).__call__, "__func__", type(check).__call__)
    if not hasattr(function, "__code__"):
        return True
    before = ""
    for step in dis.get_instructions(function):
        if step.opname == "RETURN_VALUE" and (before not in _CONSTANTS or step.is_jump_target):
            return True
        before = step.opname
    return False
