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
from contextvars import Context, copy_context
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from guerdon._lanes.arguments import Row, Swept, lists_of, rows_of, scores_from
from guerdon._lanes.cells import failed, packed
from guerdon._lanes.warn import warn
from guerdon._worker.calls import Call, is_awaitable
from guerdon._worker.reasons import reason_of, traceback_of
from guerdon._worker.values import to_cell

if TYPE_CHECKING:
    from guerdon._native import Jobs, LoopQueue
    from guerdon._registration.spec import FunctionSpec

CONCURRENCY = 256
_YIELD = -2
_sleep = asyncio.sleep


class Load:
    """The calls of one frame, with their arguments."""

    __slots__ = ("firsts", "jobs", "rows")

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.firsts: list[int] = memoryview(jobs.firsts).cast("Q").tolist()
        self.rows: list[Row] | None = None
        if jobs.kind == "sample":
            rows = rows_of(jobs)
            whole = len(self.firsts) == len(rows) and self.firsts == list(range(len(rows)))
            self.rows = rows if whole else [rows[first] for first in self.firsts]


class Runner:
    """One runner task and the call that it has in hand."""

    __slots__ = ("call", "frame", "left", "task", "told")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.frame = -1
        self.call = -1  # index in the frame, -1 between calls
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
            self._start(None, -1)

    def _start(self, load: Load | None, index: int) -> None:
        if self._ending:
            return
        runner = Runner()
        self._count += 1
        self._runners.add(runner)
        runner.task = self._loop.create_task(self._run(runner, load, index))
        if load is None:
            self._newest = runner

    def _replace(self, runner: Runner, load: Load, index: int) -> None:
        """Has a fresh runner go on with the call that is next, in a context that is clean (R-2)."""
        if not runner.left and not self._ending and not self._loop.is_closed():
            self._loop.call_soon(self._start, load if index >= 0 else None, index, context=self._clean)

    async def _run(self, runner: Runner, load: Load | None, index: int) -> None:
        base = copy_context()
        try:
            if load is None:
                self._spare = False
            else:
                # The call that a former runner had taken already.
                await self._run_load(runner, load, index, base)
            while self._loads and not runner.told:
                load = self._loads[0]
                await self._run_load(runner, load, load.jobs.next(), base)
        finally:
            self._runners.discard(runner)
            if not runner.left:
                self._count -= 1

    async def _run_load(self, runner: Runner, load: Load, index: int, base: Context) -> None:
        """Runs calls of a frame until none is left to start, or until the runner must end (`told` is set then)."""
        jobs, rows = load.jobs, load.rows
        call = self._call.twin() if self._call.wants_records else self._call
        names = jobs.names
        finish = jobs.kind == "finish"
        function = call.bind_finish(names or ()) if finish else call.bind(names)
        plain = rows is not None and not call.wants_records
        task: Any = runner.task
        runner.frame = jobs.id
        while True:
            if index < 0:
                if index == _YIELD:
                    await _sleep(0)
                    index = jobs.next()
                    continue
                if self._loads and self._loads[0] is load:
                    self._loads.popleft()
                return
            runner.call = index
            if not self._spare and self._count < self._limit:
                self._spare = True
                self._start(None, -1)
            try:
                if rows is not None:
                    raw = function(*rows[index])
                else:
                    lists = lists_of(jobs, load.firsts[index])
                    if not jobs.is_open(index):
                        raise Swept
                    raw = function(scores_from(jobs.scores(index)), *lists) if finish else function(*lists)
                if type(raw) is CoroutineType or is_awaitable(raw):
                    raw = await raw
            except GeneratorExit as error:
                # Most likely the task is being thrown away: it must not await anything any more.
                runner.told = True
                index = jobs.fail(index, *failed(call, error))
                self._replace(runner, load, index)
                return
            except BaseException as error:
                index = jobs.fail(index, *failed(call, error))
            else:
                index = jobs.ok(index, raw) if plain and type(raw) is float else _settle(call, jobs, index, raw)
            runner.call = -1
            if runner.told or copy_context() != base or _cancelled(task):
                runner.told = True
                self._replace(runner, load, index)
                return

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


def _settle(call: Call, jobs: Jobs, index: int, raw: object) -> int:
    """Ends a call with what it returned."""
    try:
        if jobs.kind != "sample":
            return jobs.cells(index, *packed(raw, jobs.size), call.records())
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

    def _cancelled(task: asyncio.Task[None]) -> bool:
        """Whether a cancellation is left on the task, which would hit the next call."""
        return task.cancelling() > 0

else:

    def _cancelled(task: asyncio.Task[None]) -> bool:
        """Whether a cancellation is left on the task, which would hit the next call."""
        return bool(task._must_cancel)
