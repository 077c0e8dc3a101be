"""One function on an event loop: runner tasks that take its calls.

A runner is a task that takes a call, awaits it, stores what came of it, and takes the next. Before each call it makes
sure that one spare runner stands ready: if the call suspends, the spare takes the next. So calls that never suspend all
run in one task, and there are as many tasks as calls in flight, not as calls.

- R-1  At most `limit` calls of a function are in flight.
- R-2  A call sees what a task of its own would show it: a context that no other call changed, and no cancellation but
       its own. A runner that a call left changed ends, and a fresh one takes its place.
- R-3  Whatever a call raises ends that call alone.
- R-4  A call that ignores its cancellation is left to itself: its runner counts no more and takes no other.
- R-5  `setup()` comes before the first call; calls that wait for one that failed fail with it, and the next ones try
       again.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from itertools import islice
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from guerdon._lanes.arguments import Swept, gathered_of, lists_of, samples_of, scores_from, singles_of, spread
from guerdon._lanes.cells import failed, packed
from guerdon._lanes.warn import warn
from guerdon._worker.calls import Call, is_awaitable
from guerdon._worker.reasons import reason_of, traceback_of
from guerdon._worker.values import to_cell

if TYPE_CHECKING:
    from guerdon._native import Jobs, LoopQueue
    from guerdon._registration.spec import FunctionSpec

CONCURRENCY = 256
# What comes instead of the index of a call (`Jobs`).
_NONE = -1
_YIELD_LONG = -4
_MARKED = -6
# Argument tuples that are made at a time.
_ROWS = 256
_sleep = asyncio.sleep


class Load:
    """The calls of one frame, with their arguments."""

    __slots__ = ("_rest", "are_rows", "firsts", "jobs", "values")

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.firsts = samples_of(jobs)
        # What calls of one sample are called with; None: the calls are of several.
        self.values: list[Any] | None = None
        self.are_rows = False
        if jobs.kind == "sample":
            self.are_rows, values = singles_of(jobs, self.firsts)
            self.values = values if isinstance(values, list) else []
            self._rest = iter(values)

    def more(self, values: list[Any], index: int) -> Any:
        """What a call is called with that is not among its `values` yet."""
        values.extend(islice(self._rest, index + _ROWS - len(values)))
        return values[index]


class Runner:
    """One runner task and the call that it has in hand."""

    __slots__ = ("call", "frame", "left", "task", "told")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.frame = -1
        self.call = _NONE  # index in the frame, of its last one; none while the loop turns
        self.told = False  # it was cancelled because its call is overdue, or the loop ends
        self.left = False  # it ignored that


class Function:
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
        limit = spec.policy.limit
        self.name = spec.name
        self._number = number
        self._limit = CONCURRENCY if limit is None or limit.concurrency is None else limit.concurrency
        self._setup_timeout = spec.policy.setup_timeout
        self._timeout = spec.policy.timeout
        self._call = call
        self._queue = queue
        self._loop = loop
        self._clean = clean
        self._loads: deque[Load] = deque()
        self._runners: set[Runner] = set()
        self._count = 0  # runners that count toward the limit
        self._spare = False  # a runner was started that has not run yet
        self._turning = 0  # runners that let the loop turn before they go on
        self._newest: Runner | None = None  # the last one started without a call
        self._ready = not spec.stateful
        self._setting_up: asyncio.Task[None] | None = None
        self._within_task: asyncio.Task[Any] | None = None  # `setup()` or `close()` itself
        self._ending = False
        self._warned = False

    def accept(self, jobs: Jobs) -> None:
        """Takes a frame on."""
        self._loads.append(Load(jobs))
        if self._ready:
            self._start_spare()
        elif self._setting_up is None:
            self._setting_up = self._loop.create_task(self._set_up())

    def task_of(self, call: tuple[int, int] | None) -> asyncio.Task[Any] | None:
        """The task of a call, given its frame and index, or that of `setup()`. From any thread."""
        if call is None:
            return self._within_task
        runners = list(self._runners)  # at once: the loop changes the set
        return next((runner.task for runner in runners if (runner.frame, runner.call) == call), None)

    def tasks(self) -> set[asyncio.Task[Any]]:
        """All tasks of ours; from now on none takes another call."""
        self._ending = True
        self._loads.clear()
        for runner in self._runners:
            runner.told = True
        tasks = {runner.task for runner in self._runners if runner.task is not None}
        return tasks if self._setting_up is None else {*tasks, self._setting_up}

    def stop(self, frame: int, call: int, *, over: bool) -> None:
        """Cancels an overdue call; `over`: its cell was ended without it."""
        for runner in self._runners:
            if runner.frame == frame and runner.call == call:
                break
        else:
            return
        if not runner.told and runner.task is not None:
            runner.told = True
            runner.task.cancel()
        if over and not runner.left:
            runner.left = True
            self._count -= 1
            if self._loads:
                self._start_spare()
            if not self._warned:
                self._warned = True
                warn(
                    f"reward function {self.name!r} goes on after it was cancelled at its timeout of "
                    f"{self._timeout:g} s. Let asyncio.CancelledError through where it is caught."
                )

    def _start_spare(self) -> None:
        newest = self._newest
        if self._spare and newest is not None and newest.task is not None and newest.task.done():
            # User code that cancels every task of its loop ended it before it ran.
            self._spare = False
            self._runners.discard(newest)
            self._count -= 1
        if not self._spare and self._count < self._limit:
            self._spare = True
            self._start(None, _NONE)

    def _start(self, load: Load | None, index: int) -> None:
        if self._ending:
            return
        runner = Runner()
        self._count += 1
        self._runners.add(runner)
        runner.task = self._loop.create_task(self._run(runner, load, index))
        if load is None:
            self._newest = runner

    def _replace(self, runner: Runner, load: Load | None, index: int) -> None:
        """Has a fresh runner go on with what is next, in a context that is clean (R-2)."""
        if not runner.left and not self._ending and not self._loop.is_closed():
            self._loop.call_soon(self._start, load if index != _NONE else None, index, context=self._clean)

    async def _run(self, runner: Runner, load: Load | None, index: int) -> None:
        """Runs calls until none is left to start or the runner must end.

        `load` and `index` are of the call that a former runner had taken already; without, this one is the spare.
        """
        base = copy_context()
        cancellations = _cancellations(runner.task)
        spare = load is None
        try:
            while load is not None or (self._loads and not runner.told):
                if load is None:
                    if spare and self._turning:
                        await self._turn(runner, spare)
                        continue
                    load = self._loads[0]
                    index = load.jobs.next()
                jobs, values, size = load.jobs, load.values, 1
                call, function = self._caller(load)
                ok = None if values is None or call.wants_records else jobs.ok
                runner.frame = jobs.id
                while index != _NONE:
                    if index < 0:
                        if index % 2 or index <= _MARKED:
                            self._loop.call_soon(self._queue.turned, context=self._clean)
                        if index > _MARKED:
                            await self._turn(runner, spare, long=index <= _YIELD_LONG)
                            index = jobs.next()
                            continue
                        index = _MARKED - index
                    runner.call = index
                    if spare:
                        spare = self._spare = False
                    if not self._spare and self._count < self._limit:
                        self._spare = True
                        self._start(None, _NONE)
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
                        # Most likely the task is being thrown away: it must not await anything any more.
                        runner.told = True
                        self._replace(runner, load, jobs.fail(index, *failed(call, error)))
                        return
                    except BaseException as error:
                        index = jobs.fail(index, *failed(call, error))
                    else:
                        if type(raw) is float and ok is not None:
                            index = ok(index, raw)
                        else:
                            index = _settle(call, jobs, index, raw, size)
                    if runner.told or copy_context() != base or cancellations():
                        runner.told = True
                        self._replace(runner, load, index)
                        return
                if self._loads and self._loads[0] is load:
                    self._loads.popleft()
                load = None
        finally:
            if spare:
                self._spare = False
            self._runners.discard(runner)
            if not runner.left:
                self._count -= 1

    def _caller(self, load: Load) -> tuple[Call, Callable[..., Any]]:
        """What calls the function, and keeps what those calls record."""
        call = self._call.twin() if self._call.wants_records else self._call
        names = load.jobs.names
        if load.jobs.kind == "finish":
            return call, call.bind_finish(names or ())
        function = call.bind(names)
        return call, spread(function) if load.are_rows else function

    def _call_with_lists(self, load: Load, function: Callable[..., Any], index: int) -> tuple[Any, int]:
        """What a call of several samples returned, and how many they are."""
        jobs = load.jobs
        if jobs.kind == "gathered":
            lists, size = gathered_of(jobs, partial(jobs.gathered, index))
            return function(*lists), size
        lists = lists_of(jobs, load.firsts[index])
        if not jobs.is_open(index):
            raise Swept
        raw = function(scores_from(jobs.scores(index)), *lists) if jobs.kind == "finish" else function(*lists)
        return raw, jobs.size

    async def _turn(self, runner: Runner, spare: bool, *, long: bool = False) -> None:
        """Lets the loop turn before the next call is taken.

        `long`: this runner has run calls since the last turn. It lets the loop turn until what a timer or a socket wakes
        has run: that takes three turns. The spare leaves the next call to it, and stays the spare.
        """
        runner.call = _NONE
        self._turning += long
        try:
            await _sleep(0)
            if long:
                await _sleep(0)
                await _sleep(0)
            while spare and self._turning:
                await _sleep(0)
        except asyncio.CancelledError:
            self._replace(runner, None, _NONE)  # by user code that cancels all there is
            raise
        finally:
            self._turning -= long

    async def _set_up(self) -> None:
        self._queue.setup_begins(self._number)
        try:
            await self._within(self._call.setup(), self._setup_timeout, "setup()")
        except BaseException as error:
            reason, traceback = reason_of(error), traceback_of(error)
            while self._loads:
                self._loads.popleft().jobs.setup_failed(reason, traceback)
        else:
            self._ready = True
            if self._loads:
                self._start_spare()
        finally:
            self._setting_up = None
            self._queue.setup_ends(self._number)

    async def close(self, timeout: float) -> None:
        """Runs the function's `close()` if its `setup()` has run."""
        if not self._ready:
            return
        try:
            await self._within(self._call.close(), timeout, "close()")
        except BaseException as error:
            warn(f"reward function {self.name!r}: close() failed: {reason_of(error)}")

    async def _within(self, raw: Any, timeout: float, what: str) -> None:
        if not is_awaitable(raw):
            return
        task = self._within_task = self._loop.create_task(_awaited(raw))
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout)
        finally:
            self._within_task = None
            task.cancel()
        if not done:
            raise TimeoutError(f"{what} ran longer than its timeout of {timeout:g} s")
        task.result()


def _settle(call: Call, jobs: Jobs, index: int, raw: object, size: int) -> int:
    """Ends a call on `size` samples with what it returned."""
    try:
        if jobs.kind != "sample":
            return jobs.cells(index, *packed(raw, size), call.records())
        status, value, fields = to_cell(raw)
        if fields is not None:
            call.add_fields(fields)
            tokens = call.tokens()
            if tokens is not None:
                jobs.used(tokens)
    except BaseException as error:
        return jobs.fail(index, *failed(call, error))
    return jobs.cell(index, status, value, call.records())


async def _awaited(raw: Any) -> Any:
    return await raw


if sys.version_info >= (3, 11):

    def _cancellations(task: Any) -> Callable[[], int]:
        """Tells of cancellations that are left on the task, which would hit the next call."""
        return task.cancelling  # type: ignore[no-any-return]

else:

    def _cancellations(task: Any) -> Callable[[], int]:
        """Tells of cancellations that are left on the task, which would hit the next call."""
        return lambda: task._must_cancel
