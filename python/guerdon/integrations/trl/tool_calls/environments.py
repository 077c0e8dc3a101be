"""Environments whose methods run on the engine, each call with its timeout.

An instance stays what its factory made; only its class becomes a subclass of the same name in which
``reset``, ``get_reward`` and the public methods (a trainer's tools) are proxies. Sync methods run
in threads, async ones on an event loop; a method that calls another of its own calls it directly.
While an abandoned call still has an environment, every further call of it fails at once.
"""

from __future__ import annotations

import inspect
import threading
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol, overload

from guerdon import _options
from guerdon._registration.callables import is_async, name_of
from guerdon.errors import RegistrationError, ToolError
from guerdon.integrations.trl.tool_calls.deep_copy import USER_CLASS, user_class
from guerdon.integrations.trl.tool_calls.executor import CallCount, CallCounter, Executor, Lane, LocalCall, PendingCall
from guerdon.integrations.trl.tool_calls.proxies import make_proxy
from guerdon.status import Status

__all__ = ["Environments", "environments", "owner_of"]

Factory = Callable[[], object]

_OWNER = "__guerdon_environments__"
_ADVICE = (
    "Until it returns, every call of that instance fails, and a new instance takes its place. Give what it waits for a "
    "timeout of its own."
)
RESET, REWARD, COPY = "reset", "get_reward", "__deepcopy__"


@overload
def environments(
    factory: Mapping[str, Factory],
    *,
    timeout: float = 30.0,
    reset_timeout: float | None = None,
    reward_timeout: float | None = None,
) -> dict[str, Environments]: ...
@overload
def environments(
    factory: Factory,
    *,
    timeout: float = 30.0,
    reset_timeout: float | None = None,
    reward_timeout: float | None = None,
) -> Environments: ...
def environments(
    factory: Factory | Mapping[str, Factory],
    *,
    timeout: float = 30.0,
    reset_timeout: float | None = None,
    reward_timeout: float | None = None,
) -> Environments | dict[str, Environments]:
    """A trainer's ``environment_factory=`` whose environments' methods run on the engine.

    Args:
        factory: Makes an environment: its class, or anything that can be called without arguments;
            or a dict of them by name.
        timeout: Seconds that one call of a method may run.
        reset_timeout: The same for ``reset``, and for the copy of an environment that reward
            functions get. By default `timeout`.
        reward_timeout: The same for ``get_reward``. By default `timeout`.

    Returns:
        What to give as ``environment_factory``; for a dict, a dict.

    Raises:
        RegistrationError: A factory can't be called, or a timeout is not positive and finite.

    Examples:
        >>> from guerdon.integrations.trl import environments
        >>> class Counter:
        ...     def reset(self, **row: object) -> None:
        ...         self.count = 0
        ...
        ...     def add(self, by: int) -> int:
        ...         '''Adds.
        ...
        ...         Args:
        ...             by: How much.
        ...         '''
        ...         self.count += by
        ...         return self.count
        >>> counter = environments(Counter, timeout=5)()
        >>> counter.reset()
        >>> counter.add(by=2), isinstance(counter, Counter)
        (2, True)
    """
    timeouts = {"timeout": timeout, "reset_timeout": reset_timeout, "reward_timeout": reward_timeout}
    if isinstance(factory, Mapping):
        classes = _DerivedClasses()
        return {name: _environments(one, timeouts, classes) for name, one in factory.items()}
    return _environments(factory, timeouts)


def owner_of(environment: object) -> Environments | None:
    """The `Environments` that made an environment; None if none did."""
    return owner_of_class(type(environment))


def owner_of_class(kind: type) -> Environments | None:
    """The `Environments` that made a class of environments; None if none did."""
    owner: Environments | None = getattr(kind, _OWNER, None)
    return owner


class ResetSource(Protocol):
    """Starts resets, possibly before they are asked for."""

    def reset(self, environment: object, kwargs: Mapping[str, Any]) -> Any: ...


class _DerivedClasses(dict[type, type]):
    """The class with proxies of each class of environments. Factories that were given together have
    one: under two names a class stays one class, and has one reward column."""

    def __reduce__(self) -> tuple[type[_DerivedClasses], tuple[()]]:
        return _DerivedClasses, ()


