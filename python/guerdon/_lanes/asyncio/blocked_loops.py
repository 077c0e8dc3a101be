"""Warnings of what blocks an event loop, once for each place.

It is found on the loop's thread, or reported by the engine once it is over. Only user code is
named: not the loop's own frames, nor ours, nor a thread that just waits.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from guerdon._lanes.asyncio.loop_runner import LoopFunction
from guerdon._system.warning import warn

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec

_ASYNCIO = os.path.dirname(asyncio.__file__)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_OURS = tuple(os.path.join(_PACKAGE, folder) for folder in ("_lanes", "_worker"))
_WHAT_TO_DO = (
    "Await what blocks (asyncio.to_thread), or make it a sync function, which runs in a worker that can be killed."
)


class BlockingWarnings:
    """The warnings of one loop."""

    def __init__(self) -> None:
        self._warned: set[tuple[str, int]] = set()

    def now(self, who: str | None, where: FrameType) -> None:
        """This frame blocks its loop; `who` is the reward function, None: something else."""
        whose = "a task or callback" if who is None else f"reward function {who!r}"
        place = where.f_code.co_filename, where.f_lineno
        self._warn(
            f"{whose} blocks its event loop: for half a second no other call on it could run and no timeout could be "
            f"enforced. It is in {where.f_code.co_name}, {place[0]}:{place[1]}. {_WHAT_TO_DO}",
            place,
        )

    def over(self, spec: FunctionSpec) -> None:
        """A call of this function did, in code that kept the GIL."""
        code = _code_of(spec.target)
        place = ("", 0) if code is None else (code.co_filename, code.co_firstlineno)
        where = "" if code is None else f" ({code.co_name}, {place[0]}:{place[1]})"
        self._warn(
            f"reward function {spec.name!r}{where} blocks its event loop: for over half a second nothing else could run, "
            f"on its loop or any other Python thread, because C code that it called kept the GIL. {_WHAT_TO_DO}",
            place,
        )

    def _warn(self, message: str, place: tuple[str, int]) -> None:
        if place not in self._warned:
            self._warned.add(place)
            warn(message, *place) if place[0] else warn(message)


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


def _code_of(target: Any) -> CodeType | None:
    """Returns the code object of a function; None if it is not written in Python."""
    for name in ("score", "__call__"):
        if not inspect.isroutine(target) and not hasattr(target, "func"):
            target = getattr(target, name, target)
    while hasattr(target, "func"):  # a partial
        target = target.func
    code = getattr(inspect.unwrap(target), "__code__", None)
    return code if isinstance(code, CodeType) else None
