"""The tasks that the engine runs on an event loop which it shares with user code.

User code reaches every task of its loop (`asyncio.all_tasks()`), and may keep the task of its call.
It can't cancel a task of the engine except during that call: `cancel()` answers as for a finished
task, and only `end()` cancels. The tasks bypass the loop's task factory:
a user's factory may run them at once, or make other objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guerdon._lanes.arguments import FrameArguments
    from guerdon._native import Turn


class EngineTask(asyncio.Task[Any]):
    """Work of the engine: only `end` cancels it."""

    def cancel(self, msg: Any | None = None) -> bool:
        return False

    def end(self, msg: Any | None = None) -> bool:
        """Ends the task as `cancel` does for other tasks."""
        return super().cancel(msg)


class RunnerTask(EngineTask):
    """Runs calls one after the other, and records the running one.

    Args:
        work: What it does, given itself.
        load: The frame of its first call; the spare runner has none.
        call: That call.
        over: Called with it when it has ended, in the context `clean`.
    """

    __slots__ = ("call", "cancel_sent", "first", "left", "load", "rest", "runs", "spare", "touched")

    def __init__(
        self,
        work: Callable[[RunnerTask], Coroutine[Any, Any, Any]],
        loop: asyncio.AbstractEventLoop,
        load: FrameArguments | None,
        call: int | Turn | None,
        over: Callable[[Any], None],
        clean: Context,
    ) -> None:
        self.load = load
        self.first = call  # what it begins with
        # Index of the running call, or of the last one; None while the loop turns.
        self.call = call if call is None or isinstance(call, int) else call.call
        self.rest: int | Turn | None = None  # where its successor continues
        self.spare = load is None  # no call has begun here
        self.runs = False  # the coroutine has begun
        self.touched = False  # user code changed the task visibly for later calls
        self.cancel_sent = False  # cancelled: its call is overdue, or the loop ends
        self.left = False  # the call ignored the cancellation
        super().__init__(work(self), loop=loop)
        super().add_done_callback(over, context=clean)

    @property
    def running_call(self) -> tuple[int, int] | None:
        """The frame and index of the running call."""
        load, call = self.load, self.call
        return None if load is None or call is None else (load.frame.id, call)

    def cancel(self, msg: Any | None = None) -> bool:
        if not self.runs or self.call is None:
            return False
        self.touched = True
        return self.end(msg)

    def add_done_callback(self, *args: Any, **options: Any) -> None:
        self.touched = True
        super().add_done_callback(*args, **options)

    def set_name(self, value: object) -> None:
        self.touched = True
        super().set_name(value)