class Environments:
    """What `environments` returns: a factory of environments that share their threads and loop.

    Attributes:
        reset_source: Answers calls of ``reset``; set by a trainer for the length of a batch.
        counter: The counts of all calls.
    """

    def __init__(
        self,
        factory: Factory,
        *,
        timeout: float = 30.0,
        reset_timeout: float | None = None,
        reward_timeout: float | None = None,
    ) -> None:
        if not callable(factory):
            raise RegistrationError(
                f"{factory!r} can't make environments: give a class, or a function without arguments."
            )
        self._factory = factory
        self._timeout = _options.bound("timeout", timeout)
        resetting = _options.seconds("reset_timeout", reset_timeout) or self._timeout
        self._timeouts = {
            RESET: resetting,
            COPY: resetting,
            REWARD: _options.seconds("reward_timeout", reward_timeout) or self._timeout,
        }
        self._given = {"timeout": timeout, "reset_timeout": reset_timeout, "reward_timeout": reward_timeout}
        self.__name__ = name_of(factory)
        self.reset_source: ResetSource | None = None
        self.counter = CallCounter()
        self._lock = threading.Lock()
        self._classes = _DerivedClasses()
        self._executors: dict[tuple[Lane, float], Executor] = {}  # under the lock, as below
        # Calls whose code has not returned. Weak: a `PendingCall` is its waiter's, and holds the
        # engine's batch, which holds the environment.
        self._open: list[tuple[object, str, LocalCall, weakref.ref[PendingCall]]] = []

    def __call__(self) -> object:
        environment = self._factory()
        kind = type(environment)
        if owner_of(environment) is not None:
            return environment
        with self._lock:
            try:
                if kind not in self._classes:
                    self._classes.setdefault(kind, self._class_of(kind))
                object.__setattr__(environment, "__class__", self._classes[kind])
            except TypeError as error:
                raise RegistrationError(
                    f"the methods of the environment {kind.__qualname__} can't run on the engine ({error}). Have the factory "
                    "return an object of a class of your own, which a subclass can derive from."
                ) from error
        return environment

    def stats(self) -> dict[str, CallCount]:
        """By method: calls, how many failed, how many timed out, and the seconds they ran."""
        return self.counter.counts()

    def timeout_of(self, method: str) -> float:
        """Seconds that a call of this method may run."""
        return self._timeouts.get(method, self._timeout)

    def close(self) -> None:
        """Ends the threads and the loop; calls in flight are cancelled."""
        for executor in list(self._executors.values()):
            executor.close()

    def start(
        self, environment: object, method: str, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> PendingCall:
        """Starts a call of a method.

        Raises:
            ToolError: The environment is stuck in a call that timed out.
        """
        stuck = self.stuck_in(environment)
        if stuck is not None:
            raise ToolError(_stuck_message(environment, stuck), Status.TIMEOUT)
        lane: Lane = "asyncio" if is_async(function) else "thread"
        bound = types.MethodType(function, environment)
        pending = self._executor(lane, self.timeout_of(method)).launch(method, 0, bound, args, kwargs)
        if pending.call is not None:
            with self._lock:
                self._open.append((environment, method, pending.call, weakref.ref(pending)))
        return pending

    def reset(self, environment: object, kwargs: Mapping[str, Any]) -> PendingCall:
        """Starts a reset, past any `reset_source`."""
        return self.start(environment, RESET, getattr(user_class(environment), RESET), (), kwargs)

    def stuck_in(self, environment: object) -> str | None:
        """The method in which an abandoned call of this environment still runs; None if there is
        none."""
        with self._lock:
            self._open = [entry for entry in self._open if not _returned(entry[2], entry[3]())]
            for other, method, call, waiting in self._open:
                pending = waiting()
                if other is environment and call.begun and (pending is None or pending.done):
                    return method
        return None

    def _executor(self, lane: Lane, timeout: float) -> Executor:
        with self._lock:
            executor = self._executors.get((lane, timeout))
            if executor is None:
                left_behind = f"a call of the environment {self.__name__}", _ADVICE
                executor = Executor("environment", lane, timeout, self.counter, left_behind=left_behind)
                self._executors[lane, timeout] = executor
        return executor

    def _class_of(self, kind: type) -> type:
        body: dict[str, Any] = {
            "__slots__": (),
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
            USER_CLASS: kind,
            _OWNER: self,
        }
        for name, function in inspect.getmembers(kind, predicate=inspect.isfunction):
            static = isinstance(inspect.getattr_static(kind, name), staticmethod)
            if not static and (name == RESET or not name.startswith("_")):
                body[name] = self._method(name, function)
        return types.new_class(kind.__name__, (kind,), {}, lambda namespace: namespace.update(body))

    def _method(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def launch(environment: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            if name == RESET and self.reset_source is not None and not args:
                return self.reset_source.reset(environment, kwargs)
            return self.start(environment, name, function, args, kwargs)

        asynchronous = name != RESET and is_async(function)
        return make_proxy(function, name, launch, function, self.counter, asynchronous=asynchronous, method=True)

    def __reduce__(
        self,
    ) -> tuple[Callable[..., Environments], tuple[Factory, dict[str, float | None], _DerivedClasses]]:
        return _environments, (self._factory, self._given, self._classes)


def _returned(call: LocalCall, pending: PendingCall | None) -> bool:
    """Whether the user's code has returned, or never started and won't any more."""
    return call.over or (not call.begun and (pending is None or pending.done))


def _environments(
    factory: Factory, timeouts: Mapping[str, Any], classes: _DerivedClasses | None = None
) -> Environments:
    if isinstance(factory, Environments):
        return factory
    made = Environments(factory, **timeouts)
    if classes is not None:
        made._classes = classes
    return made


def _stuck_message(environment: object, method: str) -> str:
    kind = user_class(environment).__qualname__
    return f"the environment is stuck in {kind}.{method}, which timed out and can't be stopped: its state is unknown"
