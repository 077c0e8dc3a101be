"""Running tools and methods of environments on the engine: one call each, whose result is any object.

A lane knows rewards, numbers. Here a call's number only says that it came back; the object comes another way: in this
process it is left on the call itself (`Job`), from a worker it comes pickled with the call's records (`Box`).

- R-1  A call gives what the function gave, or raises what it raised; what has no exception of its own (a time-out, a
       process that died) is a `ToolError` with its status.
- R-2  A call that is over is over: what an abandoned thread brings later reaches nobody.
- R-3  What runs on the engine and calls a routed function again runs that one where it is.
- R-4  Every call is counted once, with how it ended and how long it ran.
"""

from __future__ import annotations

import base64
import inspect
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from guerdon.dispatcher import Dispatcher
from guerdon.errors import ToolError
from guerdon.functions import reward
from guerdon.limits import Limit
from guerdon.pending import PendingBatch
from guerdon.status import Status

__all__ = ["Box", "Count", "Job", "Runner", "Running", "Tally", "inside"]

Lane = Literal["process", "thread", "asyncio"]

# Calls in flight at once in this process: what stands there waits, for a socket or a clock.
_TOGETHER = {"thread": 128, "asyncio": 1024}

_TOOL = ("a call of a tool", "Use lane='process', where a call that hangs is killed.")

_inside: ContextVar[bool] = ContextVar("guerdon_tool_call", default=False)


def inside() -> bool:
    """Whether this code runs in a call of ours (R-3)."""
    return _inside.get()


@dataclass(eq=False)
class Job:
    """One call in this process.

    Attributes:
        over: Whether the user's code has come back; written last, by the thread or task that ran it.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    value: Any = None
    error: Exception | None = None
    begun: bool = False
    over: bool = False

    def __call__(self) -> float:
        self.begun = True
        token = _inside.set(True)
        try:
            self.value = _result(self.function, self.args, self.kwargs)
        except Exception as error:
            self.error = error
        finally:
            _inside.reset(token)
            self._end()
        return 1.0

    async def awaited(self) -> float:
        """The same for a function that gives an awaitable."""
        self.begun = True
        token = _inside.set(True)
        try:
            self.value = await self.function(*self.args, **self.kwargs)
        except Exception as error:
            self.error = error
        finally:
            _inside.reset(token)
            self._end()
        return 1.0

    def _end(self) -> None:
        self.function, self.args, self.kwargs = _nothing, (), {}  # the engine holds the job longer than it needs to
        self.over = True

    def taken(self) -> tuple[Any, Exception | None]:
        """What came of it. It is not kept: the engine holds the job, and an exception holds whoever waited for it."""
        value, error = self.value, self.error
        self.value = self.error = None
        return value, error


def _result(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a sync function gives.

    Raises:
        TypeError: It gives something to await, whose text would tell a model nothing.
    """
    value = function(*args, **kwargs)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(f"it returned a {type(value).__name__}, which nobody awaits: define it with async def")
    return value


def _nothing() -> None:
    """In place of a function that was called."""


class _Here:
    """Runs jobs in threads.

    Attributes:
        left_behind: For the supervisor of the lane's threads; see `Runner`.
    """

    def __init__(self, left_behind: tuple[str, str]) -> None:
        self.left_behind = left_behind

    def __call__(self, job: Job) -> float:
        return job()


async def _await(job: Job) -> float:
    return await job.awaited()


