"""The thread supervisor: one thread per engine that starts the lanes' threads and loops and warns.

Threads and loops are started on the engine's request, when there is work.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from guerdon._insight.stack_source import StackFrame
from guerdon._lanes.lane_threads import LaneThread
from guerdon._lanes.stacks import of_thread
from guerdon._lanes.worker_thread import WorkerThread
from guerdon._native import (
    InspectLoop,
    LoopWasBlocked,
    ReadStack,
    ReadStacks,
    StallReport,
    StartLoop,
    StartThread,
    ThreadAbandoned,
    Trouble,
)
from guerdon._system.gil import has_gil
from guerdon._system.warning import warn
from guerdon._worker.invoke import tracebacks
from guerdon._worker.invoke.call import Call
from guerdon._worker.invoke.reasons import reason_of
from guerdon.limits import native

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec
    from guerdon._lanes.asyncio.event_loop import LoopThread
    from guerdon._native import BatchCall, Engine, Lanes, LoopQueue, ThreadSlot, _SupervisorRequest

_KILLED: Final = "Use lane='process', where a call that hangs is killed."


def start_lanes(
    engine: Engine,
    specs: Sequence[FunctionSpec],
    *,
    serves: bool = False,
    on_stall: Callable[[float], None] | None = None,
) -> ThreadSupervisor:
    """Starts what the thread and asyncio lanes of `engine` need; it ends with the engine.

    Args:
        engine: Where the lanes belong.
        specs: Its functions.
        serves: Whether something else may have a request to make.
        on_stall: Called with the seconds for which no call has ended.
    """
    supervisor = ThreadSupervisor(engine.lanes, specs, on_stall)
    if (
        serves
        or on_stall is not None
        or any(
            spec.lane in ("thread", "asyncio", "http", "native") or native(spec.policy.limit, spec.lane)
            for spec in specs
        )
    ):
        supervisor.start()
    return supervisor


_TROUBLE: Final = {
    "breaker_open": (
        "reward function {place!r}: circuit breaker open after several failed requests in a row; last error: {why}. "
        "Calls without a fallback wait while a few requests try the endpoint: one, and twice as many with each answer. After five minutes "
        "without an answer, calls fail. Check that the server is up and its address is right."
    ),
    "hangs": (
        "reward function {place!r}: the endpoint hangs: requests time out, and it answered nothing meanwhile; last error: "
        "{why}. If that goes on, the circuit breaker opens, and after five minutes calls fail. Look at the server; if it is "
        "only slow, raise timeout= or lower Limit(concurrency=)."
    ),
    "retry_after": (
        "reward function {place!r}: the server asks to wait {why}. Calls wait two minutes at most and then try again; "
        "after five minutes of refusals they fail. A quota may be used up."
    ),
    "throttled": (
        "reward function {place!r}: the server has put off every request {why}. Calls wait, and fail after "
        "five minutes of refusals. Give the server's pace as Limit(rpm=), add endpoints, or see if a quota is used up."
    ),
    "descriptors": "since endpoints were added, {why}. Until then calls wait for connections, or fail.",
    "cache": (
        "cache folder {place!r}: {why}. Outcomes that it can't take or give are computed: scores are right, but take "
        "longer."
    ),
    "journal": "journal {place!r}: {why}.",
    "trace": "trace {place!r}: {why}. Nothing more is written to it; scores are not touched.",
    "node": "{why}",
}
"""Warnings about faults, by their source."""


class ThreadSupervisor:
    """Starts threads and loops for an engine, and locates their calls.

    Args:
        lanes: The engine's.
        specs: Its functions.
        on_stall: Called with the seconds for which no call has ended.
        tell: Takes its threads' warnings that another process has to show.
    """

    def __init__(
        self,
        lanes: Lanes,
        specs: Sequence[FunctionSpec],
        on_stall: Callable[[float], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.lanes = lanes
        self._tell = tell
        self._on_stall = on_stall
        self._specs = {index: spec for index, spec in enumerate(specs) if spec.lane in ("thread", "asyncio")}
        self._calls = {index: Call(spec.target, spec.recipe()) for index, spec in self._specs.items()}
        # Loops by index and generation. Written by the supervisor's thread, read by threads that
        # take a dump.
        self._loops: dict[tuple[int, int], LoopThread] = {}

    def start(self) -> None:
        """Runs it on a separate thread, which ends with the lanes."""
        # A thread of a free-threaded Python inherits its starter's context, and with it the filters
        # of a `warnings.catch_warnings` for its whole life.
        context: dict[str, Any] = {"context": contextvars.Context()} if sys.version_info >= (3, 14) else {}
        thread = threading.Thread(target=self.run, name="guerdon supervisor", daemon=True, **context)
        vars(thread)["tell"] = self._tell
        thread.start()

    def run(self) -> None:
        if self._calls:
            # Python 3.15 imports for the first traceback. An exception from outside that meets a
            # lane thread there leaves the lock of imports held: no import would ever end.
            tracebacks.prepare()
        while self._serve():
            pass

    def _serve(self) -> bool:
        request: _SupervisorRequest | None = None
        try:
            request = self.lanes.next_request()
            if request is None:
                return False
            self._handle(request)
        except BaseException as error:  # the next request is served all the same
            warn(
                f"the engine could not do what it asked its supervisor for ({type(request).__name__}): {reason_of(error)}"
            )
        return True

    def _handle(self, request: _SupervisorRequest) -> None:
        match request:
            case StartThread():
                self._start_thread(request.slot)
            case StartLoop():
                self._start_loop(request.index, request.generation, request.queue)
            case ReadStack():
                self._read_stack(request.thread, request.ident)
            case ReadStacks():
                found = [of_thread(ident) for ident in request.threads]
                found += [self._stack_on_loop(*one) for one in request.loops]
                # An empty answer means that none is readable.
                self.lanes.set_stacks(request.number, list(map(_without_source, found if has_gil() else [])))
            case ThreadAbandoned():
                self._warn_of_abandoned(request.function, request.count)
            case InspectLoop():
                loop = self._loops.get((request.index, request.generation))
                if loop is not None:
                    loop.inspect()
            case LoopWasBlocked():
                loop = self._loops.get((request.index, request.generation))
                if loop is not None:
                    loop.warn_of_past_block(request.function)
            case Trouble():
                warn(_TROUBLE[request.source].format(place=request.place, why=request.why))
            case StallReport():
                if self._on_stall is not None:
                    self._on_stall(request.seconds)
            case list():
                pass  # values that a late call was the last to hold: gone as we return

    def warn_of_journal(self, folder: object, reasons: Sequence[str]) -> None:
        """Warns that a journal can't be written, or only in part."""
        for reason in reasons:
            warn(_TROUBLE["journal"].format(place=str(folder), why=reason))

    def thread_name(self, function: int, number: int) -> str:
        return f"guerdon {self._specs[function].name} {number}"

    def loop_name(self, index: int) -> str:
        name = self.lanes.loop_name(index)
        # Loops that nobody named are called "<of judge>".
        return f"guerdon loop {name[1:-1] if name.startswith('<') else name}"

    def stack_of_thread(self, ident: int) -> list[StackFrame]:
        """The stack of a thread of the thread lane."""
        return of_thread(ident)

    def stack_of_call(self, snapshot: BatchCall) -> list[StackFrame]:
        """The stack of a call on an event loop, or of the ``setup()`` before it."""
        if snapshot["on_loop"] is None:
            return []
        index, generation, frame, number = snapshot["on_loop"]
        call = (frame, number) if snapshot["phase"] == "call" else None
        return self._stack_on_loop(index, generation, snapshot["function"], call)

    def _stack_on_loop(
        self, index: int, generation: int, function: int, call: tuple[int, int] | None
    ) -> list[StackFrame]:
        loop = self._loops.get((index, generation))
        return [] if loop is None else loop.stack(function, call)

    def _start_thread(self, slot: ThreadSlot) -> None:
        try:
            worker = WorkerThread(slot, self._calls[slot.function].clone())
            name = self.thread_name(slot.function, slot.thread)
            LaneThread(self.lanes, worker.run, name, slot.end, self._tell).start()
        except BaseException as error:  # no thread, no memory left
            slot.leave(reason_of(error))
            slot.end()
            if not isinstance(error, RuntimeError):
                raise

    def _start_loop(self, index: int, generation: int, queue: LoopQueue | None) -> None:
        if queue is None:
            return
        try:
            from guerdon._lanes.asyncio.event_loop import LoopThread

            functions = {function: self._specs[function] for function in self.lanes.loop_functions(index)}
            calls = {function: self._calls[function].clone() for function in functions}
            loop = LoopThread(queue, functions, calls)
            self._loops = {key: old for key, old in self._loops.items() if old.runs} | {(index, generation): loop}
            LaneThread(self.lanes, loop.run, self.loop_name(index), tell=self._tell).start()
        except BaseException as error:  # no thread, no descriptors left
            queue.not_started(reason_of(error))
            raise

    def _warn_of_abandoned(self, function: int, count: int) -> None:
        spec = self._specs[function]
        # Calls of the engine that are not reward functions have their own name and advice.
        what, advice = getattr(spec.target, "left_behind", None) or (f"reward function {spec.name!r}", _KILLED)
        warn(
            f"{what} ran past its timeout of {spec.policy.timeout:g} s. A thread can't be killed: this one was abandoned "
            f"with its call ({count} abandoned now), and another takes its place. {advice}"
        )

    def _read_stack(self, thread: int, ident: int) -> None:
        stack = of_thread(ident)
        if stack:
            frames = traceback.StackSummary.from_list([(file, line, name, None) for file, line, name in stack])
            self.lanes.set_stack(thread, "".join(["Stack (most recent call last):\n", *frames.format()]))


def _without_source(stack: Sequence[StackFrame]) -> str:
    """A stack as a traceback shows it, without lines of files: none is read for it."""
    return "".join(f'  File "{file}", line {line}, in {name}\n' for file, line, name in stack)
