"""One function on an event loop: runner tasks that take its calls.

A runner takes a call, awaits it, stores the result, and takes the next. While calls wait, an idle
runner is ready: if the call suspends, the idle one takes the next. A call has the same meaning as
in a separate task: a runner that a call left changed, or that someone holds on to, ends with that
call. However a runner ends, a callback ends its running call and takes over the others: a batch
never waits for a runner that has ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from functools import partial
from sys import getrefcount
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any

from guerdon._lanes.arguments import (
    DiscardedCall,
    FrameArguments,
    gathered_of,
    lists_of,
    scores_from,
    spread,
    unreadable,
)
from guerdon._lanes.asyncio.loop_setup import LoopSetup
from guerdon._lanes.asyncio.loop_tasks import EngineTask, RunnerTask
from guerdon._lanes.call_results import failed, packed
from guerdon._system.warning import warn
from guerdon._worker.invoke.async_detection import is_awaitable
from guerdon._worker.invoke.call import Call
from guerdon._worker.invoke.reasons import has_type, setup_reason_of
from guerdon._worker.invoke.returned_values import to_cell
from guerdon._worker.invoke.tracebacks import traceback_of
from guerdon.limits import USUAL_CONCURRENCY

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec
    from guerdon._native import LoopFrame, LoopQueue, Turn


class LoopFunction:
    """The calls of one reward function on its loop."""

    def __init__(
        self,
        number: int,
        spec: FunctionSpec,
        call: Call,
        queue: LoopQueue,
        loop: asyncio.AbstractEventLoop,
        clean: Context,
    ) -> None:
        self.name = spec.name
        self._limit = spec.concurrency or USUAL_CONCURRENCY
        self._timeout = spec.policy.timeout
        self._call = call
        self._queue = queue
        self._loop = loop
        self._clean = clean
        self._loads: deque[FrameArguments] = deque()
        self._runners: set[RunnerTask] = set()
        self._count = 0  # runners that count toward the limit
        self._spare = False  # true while a started runner has not run yet
        self._turning = 0  # runners that wait for the loop to turn
        self._stateful = LoopSetup(number, spec, call, queue, loop)
        self._ending = False
        self._warned = False

    def accept(self, frame: LoopFrame) -> None:
        """Takes a frame on."""
        self._loads.append(FrameArguments(frame))
        if self._stateful.ready:
            self._start_spare()
        else:
            self._stateful.begin(self._clean, self._set_up)

    def task_of(self, call: tuple[int, int] | None) -> asyncio.Task[Any] | None:
        """The task of a call, given its frame and index, or that of `setup()`. Can be called from
        any thread."""
        if call is None:
            return self._stateful.users
        runners = list(self._runners)  # at once: the loop changes the set
        return next((runner for runner in runners if runner.running_call == call), None)

    def has(self, task: asyncio.Task[Any]) -> bool:
        """Returns whether this is one of its runners. Can be called from any thread."""
        return task in self._runners

    def tasks(self) -> set[EngineTask]:
        """Returns all tasks of the function; from now on none of them takes another call."""
        self._ending = True
        self._loads.clear()
        for runner in self._runners:
            runner.cancel_sent = True
        setting_up = self._stateful.setting_up
        return {*self._runners} if setting_up is None else {*self._runners, setting_up}

    async def close(self, timeout: float) -> None:
        """Runs the function's `close()` if its `setup()` has run."""
        await self._stateful.close(timeout)

    def stop(self, frame: int, call: int, *, ended: bool) -> None:
        """Cancels an overdue call; `ended` means that it has its outcome without its coroutine."""
        runner = self.task_of((frame, call))
        if not isinstance(runner, RunnerTask):
            return
        if not runner.cancel_sent:
            runner.cancel_sent = True
            runner.end()
        if ended and not runner.left:
            runner.left = True
            self._count -= 1
            if self._loads:
                self._start_spare()
            if not self._warned:
                self._warned = True
                warn(
                    f"reward function {self.name!r} ignores its cancellation at the timeout of "
                    f"{self._timeout:g} s and keeps running. Re-raise asyncio.CancelledError where it is caught."
                )

    def _start_spare(self) -> None:
        if not self._spare and self._count < self._limit:
            self._spare = True
            self._start(None, None)

    def _has_later(self, load: FrameArguments) -> bool:
        """Returns whether a frame waits behind this one."""
        return bool(self._loads) and self._loads[-1] is not load

    def _start(self, load: FrameArguments | None, index: int | Turn | None) -> None:
        if not self._ending:
            self._count += 1
            self._runners.add(RunnerTask(self._run, self._loop, load, index, self._over, self._clean))

    def _over(self, runner: RunnerTask) -> None:
        """Continues the work of a runner that has ended, once."""
        if runner not in self._runners:
            return
        self._runners.discard(runner)
        if runner.spare:
            self._spare = False
        if not runner.left:
            self._count -= 1
        error: BaseException = asyncio.CancelledError()
        if runner.done() and not runner.cancelled():
            # Read, or asyncio would log that the exception was never retrieved.
            error = runner.exception() or error
        load, call, rest = runner.load, runner.call, runner.rest
        if load is not None and call is not None:
            rest = load.frame.fail(call, *failed(self._call, error))
        if self._ending or self._loop.is_closed():
            return
        if load is not None and rest is not None:
            self._start(load, rest)
        elif self._loads:
            self._start_spare()

    async def _run(self, runner: RunnerTask) -> Any:
        """Runs calls until none is left or the runner must end; gives what the last call gave."""
        base, held = copy_context(), getrefcount(runner)
        runner.runs, raw = True, None
        load, index = runner.load, runner.first
        while load is not None or (self._loads and not runner.cancel_sent):
            if load is None:
                if runner.spare and self._turning:
                    await self._turn(runner)
                    continue
                load = runner.load = self._loads[0]
                index = load.frame.start()
            frame, values, size = load.frame, load.values, 1
            call, function = self._caller(load)
            ok = None if values is None or call.wants_records else frame.ok
            last = load.view.calls - 1
            while index is not None:
                if not isinstance(index, int):  # a `Turn`
                    if index.report:
                        self._loop.call_soon(self._queue.turned, context=self._clean)
                    if index.call is None:
                        await self._turn(runner, long=index.long)
                        index = frame.start()
                        continue
                    index = index.call
                runner.call = index
                if runner.spare:
                    runner.spare = self._spare = False
                # An idle runner behind the last call would have no work; the next frame starts one.
                if not self._spare and self._count < self._limit and (index < last or self._has_later(load)):
                    self._spare = True
                    self._start(None, None)
                try:
                    if values is None:
                        raw, size = self._call_with_lists(load, function, index)
                    else:
                        try:
                            given = values[index]
                        except IndexError:
                            given = load.more(values, index)
                        raw = function(given)
                    if type(raw) is CoroutineType or is_awaitable(raw):
                        raw = await raw
                except GeneratorExit as error:
                    # Most likely the task is being thrown away: it must not await anything any
                    # more.
                    runner.rest, runner.call = frame.fail(index, *failed(call, error)), None
                    if not self._loop.is_closed():
                        self._loop.call_soon(self._over, runner, context=self._clean)
                    return None
                except BaseException as error:
                    index, raw = frame.fail(index, *failed(call, error)), None
                    if getrefcount(runner) != held and (
                        has_type(error, Exception) or has_type(error, asyncio.CancelledError)
                    ):
                        runner.rest, runner.call = index, None
                        # The exception holds on to this frame, and the task to the exception.
                        del runner
                        raise
                else:
                    if type(raw) is float and ok is not None:
                        index = ok(index, raw)
                    else:
                        index = _complete(call, load, index, raw, size)
                if runner.cancel_sent or runner.touched or getrefcount(runner) != held or copy_context() != base:
                    runner.rest, runner.call = index, None
                    return raw
            if self._loads and self._loads[0] is load:
                self._loads.popleft()
            load = None
        runner.call = None
        return None

    def _caller(self, load: FrameArguments) -> tuple[Call, Callable[..., Any]]:
        """Returns the call object, which keeps the calls' records, and the callable."""
        call = self._call.clone() if self._call.wants_records else self._call
        names = load.view.names
        if load.view.kind == "finish":
            return call, call.bind_finish(names or ())
        function = call.bind(names)
        return call, spread(function) if load.are_rows else function

    def _call_with_lists(self, load: FrameArguments, function: Callable[..., Any], index: int) -> tuple[Any, int]:
        """Returns the value of a call on several samples, and their number."""
        frame, view = load.frame, load.view
        error = unreadable(view)
        if error is not None:
            raise error
        if view.kind == "gathered":
            lists, size = gathered_of(view, partial(frame.gathered, index))
            return function(*lists), size
        lists = lists_of(view, load.firsts[index])
        if not frame.is_open(index):
            raise DiscardedCall
        raw = function(scores_from(frame.scores(index)), *lists) if view.kind == "finish" else function(*lists)
        return raw, view.size

    async def _turn(self, runner: RunnerTask, *, long: bool = False) -> None:
        """Lets the loop turn before the next call is taken.

        `long`: this runner has run calls since the last turn. It lets the loop turn until the
        callbacks of timers and sockets have run: that takes three turns. The spare leaves the next
        call to it, and stays the spare.
        """
        runner.call = None
        self._turning += long
        try:
            await _pause()
            if long:
                await _pause()
                await _pause()
            while runner.spare and self._turning:
                await _pause()
        finally:
            self._turning -= long

    def _set_up(self, error: BaseException | None) -> None:
        """`setup()` has ended: calls that wait for one that failed fail with it."""
        if error is None:
            if self._loads:
                self._start_spare()
            return
        reason, traceback = setup_reason_of(error), traceback_of(error)
        while self._loads:
            self._loads.popleft().frame.setup_failed(reason, traceback)


@coroutine
def _pause() -> Iterator[None]:
    """Waits for one turn of the loop."""
    yield


def _complete(call: Call, load: FrameArguments, index: int, raw: object, size: int) -> int | Turn | None:
    """Reports the return value of a call on `size` samples."""
    frame = load.frame
    try:
        if load.values is None:
            return frame.cells(index, *packed(raw, size), call.records())
        status, value, fields = to_cell(raw)
        if fields is not None:
            call.add_fields(fields)
            tokens = call.tokens()
            if tokens is not None:
                frame.used(tokens)
        records = call.records()
    except BaseException as error:
        return frame.fail(index, *failed(call, error))
    return frame.cell(index, status, value, records)
