"""Turns the return value of a function ``check`` into a verdict.

- None counts as True, if a function returns nothing else. None that may have come from a program,
  or from a function with a ``return True``, does not pass: what a function may return is read off
  its code, whatever the program does.
"""

from __future__ import annotations

import dis
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, Final

from guerdon.errors import DataError
from guerdon.rewards.code.child.encoding import Opaque
from guerdon.rewards.code.trusted.compare import shown

__all__ = ["fault_of", "score_of"]

_CONSTANTS: Final = ("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_COMMON_CONSTANT", "RETURN_CONST")


def score_of(check: Callable[..., Any], result: Any, *, calls: int) -> float | str:
    """The score from 0 to 1 that a function of the user's own returned, or why it is 0.

    Args:
        calls: Of the program's functions that were made.

    Raises:
        DataError: It returned no score.
    """
    if result is None:
        if not calls:
            raise DataError("check returned None, which stands for True, and never called the program")
        return fault_of(check, None) or 1.0
    try:
        # An object of the program may be any number.
        score = math.nan if isinstance(result, Opaque) else float(result)
    except Exception:
        score = math.nan
    if 0.0 <= score <= 1.0:
        return score
    if calls:  # as `1 - abs(candidate(2) - 4)` or `candidate(2)` itself can be
        return f"check returned {shown(result)}, which counts as 0"
    raise DataError(f"check returned {shown(result)}: return True or False, a number from 0 to 1, or None for True")


def fault_of(check: Callable[..., Any], result: Any) -> str:
    """Why the function ``check`` of a row's tests does not pass a program; "" if it does."""
    if result is None:
        return "check returned None: return True where it passes" if _may_return_a_value(check) else ""
    return "" if result else f"check returned {shown(result)}"


def _may_return_a_value(check: Callable[..., Any]) -> bool:
    """Returns whether it may return anything but None and false values."""
    check = inspect.unwrap(check)
    while isinstance(check, functools.partial):
        check = inspect.unwrap(check.func)
    function: Any = getattr(check, "__func__", check)  # of a method
    if not hasattr(function, "__code__"):
        function = getattr(type(check).__call__, "__func__", type(check).__call__)
    if not hasattr(function, "__code__"):
        return True
    before = None
    for step in dis.get_instructions(function):
        if step.opname == "RETURN_VALUE" and (before is None or step.is_jump_target or not _is_nothing(before)):
            return True
        if step.opname == "RETURN_CONST" and not _is_nothing(step):
            return True
        before = step
    return False


def _is_nothing(step: dis.Instruction) -> bool:
    """Returns whether a step loads a constant: None, or a false value."""
    if step.opname == "LOAD_COMMON_CONSTANT":  # its argument is a place in a table
        return step.argrepr in ("None", "False")
    return step.opname in _CONSTANTS and not step.argval
