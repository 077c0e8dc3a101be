"""The stack of user code in this process: on a thread, or in a coroutine that waits.

Frames are read, never kept: what is returned holds on to nothing of a call. Only the user's part is
returned, without the frames below our loops and without ours. Nothing waits, takes a lock or runs
user code: it may be done in a signal handler.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from guerdon._insight.stack_source import StackFrame
from guerdon._system.gil import has_gil

_MOST = 100
_FOLDER = os.path.dirname(os.path.dirname(__file__))
_OURS = tuple(os.path.join(_FOLDER, folder) + os.sep for folder in ("_lanes", "_worker"))


def of_thread(ident: int) -> list[StackFrame]:
    """The stack of a running thread; empty if it is gone, no user code runs on it, or without the
    GIL."""
    if not has_gil():  # a frame may end while it is read
        return []
    frame = sys._current_frames().get(ident)
    return _users(reversed(list(_outwards(frame))))


def of_coroutine(coroutine: Any, thread: int | None) -> list[StackFrame]:
    """The stack of a waiting coroutine, or the stack of its loop's thread if the coroutine runs."""
    if getattr(coroutine, "cr_running", False):
        return [] if thread is None else of_thread(thread)
    return _users(_inwards(coroutine))


def _outwards(frame: FrameType | None) -> Iterator[StackFrame]:
    count = 0
    while frame is not None and count < _MOST:
        yield _place(frame)
        frame = frame.f_back
        count += 1


def _inwards(awaited: Any) -> Iterator[StackFrame]:
    """Coroutines, generators and async generators, each waiting for the next."""
    for _ in range(_MOST):
        for frame_of, next_of in (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await")):
            frame = getattr(awaited, frame_of, None)
            if isinstance(frame, FrameType):
                yield _place(frame)
                awaited = getattr(awaited, next_of, None)
                break
        else:
            return


def _users(places: Iterable[StackFrame]) -> list[StackFrame]:
    """Returns the frames above our innermost frame that calls the user's code."""
    stack = list(places)
    while stack and stack[-1][0].startswith(_OURS):
        stack.pop()
    for index in range(len(stack) - 1, -1, -1):
        if stack[index][0].startswith(_OURS):
            return stack[index + 1 :]
    return stack


def _place(frame: FrameType) -> StackFrame:
    return frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name