class Box:
    """The functions that workers run, by number. Travels to them whole."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        self._functions = tuple(functions)

    def __call__(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            value = _result(self._functions[number], args, kwargs)
        except Exception as error:
            return {"score": 0.0, "object": _packed(error), "text": _text(error)}
        packed = _packed(value)
        return {"score": 1.0, "object": packed, "text": _text(value) if packed is None else None}


@dataclass
class Count:
    """Calls of one function: how many, how many failed, how many of these by their time, and the seconds they ran."""

    calls: int = 0
    failed: int = 0
    timeouts: int = 0
    run_s: float = 0.0


@dataclass
class Tally:
    """Counts by name; from any thread."""

    _counts: dict[str, Count] = field(default_factory=dict)  # under the lock
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, status: Status, failed: bool, run_s: float) -> None:
        with self._lock:
            count = self._counts.setdefault(name, Count())
            count.calls += 1
            count.failed += failed
            count.timeouts += status == Status.TIMEOUT
            count.run_s += run_s

    def counts(self) -> dict[str, Count]:
        """All that was counted until now."""
        with self._lock:
            return {name: Count(**vars(count)) for name, count in self._counts.items()}


class Running:
    """A call under way.

    Attributes:
        job: What runs in this process; None in a worker.
    """

    def __init__(self, runner: Runner, name: str, ticket: PendingBatch, job: Job | None) -> None:
        self._runner = runner
        self._name = name
        self._ticket = ticket
        self.job = job
        self._settled: tuple[Any, Exception | None] | None = None
        self._lock = threading.Lock()

    def result(self) -> Any:
        """Waits; what the function gave, or raises what it raised (R-1)."""
        self._ticket.wait()
        return self._settle()

    async def aresult(self) -> Any:
        """`result` for coroutines. Cancelling the wait cancels the call."""
        try:
            await self._ticket.aresult()
        except BaseException:
            self._ticket.cancel()
            raise
        return self._settle()

    def cancel(self) -> None:
        """Gives the call up."""
        self._ticket.cancel()

    @property
    def done(self) -> bool:
        """Whether the call is over for whoever waits; the user's code may still run."""
        return self._ticket.done

    def _settle(self) -> Any:
        with self._lock:
            if self._settled is None:
                self._settled = self._outcome()
        value, error = self._settled
        if error is not None:
            raise error
        return value

    def _outcome(self) -> tuple[Any, Exception | None]:
        batch, _ = self._ticket.settled()
        status = Status(int(batch.status[0, 0, 0]))
        value: Any = None
        error: Exception | None = None
        if status != Status.OK:
            error = ToolError(self._told(status, batch.failures()[0].reason), status)
        elif self.job is not None:
            value, error = self.job.taken()
        else:
            value, error = _unpacked(batch.extra, good=bool(batch.rewards[0, 0, 0]))
        self._runner.tally.add(self._name, status, error is not None, float(batch.run_s[0, 0, 0]))
        return value, error

    def _told(self, status: Status, reason: str) -> str:
        if status == Status.TIMEOUT:
            return f"{self._name} took longer than {self._runner.timeout:g} s"
        if status == Status.CRASHED:
            return f"{self._name} ended its process: {reason}"
        if status == Status.CANCELLED:
            return f"{self._name} was cancelled: {reason}"
        return reason


class Runner:
    """Runs calls on one lane, each with the same deadline. Starts with the first one.

    Args:
        kind: What these functions are, for messages and the lines that workers print: ``"tools"``.
        left_behind: What the warning of a thread that never comes back calls its call, and what it says to do.
        functions: What workers can run, by number; on other lanes each call brings its own.
        timeout: Seconds that a call may run.
        workers: Processes of the process lane.
    """

    def __init__(
        self,
        kind: str,
        lane: Lane,
        timeout: float,
        tally: Tally,
        functions: Sequence[Callable[..., Any]] = (),
        workers: int | None = None,
        left_behind: tuple[str, str] = _TOOL,
    ) -> None:
        self.timeout = timeout
        self.tally = tally
        target: Callable[..., Any] = _await
        if lane != "asyncio":
            target = Box(functions) if lane == "process" else _Here(left_behind)
        limit = None if lane == "process" else Limit(concurrency=_TOGETHER[lane])
        spec = reward(target, name=kind, lane=lane, timeout=timeout, limit=limit)
        self._dispatcher = Dispatcher([spec], workers=workers if lane == "process" else 1, max_failure_rate=1.0)
        self._lane = lane

    def launch(
        self, name: str, number: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Running:
        """Starts a call and returns at once.

        Raises:
            ClosedError: The runner was closed.
            DataError: An argument can't be sent to a worker.
        """
        if self._lane == "process":
            ticket = self._dispatcher.submit(completions=[""], number=[number], args=[args], kwargs=[dict(kwargs)])
            return Running(self, name, ticket, None)
        job = Job(function, args, kwargs)
        return Running(self, name, self._dispatcher.submit(completions=[""], job=[job]), job)

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers alive."""
        return self._dispatcher.worker_pids()

    def close(self) -> None:
        """Ends what runs; calls under way become cancelled."""
        self._dispatcher.close()


def _packed(value: object) -> str | None:
    """`value` as text that JSON can hold; None if it can't be pickled."""
    try:
        return base64.b85encode(pickle.dumps(value, protocol=5)).decode("ascii")
    except Exception:  # whatever a __reduce__ of the user's raises
        return None


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # __str__ is user code
        return f"a {type(value).__name__}"


def _unpacked(extra: Mapping[str, list[Any]], *, good: bool) -> tuple[Any, Exception | None]:
    """What `Box` sent. What can't be had as an object comes as its text, which is all that a model sees of it."""
    fields = {name.rpartition("/")[2]: values[0] for name, values in extra.items()}
    packed, text = fields.get("object"), fields.get("text")
    try:
        value = None if packed is None else pickle.loads(base64.b85decode(packed))
        readable = packed is not None
    except Exception:  # a class that only the worker knows, an exception with an __init__ of its own
        value, readable = None, False
    if good:
        if readable or text is not None:
            return (value if readable else text), None
        return None, ToolError("its result is of a class that this process can't import", Status.ERROR)
    if isinstance(value, Exception) and _text(value) == text:
        return None, value
    return None, ToolError(str(text), Status.ERROR)
