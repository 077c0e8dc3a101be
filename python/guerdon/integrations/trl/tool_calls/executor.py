"""Runs tools and methods of environments on the engine: one call each, whose result is any object.

The engine carries numbers. Here a call's number only says that it returned; the object stays on the
call (`LocalCall`) in this process, and comes pickled with the call's records from a worker. A call
returns or raises as the function did; a timeout or a crash is a `ToolError` with its status.
Results of an abandoned thread are dropped. Each call is counted once.
"""

from __future__ import annotations

import base64
import inspect
import operator
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from guerdon._batch.pending import PendingBatch
from guerdon.dispatcher import Dispatcher
from guerdon.errors import ToolError
from guerdon.functions import reward
from guerdon.limits import Limit
from guerdon.results.status import Status

Lane = Literal["process", "thread", "asyncio"]

# Calls in flight at once in this process, where most wait for a socket or a clock.
MAX_CONCURRENT = {"thread": 128, "asyncio": 1024}

_in_tool_call: ContextVar[bool] = ContextVar("guerdon_tool_call", default=False)


def in_tool_call() -> bool:
    """Returns whether this code runs in one of our calls: a proxy called there runs its function
    directly."""
    return _in_tool_call.get()


@dataclass(eq=False)
class LocalCall:
    """One call in this process.

    Attributes:
        keep: Whether it may be called again after it failed.
        given_up: Whether nobody waits for it any more.
        attempted: Whether the engine has called it.
        timed_out: Whether the engine has called it again, which it does after a timeout alone.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    keep: bool = False
    value: Any = None
    error: Exception | None = None
    given_up: bool = False
    attempted: bool = False
    timed_out: bool = False

    def __call__(self) -> float:
        with self._run():
            self.value = _result(self.function, self.args, self.kwargs)
        return 1.0

    async def awaited(self) -> float:
        """The same for a function that gives an awaitable."""
        with self._run():
            self.value = await self.function(*self.args, **self.kwargs)
        return 1.0

    @contextmanager
    def _run(self) -> Iterator[None]:
        token = _in_tool_call.set(True)
        again = self.keep
        try:
            yield
            again = False
        except Exception as error:
            self.error = error
        finally:
            _in_tool_call.reset(token)
            if not again:  # the engine holds the call longer than it needs these
                self.function, self.args, self.kwargs = _no_function, (), {}

    def take_result(self) -> tuple[Any, Exception | None]:
        """Returns its result. Not kept: the engine holds the call, and an exception its waiter's
        frames."""
        value, error = self.value, self.error
        self.value = self.error = None
        return value, error


def _result(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Returns the value of a sync function.

    Raises:
        TypeError: It gives something to await, which is no text for a model.
    """
    value = function(*args, **kwargs)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(f"it returned a {type(value).__name__}, which nobody awaits: define it with async def")
    return value


def _no_function() -> None:
    """Replaces a function that was called."""


class _ThreadTarget:
    """Runs calls in threads."""

    # The lane's warning of a call that never returns names the call and the remedy.
    left_behind = ("a call of a tool", "Use lane='process', where a call that hangs is killed.")

    def __call__(self, call: LocalCall) -> float:
        return call()


async def _run_async(call: LocalCall) -> float:
    if call.attempted and not call.keep:
        # The engine takes many timeouts in a row for those of one endpoint, and tries each call
        # again. A tool runs once.
        call.timed_out = True
        return 1.0
    call.attempted = True
    return await call.awaited()


class WorkerFunctions:
    """The functions that workers run, by number, None for those that run elsewhere. All of them
    travel to each worker."""

    def __init__(self, functions: Sequence[Any]) -> None:
        self._functions = tuple(functions)

    def __call__(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            value = _result(self._functions[number], args, kwargs)
        except Exception as error:
            return {"score": 0.0, "object": _pickled(error), "text": _text(error)}
        packed = _pickled(value)
        return {"score": 1.0, "object": packed, "text": _text(value) if packed is None else None}


class CallCount(NamedTuple):
    """Calls of one function: how many, how many failed or timed out, and the seconds they ran."""

    calls: int = 0
    failed: int = 0
    timeouts: int = 0
    run_s: float = 0.0


@dataclass
class CallCounter:
    """Counts by name; from any thread."""

    _counts: dict[str, CallCount] = field(default_factory=dict)  # under the lock
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, count: CallCount) -> None:
        with self._lock:
            self._counts[name] = CallCount(*map(operator.add, self._counts.get(name, CallCount()), count))

    def counts(self) -> dict[str, CallCount]:
        """All that was counted until now."""
        with self._lock:
            return dict(self._counts)


