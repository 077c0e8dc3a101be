"""The functions that run on this thread, to identify the caller.

Frames are inspected while they run and never kept. Only the locals of a method that iterates over
``reward_funcs`` are read: reading creates objects that live as long as the frame, and a training
loop's frame lives for days.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

# Number of inspected frames: a trainer's method calls a column through about five, and decorators
# add some.
_DEEPEST = 64


def running_codes() -> Iterator[CodeType]:
    """The code of the functions that run on this thread, the innermost first."""
    for frame in _frames():
        yield frame.f_code


def owners_of_reward_funcs() -> Iterator[tuple[object, str]]:
    """Objects with a running method that names ``reward_funcs``, and the module of the method's
    code."""
    for frame in _frames():
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self" and "reward_funcs" in code.co_names:
            owner = frame.f_locals.get("self")
            if owner is not None:
                yield owner, str(frame.f_globals.get("__name__", ""))


def runs_method_of(kind: type) -> bool:
    """Returns whether a method of this class or of its bases runs on this thread."""
    for code in running_codes():
        for base in kind.__mro__:
            function = base.__dict__.get(code.co_name)
            if callable(function) and getattr(inspect.unwrap(function), "__code__", None) is code:
                return True
    return False


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEEPEST):
        if frame is None:
            return
        yield frame
        frame = frame.f_back
