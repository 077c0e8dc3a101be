"""``tools([...])``: tool functions that run on the engine, each call with its timeout.

The list goes where a trainer takes tools, in TRL's own trainers too: each entry keeps the name,
signature and docstring of its function, and is a coroutine function exactly if that is. A call that
fails or times out raises; trainers show that to the model as the tool's result, and count it. The
list pickles if its functions do; a copy starts another engine on first use.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast, get_args

from guerdon._engine import dispatcher_options
from guerdon._functions.callables import innermost, is_async, name_of
from guerdon._functions.serialization.serialized_functions import check_serializable
from guerdon._system.cpu_count import default_workers
from guerdon.errors import RegistrationError, SerializationError
from guerdon.functions import reward
from guerdon.integrations.trl.tool_calls.executor import (
    CallCount,
    CallCounter,
    Executor,
    Lane,
    PendingCall,
    WorkerFunctions,
)
from guerdon.integrations.trl.tool_calls.proxies import make_proxy

if TYPE_CHECKING:
    from typing import Self

# Tools mostly wait, for files, programs and sockets: more than one a core may run at once.
_MIN_WORKERS = 8


def tools(
    functions: Iterable[Callable[..., Any]],
    *,
    timeout: float = 30.0,
    lane: str | None = None,
    workers: int | None = None,
) -> Tools:
    """Tool functions for a trainer's ``tools=`` whose calls run on the engine.

    Args:
        functions: Functions, sync or async, partials of them, bound methods, callable objects; with
            type hints and a docstring that describes every argument, as TRL wants them.
        timeout: Seconds that one call may run.
        lane: Where all of them run: ``"process"`` (a worker that can be killed), ``"thread"`` (in
            this process; a call that times out is abandoned) or ``"asyncio"``. By default sync
            functions run in processes, those that hold state in threads, async ones on an event
            loop.
        workers: Processes that run sync tools. By default the cores that this process may use, and
            at least 8.

    Returns:
        A list for ``tools=``. ``close()`` ends its workers; else they end with the list.

    Raises:
        RegistrationError: Two tools have one name, an option is wrong, or an entry is no function.
        SerializationError: A function can't be sent to a worker; the message says why.

    Examples:
        >>> from guerdon.integrations.trl import tools
        >>> def add(a: int, b: int) -> int:
        ...     '''Adds.
        ...
        ...     Args:
        ...         a: A number.
        ...         b: Another one.
        ...     '''
        ...     return a + b
        >>> with tools([add], timeout=5) as ours:
        ...     ours[0].__name__, ours[0](a=1, b=2)
        ('add', 3)
    """
    return Tools(functions, timeout, lane, workers)


class Tools(list[Callable[..., Any]]):
    """Return value of `tools`: a list of proxies of tools, which share their workers.

    Attributes:
        counter: The counts of all calls.
    """

    def __init__(
        self, functions: Iterable[Callable[..., Any]], timeout: float, lane: str | None, workers: int | None
    ) -> None:
        self._functions = _listed(functions)
        self._timeout = dispatcher_options.bound("timeout", timeout)
        self._workers = dispatcher_options.whole("workers", workers, dispatcher_options.MOST_WORKERS)
        self._lane = lane
        if lane is not None and lane not in get_args(Lane):
            raise RegistrationError(f"lane={lane!r}: expected one of {', '.join(map(repr, get_args(Lane)))}, or None.")
        self.counter = CallCounter()
        made = [Tool(self, number, function) for number, function in enumerate(self._functions)]
        for number, tool in enumerate(made):
            if any(tool.name == other.name for other in made[:number]):
                raise RegistrationError(
                    f"two tools are named {tool.name!r}: rename one, so that a model can tell them apart."
                )
        shipped = [tool.function if tool.lane == "process" else None for tool in made]
        number = self._workers or max(_MIN_WORKERS, default_workers())
        self._executors = {
            used: Executor("tools", used, self._timeout, self.counter, shipped, number)
            for used in dict.fromkeys(tool.lane for tool in made)
        }
        super().__init__(tool.method for tool in made)

    def stats(self) -> dict[str, CallCount]:
        """By tool: calls, how many failed, how many timed out, and the seconds they ran."""
        return self.counter.counts()

    def worker_pids(self) -> list[int]:
        """Process ids of the workers alive."""
        return [pid for executor in self._executors.values() for pid in executor.worker_pids]

    def close(self) -> None:
        """Ends the workers, threads and loops; calls in flight are cancelled."""
        for executor in self._executors.values():
            executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Tools, (self._functions, self._timeout, self._lane, self._workers)

    def lane_of(self, function: Callable[..., Any]) -> Lane:
        """Returns the lane of a function: by default as it is, sync or async, with or without
        state."""
        awaits = is_async(function)
        if self._lane is None:
            return "asyncio" if awaits else "thread" if holds_state(function) else "process"
        if awaits != (self._lane == "asyncio"):
            kind = "async, which runs on an event loop" if awaits else "not async"
            raise RegistrationError(
                f"tool {name_of(function)!r} is {kind}, so it can't run on lane={self._lane!r}: leave lane out, or give "
                "such tools a tools([...]) of their own."
            )
        return cast(Lane, self._lane)


class Tool:
    """One tool; trainers get its proxy, `method`."""

    def __init__(self, owner: Tools, number: int, function: Callable[..., Any]) -> None:
        if isinstance(function, type) or not callable(function):
            raise RegistrationError(f"{function!r} can't be a tool: give a function, a method or a callable object.")
        self.owner = owner
        self.number = number
        self.function = function
        self.name = name_of(function)
        if inspect.isgeneratorfunction(innermost(function)) or inspect.isasyncgenfunction(innermost(function)):
            raise RegistrationError(f"tool {self.name!r} is a generator: have it return its result.")
        if not self.name.isidentifier():
            raise RegistrationError(
                f"a model can't call a tool named {self.name!r}: define it with def under an identifier."
            )
        self.lane = owner.lane_of(function)
        if self.lane == "process":
            _check_serializable(self.name, function)
        asynchronous = self.lane == "asyncio"
        made = make_proxy(function, self.name, Tool.launch, Tool.direct, asynchronous=asynchronous, method=False)
        self.method = types.MethodType(made, self)

    def launch(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PendingCall:
        return self.owner._executors[self.lane].launch(self.name, self.number, self.function, args, kwargs)

    def direct(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # A bound method is pickled as the attribute of its object that has the function's name.
        method: types.MethodType | None = self.__dict__.get("method")
        if method is None or name != self.name:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return method

    def __reduce__(self) -> tuple[Callable[[Tools, int], Any], tuple[Tools, int]]:
        return _tool_at, (self.owner, self.number)


def holds_state(function: Callable[..., Any]) -> bool:
    """Returns whether a call may change what the next call sees: methods of objects, callable
    objects, closures; what a partial wraps counts."""
    inner = innermost(function)
    if isinstance(inner, functools.partial) or not inspect.isroutine(inner):
        return True
    if isinstance(inner, types.FunctionType):
        return inner.__closure__ is not None
    return not isinstance(getattr(inner, "__self__", None), (type, types.ModuleType, type(None)))


def _listed(functions: object) -> tuple[Any, ...]:
    if isinstance(functions, (str, bytes, Mapping)) or not isinstance(functions, Iterable):
        raise RegistrationError(f"tools() takes a list, as in tools([function]), not a {type(functions).__name__}.")
    return tuple(functions)


def _check_serializable(name: str, function: Callable[..., Any]) -> None:
    try:
        check_serializable(reward(WorkerFunctions([function]), name=name, lane="process").spec)
    except SerializationError as error:
        raise SerializationError(str(error).replace("reward function", "tool")) from None


def _tool_at(owner: Tools, number: int) -> Any:
    return owner[number].__self__  # type: ignore[attr-defined]  # tools are bound methods, to mypy just callables
