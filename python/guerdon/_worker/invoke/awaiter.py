"""Awaiting what a sync call returned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from .async_detection import is_awaitable

if TYPE_CHECKING:
    from .call import Call


class Awaiter:
    """Awaits what functions return, on an event loop kept for the calling thread.

    `warn` is called once per function name with what to change, but not for an async function:
    it only gets here if the user chose its lane. `before_loop` is called before the loop is made.
    """

    def __init__(self, warn: Callable[[str], None], before_loop: Callable[[], None] | None = None) -> None:
        self._warn = warn
        self._before_loop = before_loop
        self._warned: set[str] = set()
        self._loop: Any = None

    def result(self, call: Call, raw: Any) -> Any:
        """`raw`, which `call` returned, or its result when awaited."""
        if not is_awaitable(raw):
            return raw
        if not call.is_async and call.name not in self._warned:
            self._warned.add(call.name)
            self._warn(
                f"reward function {call.name!r} is not an async function but returned an awaitable; it is awaited "
                f"in place, one call at a time: declare it with lane='asyncio' to run its calls concurrently"
            )
        return self.run(raw)

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Runs an awaitable to completion on the kept loop."""
        loop = self._loop
        if loop is None:
            import asyncio

            try:
                if self._before_loop is not None:
                    self._before_loop()
            except BaseException:
                if isinstance(awaitable, Coroutine):
                    awaitable.close()  # nobody will await it
                raise
            loop = self._loop = asyncio.new_event_loop()
        value, error = self._outcome(loop, awaitable)
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # else error and traceback form a reference cycle

    def _outcome(self, loop: Any, awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
        outcome: list[tuple[Any, BaseException | None]] = []
        task = loop.create_task(_store_outcome(awaitable, outcome))
        try:
            loop.run_until_complete(task)
            return outcome.pop()
        except BaseException:
            if not task.done():
                # A signal interrupted the loop: the task must not go on during the next call.
                self.close()
            raise

    def close(self) -> None:
        """Closes the loop; tasks still on it are cancelled."""
        loop, self._loop = self._loop, None
        if loop is not None:
            _close_loop(loop)


async def _store_outcome(awaitable: Awaitable[Any], outcome: list[tuple[Any, BaseException | None]]) -> None:
    """Appends its result or exception to `outcome`.

    Left in the task, the exception would form a reference cycle: its traceback holds asyncio's
    frames, which hold the task.
    """
    try:
        outcome.append((await awaitable, None))
    except BaseException as error:
        outcome.append((None, error))


def _close_loop(loop: Any) -> None:
    import asyncio

    try:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            cancelled: Coroutine[Any, Any, Any] = asyncio.wait(tasks, timeout=1.0)
            loop.run_until_complete(cancelled)
        loop.run_until_complete(loop.shutdown_asyncgens())
    except BaseException:  # whatever user code raises, the loop's descriptors are closed
        return
    finally:
        if not loop.is_running():
            loop.close()
