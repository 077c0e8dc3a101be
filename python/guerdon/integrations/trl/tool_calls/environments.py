"""Environments whose methods run on the engine, each call with its deadline.

- E-1  An instance stays what its factory made; only its class becomes one that derives from its own, of the same name,
       in which ``reset``, ``get_reward`` and the public methods (a trainer's tools) are routed.
- E-2  Sync methods run in threads, async ones on an event loop: an environment is a live object. ``reset`` may be async
       too, although trainers call it as a sync one.
- E-3  A method that calls another one of its own calls it directly.
- E-4  A call that took too long and can't be stopped still has the environment: until it comes back, every further call
       fails at once, and what the environment holds is nobody's reward.
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
from guerdon.integrations.trl.tool_calls.deep_copy import PLAIN, plain_type
from guerdon.integrations.trl.tool_calls.executor import Count, Job, Lane, Runner, Running, Tally
from guerdon.integrations.trl.tool_calls.proxies import shaped
from guerdon.status import Status

__all__ = ["Environments", "environments", "environments_of"]

Factory = Callable[[], object]

_HUB = "__guerdon_environments__"
_WAITS = (
    "Until it is back, that instance fails whatever is asked of it, and a new one stands in its place. Give what it waits "
    "for a time-out of its own."
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
        factory: Makes an environment: its class, or anything that can be called without arguments; or a dict of them by
            name.
        timeout: Seconds that one call of a method may run.
        reset_timeout: The same for ``reset``, and for the copy of an environment that reward functions get. By default
            `timeout`.
        reward_timeout: The same for ``get_reward``. By default `timeout`.

    Returns:
        What to give as ``environment_factory``; for a dict, a dict.

    Raises:
        RegistrationError: Something can't be called, or a time is none.

    Example:
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
    times = {"timeout": timeout, "reset_timeout": reset_timeout, "reward_timeout": reward_timeout}
    if isinstance(factory, Mapping):
        return {name: _routed(one, times) for name, one in factory.items()}
    return _routed(factory, times)


def environments_of(environment: object) -> Environments | None:
    """Who routes an environment; None if it is not routed."""
    return environments_of_kind(type(environment))


def environments_of_kind(kind: type) -> Environments | None:
    """Who routes the environments of a class."""
    hub: Environments | None = getattr(kind, _HUB, None)
    return hub


class Ahead(Protocol):
    """Who has started resets before they are asked for."""

    def reset(self, environment: object, kwargs: Mapping[str, Any]) -> Any: ...


class Environments:
    """What `environments` returns: a factory of routed environments, which share their threads and their loop.

    Attributes:
        ahead: Who answers calls of ``reset``; written by a trainer for the length of a batch.
        tally: The counts of all calls.
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
                f"{factory!r} makes no environments: give a class, or a function without arguments."
            )
        self._factory = factory
        self._timeout = _options.bound("timeout", timeout)
        resetting = _options.seconds("reset_timeout", reset_timeout) or self._timeout
        self._times = {
            RESET: resetting,
            COPY: resetting,
            REWARD: _options.seconds("reward_timeout", reward_timeout) or self._timeout,
        }
        self._given = {"timeout": timeout, "reset_timeout": reset_timeout, "reward_timeout": reward_timeout}
        self.__name__ = name_of(factory)
        self.ahead: Ahead | None = None
        self.tally = Tally()
        self._lock = threading.Lock()
        self._classes: dict[type, type] = {}  # under the lock, as all below
        self._runners: dict[tuple[Lane, float], Runner] = {}
        # Calls whose code has not come back yet. Not the `Running` itself: that is whose who waits for it, and with it the
        # engine's batch, which holds the environment.
        self._open: list[tuple[object, str, Job, weakref.ref[Running]]] = []

    def __call__(self) -> object:
        environment = self._factory()
        kind = type(environment)
        if environments_of(environment) is not None:
            return environment
        with self._lock:
            try:
                if kind not in self._classes:
                    self._classes[kind] = self._class_of(kind)
                object.__setattr__(environment, "__class__", self._classes[kind])
            except TypeError as error:
                raise RegistrationError(
                    f"the environment {kind.__qualname__} can't be routed ({error}). Have the factory give an object of a "
                    "class of your own, which others can derive from."
                ) from error
        return environment

    def stats(self) -> dict[str, Count]:
        """By method: calls, how many failed, how many of these by their time, and the seconds they ran."""
        return self.tally.counts()

    def time_of(self, method: str) -> float:
        """Seconds that a call of this method may run."""
        return self._times.get(method, self._timeout)

    def close(self) -> None:
        """Ends the threads and the loop; calls under way become cancelled."""
        for runner in list(self._runners.values()):
            runner.close()

    def start(
        self, environment: object, method: str, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Running:
        """Starts a call of a method.

        Raises:
            ToolError: The environment is still in a call that took too long (E-4).
        """
        busy = self.busy_in(environment)
        if busy is not None:
            raise ToolError(_still_busy(environment, busy), Status.TIMEOUT)
        lane: Lane = "asyncio" if is_async(function) else "thread"
        bound = types.MethodType(function, environment)
        running = self._runner(lane, self.time_of(method)).launch(method, 0, bound, args, kwargs)
        if running.job is not None:
            with self._lock:
                self._open.append((environment, method, running.job, weakref.ref(running)))
        return running

    def reset(self, environment: object, kwargs: Mapping[str, Any]) -> Running:
        """Starts a reset, whoever was to answer."""
        return self.start(environment, RESET, getattr(plain_type(environment), RESET), (), kwargs)

    def busy_in(self, environment: object) -> str | None:
        """The method in which an abandoned call of this environment still is (E-4); None if there is none."""
        with self._lock:
            self._open = [entry for entry in self._open if not _back(entry[2], entry[3]())]
            for other, method, job, waited in self._open:
                running = waited()
                if other is environment and job.begun and (running is None or running.done):
                    return method
        return None

    def _runner(self, lane: Lane, timeout: float) -> Runner:
        with self._lock:
            runner = self._runners.get((lane, timeout))
            if runner is None:
                told = f"a call of the environment {self.__name__}", _WAITS
                runner = Runner("environment", lane, timeout, self.tally, left_behind=told)
                self._runners[lane, timeout] = runner
        return runner

    def _class_of(self, kind: type) -> type:
        body: dict[str, Any] = {
            "__slots__": (),
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
            PLAIN: kind,
            _HUB: self,
        }
        for name, function in inspect.getmembers(kind, predicate=inspect.isfunction):
            static = isinstance(inspect.getattr_static(kind, name), staticmethod)
            if not static and (name == RESET or not name.startswith("_")):
                body[name] = self._method(name, function)
        return types.new_class(kind.__name__, (kind,), {}, lambda namespace: namespace.update(body))

    def _method(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def launch(environment: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            if name == RESET and self.ahead is not None and not args:
                return self.ahead.reset(environment, kwargs)
            return self.start(environment, name, function, args, kwargs)

        asynchronous = name != RESET and is_async(function)
        return shaped(function, name, launch, function, self.tally, asynchronous=asynchronous, method=True)

    def __reduce__(self) -> tuple[Callable[..., Environments], tuple[Factory, dict[str, float | None]]]:
        return _routed, (self._factory, self._given)


def _back(job: Job, running: Running | None) -> bool:
    """Whether the user's code has come back, or never began and won't any more."""
    return job.over or (not job.begun and (running is None or running.done))


def _routed(factory: Factory, times: Mapping[str, Any]) -> Environments:
    return factory if isinstance(factory, Environments) else Environments(factory, **times)


def _still_busy(environment: object, method: str) -> str:
    kind = plain_type(environment).__qualname__
    return f"{kind}.{method} took too long and can't be stopped: what the environment holds is not known"
