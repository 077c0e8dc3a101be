"""Warnings about code that blocks an event loop: once for half a second, or for milliseconds in
each call.

The code is found on the loop's thread, or reported by the engine after the block. Only user code
is named: not frames of the loop or of Guerdon, nor a thread that just waits.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections import deque
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from guerdon._lanes.asyncio.loop_runner import LoopFunction
from guerdon._system.gil import has_gil
from guerdon._system.warning import warn

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec

_ASYNCIO = os.path.dirname(asyncio.__file__)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_OURS = tuple(os.path.join(_PACKAGE, folder) for folder in ("_lanes", "_worker"))
_WHAT_TO_DO = (
    'Await what blocks, or make it a sync function: with lane="thread" if it waits, in a worker (the default) if it '
    "computes. Make a client once, not in each call: as a global, or in setup() of a StatefulReward."
)


# A function is reported when this share of the inspections of one second met its calls in long
# steps, or of four seconds: within one second, steps of 300 ms are of too few calls. They must be
# different calls: a single call that blocks for long has another warning.
_INTERVAL_S = 0.025
_STEPS = (14, 56)
_CALLS = 4
_SPAN_S = 1 / 14  # for each of the steps


class _LongStep(NamedTuple):
    """A call that an inspection met in a long step."""

    seconds: float
    call: tuple[int, int]
    queued_s: float


class BlockingWarnings:
    """The warnings of one loop.

    Args:
        thread: The loop's thread, by its id in the operating system.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._warned: set[tuple[str, int]] = set()
        self._named: set[str] = set()  # functions that were warned of
        self._met: dict[str, deque[_LongStep]] = {}

    def now(self, who: str | None, where: FrameType) -> None:
        """Warns that a frame blocks its loop; `who` is the reward function, or None."""
        if who is not None:
            self._named.add(who)
        whose = "a task or callback" if who is None else f"reward function {who!r}"
        place = where.f_code.co_filename, where.f_lineno
        self._warn(
            f"{whose} blocks its event loop: for half a second no other call on it could run and no timeout could be "
            f"enforced. It is in {where.f_code.co_name}, {place[0]}:{place[1]}. {_WHAT_TO_DO}",
            place,
        )

    def has_named(self, name: str) -> bool:
        """Returns whether it has warned of this function."""
        return name in self._named

    def is_to_name(self, name: str, call: tuple[int, int], of_sample: bool) -> bool:
        """Counts a call that was met in a long step; returns whether to warn of its function.

        A call that is not `of_sample` may be alone on its loop. Only the steps of one second count
        for it.
        """
        met = self._met.setdefault(name, deque(maxlen=max(_STEPS)))
        met.append(_LongStep(time.monotonic(), call, _queued_s(self._thread)))
        return any(
            _is_often(list(met)[-steps:]) for steps in (_STEPS if of_sample else _STEPS[:1]) if len(met) >= steps
        )

    def steps(self, name: str, where: FrameType) -> None:
        """Warns about a function with many long steps; the frame is in one of them."""
        self._named.add(name)
        place = where.f_code.co_filename, where.f_lineno
        self._warn(
            f"reward function {name!r} blocks its event loop in each call: its calls run one after another, each for "
            f"milliseconds or longer, and no other call on the loop can run meanwhile. One was in "
            f"{where.f_code.co_name}, {place[0]}:{place[1]}. {_WHAT_TO_DO}",
            place,
        )

    def over(self, spec: FunctionSpec) -> None:
        """Warns about a block that ended with a call of this function, and can't be inspected."""
        if spec.name in self._named:
            return
        self._named.add(spec.name)
        code = _code_of(spec.target)
        place = ("", 0) if code is None else (code.co_filename, code.co_firstlineno)
        where = "" if code is None else f" ({code.co_name}, {place[0]}:{place[1]})"
        kept = "C code that it called kept the GIL, or its" if has_gil() else "Its"
        self._warn(
            f"reward function {spec.name!r}{where} blocks its event loop: for over half a second nothing else could run "
            f"on it. {kept} calls ran one after another. {_WHAT_TO_DO}",
            place,
        )

    def _warn(self, message: str, place: tuple[str, int]) -> None:
        if place not in self._warned:
            self._warned.add(place)
            warn(message, *place) if place[0] else warn(message)


def _is_often(met: list[_LongStep]) -> bool:
    span_s = met[-1].seconds - met[0].seconds
    # A step seems long too while the thread waits for a processor.
    in_steps_s = len(met) * _INTERVAL_S - (met[-1].queued_s - met[0].queued_s)
    different = len({one.call for one in met})
    return span_s <= len(met) * _SPAN_S and in_steps_s > span_s / 4 and different >= _CALLS


def blocking(innermost: FrameType) -> tuple[str | None, FrameType] | None:
    """The reward function that runs and its outermost frame; None if no user code runs."""
    frames = []
    at: FrameType | None = innermost
    while at is not None:
        frames.append(at)
        at = at.f_back
    user = None
    name = None
    stepping = False  # below a task's step or a callback; else the loop just waits
    for frame in reversed(frames):
        file = frame.f_code.co_filename
        if file.startswith(_ASYNCIO):
            stepping = stepping or frame.f_code.co_name == "_run"
        elif file.startswith(_OURS):
            owner = frame.f_locals.get("self")
            if isinstance(owner, LoopFunction):
                user, name = None, owner.name
        elif user is None and stepping:
            user = frame
    return None if user is None else (name, user)


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
