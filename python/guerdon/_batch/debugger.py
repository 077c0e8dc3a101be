"""Python functions in the thread that waits for their batch, where ``breakpoint()`` works.

- A function's lane is a thread that hands each call over, and waits for its end. The thread that
  waits for a batch runs its calls one after another (`Debugger.turn`).
- A thread with a running event loop can't await: an async function then runs on a helper's loop.
- Calls have no bounds: no timeout, no limit on memory or output, no kill.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import weakref
from bdb import BdbQuit
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from guerdon._system.warning import warn
from guerdon._worker.invoke.async_detection import is_awaitable
from guerdon._worker.invoke.awaiter import Awaiter
from guerdon.errors import ClosedError
from guerdon.limits import Limit

if TYPE_CHECKING:
    from guerdon._batch.engine_source import EngineSource
    from guerdon._functions.spec import FunctionSpec

__all__ = ["Debugger"]

_FOREVER_S: Final = 1e9
_LOOK_S: Final = 0.005
_WARNING: Final = (
    "debug=True: Python functions run one after another in the thread that waits, without timeouts and limits, and nothing "
    "is killed. Leave it out to train."
)
_QUITS: Final = (KeyboardInterrupt, BdbQuit)


class _Handover:
    """One call for the thread that waits, which writes the outcome and then sets `ended`."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.run = run
        self.value: Any = None
        self.error: BaseException | None = None
        self.ended = threading.Event()


class _Target:
    """A function, or `StatefulReward`, whose calls are handed over."""

    def __init__(self, target: Any, debugger: Debugger) -> None:
        self._target = target
        self._debugger = debugger

    def __call__(self, *values: Any, **keywords: Any) -> Any:
        return self._debugger.hand_over(lambda: self._target(*values, **keywords))

    def score(self, *values: Any, **keywords: Any) -> Any:
        return self._debugger.hand_over(lambda: self._target.score(*values, **keywords))

    def finish_group(self, *values: Any, **keywords: Any) -> Any:
        return self._debugger.hand_over(lambda: self._target.finish_group(*values, **keywords))

    def setup(self) -> Any:
        return self._debugger.hand_over(self._target.setup)

    def close(self) -> Any:
        return self._target.close()  # nobody waits any more


class Debugger:
    """Hands calls from the thread lane to the threads that wait for batches."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Handover] = queue.SimpleQueue()
        # held while a function runs, which may itself score a batch
        self._one = threading.RLock()
        self._engine: Callable[[], EngineSource | None] = lambda: None
        self._awaiter, self._helpers_awaiter = Awaiter(warn), Awaiter(warn)
        self._helper = ThreadPoolExecutor(1, "guerdon debugger")
        self._at_end = weakref.finalize(self, _end, self._awaiter, self._helpers_awaiter, self._helper)
        self._at_end.atexit = False  # the helper takes no work any more then
        warn(_WARNING)

    def ends_with(self, engine: EngineSource) -> None:
        """Makes calls that no thread took fail once `engine` is closed."""
        self._engine = weakref.ref(engine)

    def close(self) -> None:
        """Close its event loops. Does nothing the second time."""
        self._at_end()

    def specs(self, specs: Sequence[FunctionSpec]) -> tuple[FunctionSpec, ...]:
        """Returns the specs by which the engine runs the functions; functions of Guerdon keep
        theirs."""
        return tuple(spec if spec.is_engine_made or spec.factory is not None else self._spec(spec) for spec in specs)

    def _spec(self, spec: FunctionSpec) -> FunctionSpec:
        policy = replace(
            spec.policy,
            timeout=_FOREVER_S,
            total_timeout=None,
            setup_timeout=_FOREVER_S,
            limit=Limit(concurrency=1),
            isolation="worker",
            memory_limit=None,
            max_output=None,
            env=(),
        )
        target: Any = _Target(spec.target, self)
        return replace(
            spec,
            lane="thread",
            target=target,
            policy=policy,
            loop=None,
            node=None,
            pinned=False,
            is_async=False,
            cache=None,
        )

    def hand_over(self, run: Callable[[], Any]) -> Any:
        """Runs `run` in a thread that waits for a batch, and returns its result or raises its
        exception."""
        call = _Handover(run)
        self._calls.put(call)
        while not call.ended.wait(_LOOK_S):
            engine = self._engine()
            if engine is None or engine.closed:
                raise ClosedError("the dispatcher was closed before this call was run.")
        try:
            if call.error is not None:
                raise call.error
            return call.value
        finally:
            del call  # else error and traceback form a reference cycle

    def turn(self, longest: float = _LOOK_S) -> None:
        """Runs the next call in this thread; without one waits for it, a few milliseconds at most.

        Raises:
            KeyboardInterrupt, bdb.BdbQuit, SystemExit: The user ended the call.
        """
        try:
            call = self._calls.get(timeout=max(0.0, min(longest, _LOOK_S)))
        except queue.Empty:
            return
        with self._one:
            try:
                call.value = self._result(call.run)
            except BaseException as error:
                call.error = error
                if isinstance(error, _QUITS) or _left_pdb(error):
                    self._drop_calls()
                    raise
            finally:
                call.ended.set()

    def _drop_calls(self) -> None:
        """Fails the calls that wait, so that none of them runs in a later batch."""
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            call.error = ClosedError("the debugger was ended before this call was run.")
            call.ended.set()

    def _result(self, run: Callable[[], Any]) -> Any:
        raw = run()
        if not is_awaitable(raw):
            return raw
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._awaiter.run(raw)
        future = self._helper.submit(self._helpers_awaiter.run, raw)
        try:
            return future.result()
        except BaseException:
            loop = self._helpers_awaiter._loop
            if loop is not None and not future.done():  # interrupted: the helper must not stay busy
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
            raise


def _left_pdb(error: BaseException) -> bool:
    """Returns whether `q` ended the call: from Python 3.14 on pdb raises SystemExit."""
    frames = error.__traceback__ if isinstance(error, SystemExit) else None
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    return frames is not None and frames.tb_frame.f_globals.get("__name__") == "pdb"


def _end(awaiter: Awaiter, helpers_awaiter: Awaiter, helper: ThreadPoolExecutor) -> None:
    """Closes the loops, each in a thread where none runs."""
    for each in (awaiter, helpers_awaiter):
        helper.submit(each.close)
    helper.shutdown(wait=False)