@dataclass(eq=False)
class PendingCall:
    """A call in flight.

    Attributes:
        call: What runs in this process; None in a worker.
        counters: Count it when it has ended.
    """

    _executor: Executor
    _name: str
    _pending: PendingBatch
    call: LocalCall | None
    counters: list[CallCounter]

    def result(self) -> Any:
        """Waits; returns or raises as the function did. Asked for once."""
        self._pending.wait()
        return self._take_outcome()

    async def aresult(self) -> Any:
        """`result` for coroutines. Cancelling the wait cancels the call."""
        try:
            await self._pending.aresult()
        except BaseException:
            self.cancel()
            raise
        return self._take_outcome()

    def cancel(self) -> None:
        """Gives the call up."""
        self._pending.cancel()
        if self.call is not None:
            self.call.given_up = True

    def _take_outcome(self) -> Any:
        result = self._pending._complete()
        status = Status(int(result.status[0, 0, 0]))
        value: Any = None
        error: Exception | None = None
        if self.call is not None:
            self.call.given_up = True
            status = Status.TIMEOUT if self.call.timed_out else status
            value, error = self.call.take_result()
        elif status == Status.OK:
            value, error = _unpickled(result.extra, good=bool(result.rewards[0, 0, 0]))
        if status != Status.OK and (status != Status.ERROR or error is None):
            reason = "" if status == Status.TIMEOUT else result.failures()[0].reason
            error = ToolError(self._describe(status, reason), status)
        count = CallCount(1, error is not None, status == Status.TIMEOUT, float(result.run_s[0, 0, 0]))
        for counter in self.counters:
            counter.add(self._name, count)
        if error is not None:
            raise error
        return value

    def _describe(self, status: Status, reason: str) -> str:
        if status == Status.TIMEOUT:
            return f"{self._name} took longer than {self._executor.timeout:g} s"
        if status == Status.CRASHED:
            return f"{self._name} crashed its process: {reason}"
        if status == Status.CANCELLED:
            return f"{self._name} was cancelled: {reason}"
        return reason


class Executor:
    """Runs calls on one lane, each with the same deadline. Starts with the first one.

    Args:
        kind: What these functions are, for messages and the lines that workers print: ``"tools"``.
        functions: What workers can run, by number; on other lanes each call brings its own.
        timeout: Seconds that a call may run.
        workers: Processes of the process lane.
        limit: Of the calls; by default of how many run at once.
        retries: Further attempts for a call that fails.
    """

    def __init__(
        self,
        kind: str,
        lane: Lane,
        timeout: float,
        counter: CallCounter,
        functions: Sequence[Any] = (),
        workers: int | None = None,
        limit: Limit | None = None,
        retries: int = 0,
    ) -> None:
        self.timeout = timeout
        self.counter = counter
        target: Callable[..., Any] = _run_async
        if lane != "asyncio":
            target = WorkerFunctions(functions) if lane == "process" else _ThreadTarget()
        if limit is None and lane != "process":
            limit = Limit(concurrency=MAX_CONCURRENT[lane])
        spec = reward(target, name=kind, lane=lane, timeout=timeout, limit=limit, retries=retries)
        self._dispatcher = Dispatcher([spec], workers=workers if lane == "process" else 1, max_failure_rate=1.0)
        self._dispatcher._builder.allow_equal()  # the numbers are not rewards
        self._lane = lane

    def launch(
        self, name: str, number: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> PendingCall:
        """Starts a call and returns at once.

        Raises:
            ClosedError: The executor was closed.
            DataError: An argument can't be sent to a worker.
        """
        if self._lane == "process":
            pending = self._dispatcher.submit(completions=[""], number=[number], args=[args], kwargs=[dict(kwargs)])
            return PendingCall(self, name, pending, None, [self.counter])
        return self.launch_call(name, LocalCall(function, args, kwargs))

    def launch_call(self, name: str, call: LocalCall) -> PendingCall:
        """Starts a call in this process, and returns at once."""
        pending = self._dispatcher.submit(completions=[""], call=[call])
        return PendingCall(self, name, pending, call, [self.counter])

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers alive."""
        return self._dispatcher.worker_pids()

    def close(self) -> None:
        """Ends the running calls; calls in flight are cancelled."""
        self._dispatcher.close()


def _pickled(value: object) -> str | None:
    """`value` as text that JSON can hold; None if it can't be pickled."""
    try:
        return base64.b85encode(pickle.dumps(value, protocol=5)).decode("ascii")
    except Exception:  # a __reduce__ of the user raises anything
        return None


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # __str__ is user code
        return f"a {type(value).__name__}"


def _unpickled(extra: Mapping[str, list[Any]], *, good: bool) -> tuple[Any, Exception | None]:
    """Unpickles the result that `WorkerFunctions` sent; an object that can't be pickled comes as
    its text."""
    fields = {name.rpartition("/")[2]: values[0] for name, values in extra.items()}
    packed, text = fields.get("object"), fields.get("text")
    value: Any = text
    if packed is not None:
        try:
            value = pickle.loads(base64.b85decode(packed))
        except Exception:  # a class only the worker has, an exception with its own __init__
            if good:
                text = "the tool's result is of a class that this process can't import, and has no text"
            good = False
    if good:
        return value, None
    return None, value if isinstance(value, Exception) and _text(value) == text else ToolError(str(text), Status.ERROR)
