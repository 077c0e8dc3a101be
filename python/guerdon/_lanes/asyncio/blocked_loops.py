"""Warnings about code that blocks an event loop: for half a second, or in each call for some
milliseconds.

The code is found on the loop's thread, or reported by the engine after the block. Only user code
is named: not frames of the loop or of Guerdon, nor a thread that just waits.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections import deque
from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from guerdon._insight.stack_source import StackFrame
from guerdon._lanes.asyncio import loop_runner
from guerdon._system.warning import warn

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec

_ASYNCIO = os.path.dirname(asyncio.__file__)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_OURS = tuple(os.path.join(_PACKAGE, folder) for folder in ("_lanes", "_worker"))
_WHAT_TO_DO = (
    'Await what blocks, or make it a sync function: with lane="thread" if it waits, in a worker (the default) if it '
    "computes."
)


# A function is reported when this share of a second's inspections met its calls in long steps. They
# must be different calls: a single call that blocks for long has another warning.
_INTERVAL_S = 0.025
_STEPS = 14
_CALLS = 4
_SPAN_S = 1.0


class _LongStep(NamedTuple):
    """A call that an inspection met in a long step."""

    seconds: float
    call: tuple[int, int]
    queued_s: float


class BlockingWarnings:
    """The warnings of one loop.

    Args:
        thread: The loop's, as the operating system calls it.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._warned: set[tuple[str, int]] = set()
        self._named: set[str] = set()  # functions that were warned of
        self._met: dict[str, deque[_LongStep]] = {}

    def now(self, who: str | None, where: StackFrame) -> None:
        """This frame blocks its loop; `who` is the reward function, None: something else."""
        if who is not None:
            self._named.add(who)
        whose = "a task or callback" if who is None else f"reward function {who!r}"
        file, line, code = where
        self._warn(
            f"{whose} blocks its event loop: for half a second no other call on it could run and no timeout could be "
            f"enforced. It is in {code}, {file}:{line}. {_WHAT_TO_DO}",
            (file, line),
        )

    def has_named(self, name: str) -> bool:
        """Returns whether it has warned of this function."""
        return name in self._named

    def is_to_name(self, name: str, call: tuple[int, int]) -> bool:
        """Counts a call that was met in a long step; returns whether to warn of its function."""
        met = self._met.setdefault(name, deque(maxlen=_STEPS))
        met.append(_LongStep(time.monotonic(), call, _queued_s(self._thread)))
        span_s = met[-1].seconds - met[0].seconds
        if len(met) < _STEPS or span_s > _SPAN_S:
            return False
        # A step seems long too while the thread waits for a processor.
        queued_s = met[-1].queued_s - met[0].queued_s
        in_steps_s = len(met) * _INTERVAL_S - queued_s
        return in_steps_s > span_s / 4 and len({one.call for one in met}) >= _CALLS

    def steps(self, name: str, where: StackFrame) -> None:
        """This frame is in one of the long steps of this function."""
        self._named.add(name)
        file, line, code = where
        self._warn(
            f"reward function {name!r} blocks its event loop in each call: its calls run one after another, for some "
            f"milliseconds each, and no other call on the loop can run meanwhile. One was in "
            f"{code}, {file}:{line}. {_WHAT_TO_DO}",
            (file, line),
        )

    def over(self, spec: FunctionSpec) -> None:
        """A call of this function ended a block that nobody could inspect."""
        if spec.name in self._named:
            return
        self._named.add(spec.name)
        code = _code_of(spec.target)
        place = ("", 0) if code is None else (code.co_filename, code.co_firstlineno)
        where = "" if code is None else f" ({code.co_name}, {place[0]}:{place[1]})"
        self._warn(
            f"reward function {spec.name!r}{where} blocks its event loop: for over half a second nothing else could run "
            f"on it. C code that it called kept the GIL, or its calls ran one after another. {_WHAT_TO_DO}",
            place,
        )

    def _warn(self, message: str, place: tuple[str, int]) -> None:
        if place not in self._warned:
            self._warned.add(place)
            warn(message, *place) if place[0] else warn(message)


def blocking(stack: Sequence[StackFrame], name: str | None) -> tuple[str | None, StackFrame] | None:
    """The reward function that runs and its outermost frame; None if no user code runs.

    Args:
        stack: Of the loop's thread, innermost frame first.
        name: Of the function whose runner is in a step; None if it is not known.
    """
    user = who = None
    stepping = False  # below a task's step or a callback; else the loop just waits
    for frame in reversed(stack):
        file = frame[0]
        if file.startswith(_ASYNCIO):
            stepping = stepping or frame[2] == "_run"
        elif file == loop_runner.__file__:
            user, who = None, name
        elif user is None and stepping and not file.startswith(_OURS):
            user = frame
    return None if user is None else (who, user)


def _queued_s(thread: int) -> float:
    """Returns for how long a thread has waited for a processor; 0 if that is not counted."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _code_of(target: Any) -> CodeType | None:
    """Returns the code object of a function; None if it is not written in Python."""
    for name in ("score", "__call__"):
        if not inspect.isroutine(target) and not hasattr(target, "func"):
            target = getattr(target, name, target)
    while hasattr(target, "func"):  # a partial
        target = target.func
    code = getattr(inspect.unwrap(target), "__code__", None)
    return code if isinstance(code, CodeType) else None
