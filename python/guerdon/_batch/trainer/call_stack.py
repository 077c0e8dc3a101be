"""The functions that run on this thread, for a caller that doesn't name itself.

Frames are looked at while they run and never kept. Only the locals of a method that goes through
``reward_funcs`` are read: what reading makes lives as long as the frame, and a training loop's
frame lives for days.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

# Frames that are looked at: from a trainer's method to a column are five or so, decorators add
# some.
_DEEPEST = 64


def running_codes() -> Iterator[CodeType]:
    """The code of the functions that run on this thread, the innermost first."""
    for frame in _frames():
        yield frame.f_code


def owners_of_reward_funcs() -> Iterator[tuple[object, str]]:
    """The objects whose methods run here and name ``reward_funcs``, and the module of the method's
    code."""
    for frame in _frames():
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self" and "reward_funcs" in code.co_names:
            owner = frame.f_locals.get("self")
            if owner is not None:
                yield owner, str(frame.f_globals.get("__name__", ""))


def runs_method_of(kind: type) -> bool:
    """Returns whether a method of this class, or of one that it derives from, runs on this
    thread."""
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
