"""One event loop of the asyncio lane, in its own thread.

While calls are in flight the loop reports at least every 50 ms that it turns, and cancels overdue
calls. Exceptions of user code never end it (`SystemExit` of one of its tasks, say). When it ends,
no task of the engine is pending or reported as destroyed. If a loop can't be made, or user code
closed it, its thread ends and its calls fail; the next work gets another loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from guerdon._insight.stack_source import StackFrame
from guerdon._lanes.asyncio.blocked_loops import BlockingWarnings, blocking
from guerdon._lanes.asyncio.loop_runner import LoopFunction
from guerdon._lanes.asyncio.loop_tasks import EngineTask, RunnerTask
from guerdon._lanes.stacks import of_coroutine
from guerdon._system.gil import has_gil
from guerdon._system.warning import warn
from guerdon._worker.invoke.call import Call
from guerdon._worker.invoke.reasons import reason_of
from guerdon._worker.invoke.tracebacks import traceback_of

if TYPE_CHECKING:
    from types import FrameType

    from guerdon._functions.spec import FunctionSpec
    from guerdon._native import LoopQueue

# Seconds that calls and leftover tasks get to end after they were cancelled, and `close()` to run.
_END_S = 1.0
_CLOSE_S = 5.0
# Pause after a failed check.
_NAP_S = 0.005
# A step of a call that takes longer holds the others up.
_STEP_S = 0.002


class LoopThread:
    """A loop's life: `run` is the target of its thread.

    Args:
        queue: Its work.
        specs: The functions that share the loop, by number.
        calls: How to call them.
    """

    def __init__(self, queue: LoopQueue, specs: dict[int, FunctionSpec], calls: dict[int, Call]) -> None:
        self._queue = queue
        self._specs = specs
        self._calls = calls
        self._functions: dict[int, LoopFunction] = {}
        self._ident: int | None = None
        self._ticking = False
        self._ending: EngineTask | None = None
        self._over = False

    def run(self) -> None:
        self._blocking = BlockingWarnings(threading.get_native_id())
        self._ident = threading.get_ident()
        try:
            loop = asyncio.new_event_loop()
            try:
                self._start(loop)
                while not self._over and self._turns(loop):
                    pass
            finally:
                self._ident = None
                loop.close()
        except BaseException as error:  # a policy of the user's, no descriptors left
            self._queue.not_started(reason_of(error))
        else:
            self._queue.loop_ended()

    def _turns(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Runs the loop until something stops it; returns whether it can go on."""
        try:
            loop.run_forever()
        except BaseException as error:
            # Closed, or another one was made the running loop of this thread.
            if loop.is_closed() or asyncio._get_running_loop() is not None:
                warn(f"an event loop of the engine can't continue, so its calls fail: {reason_of(error)}")
                return False
            warn(f"a task of a reward function raised {reason_of(error)} on its event loop, which keeps running")
        return True

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        clean = contextvars.copy_context()
        for number, spec in self._specs.items():
            self._functions[number] = LoopFunction(number, spec, self._calls[number], self._queue, loop, clean)
        loop.add_reader(self._queue.fileno(), self._arrived)

    def _arrived(self) -> None:
        queue = self._queue
        queue.drain()  # first: the descriptor stays readable until then
        while (frame := queue.take()) is not None:
            try:
                self._functions[frame.view.function].accept(frame)
            except Exception as error:  # a fault in this code must fail the calls, not lose them
                frame.setup_failed(reason_of(error), traceback_of(error))
        if not self._ticking:
            self._tick()

    def _tick(self) -> None:
        self._ticking = True
        nap: float | None = _NAP_S
        try:
            nap = self._check_calls()
        finally:
            if nap is None:
                self._ticking = False
            else:
                self._loop.call_later(nap, self._tick)

    def _check_calls(self) -> float | None:
        """Cancels overdue calls. Returns the seconds until the next check, None if none is
        needed."""
        beat = self._queue.beat()
        if beat.overdue:
            for call in self._queue.overdue():
                self._functions[call.function].stop(call.frame, call.call, ended=call.ended)
        if self._queue.ended and self._ending is None:
            self._ending = EngineTask(self._end(), loop=self._loop)
            self._ending.add_done_callback(self._ended)
        return beat.nap_s

    async def _end(self) -> None:
        """Ends the calls, the functions, and the tasks that they left running."""
        functions = self._functions.values()
        await self._cancel({task for function in functions for task in function.tasks()})
        for function in functions:
            await function.close(_CLOSE_S)
        await self._cancel(asyncio.all_tasks(self._loop) - {self._ending})
        await asyncio.wait_for(self._loop.shutdown_asyncgens(), _END_S)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Ends the loop, whatever user code did in its last moments."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            warn(f"an event loop of the engine did not end cleanly: {reason_of(error)}")
        self._loop.remove_reader(self._queue.fileno())
        self._over = True
        self._loop.stop()

    async def _cancel(self, tasks: set[Any]) -> None:
        for task in tasks:
            task.end() if isinstance(task, EngineTask) else task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_END_S)
            for task in left:
                task._log_destroy_pending = False

    @property
    def runs(self) -> bool:
        """Returns whether its thread has started and not ended."""
        return self._ident is not None

    def stack(self, function: int, call: tuple[int, int] | None) -> list[StackFrame]:
        """The stack of a call, given its frame and index, else of `setup()`; empty without the GIL.
        Can be called from any thread."""
        owner = self._functions.get(function) if has_gil() else None
        task = None if owner is None else owner.task_of(call)
        return [] if task is None else of_coroutine(task.get_coro(), self._ident)

    def inspect(self) -> None:
        """Warns about user code that blocks the loop, for long or in each call.

        Without the GIL no frame can be read: a long block is reported with its function alone.
        """
        if not has_gil():
            met = self._call_in_step() if self._queue.blocked else None
            if met is not None and self._queue.explain_block():
                self._blocking.over(next(spec for spec in self._specs.values() if spec.name == met[0]))
            return
        if self._queue.blocked:
            found = self._user_code()
            if found is not None and self._queue.explain_block():
                self._blocking.now(*found)
            return
        met = self._call_in_step()
        if met is None or self._blocking.has_named(met[0]):
            return
        turned: list[None] = []
        try:
            self._loop.call_soon_threadsafe(turned.append, None)
        except RuntimeError:  # user code closed it
            return
        time.sleep(_STEP_S)
        specs = (spec for spec in self._specs.values() if spec.name == met[0])
        of_sample = any(spec.shape == "sample" and spec.batch_size is None for spec in specs)
        if self._call_in_step() == met and not turned and self._blocking.is_to_name(*met, of_sample):
            found = self._user_code()
            if found is not None and found[0] == met[0]:
                self._blocking.steps(met[0], found[1])

    def _call_in_step(self) -> tuple[str, tuple[int, int]] | None:
        """The function and the call that the loop's thread runs now; None: none."""
        started = bool(self._functions)
        task = asyncio.current_task(self._loop) if started else None
        call = task.running_call if isinstance(task, RunnerTask) else None
        if task is None or call is None:
            return None
        name = next((function.name for function in self._functions.values() if function.has(task)), None)
        return None if name is None else (name, call)

    def _user_code(self) -> tuple[str | None, FrameType] | None:
        ident = self._ident
        frame = None if ident is None else sys._current_frames().get(ident)
        return None if frame is None else blocking(frame)

    def warn_of_past_block(self, function: int) -> None:
        """Warns about a function that blocked the loop while no inspection was possible."""
        self._blocking.over(self._specs[function])
