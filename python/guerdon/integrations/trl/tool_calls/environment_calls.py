"""Calls of environments: sync methods on a thread of the environment's own, async ones on one loop.

The engine times a call, counts it and limits it, on its asyncio lane; the user's code runs here.
Objects that belong to a thread or to a loop (a connection, a session) therefore work in every
method. A sync call that takes too long is left behind on its thread, and the environment is stuck
until it returns.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final

from guerdon._functions.callables import is_async
from guerdon._system.warning import warn
from guerdon._worker.invoke.http_errors import http_status_of, retry_after_of
from guerdon._worker.invoke.reasons import reason_of
from guerdon.errors import ClosedError, ToolError
from guerdon.integrations._event_loop_thread import EventLoopThread
from guerdon.integrations.trl.tool_calls.executor import LocalCall
from guerdon.limits import RetryAfter
from guerdon.results.status import Status

_Job = tuple[Future[Any], Callable[[], Any]]
# Seconds that an async call, which was cancelled, gets to end before the next one fails.
_END_S: Final = 0.5
_POLL_S: Final = 0.005

_warned: set[str] = set()  # methods whose thread was left behind; written by their calls


class EnvironmentThread:
    """Runs the calls of one environment. Its thread begins with the first sync one; async ones run
    on a loop that the environments of a factory share.

    Attributes:
        running: The calls whose code runs now. Each adds and removes itself.
    """

    def __init__(self, name: str, loop: EventLoopThread) -> None:
        self._name = name
        self._loop = loop
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._begun = False  # under the lock, as is `_closed`
        self._closed = False
        self._lock = threading.Lock()
        self.running: list[EnvironmentCall] = []

    def start(self, call: EnvironmentCall) -> Future[Any]:
        """Starts the code of a call: a sync one's after that of the earlier ones."""
        with self._lock:
            if self._closed:
                raise ClosedError("the environments were closed: make new ones with environments(factory).")
            if call.asynchronous:
                return self._loop.start(call.awaited_on_loop())
            if not self._begun:
                threading.Thread(target=_run_jobs, args=(self._queue,), name=self._name, daemon=True).start()
                self._begun = True
            future: Future[Any] = Future()
            self._queue.put((future, call))
            return future

    def close(self) -> None:
        """Refuses further calls, and ends the thread; what it runs is left behind."""
        with self._lock:
            self._closed = True
        self.end()

    def end(self) -> None:
        """Ends the thread. Takes no lock: it is called where garbage is collected."""
        self._queue.put(None)


@dataclass(eq=False, kw_only=True)
class EnvironmentCall(LocalCall):
    """One call of a method of an environment.

    Attributes:
        thread: Where it runs.
        name: The class and the method, for messages.
        timeout: Seconds that it may run, for messages.
    """

    thread: EnvironmentThread
    name: str
    timeout: float

    def __post_init__(self) -> None:
        self.asynchronous = is_async(self.function)

    async def awaited(self) -> float:
        """Runs the call where it belongs. Only one that may be tried again raises."""
        self.error = await self._stuck_in_another()
        if self.error is None:
            self.given_up = False
            try:
                await asyncio.wrap_future(self.thread.start(self))
            finally:
                self.given_up = True
                if self in self.thread.running and not self.asynchronous:
                    self._warn_left_behind()
        if self.keep and self.error is not None:
            # Not the error itself: with the engine's frames in it, the two would hold each other.
            if http_status_of(self.error) == 429:
                raise RetryAfter(retry_after_of(self.error) or 0.0)
            raise ToolError(reason_of(self.error), Status.ERROR)
        return 1.0

    async def awaited_on_loop(self) -> float:
        """Runs an async method, on the loop of all of them."""
        try:
            return await super().awaited()
        except (SystemExit, KeyboardInterrupt) as error:  # either would end the loop of all methods
            raise RuntimeError(reason_of(error)) from None

    @contextmanager
    def _run(self) -> Iterator[None]:
        self.thread.running.append(self)
        try:
            with super()._run():
                yield
        finally:
            self.thread.running.remove(self)

    async def _stuck_in_another(self) -> ToolError | None:
        """The error for an environment that is stuck. Cancelled async calls get a moment to end."""
        until = time.monotonic() + _END_S
        while stuck := [one for one in self.thread.running if one.given_up]:
            if time.monotonic() > until or not all(one.asynchronous for one in stuck):
                return ToolError(
                    f"the environment is stuck in {stuck[0].name}, which timed out and can't be stopped: its state is unknown",
                    Status.TIMEOUT,
                )
            await asyncio.sleep(_POLL_S)
        return None

    def _warn_left_behind(self) -> None:
        """Says once a method that a thread can't be stopped."""
        if self.name not in _warned:
            _warned.add(self.name)
            warn(
                f"a call of the environment's {self.name} ran past its timeout of {self.timeout:g} s and can't be stopped. "
                "Until it returns, every call of that instance fails, and a new instance takes its place. Give what it "
                "waits for a timeout of its own. (Said once.)"
            )


def _run_jobs(queue: SimpleQueue[_Job | None]) -> None:
    """The life of a thread. It holds no job while it waits: that would keep the environment."""
    while (job := queue.get()) is not None:
        future, function = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function())
            except BaseException as error:  # SystemExit of a method ends nothing
                future.set_exception(RuntimeError(reason_of(error)))
        del job, future, function
