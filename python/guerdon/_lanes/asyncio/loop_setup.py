"""`setup()` and `close()` of a reward on its loop.

`setup()` runs once at a time. However it ends, also cancelled by user code before it began, the
caller gets the result. Exceptions of user code there are reported, not raised on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

from guerdon._lanes.asyncio.loop_tasks import EngineTask
from guerdon._system.warning import warn
from guerdon._worker.invoke.async_detection import is_awaitable
from guerdon._worker.invoke.call import Call
from guerdon._worker.invoke.reasons import SetupTimeout, reason_of

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec
    from guerdon._native import LoopQueue


class _OverdueError(Exception):
    """User code did not end in time."""


class LoopSetup:
    """State of a reward's setup.

    Args:
        number: Of the function.
    """

    def __init__(
        self,
        number: int,
        spec: FunctionSpec,
        call: Call,
        queue: LoopQueue,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.ready = not spec.stateful
        self.setting_up: EngineTask | None = None
        self.users: asyncio.Task[Any] | None = None  # `setup()` or `close()` itself
        self._number = number
        self._timeout = spec.policy.setup_timeout
        self._name = spec.name
        self._call = call
        self._queue = queue
        self._loop = loop

    def begin(self, clean: Context, over: Callable[[BaseException | None], None]) -> None:
        """Starts `setup()` if it does not run; `over` is called at its end, with any error.

        `over` is not kept longer: a reference cycle with its owner would keep the loop's descriptor
        open until Python's collector runs.
        """
        if self.setting_up is None:
            self._queue.setup_begins(self._number)
            self.setting_up = EngineTask(self._set_up(), loop=self._loop)
            self.setting_up.add_done_callback(partial(self._ended, over), context=clean)

    async def close(self, timeout: float) -> None:
        """Runs `close()` if `setup()` has run."""
        if not self.ready:
            return
        try:
            await self._within(self._call.close(), timeout)
        except _OverdueError:
            warn(f"reward function {self._name!r}: close() did not end within {timeout:g} s")
        except BaseException as error:
            warn(f"reward function {self._name!r}: close() failed: {reason_of(error)}")

    async def _set_up(self) -> BaseException | None:
        try:
            await self._within(self._call.setup(), self._timeout)
        except _OverdueError:
            return SetupTimeout(f"setup() did not end within the setup_timeout of {self._timeout:g} s")
        except BaseException as error:
            return error
        return None

    def _ended(self, over: Callable[[BaseException | None], None], task: asyncio.Task[BaseException | None]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception() or task.result()
        self.setting_up = None
        self.ready = error is None
        self._queue.setup_ends(self._number)
        over(error)

    async def _within(self, raw: Any, timeout: float) -> None:
        if not is_awaitable(raw):
            return
        work = raw if asyncio.iscoroutine(raw) else _awaited(raw)
        task = self.users = asyncio.Task(work, loop=self._loop)
        try:
            await asyncio.wait({task}, timeout=timeout)
            if not task.done():
                raise _OverdueError
            task.result()
        finally:
            self.users = None
            task.cancel()
            # Otherwise it and the traceback of its exception hold each other until the collector
            # runs.
            del task


async def _awaited(raw: Any) -> Any:
    return await raw
