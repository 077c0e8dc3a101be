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
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
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

__all__ = ["EnvironmentCall", "EnvironmentThreads"]

_Job = tuple[Future[Any], Callable[[], Any]]
# Seconds that an async call, which was cancelled, gets to end before the next one fails.
_END_S: Final = 0.5
_POLL_S: Final = 0.005


class EnvironmentThreads:
    """The threads of environments, one each, and the loop that they share. All begin when used."""

    def __init__(self) -> None:
        # By identity: an environment may have no hash. Beside its thread a weak reference, whose
        # callback ends the thread with it, or the environment where there can be no such reference.
        self._queues: dict[int, tuple[object, SimpleQueue[_Job | None]]] = {}
        self._loop = EventLoopThread("guerdon environments", patience=0.0)
        self._closed = False
        self._lock = threading.Lock()
        self._open: list[EnvironmentCall] = []  # under the lock: their code may still run
        self._warned = False

    def open(self, call: EnvironmentCall) -> None:
        """Notes a call that begins."""
        with self._lock:
            self._open.append(call)

    def forget_returned(self) -> None:
        """Drops the calls whose code does not run any more, and with them their environments."""
        with self._lock:
            self._open = [one for one in self._open if not one.returned]

    def running(self, environment: object) -> list[EnvironmentCall]:
        """The calls of an environment whose code runs now."""
        with self._lock:
            return [one for one in self._open if one.environment is environment and one.begun and not one.over]

    def submit(self, environment: object, function: Callable[[], Any]) -> Future[Any]:
        """Has the environment's thread call a function, after the earlier ones."""
        future: Future[Any] = Future()
        with self._lock:
            self._check_open()
            if id(environment) not in self._queues:
                self._start(environment)
            self._queues[id(environment)][1].put((future, function))
        return future

    def on_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Runs a coroutine on the loop of all async methods."""
        with self._lock:
            try:
                self._check_open()
            except ClosedError:
                coroutine.close()  # nobody will await it
                raise
            return self._loop.start(coroutine)

    def close(self) -> None:
        """Ends the threads and the loop; what a thread runs is left behind."""
        with self._lock:
            self._closed = True
            for _, queue in list(self._queues.values()):
                queue.put(None)
        self._loop.close()
        self._queues.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the environments were closed: make new ones with environments(factory).")

    def warn_left_behind(self, call: EnvironmentCall) -> None:
        """Says once that a thread can't be stopped."""
        if not self._warned:
            self._warned = True
            warn(
                f"a call of the environment's {call.name} ran past its timeout of {call.timeout:g} s and can't be stopped. "
                "Until it returns, every call of that instance fails, and a new instance takes its place. Give what it "
                "waits for a timeout of its own. (Said once.)"
            )

    def _start(self, environment: object) -> None:
        queue: SimpleQueue[_Job | None] = SimpleQueue()
        key, queues = id(environment), self._queues

        def gone(_: object) -> None:  # maybe in the middle of anything: it takes no lock
            queues.pop(key, None)
            queue.put(None)

        try:
            reference: object = weakref.ref(environment, gone)
        except TypeError:  # a class with __slots__
            reference = environment
        self._queues[key] = reference, queue
        name = f"guerdon environment {type(environment).__name__}"
        threading.Thread(target=_run_jobs, args=(queue,), name=name, daemon=True).start()


class EnvironmentCall(LocalCall):
    """One call of a method of an environment.

    Args:
        name: The class and the method, for messages.
        timeout: Seconds that it may run, for messages.
        keep: Whether the engine may call it again when it fails.
    """

    def __init__(
        self,
        threads: EnvironmentThreads,
        environment: object,
        name: str,
        timeout: float,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        keep: bool = False,
    ) -> None:
        super().__init__(function, args, kwargs, keep=keep)
        self.environment = environment
        self.name = name
        self.timeout = timeout
        self._threads = threads
        self._async = is_async(function)

    @property
    def returned(self) -> bool:
        """Returns whether the user's code has returned, or never started and won't any more."""
        return self.over or (not self.begun and self.given_up)

    @property
    def stuck(self) -> bool:
        """Returns whether the user's code runs on although nobody waits for it."""
        return self.given_up and self.begun and not self.over

    async def awaited(self) -> float:
        """Runs the call where it belongs. Only one that may be tried again raises."""
        self.error = await self._stuck_in_another()
        if self.error is None:
            await self._run_it()
        if self.keep and self.error is not None:
            # Not the error itself: with the engine's frames in it, the two would hold each other.
            if http_status_of(self.error) == 429:
                raise RetryAfter(retry_after_of(self.error) or 0.0)
            raise ToolError(reason_of(self.error), Status.ERROR)
        return 1.0

    async def _run_it(self) -> None:
        self.begun = self.over = self.given_up = False
        self._threads.open(self)
        try:
            if self._async:
                future = self._threads.on_loop(self._awaited_on_loop())
            else:
                future = self._threads.submit(self.environment, self)
            await asyncio.wrap_future(future)
        finally:
            self.given_up = True
            if self.stuck and not self._async:
                self._threads.warn_left_behind(self)
            self._threads.forget_returned()

    async def _awaited_on_loop(self) -> float:
        try:
            return await super().awaited()
        except (SystemExit, KeyboardInterrupt) as error:  # either would end the loop of all methods
            raise RuntimeError(reason_of(error)) from None

    async def _stuck_in_another(self) -> ToolError | None:
        """The error for an environment that is stuck. Cancelled async calls get a moment to end."""
        until = time.monotonic() + _END_S
        while stuck := [one for one in self._threads.running(self.environment) if one.stuck]:
            if time.monotonic() > until or not all(one._async for one in stuck):
                return ToolError(
                    f"the environment is stuck in {stuck[0].name}, which timed out and can't be stopped: its state is unknown",
                    Status.TIMEOUT,
                )
            await asyncio.sleep(_POLL_S)
        return None


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
